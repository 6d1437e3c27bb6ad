import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Stack } from '@holdfast/deploy';
import type pg from 'pg';
import { z } from 'zod';

const run = promisify(execFile);
const CLI = fileURLToPath(new URL('../../../cli/bin/holdfast.mjs', import.meta.url));
/** How often the person looks at the list, milliseconds. */
const LOOK_EVERY_MS = 1000;

const Listed = z.object({ cases: z.array(z.object({ case: z.string(), operationKey: z.string(), readingFrom: z.iso.datetime().nullable() })) });

/**
 * Plays the person that decides cases, with nothing but the command line and a look into the world:
 * where the row is, the effect was applied; where it is not, and the time has come from which that is
 * final, it was not.
 */
export async function personDecides({ stack, world, say, stopped }: { stack: Stack; world: pg.Pool; say: (text: string) => void; stopped: () => boolean }): Promise<void> {
  const holdfast = (...args: string[]): Promise<string> =>
    run(process.execPath, [CLI, ...args], { env: { ...process.env, HOLDFAST_BROKERS: stack.brokers.join(','), HOLDFAST_DATABASE_URL: stack.databaseUrl, HOLDFAST_OPERATOR: 'the demo’s person' } }).then(({ stdout }) => stdout);
  while (!stopped()) {
    try {
      const { cases } = Listed.parse(JSON.parse(await holdfast('cases', 'list', '--json')));
      for (const each of cases) {
        if (stopped()) return;
        const { rows } = await world.query<{ id: string }>('select id::text from effects where operation_key = $1 order by id limit 1', [each.operationKey]);
        const row = rows[0]?.id;
        if (row === undefined && (each.readingFrom === null || Date.now() < Date.parse(each.readingFrom))) continue;
        const found = row === undefined ? ['--not-applied', '--evidence', 'no row has its operation key'] : ['--applied', JSON.stringify({ ok: true, row }), '--evidence', `row ${row}`];
        await holdfast('cases', 'resolve', each.case, ...found, '--reason', 'looked in the world');
        say(`a person has decided ${each.case}: ${row === undefined ? 'not applied' : 'applied'}`);
      }
    } catch (error) {
      // A service that is being killed may not answer; the list is looked at again.
      say(`the person could not decide: ${(error instanceof Error ? error.message : String(error)).split('\n').slice(0, 2).join(' ')}`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}
