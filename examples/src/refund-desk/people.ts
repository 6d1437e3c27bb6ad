import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Stack } from '@holdfast/deploy';
import { z } from 'zod';

const execute = promisify(execFile);
const CLI = fileURLToPath(new URL('../../../cli/bin/holdfast.mjs', import.meta.url));
const LOOK_EVERY_MS = 200;

const Listed = z.object({ runs: z.array(z.object({ run: z.string(), waits: z.array(z.string()) })) });

/** Plays the people of the desk, with nothing but the command line. */
export class People {
  constructor(
    private readonly stack: Stack,
    private readonly say: (text: string) => void,
  ) {}

  /** The step at which a run asks for an approval, once it does. */
  async asked(run: string): Promise<string> {
    for (;;) {
      const { runs } = Listed.parse(JSON.parse(await this.#holdfast('runs', 'list', '--approver', 'finance', '--json')));
      const step = runs.find((each) => each.run === run)?.waits.map((wait) => /^(\S+): approval/.exec(wait)?.[1]).find((found) => found !== undefined);
      if (step !== undefined) return step;
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  }

  async decides(run: string, ...[decision, feedback]: ['approve'] | ['reject', string]): Promise<void> {
    const step = await this.asked(run);
    await this.#holdfast('runs', decision, run, step, '--as', 'kate', '--role', 'finance', ...(feedback === undefined ? [] : ['--feedback', feedback]));
    this.say(`kate: ${decision} ${run}${feedback === undefined ? '' : `, "${feedback}"`}`);
  }

  async cancels(run: string, reason: string): Promise<void> {
    await this.#holdfast('runs', 'cancel', run, '--reason', reason, '--as', 'ann', '--role', 'operator');
    this.say(`ann: cancel ${run}, "${reason}"`);
  }

  async #holdfast(...args: string[]): Promise<string> {
    const { stdout } = await execute(process.execPath, [CLI, ...args], { env: { ...process.env, HOLDFAST_BROKERS: this.stack.brokers.join(','), HOLDFAST_DATABASE_URL: this.stack.databaseUrl } });
    return stdout;
  }
}
