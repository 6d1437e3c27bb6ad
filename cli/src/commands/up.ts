import { access, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Command } from 'commander';
import { portsFrom, startHoldfast } from '@holdfast/deploy';
import { CliError } from '../failure.js';
import { developmentKey, webhookKey } from '../gateway.js';
import { print, progress } from '../print.js';
import { findStack, removeStackFile, STATE_DIR, writeStackFile } from '../stack-file.js';
import { whole } from '../whole.js';

export function addUp(program: Command): void {
  program
    .command('up')
    .description('start the local stack in the foreground; Ctrl-C stops it, its state is kept')
    .option('--dir <folder>', 'folder whose .holdfast/ holds the state', '.')
    .option('--partitions <n>', 'lanes; fixed once the stack has been started', '4')
    .option('--rebuild', 'make journals that are behind the topics from the topics first')
    .option('--json', 'print one JSON document when ready')
    .action(async ({ dir, partitions, rebuild, json }: { dir: string; partitions: string; rebuild?: boolean; json?: boolean }) => {
      await up(dir, whole(partitions, '--partitions', 1000), rebuild === true, json === true);
    });
  program
    .command('reset')
    .description('remove the local stack’s state: topics, databases, artifacts')
    .option('--dir <folder>', 'folder whose .holdfast/ holds the state', '.')
    .action(async ({ dir }: { dir: string }) => {
      const running = await findStack(dir).then(() => true, () => false);
      if (running && process.env['HOLDFAST_BROKERS'] === undefined) throw new CliError('the stack of this folder is running: stop `holdfast up` first');
      const state = path.join(dir, STATE_DIR);
      const there = await access(state).then(() => true, () => false);
      await rm(state, { recursive: true, force: true });
      progress(there ? `removed ${state}` : `there is no ${state}: nothing to remove`);
    });
}

async function up(dir: string, partitions: number, rebuild: boolean, json: boolean): Promise<void> {
  const stopped = new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
  });
  const ports = portsFrom(process.env);
  const gateway = process.env['HOLDFAST_GATEWAY'] === 'off' ? undefined : { HOLDFAST_WEBHOOK_KEY: process.env['HOLDFAST_WEBHOOK_KEY'] ?? (await webhookKey(dir)) };
  const stack = await startHoldfast({ dir: path.join(dir, STATE_DIR), partitions, ports, restart: true, log: progress, gateway, env: rebuild ? { HOLDFAST_REBUILD: 'auto' } : {} });
  try {
    const url = `http://127.0.0.1:${ports.gateway}`;
    await writeStackFile(dir, { brokers: stack.brokers, databaseUrl: stack.databaseUrl, artifacts: path.resolve(dir, STATE_DIR, 'artifacts'), ...(gateway === undefined ? {} : { gateway: url }) });
    const served = gateway === undefined ? null : { url, key: await developmentKey(dir, stack) };
    const value = { brokers: stack.brokers, databaseUrl: stack.databaseUrl, services: stack.services.map(({ name }) => name), gateway: served };
    print(json, value, () =>
      [
        'Holdfast is up.',
        `  Kafka       ${stack.brokers.join(',')}   (HOLDFAST_BROKERS)`,
        `  PostgreSQL  ${stack.databaseUrl}   (HOLDFAST_DATABASE_URL)`,
        `  services    ${value.services.join(', ')}`,
        ...(served === null ? [] : [`  gateway     ${served.url}   (HOLDFAST_HTTP_PORT; HOLDFAST_GATEWAY=off leaves it out)`, `  key         ${served.key}   (for development: admin of tenant default)`]),
        'One broker: it survives killed processes, not a power cut. Ctrl-C stops it.',
      ].join('\n'),
    );
    await stopped;
    progress('stopping …');
  } finally {
    await removeStackFile(dir);
    await stack.stop();
  }
}
