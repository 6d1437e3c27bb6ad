import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** What the text around a page's fragments lets its reader know. */
const KNOWN: Readonly<Record<string, string>> = {
  'docs/how-to/wait-and-ask.md': `
    import type { AgentReference, Approval, Run, ToolReference } from '@holdfast/sdk';
    import { z } from 'zod';
    declare const run: Run;
    declare const input: { readonly order: string; readonly amount: number };
    declare const approval: Approval<{ order: string; amount: number }>;
    declare const refund: ToolReference<z.ZodObject<{ order: z.ZodString; amount: z.ZodNumber }>, z.ZodObject<{ id: z.ZodString }>>;
    declare const askScanner: ToolReference<z.ZodObject<{ parcel: z.ZodString; answerTo: z.ZodURL }>, z.ZodNull>;
    declare const auditor: AgentReference<z.ZodObject<{ order: z.ZodString }>, z.ZodString>;
    declare function twoSteps(run: Run): Promise<string>;`,
  'docs/test-your-agents.md': `
    import { expect } from '@jest/globals';
    import { crashEverywhere, type Setup, type Surroundings } from '@holdfast/testing';
    declare const scenario: (surroundings: Surroundings) => Setup;`,
  'docs/testing.md': `
    import { expect } from '@jest/globals';
    import type { AgentDefinition, ToolDefinition } from '@holdfast/sdk';
    declare const agent: AgentDefinition;
    declare const tools: readonly ToolDefinition[];`,
};

/** Every piece of TypeScript in README and docs (references are signatures): what begins with its imports stands by itself, of the others the page has said more. */
const examples = readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md') && !file.startsWith('reference/'))
  .map((file) => `docs/${file}`)
  .concat('README.md')
  .flatMap((page) => [...readFileSync(path.join(ROOT, page), 'utf8').matchAll(/^```ts[^\n]*\n(.*?)^```/gms)].map(([, code = ''], index) => ({ name: `${page.replaceAll(/\W+/g, '-')}-${index + 1}.ts`, code: withWhatIsKnown(page, code) })));

function withWhatIsKnown(page: string, code: string): string {
  if (code.startsWith('import ')) return code;
  // In a block of its own it may name anew what is known.
  return `${KNOWN[page] ?? ''}\n${/^import /m.test(code) ? code : `{\n${code}}\nexport {};\n`}`;
}

const wrong = { name: 'wrong-on-purpose.ts', code: "import { defineTool } from '@holdfast/sdk';\nexport const tool = defineTool(7);\n" };

/** A user's folder, which knows the packages and nothing of how this repository builds them. */
let folder: string;

beforeAll(async () => {
  if (!existsSync(path.join(ROOT, 'libs/sdk/types/index.d.ts'))) throw new Error('libs/sdk/types/index.d.ts is missing: run npm run build first.');
  folder = await mkdtemp(path.join(tmpdir(), 'hf-user-'));
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
  await mkdir(path.join(folder, 'src'));
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }');
  for (const { name, code } of [...examples, wrong]) await writeFile(path.join(folder, 'src', name), code);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

test('the TypeScript of README and docs compiles for a user, by the types that the packages bring', () => {
  expect(examples.length).toBeGreaterThan(10);
  const files = [...examples, wrong].map(({ name }) => `src/${name}`);
  const { stdout, error } = spawnSync(process.execPath, [path.join(ROOT, 'node_modules/typescript-native/bin/tsc'), '--strict', '--module', 'nodenext', '--noEmit', '--listFiles', ...files], { cwd: folder, encoding: 'utf8', maxBuffer: 16 * 1024 * 1024 });
  expect(error).toBeUndefined();
  const lines = stdout.split('\n');
  // Libraries' own declarations are checked as well: a user need not leave them out.
  expect(lines.filter((line) => /error TS/.test(line))).toEqual([expect.stringMatching(/^src\/wrong-on-purpose\.ts\(2,/)]);
  const read = lines.filter((line) => path.isAbsolute(line)).map((line) => path.relative(ROOT, line));
  expect(read).toContain('libs/sdk/types/index.d.ts');
  expect(read).toContain('libs/testing/types/index.d.ts');
  // What a service or the way to Kafka is made of is no part of what users see.
  expect(read.filter((file) => /^(services|libs\/(runtime|kernel)|libs\/\w+\/src|node_modules\/(typeorm|kafkajs))\//.test(file))).toEqual([]);
});
