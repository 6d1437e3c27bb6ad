import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from './eventually.js';

export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const STOP_WITHIN_MS = 30_000;
/** The last characters of what a command said, in an error. */
const SHOWN = 2000;

interface Block {
  readonly language: string;
  /** What follows the language: a file's name, or how a command is run. */
  readonly word: string;
  readonly text: string;
}

export interface PageOptions {
  readonly page: string;
  readonly dir: string;
  readonly env: (code: string) => NodeJS.ProcessEnv;
  /** Ports and the like, which have to be others here. */
  readonly replace?: Readonly<Record<string, string>>;
}

/**
 * Works through a page of the docs as a reader does: files are written (```js NAME, ```ts NAME), commands run in their order (```sh), some in
 * a terminal of their own that stays (`background`), some again and again until they say what stands below (`until`). A ```text
 * block is what the command before it says: of each line, the words in their order.
 */
export class Page {
  readonly #running: { readonly child: ChildProcess; output: string }[] = [];
  readonly #ran: string[] = [];
  #dir: string;

  constructor(private readonly options: PageOptions) {
    this.#dir = options.dir;
  }

  /** The commands that were run. */
  get ran(): readonly string[] {
    return this.#ran;
  }

  async follow(): Promise<void> {
    let text = await readFile(path.join(ROOT, this.options.page), 'utf8');
    for (const [from, to] of Object.entries(this.options.replace ?? {})) text = text.replaceAll(from, to);
    const blocks = [...text.matchAll(/^```(\w+)(?: ([^\n]*))?\n(.*?)^```/gms)].map(([, language = '', word = '', code = '']): Block => ({ language, word, text: code }));
    for (const [index, block] of blocks.entries()) {
      const next = blocks[index + 1];
      if (['js', 'ts'].includes(block.language) && block.word !== '') await writeFile(path.join(this.#dir, block.word), block.text);
      if (block.language === 'sh' && block.word !== 'skip') await this.#run(block, next?.language === 'text' ? next.text : '');
    }
  }

  /** Stops what still runs, the newest first. */
  async close(): Promise<void> {
    for (const { child } of this.#running.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, 'close');
      signalGroup(child, 'SIGINT');
      const late = setTimeout(() => signalGroup(child, 'SIGKILL'), STOP_WITHIN_MS);
      await ended;
      clearTimeout(late);
    }
  }

  async #run({ word, text }: Block, expected: string): Promise<void> {
    this.#ran.push(text.trim());
    if (word === 'background') {
      const started = { child: this.#spawn(text), output: '' };
      this.#running.push(started);
      collect(started.child, (chunk) => (started.output += chunk));
      await eventually(() => `\`${text.trim()}\` says ${expected.trim()}; it said: ${started.output.slice(-SHOWN)}`, () => {
        if (started.child.exitCode !== null) throw new Error(`\`${text.trim()}\` ended: ${started.output.slice(-SHOWN)}`);
        return says(started.output, expected);
      });
      return;
    }
    let last = '';
    const once = async (): Promise<boolean> => {
      const { code, output } = await this.#finish(text);
      last = `exit code ${String(code)}: ${output.slice(-SHOWN)}`;
      return code === 0 && says(output, expected);
    };
    if (word === 'until') await eventually(() => `\`${text.trim()}\` says ${expected.trim()}; it ended with ${last}`, once);
    else if (!(await once())) throw new Error(`\`${text.trim()}\` should end well${expected === '' ? '' : ` and say ${expected.trim()}`}; it ended with ${last}`);
  }

  /** Where the commands left the shell, the next ones begin. */
  async #finish(code: string): Promise<{ code: number | null; output: string }> {
    const mark = `pwd-of-${process.pid}:`;
    const child = this.#spawn(`trap 'echo "${mark}$PWD"' EXIT\n${code}`);
    let output = '';
    collect(child, (chunk) => (output += chunk));
    const [exit] = (await once(child, 'close')) as [number | null];
    const [, dir] = new RegExp(`^${mark}(.*)$`, 'm').exec(output) ?? [];
    if (dir !== undefined) this.#dir = dir;
    return { code: exit, output: output.replace(new RegExp(`^${mark}.*$`, 'm'), '') };
  }

  #spawn(code: string): ChildProcess {
    return spawn('bash', ['-e', '-c', code], { cwd: this.#dir, env: { ...process.env, ...this.options.env(code) }, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  }
}

function collect(child: ChildProcess, onText: (text: string) => void): void {
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => onText(chunk.toString()));
}

/** A terminal's Ctrl-C reaches the whole group. */
function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // Gone already.
  }
}

export const says = (output: string, expected: string): boolean =>
  expected
    .trim()
    .split('\n')
    .every((line) => new RegExp(line.trim().split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.*')).test(output));
