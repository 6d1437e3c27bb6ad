import type { Command } from 'commander';
import { CliError } from '../failure.js';
import { audited, withGatewayDatabase } from '../gateway.js';
import { print, progress } from '../print.js';
import { findStack } from '../stack-file.js';

const LOOK_MS = 250;
/** A gateway that runs takes up the work within moments. Milliseconds. */
const BEGUN_WITHIN_MS = 15_000;

export function addGateway(program: Command): void {
  const gateway = program.command('gateway').description('the gateway’s read models');
  gateway
    .command('rebuild')
    .description('make the read models anew from the beginning of the topics, beside those that are shown; they take their place when they have come as far')
    .option('--json', 'print JSON')
    .action(async ({ json }: { json?: boolean }) => {
      const stack = await findStack('.');
      await audited(stack.brokers, 'views.rebuild', 'default', 'read models');
      const generation = await withGatewayDatabase(stack, async (database, { beginRebuild, generationsOf }) => {
        const id = await beginRebuild(database);
        progress(`generation ${id} is being made; the gateway goes on serving the one before`);
        const begunBy = Date.now() + BEGUN_WITHIN_MS;
        for (;;) {
          const found = (await generationsOf(database)).find((each) => each.id === id);
          if (found?.state !== 'building') return id;
          const [read] = (await database.query(`select count(*)::int as n from view_${id}.position`)) as { n: number }[];
          if (read?.n === 0 && Date.now() > begunBy) throw new CliError('no gateway makes it: start one with `holdfast up`; it goes on where this left off');
          await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
        }
      });
      print(json === true, { generation }, () => `generation ${generation} is shown from now on`);
    });
}
