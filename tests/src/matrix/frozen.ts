import { setTimeout as pause } from 'node:timers/promises';
import { topics } from '@holdfast/protocol';
import type { ServiceName } from '../support/stack.js';
import { SERVICES } from '../support/stack.js';
import type { Ground } from './ground.js';
import { loadOf, ofService, underLoad, type Case } from './load.js';
import type { Arrival } from './sink.js';

const FROZEN_RUNS = 12;

const holderOf = (ground: Ground, lane: number): string => String(ground.stack.events(`~lane/default/${lane}`).at(-1)?.data['worker'] ?? '');

/**
 * All first calls of the runs have reached the world and get no answer. Frozen there for longer than
 * its session the worker loses its lanes; thawed, it gets its answers and would go on.
 */
const worker: Case = {
  name: 'worker frozen for longer than its session',
  run: async (ground, name) => {
    const gate = `frozen-${Date.now()}`;
    const plans = loadOf('frozen', { ms: 0, gate, steps: 2 }, FROZEN_RUNS);
    const zombie = ground.worker;
    const heirs: { kill(signal: 'SIGTERM'): Promise<unknown> }[] = [];
    try {
      return await underLoad(ground, name, plans, async () => {
        // Each of them, and not so many in number: a call that was checked and is not sent yet would go out on the thaw.
        await ground.until('every first call has reached the world', () => plans.every(({ run }) => ground.sink.arrivals.some((arrival) => arrival.run === run)));
        const frozenAt = Date.now();
        const id = holderOf(ground, 0);
        zombie.signal('SIGSTOP');
        heirs.push(await ground.startWorker('heir'));
        await ground.until('the other has taken every lane', () => ground.stack.lanes.every((lane) => holderOf(ground, lane).startsWith('heir.')));
        const since = Date.now();
        zombie.signal('SIGCONT');
        ground.sink.openGate(gate);
        await ground.until('the runs end', () => ground.allEnded(plans), 120_000).catch(() => undefined);
        // Whatever it was given before is nothing to it now; what it is given once it has joined again is its own.
        const late = ground.sink.arrivals.filter((arrival) => arrival.at >= since && arrival.worker === `matrix/${zombie.pid ?? ''}` && plans.some(({ run }) => run === arrival.run) && isOldRight(ground, arrival, frozenAt, () => tookAgain(ground, id, since)));
        return { since, faults: late.map(({ run, step, attempt }) => `the thawed worker fired ${run}/${step}/${attempt} by an old right`) };
      }, { share: 0.5 });
    } finally {
      zombie.signal('SIGCONT');
      ground.sink.openGate(gate);
      await Promise.all(heirs.map((heir) => heir.kill('SIGTERM')));
    }
  },
};

const tookAgain = (ground: Ground, worker: string, since: number): boolean => ground.stack.lanes.some((lane) => ground.stack.events(`~lane/default/${lane}`).some(({ envelope, data }) => data['worker'] === worker && envelope.time >= since));

/**
 * Granted attempts are in the ledger's events; a local one is of the run's worker, whose fence tells. A task whose effect
 * may be repeated is handed to whoever takes its lane next: that may be the thawed worker, once it has lanes again.
 */
function isOldRight(ground: Ground, { run, step, attempt, fence, effect }: Arrival, time: number, hasLanesAgain: () => boolean): boolean {
  const dispatched = ground.stack.events(run, topics.effectEvents).find(({ envelope, data }) => envelope.type === 'EffectDispatched' && data['step'] === step && data['attempt'] === attempt);
  if (dispatched !== undefined) return dispatched.envelope.time < time && (effect === 'irreversible' || !hasLanesAgain());
  const resumed = ground.stack.events(run).find(({ data }) => (data['lease'] as { fence?: number } | undefined)?.fence === fence);
  return resumed !== undefined && resumed.envelope.time < time;
}

const epochs = async (ground: Ground, service: ServiceName): Promise<number> => (await ground.stack.rows<{ sum: number }>(service, 'select sum(epoch)::int as sum from progress'))[0]?.sum ?? 0;

const service = (which: ServiceName): Case => ({
  name: `${which} frozen for longer than its session`,
  run: async (ground, name) => {
    const frozen = ground.stack.service(which);
    const before = await epochs(ground, which);
    const other = await ground.startInstance(which);
    try {
      await ground.until('the other instance has lanes', async () => (await epochs(ground, which)) > before);
      return await underLoad(ground, name, loadOf(`frozen-${which}`, ofService(which)), async () => {
        const now = await epochs(ground, which);
        frozen.signal('SIGSTOP');
        const since = Date.now();
        await ground.until('the other instance has taken its lanes', async () => (await epochs(ground, which)) > now);
        frozen.signal('SIGCONT');
        return { since };
      });
    } finally {
      frozen.signal('SIGCONT');
      await other.kill('SIGTERM');
    }
  },
});

/** Longer than a client waits for an answer, and than any session. */
const SERVER_FROZEN_MS = 12_000;

/** False where the process has ended, as a session of the database may at any time. */
function signalled(pid: number, signal: 'SIGSTOP' | 'SIGCONT'): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Stops processes for so long. The first in the list is stopped first, and goes on first. */
export async function freeze(pids: readonly number[], ms: number): Promise<void> {
  const frozen = pids.filter((pid) => signalled(pid, 'SIGSTOP'));
  try {
    await pause(ms);
  } finally {
    for (const pid of frozen) signalled(pid, 'SIGCONT');
  }
}

export function brokerPids({ stack: { stack } }: Ground): Promise<number[]> {
  return Promise.resolve(stack.kafka?.pid === undefined ? [] : [stack.kafka.pid]);
}

/** The server before its sessions: a new connection would find a process that answers. */
export async function databasePids({ stack }: Ground): Promise<number[]> {
  const { rows } = await stack.pool('postgres').query<{ pid: number }>(`select pid from pg_stat_activity where application_name like 'holdfast-%'`);
  const server = stack.stack.postgres?.pid;
  return server === undefined ? [] : [server, ...rows.map(({ pid }) => pid)];
}

const server = (what: string, pids: (ground: Ground) => Promise<number[]>): Case => ({
  name: `${what} frozen for longer than it is waited for`,
  run: async (ground, name) => {
    const known = await pids(ground);
    return underLoad(ground, name, loadOf(`frozen-${what}`.toLowerCase()), async () => {
      await freeze(known, SERVER_FROZEN_MS);
      return { since: Date.now() };
    }, { share: 0.05 });
  },
});

export const FROZEN: readonly Case[] = [worker, ...SERVICES.map(service), server('broker', brokerPids), server('PostgreSQL', databasePids)];
