import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { verify } from '@holdfast/cli';
import { databaseUrl, LOCAL_PARTITIONS, LOCAL_SESSION_TIMEOUT_MS, ManagedProcess, type Stack } from '@holdfast/deploy';
import { encodeHeaders, StartRun, topics } from '@holdfast/protocol';
import { createWriter, tail } from '@holdfast/runtime/kafka';
import pg from 'pg';
import { loadSleepers, type Sleeper } from './bulk.js';
import { percentile } from './drive.js';
import { usageOf } from './usage.js';

const REAL = 1000;
/** Of those written in bulk, as many as are real wake in each of both windows; all others sleep for long. */
const DAY_MS = 24 * 60 * 60 * 1000;
const WINDOW_MS = 20_000;
/** Time for the last ones to fall asleep, and for a restart, before the first timer. */
const WINDOW_AFTER_MS = 45_000;
const OUTAGE_MS = 10_000;
const LATEST_MS = 180_000;
/** New runs, one after the other, when nothing else happens. */
const QUIET_RUNS = 40;

export interface SleeperLegs {
  readonly sleepers: number;
  readonly real: number;
  /** From the orchestrator's start until a new run has ended. */
  readonly startSeconds: number;
  readonly orchestratorMiB: number;
  /** Milliseconds from a timer's time to its event on the topic, services up. */
  readonly lag: { readonly fired: number; readonly p50: number; readonly p99: number; readonly most: number };
  /** Timers that passed while the orchestrator was down, from its restart on. */
  readonly outage: { readonly fired: number; readonly firstSeconds: number; readonly lastSeconds: number; readonly mostInASecond: number };
  /** Milliseconds from a new run's start to its end, one at a time: when nothing else happens, and while missed timers are worked off. */
  readonly fresh: { readonly quiet: Ends; readonly besides: Ends };
  readonly firedTwice: number;
  readonly ended: number;
  /** All streams, those written in bulk too: topics against databases and hash chains. */
  readonly audit: { readonly streams: number; readonly events: number; readonly differences: number; readonly seconds: number };
}

interface Ends {
  readonly runs: number;
  readonly p50: number;
  readonly p99: number;
}

/** Sleeping runs: most written in bulk, a thousand started for real; timers with all services up, and after an outage. */
export async function benchSleepers(stack: Stack, dir: string, count: number, say: (text: string) => void): Promise<SleeperLegs> {
  const orchestrator = stack.service('orchestrator-1');
  const worker = new ManagedProcess({ name: 'worker', entry: fileURLToPath(new URL('./worker.js', import.meta.url)), dir: path.join(dir, 'workers'), env: { ...stack.env, HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), BENCH_WORLD: stack.databaseUrl, BENCH_EFFECT: 'idempotent' } });
  await worker.start();
  const fired = new Map<string, number[]>();
  const seen = { released: new Set<string>(), ended: new Set<string>() };
  const endings = new Map<string, () => void>();
  const reader = await tail({
    brokers: stack.brokers,
    topics: [topics.runEvents],
    from: 'end',
    onRecord: ({ headers, key, time }) => {
      const type = String(headers['ce_type']);
      if (key === null) return;
      if (type === 'RunReleased') seen.released.add(key);
      if (type === 'RunFinished') {
        seen.ended.add(key);
        endings.get(key)?.();
      }
      if (type === 'WaitEnded') fired.set(key, [...(fired.get(key) ?? []), time]);
    },
  });
  const writer = await createWriter({ brokers: stack.brokers, clientId: 'bench' });
  const database = new pg.Pool({ connectionString: databaseUrl(stack.databaseUrl, 'holdfast_orchestrator'), max: 2 });
  try {
    const begin = async (sleepers: readonly Sleeper[]): Promise<void> =>
      writer.publish(sleepers.map(({ run, until }) => {
        const { type, data } = StartRun({ agent: { name: 'sleeper', version: '1' }, input: { until } });
        return { topic: topics.agentIntents, key: run, headers: encodeHeaders({ id: `bench/${run}`, type, source: 'bench', subject: run, time: Date.now(), tenant: 'default' }), value: JSON.stringify(data) };
      }));
    const freshRuns = async (name: string, goesOn: (done: number) => boolean): Promise<Ends> => {
      const times: number[] = [];
      while (goesOn(times.length)) {
        const run = `${name}-${times.length}`;
        const ended = new Promise<void>((resolve) => endings.set(run, resolve));
        const from = performance.now();
        await begin([{ run, until: 0 }]);
        await ended;
        times.push(performance.now() - from);
      }
      times.sort((a, b) => a - b);
      return { runs: times.length, p50: Math.round(percentile(times, 0.5)), p99: Math.round(percentile(times, 0.99)) };
    };
    const long = Array.from({ length: count - 3 * REAL }, (_, i): Sleeper => ({ run: `long-${i}`, until: Date.now() + DAY_MS + i }));
    say(`${long.length} runs that sleep for long are written in bulk …`);
    await orchestrator.kill('SIGTERM');
    await loadSleepers(database, stack.brokers, LOCAL_PARTITIONS, long);
    const started = performance.now();
    await orchestrator.start();
    await begin([{ run: 'fresh', until: 0 }]);
    await within(() => seen.ended.has('fresh'), 'a new run ends');
    const startSeconds = (performance.now() - started) / 1000;
    const base = Date.now() + WINDOW_AFTER_MS;
    const spread = (i: number): number => base + Math.floor((i * WINDOW_MS) / REAL);
    const real = Array.from({ length: REAL }, (_, i): Sleeper => ({ run: `real-${i}`, until: spread(i) }));
    say(`started in ${startSeconds.toFixed(1)} s; ${REAL} runs fall asleep for real …`);
    await begin(real);
    await within(() => real.every(({ run }) => seen.released.has(run)), 'all are asleep');
    await orchestrator.kill('SIGTERM');
    const outageFrom = base + WINDOW_MS + 15_000;
    const bulk = Array.from({ length: 2 * REAL }, (_, i): Sleeper => ({ run: `bulk-${i}`, until: i < REAL ? spread(i) : outageFrom + Math.floor(((i - REAL) * OUTAGE_MS) / REAL) }));
    await loadSleepers(database, stack.brokers, LOCAL_PARTITIONS, bulk);
    await orchestrator.start();
    await begin([{ run: 'fresh-again', until: 0 }]);
    await within(() => seen.ended.has('fresh-again'), 'a new run ends');
    if (Date.now() > base) throw new Error('the first timers had passed before the orchestrator was up again: this machine needs more time');
    say('timers …');
    const due = [...real, ...bulk.slice(0, REAL)];
    await within(() => due.every(({ run }) => fired.has(run)), 'all timers of the first window have fired');
    const lags = due.map(({ run, until }) => (fired.get(run)?.[0] ?? Infinity) - until).sort((a, b) => a - b);
    const { peakMiB } = await usageOf(orchestrator.pid);
    const quiet = await freshRuns('quiet', (done) => done < QUIET_RUNS);
    say('an outage …');
    await orchestrator.kill('SIGKILL');
    if (Date.now() > outageFrom) throw new Error('the first timers had passed before the outage: this machine needs more time');
    const missed = bulk.slice(REAL, 2 * REAL);
    await within(() => Date.now() > outageFrom + OUTAGE_MS, 'the timers have passed');
    const back = Date.now();
    await orchestrator.start();
    const besides = await freshRuns('besides', () => !missed.every(({ run }) => fired.has(run)) && Date.now() < back + LATEST_MS);
    await within(() => missed.every(({ run }) => fired.has(run)), 'all missed timers have fired');
    await within(() => [...due, ...missed].every(({ run }) => seen.ended.has(run)), 'all woken runs have ended');
    const after = missed.map(({ run }) => (fired.get(run)?.[0] ?? Infinity) - back).sort((a, b) => a - b);
    say('audit verify …');
    const audited = performance.now();
    const { streams, events, differences } = await verify({ brokers: stack.brokers, databaseUrl: stack.databaseUrl });
    for (const { topic, stream, problem } of differences.slice(0, 10)) say(`${topic} ${stream}: ${problem}`);
    const bySecond = new Map<number, number>();
    for (const ms of after) bySecond.set(Math.floor(ms / 1000), (bySecond.get(Math.floor(ms / 1000)) ?? 0) + 1);
    return {
      sleepers: count,
      real: real.length,
      startSeconds: Number(startSeconds.toFixed(1)),
      orchestratorMiB: Math.round(peakMiB),
      lag: { fired: lags.length, p50: percentile(lags, 0.5), p99: percentile(lags, 0.99), most: lags.at(-1) ?? 0 },
      outage: { fired: after.length, firstSeconds: (after[0] ?? 0) / 1000, lastSeconds: (after.at(-1) ?? 0) / 1000, mostInASecond: Math.max(...bySecond.values()) },
      fresh: { quiet, besides },
      firedTwice: [...fired.values()].filter(({ length }) => length > 1).length,
      ended: seen.ended.size,
      audit: { streams, events, differences: differences.length, seconds: Math.round((performance.now() - audited) / 1000) },
    };
  } finally {
    await reader.close();
    await writer.close();
    await database.end();
    await worker.stop();
  }
}

export const sleepersInWords = ({ sleepers, real, startSeconds, orchestratorMiB, lag, outage, fresh, firedTwice, audit }: SleeperLegs): string =>
  [
    `${sleepers} sleeping runs, ${real} of them started for real`,
    `  start        a new run ends ${startSeconds} s after the orchestrator’s start; peak ${orchestratorMiB} MiB`,
    `  timers       ${lag.fired} fired, p50 ${lag.p50} p99 ${lag.p99} most ${lag.most} ms after their time`,
    `  outage       ${outage.fired} had passed: fired ${outage.firstSeconds} to ${outage.lastSeconds} s after the restart, ${outage.mostInASecond} at most in a second`,
    `  new runs     one at a time: ${fresh.quiet.runs} when nothing else happened, p50 ${fresh.quiet.p50} p99 ${fresh.quiet.p99} ms; ${fresh.besides.runs} while missed timers were worked off, p50 ${fresh.besides.p50} p99 ${fresh.besides.p99} ms`,
    `  fired twice  ${firedTwice}`,
    `  audit verify ${audit.streams} streams, ${audit.events} events, ${audit.differences} differences (${audit.seconds} s)`,
  ].join('\n');

async function within(check: () => boolean, what: string): Promise<void> {
  const until = Date.now() + LATEST_MS;
  while (!check()) {
    if (Date.now() > until) throw new Error(`${what}: not so within ${LATEST_MS / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
