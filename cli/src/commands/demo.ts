import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { CliError } from '../failure.js';

const DEMO = fileURLToPath(new URL('../../../examples/dist/demo.js', import.meta.url));

export function addDemo(program: Command): void {
  program
    .command('demo')
    .description('run an example on a stack of its own, which is gone afterwards; --help says which there are')
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .argument('[options...]')
    .action(async (words: string[]) => {
      if (!existsSync(DEMO)) throw new CliError('the examples are not here: run `npm run demo` in a clone of Holdfast');
      const child = spawn(process.execPath, [DEMO, ...words], { stdio: 'inherit' });
      // A terminal's Ctrl-C reaches the whole group: the demo cleans up, and its end is ours.
      const pass = (signal: NodeJS.Signals): void => void (process.stdin.isTTY === true && signal === 'SIGINT' ? undefined : child.kill(signal));
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, pass);
      process.exitCode = await new Promise<number>((resolve, reject) => child.once('error', reject).once('close', (code) => resolve(code ?? 1)));
    });
}
