import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** TypeScript of the docs that stands by itself: it begins with its imports. */
const blocks = readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .concat('../README.md')
  .flatMap((file) => [...readFileSync(path.join(ROOT, 'docs', file), 'utf8').matchAll(/^```ts\n(import .*?)^```/gms)].map(([, code = ''], index) => ({ name: `${file.replaceAll(/\W+/g, '-')}-${index + 1}.ts`, code })));

/** What the compiler says of files beside the tests, which are nowhere. */
function problemsOf(files: readonly { readonly name: string; readonly code: string }[]): string[] {
  const { config } = ts.readConfigFile(path.join(ROOT, 'tsconfig.json'), (file) => ts.sys.readFile(file));
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, ROOT);
  const texts = new Map(files.map(({ name, code }) => [path.join(ROOT, 'tests/src', name), code]));
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.fileExists = (file) => texts.has(file) || fileExists.call(host, file);
  host.readFile = (file) => texts.get(file) ?? readFile.call(host, file);
  host.getSourceFile = (file, ...rest) => {
    const text = texts.get(file);
    return text === undefined ? getSourceFile.call(host, file, ...rest) : ts.createSourceFile(file, text, rest[0], true);
  };
  const program = ts.createProgram([...texts.keys()], { ...options, noEmit: true, skipLibCheck: true, noUnusedLocals: false }, host);
  return [...texts.keys()].flatMap((file) => {
    const source = program.getSourceFile(file);
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(({ messageText, start }) => `${path.basename(file)}:${source === undefined || start === undefined ? '' : source.getLineAndCharacterOfPosition(start).line + 1}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`);
  });
}

test('the code of README and docs compiles', () => {
  expect(blocks.length).toBeGreaterThan(3);
  const wrong = { name: 'wrong-on-purpose.ts', code: "import { defineTool } from '@holdfast/sdk';\nexport const tool = defineTool(7);\n" };
  expect(problemsOf([...blocks, wrong])).toEqual([expect.stringMatching(/^wrong-on-purpose\.ts:2: /)]);
});
