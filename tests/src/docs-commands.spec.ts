import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeProgram } from '@holdfast/cli';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const WHOLE = /^(?:npx )?holdfast(?: |$)/;

/** Every command of README and docs: lines of code blocks, and words in the text; `…` stands for anything, `a|b` for either. */
const commands = readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md') && !file.startsWith('reference/') && !file.startsWith('adr/'))
  .concat('../README.md')
  .flatMap((file) => {
    const text = readFileSync(path.join(ROOT, 'docs', file), 'utf8');
    const blocks = [...text.matchAll(/^```sh[^\n]*\n(.*?)^```/gms)].flatMap(([, code = '']) => code.split('\n'));
    const inline = [...text.replaceAll(/^```.*?^```/gms, '').matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
    return [...blocks, ...inline].map((line) => line.replace(/\s+#.*$/, '').trim()).filter((line) => WHOLE.test(line)).map((line) => ({ file, line }));
  });

/** A shell's words: quotes hold them together. */
const wordsOf = (line: string): string[] => [...line.replace(WHOLE, '').matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g)].map(([word]) => word.replaceAll(/['"]/g, '').replaceAll('\\|', '|'));

type Command = ReturnType<typeof makeProgram>;

/** The program, whose commands take their words and do nothing. */
function idle(): Command {
  const still = (command: Command): Command => {
    command.exitOverride().configureOutput({ writeErr: () => undefined, writeOut: () => undefined });
    if (command.commands.length === 0) command.action(() => undefined);
    command.commands.forEach(still);
    return command;
  };
  return still(makeProgram());
}

/** What is wrong with the words of a command; null where it could be run. Words that are commands alone (`holdfast runs approve`) only name one. */
async function problemOf(line: string): Promise<string | null> {
  const words = wordsOf(line);
  const last = words.reduce<Command | undefined>((command, word) => command?.commands.find((each) => each.name() === word), idle());
  if (last !== undefined) return null;
  return idle().parseAsync(words, { from: 'user' }).then(() => null, (error: unknown) => (error instanceof Error ? error.message : String(error)));
}

test('every command that the docs name is one, with options that it has', async () => {
  expect(commands.length).toBeGreaterThan(40);
  const problems = [];
  for (const { file, line } of commands) {
    const problem = await problemOf(line);
    if (problem !== null) problems.push(`${file}: ${line}: ${problem}`);
  }
  expect(problems).toEqual([]);
});

test.each([
  ['holdfast runs lst', /unknown command/],
  ['holdfast runs list --colour red', /unknown option/],
  ['holdfast runs cancel RUN', /required option/],
  ['holdfast runs show --json', /missing required argument/],
])('%s is none', async (line, problem) => {
  expect(await problemOf(line)).toMatch(problem);
});
