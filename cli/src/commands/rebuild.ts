import type { Command } from 'commander';
import { SERVICES, type ServiceName } from '@holdfast/deploy';
import { CliError } from '../failure.js';
import { print, progress } from '../print.js';
import { rebuildService, type RebuildReport } from '../rebuild.js';
import { findStack } from '../stack-file.js';

export function addRebuild(program: Command): void {
  program
    .command('rebuild [service]')
    .description('make the journal of a service (or of all) from the topics: after its database was lost, or restored from an older copy. Stop its instances first; may be stopped and begun again')
    .option('--skip-missing', 'go on where messages are gone that had not been decided on; they are listed')
    .option('--json', 'print JSON')
    .action(async (name: string | undefined, { skipMissing, json }: { skipMissing?: boolean; json?: boolean }) => {
      const services = name === undefined ? SERVICES : [named(name)];
      const { brokers, databaseUrl } = await findStack('.');
      const interrupted = new AbortController();
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupted.abort());
      const reports: RebuildReport[] = [];
      for (const service of services) {
        reports.push(await rebuildService(service, { brokers, databaseUrl, skipMissing: skipMissing === true, onProgress: progress, signal: interrupted.signal }));
      }
      print(json === true, reports, () => reports.map(people).join('\n'));
    });
}

function named(name: string): ServiceName {
  const found = SERVICES.find((service) => service === name);
  if (found === undefined) throw new CliError(`no service ${name} has a journal; there are ${SERVICES.join(', ')}`);
  return found;
}

function people({ service, added, known, streams, open, foreign, recovered, republished, missing }: RebuildReport): string {
  return [
    `${service}: ${streams} streams, ${open} of them open; ${added} events taken from the topic, ${known} were there. It may start now.`,
    ...(recovered > 0 ? [`  ${recovered} messages were found sent whose decision was on no topic; they are recorded and not sent again`] : []),
    ...(republished > 0 ? [`  ${republished} events that the topic had lost were published again`] : []),
    ...(foreign > 0 ? [`  ${foreign} records that no service wrote were left out; see \`holdfast audit verify\``] : []),
    ...missing.map(({ topic, lane, from, to }) => `  left out: ${topic}/${lane} offsets ${from} to ${to - 1}, which are gone and were not decided on`),
  ].join('\n');
}
