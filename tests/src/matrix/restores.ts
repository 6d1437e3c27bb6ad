import { rebuildService } from '@holdfast/cli';
import { createDatabase } from '@holdfast/deploy';
import { entryOf, SERVICES, type ServiceName } from '../support/stack.js';
import type { Ground, RunPlan } from './ground.js';
import { loadOf, ofService, prefixOf, underLoad, type Case, type Disturbed } from './load.js';

/** An attempt that a lost journal had sent is not sent again: its own deadline ends it. */
const WITHIN_MS = 240_000;
const COPY = 'matrix_copy';

const admin = (ground: Ground, statement: string): Promise<unknown> => ground.stack.pool('postgres').query(statement);
const dropped = (ground: Ground, service: ServiceName): Promise<unknown> => admin(ground, `drop database holdfast_${service} with (force)`);

/** What a person does when a journal is lost or old: one command, and the service is started. */
async function rebuilt(ground: Ground, service: ServiceName): Promise<Disturbed> {
  const { brokers, stack } = ground.stack;
  await rebuildService(service, { brokers, databaseUrl: stack.databaseUrl, skipMissing: false, entry: entryOf(service) });
  await ground.stack.service(service).start();
  return { since: Date.now(), manualActs: 1 };
}

const plansFor = (kind: string, service: ServiceName): RunPlan[] => loadOf(`${kind}-${service}`, ofService(service));

const lost = (service: ServiceName): Case => ({
  name: `database of the ${service} dropped and rebuilt`,
  run: (ground, name) =>
    underLoad(ground, name, plansFor('dropped', service), async () => {
      await ground.stack.service(service).kill();
      await dropped(ground, service);
      await createDatabase(ground.stack.stack.databaseUrl, `holdfast_${service}`);
      return rebuilt(ground, service);
    }, { withinMs: WITHIN_MS }),
});

/** As a dump that is older than much of what was decided since: its age is counted in effects. */
const old = (service: ServiceName): Case => ({
  name: `old dump of the ${service} restored`,
  run: (ground, name) => {
    const plans = plansFor('dump', service);
    const steps = plans.reduce((sum, plan) => sum + plan.steps, 0);
    return underLoad(ground, name, plans, async () => {
      const process = ground.stack.service(service);
      await process.stop();
      await admin(ground, `drop database if exists ${COPY} with (force)`);
      // A template must have no other user.
      await admin(ground, `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'holdfast_${service}'`);
      await admin(ground, `create database ${COPY} template holdfast_${service}`);
      await process.start();
      await ground.until('more is done', () => ground.fired(prefixOf(plans)) >= steps * 0.6);
      await process.kill();
      await dropped(ground, service);
      await admin(ground, `create database holdfast_${service} template ${COPY}`);
      return rebuilt(ground, service);
    }, { withinMs: WITHIN_MS });
  },
});

export const RESTORES: readonly Case[] = [...SERVICES.map(lost), ...SERVICES.map(old)];
