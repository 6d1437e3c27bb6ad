import { rebuildService } from '@holdfast/cli';
import { createDatabase, type ManagedProcess } from '@holdfast/deploy';
import { entryOf, SERVICES, type ServiceName } from '../support/stack.js';
import type { Ground, RunPlan } from './ground.js';
import { CLOCK, loadOf, ofService, prefixOf, underLoad, type Case, type Disturbed } from './load.js';

/** An attempt that a lost journal had sent is not sent again: its own deadline ends it. */
const WITHIN_MS = 240_000;
const COPY = 'matrix_copy';

const admin = (ground: Ground, statement: string): Promise<unknown> => ground.stack.pool('postgres').query(statement);
const dropped = (ground: Ground, service: ServiceName): Promise<unknown> => admin(ground, `drop database holdfast_${service} with (force)`);

/** What a person does when a journal is lost or old: one command, and the service is started. */
async function rebuilt(ground: Ground, service: ServiceName): Promise<Disturbed> {
  const { brokers, stack } = ground.stack;
  await rebuildService(service, { brokers, databaseUrl: stack.databaseUrl, skipMissing: false, entry: entryOf(service) });
  await ground.stack.service(service).start({ [CLOCK]: undefined });
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

const HOUR_MS = 60 * 60_000;
/** Runs that sleep when the dump is taken, and should have woken up since. */
const SLEEPERS = 800;
const NAP_MS = 30 * 60_000;
/** What the loop takes of timers whose time was missed in a second, and what it may have saved up: as much once more, and a portion. */
const OVERDUE_PER_SECOND_MAX = 200 + 200 + 10;

/** All that is given goes on with its clock so far off. */
const setClocks = (processes: readonly ManagedProcess[], offsetMs: number | null): Promise<unknown> => Promise.all(processes.map((process) => process.restart({ [CLOCK]: offsetMs === null ? undefined : String(offsetMs) })));

/**
 * By every clock the dump is an hour old when it is put back: all that was under way is late, and timers of half an hour
 * ago are due at once. Those of the orchestrator's are many, and come at a pace that leaves room.
 */
const old = (service: ServiceName): Case => ({
  name: `hour-old dump of the ${service} restored`,
  run: async (ground, name) => {
    const process = ground.stack.service(service);
    const others = ground.processes.filter((each) => each !== process);
    const plans = plansFor('dump', service);
    const sleepers = service === 'orchestrator' ? loadOf('asleep', { steps: 0, nap: NAP_MS }, SLEEPERS) : [];
    const steps = plans.reduce((sum, plan) => sum + plan.steps, 0);
    await setClocks(ground.processes, -HOUR_MS);
    try {
      return await underLoad(ground, name, plans, async () => {
        await asleep(ground, sleepers);
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
        await setClocks(others, null);
        const disturbed = await rebuilt(ground, service);
        return { ...disturbed, faults: await awoken(ground, sleepers) };
      }, { withinMs: WITHIN_MS, mayExpire: true });
    } catch (error) {
      // What went wrong first is what counts.
      await setClocks(ground.processes, null).catch((another: unknown) => ground.options.say(`clocks could not be put right: ${String(another)}`));
      throw error;
    }
  },
});

async function asleep(ground: Ground, sleepers: readonly RunPlan[]): Promise<void> {
  await ground.begin(sleepers);
  await ground.until('all of them sleep', () => told(ground, sleepers, 'WaitStarted').length === sleepers.length, WITHIN_MS);
}

/** When the runs have told of it, epoch milliseconds, in order. */
function told({ stack }: Ground, plans: readonly RunPlan[], type: string): readonly number[] {
  const runs = new Set(plans.map(({ run }) => run));
  return stack.seen.flatMap(({ envelope }) => (envelope.type === type && runs.has(envelope.subject) ? [envelope.time] : [])).sort((a, b) => a - b);
}

/** Each wakes up and ends, and not all at once. */
async function awoken(ground: Ground, sleepers: readonly RunPlan[]): Promise<string[]> {
  if (sleepers.length === 0) return [];
  const ended = await ground.until('all of them have ended', () => ground.allEnded(sleepers), WITHIN_MS).catch((error: unknown) => {
    if (ground.options.signal.aborted) throw error;
    return false;
  });
  const times = told(ground, sleepers, 'WaitEnded');
  const most = Math.max(...times.map((time, n) => times.findLastIndex((other) => other < time + 1000) - n + 1));
  return [
    ...(ended ? [] : [`${sleepers.filter((plan) => !ground.hasEnded(plan)).length} of ${sleepers.length} that slept have no end`]),
    ...(times.length === sleepers.length ? [] : [`${sleepers.length} slept, and ${times.length} woke up`]),
    ...(most <= OVERDUE_PER_SECOND_MAX ? [] : [`${most} timers that were missed were taken within a second, of at most ${OVERDUE_PER_SECOND_MAX}`]),
  ];
}

export const RESTORES: readonly Case[] = [...SERVICES.map(lost), ...SERVICES.map(old)];
