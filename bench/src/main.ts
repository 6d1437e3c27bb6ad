import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { createDatabase, databaseUrl, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, ManagedProcess, startHoldfast, type Stack } from '@holdfast/deploy';
import { Driver, percentile, STEPS } from './drive.js';
import { benchSleepers, sleepersInWords } from './sleepers.js';
import { usageOf, type Usage } from './usage.js';

const { values } = parseArgs({
  options: { effect: { type: 'string', default: 'idempotent' }, json: { type: 'boolean', default: false }, runs: { type: 'string', default: '2000' }, sleepers: { type: 'string' }, legs: { type: 'string', default: 'single,crash' }, keep: { type: 'boolean', default: false } },
});
/** Which parts follow the first one: paired comparisons of two builds want none (`--legs none`). */
const LEGS = new Set(values.legs.split(','));
const IN_FLIGHT = 200;
const SINGLE_RUNS = 200;
const CRASH_RUNS = 300;
const say = (text: string): void => void process.stderr.write(`${text}\n`);
const round = (value: number, digits = 1): number => Number(value.toFixed(digits));

interface Legs {
  readonly effect: string;
  readonly throughput: { readonly runs: number; readonly runsPerSecond: number; readonly stepsPerSecond: number; readonly p50: number; readonly p95: number; readonly p99: number };
  readonly single: { readonly p50: number; readonly p95: number; readonly p99: number } | null;
  readonly cpuMsPerStep: Readonly<Record<string, number>>;
  readonly peakMiB: Readonly<Record<string, number>>;
  readonly crash: { readonly runs: number; readonly secondFirings: number; readonly blocked: number; readonly secondsAfterKill: number } | null;
}

async function bench(stack: Stack, dir: string, effect: string): Promise<Legs> {
  await createDatabase(stack.databaseUrl, 'bench_world');
  const url = databaseUrl(stack.databaseUrl, 'bench_world');
  const world = new pg.Pool({ connectionString: url, max: 2 });
  world.on('error', () => undefined);
  await world.query('create table fired (operation_key text, run text, step text)');
  const worker = new ManagedProcess({
    name: 'worker',
    entry: fileURLToPath(new URL('./worker.js', import.meta.url)),
    dir: path.join(dir, 'workers'),
    env: { ...stack.env, HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), BENCH_WORLD: url, BENCH_EFFECT: effect },
  });
  await worker.start();
  const driver = await Driver.open(stack.brokers);
  try {
    const processes = (): Promise<Record<string, Usage>> => usages(stack, worker);
    say('warming up …');
    await driver.many(ids('warm', 200), 50);
    const runs = Number(values.runs);
    say(`${runs} runs of ${STEPS} steps, ${IN_FLIGHT} in flight …`);
    const before = await processes();
    const begun = performance.now();
    const times = (await driver.many(ids('many', runs), IN_FLIGHT)).sort((a, b) => a - b);
    const seconds = (performance.now() - begun) / 1000;
    const after = await processes();
    const single = LEGS.has('single') ? await singleLeg(driver) : null;
    const crash = LEGS.has('crash') ? await crashLeg(driver, worker, world) : null;
    const names = Object.keys(after);
    return {
      effect,
      throughput: { runs, runsPerSecond: round(runs / seconds), stepsPerSecond: Math.round((runs * STEPS) / seconds), ...spread(times) },
      single,
      cpuMsPerStep: Object.fromEntries(names.map((name) => [name, round(((after[name]?.cpuMs ?? 0) - (before[name]?.cpuMs ?? 0)) / (runs * STEPS), 3)])),
      peakMiB: Object.fromEntries(names.map((name) => [name, Math.round(after[name]?.peakMiB ?? 0)])),
      crash,
    };
  } finally {
    await driver.close();
    await worker.stop();
    await world.end();
  }
}

async function singleLeg(driver: Driver): Promise<Legs['single']> {
  say(`${SINGLE_RUNS} runs, one at a time …`);
  return spread((await driver.many(ids('single', SINGLE_RUNS), 1)).sort((a, b) => a - b));
}

async function crashLeg(driver: Driver, worker: ManagedProcess, world: pg.Pool): Promise<Legs['crash']> {
  say(`kill -9 of the worker amid ${CRASH_RUNS} runs …`);
  const all = driver.many(ids('crash', CRASH_RUNS), CRASH_RUNS);
  const fired = async (): Promise<number> => Number((await world.query<{ n: string }>(`select count(*)::text as n from fired where run like 'crash-%'`)).rows[0]?.n);
  while ((await fired()) < (CRASH_RUNS * STEPS) / 3);
  await worker.kill('SIGKILL');
  const killed = performance.now();
  await worker.start();
  // Runs with an effect that was in flight stay blocked on it: nobody is asked here.
  const done = await Promise.race([all.then(() => true), quiet(driver, 10_000)]);
  const { rows } = await world.query<{ n: string }>(`select coalesce(sum(c - 1), 0)::text as n from (select count(*) as c from fired where run like 'crash-%' group by operation_key having count(*) > 1) doubled`);
  return { runs: CRASH_RUNS, secondFirings: Number(rows[0]?.n), blocked: done ? 0 : driver.open(), secondsAfterKill: round(((done ? performance.now() : driver.lastEnd()) - killed) / 1000, 2) };
}

async function quiet(driver: Driver, ms: number): Promise<false> {
  while (performance.now() - driver.lastEnd() < ms) await new Promise((resolve) => setTimeout(resolve, 100));
  return false;
}

const ids = (prefix: string, count: number): string[] => Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
const spread = (sorted: readonly number[]): { p50: number; p95: number; p99: number } => ({ p50: round(percentile(sorted, 0.5)), p95: round(percentile(sorted, 0.95)), p99: round(percentile(sorted, 0.99)) });

async function usages(stack: Stack, worker: ManagedProcess): Promise<Record<string, Usage>> {
  const services = await Promise.all(stack.services.map(async (service) => [service.name, await usageOf(service.pid)] as const));
  return {
    ...Object.fromEntries(services),
    worker: await usageOf(worker.pid),
    kafka: await usageOf(stack.kafka?.pid),
    postgres: await usageOf(stack.postgres?.pid, true),
    bench: await usageOf(process.pid),
  };
}

function people(legs: Legs): string {
  const { throughput: t, single: s, crash: c } = legs;
  return [
    `${legs.effect} effects`,
    `  ${t.runs} runs, ${IN_FLIGHT} in flight   ${t.runsPerSecond} runs/s, ${t.stepsPerSecond} steps/s, a run p50 ${t.p50} p95 ${t.p95} p99 ${t.p99} ms`,
    ...(s === null ? [] : [`  one at a time              a run p50 ${s.p50} p95 ${s.p95} p99 ${s.p99} ms`]),
    `  CPU ms a step              ${Object.entries(legs.cpuMsPerStep).map(([name, ms]) => `${name} ${ms}`).join(', ')}`,
    `  peak MiB                   ${Object.entries(legs.peakMiB).map(([name, mib]) => `${name} ${mib}`).join(', ')}`,
    ...(c === null ? [] : [`  kill -9 amid ${c.runs} runs     ${c.secondFirings} second firings, ${c.blocked} runs blocked on an unknown, all others done ${c.secondsAfterKill} s after the kill`]),
  ].join('\n');
}

async function main(): Promise<void> {
  if (values.effect !== 'idempotent' && values.effect !== 'irreversible') throw new Error(`--effect ${values.effect}: idempotent or irreversible`);
  const dir = await makeStackFolder('holdfast-bench-');
  let stack: Stack | undefined;
  try {
    stack = await startHoldfast({ dir, log: say });
    if (values.sleepers !== undefined) {
      const sleepers = Number(values.sleepers);
      if (!Number.isInteger(sleepers) || sleepers < 3000) throw new Error(`--sleepers ${values.sleepers}: a whole number from 3000 on`);
      const slept = await benchSleepers(stack, dir, sleepers, say);
      process.stdout.write(`${values.json ? JSON.stringify(slept) : sleepersInWords(slept)}\n`);
      return;
    }
    const legs = await bench(stack, dir, values.effect);
    process.stdout.write(`${values.json ? JSON.stringify(legs) : people(legs)}\n`);
  } finally {
    await stack?.stop();
    if (!values.keep) await rm(dir, { recursive: true, force: true });
  }
}

main().catch((error: unknown) => {
  say(error instanceof Error ? (error.stack ?? error.message) : String(error));
  process.exit(1);
});
