import { afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { Pool, toolTasks, topics, type EffectClass, type Outcome } from '@holdfast/protocol';
import type { LogWriter } from '@holdfast/runtime';
import { createWriter, ensurePoolTopics, ensureTopics, tail, type Tail } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { defineTool, type ToolDefinition } from '../../src/define/tool.js';
import type { WorkerLog } from '../../src/host/log.js';
import { serve, type ServedWorker } from '../../src/host/serve.js';
import { keyOf, task } from './kit.js';

/* The tool host on real Kafka: what the tests in memory take for granted of a broker is true of one. */

const brokers = (process.env['HOLDFAST_TEST_BROKERS'] ?? '').split(',');
const SESSION_MS = 6000;

interface Reported {
  readonly key: string;
  readonly outcome: Outcome;
}

const lanes = 4;
let pool: Pool;
let writer: LogWriter;
let results: Tail;
let reports: Map<string, Outcome[]>;
let alarms: string[];
let workers: ServedWorker[];
let fired: Map<number, number>;

beforeAll(() => ensureTopics(brokers, lanes), 60_000);

beforeEach(async () => {
  pool = Pool.parse(`p${randomBytes(6).toString('hex')}`);
  await ensurePoolTopics(brokers, pool);
  writer = await createWriter({ brokers, clientId: `test-${pool}` });
  reports = new Map();
  alarms = [];
  workers = [];
  fired = new Map();
  results = await tail({
    brokers,
    topics: [topics.toolResults],
    from: 'end',
    onRecord: (record) => {
      if (!record.key?.startsWith(pool)) return;
      const { key, outcome } = JSON.parse(record.value ?? '{}') as Reported;
      reports.set(key, [...(reports.get(key) ?? []), outcome]);
    },
  });
  await results.caughtUp;
}, 60_000);

afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.stop({ graceMs: 1000 })));
  await results.close();
  await writer.close();
  expect(alarms).toEqual([]);
}, 60_000);

const log: WorkerLog = { info: () => undefined, warn: () => undefined, error: (message) => void alarms.push(message) };

const toolOf = (name: string, effect: EffectClass, act: (n: number) => unknown): ToolDefinition =>
  defineTool({
    name,
    version: '1',
    effect,
    input: z.object({ n: z.number() }),
    output: z.unknown(),
    owner: 'the test',
    execute: ({ n }) => {
      fired.set(n, (fired.get(n) ?? 0) + 1);
      return act(n);
    },
  }) as unknown as ToolDefinition;

async function start(name: string, act: (n: number) => unknown = () => ({})): Promise<ServedWorker> {
  const worker = await serve({ brokers, pool, worker: name, tools: [toolOf('pay', 'irreversible', act), toolOf('put', 'idempotent', act)], log, sessionTimeoutMs: SESSION_MS, graceMs: 5000 });
  workers.push(worker);
  return worker;
}

/** What the ledger of one lane publishes: numbered without a gap. */
class LaneLedger {
  #seq = 0;
  constructor(readonly lane: number) {}
  async publish(...tasks: { n: number; effect?: EffectClass }[]): Promise<void> {
    const records = tasks.map(({ n, effect = 'irreversible' }) => {
      this.#seq += 1;
      const { key, headers, value } = task({
        seq: this.#seq,
        step: String(n),
        run: `${pool}-${n}`,
        effect,
        tool: effect === 'irreversible' ? 'pay' : 'put',
        args: { n },
        lane: this.lane,
        notAfter: Date.now() + 60_000,
      });
      const data = { ...(JSON.parse(value ?? '{}') as object), key: keyOf(n) };
      return { topic: toolTasks(pool), lane: this.lane, key: key ?? '', headers: headers as Record<string, string>, value: JSON.stringify(data) };
    });
    await writer.publish(records);
  }
}

async function until(fact: () => boolean, what: () => string): Promise<void> {
  const end = Date.now() + 45_000;
  while (!fact()) {
    if (Date.now() > end) throw new Error(`never came: ${what()}`);
    await new Promise<void>((resolve) => setTimeout(resolve, 5));
  }
}

const reported = (n: number): Outcome[] => reports.get(keyOf(n)) ?? [];

test('fires granted tasks of both kinds, reports them, and leaves nothing for its successor', async () => {
  const first = await start('a');
  const ledger = new LaneLedger(0);
  await ledger.publish({ n: 1 }, { n: 2, effect: 'idempotent' }, { n: 3 });
  await until(() => [1, 2, 3].every((n) => reported(n).length > 0), () => 'three reports');
  await first.stop();
  await start('b');
  await ledger.publish({ n: 4 });
  await until(() => reported(4).length > 0, () => 'the successor fires');
  expect([...fired].sort(([a], [b]) => a - b)).toEqual([[1, 1], [2, 1], [3, 1], [4, 1]]);
  expect([1, 2, 3, 4].map((n) => reported(n).map(({ status }) => status))).toEqual([['succeeded'], ['succeeded'], ['succeeded'], ['succeeded']]);
}, 90_000);

test('workers come and go under load (C45): no task fires twice, none is left without an end', async () => {
  const act = (n: number): Promise<unknown> => new Promise((resolve) => setTimeout(() => resolve({ n }), n % 20));
  await start('a', act);
  const ledgers = Array.from({ length: lanes }, (_, lane) => new LaneLedger(lane));
  let published = 0;
  let pouring = true;
  const pour = (async () => {
    while (pouring) {
      for (const ledger of ledgers) await ledger.publish(...Array.from({ length: 3 }, () => ({ n: (published += 1) })));
      await new Promise<void>((resolve) => setTimeout(resolve, 5));
    }
  })();
  const reportedSoFar = (): number => [...reports.values()].length;
  const comeFurther = async (): Promise<void> => {
    const from = reportedSoFar();
    await until(() => reportedSoFar() > from + 100, () => `100 more reports than ${from}`);
  };
  await comeFurther();
  const second = await start('b', act);
  await comeFurther();
  await start('c', act);
  await comeFurther();
  await second.stop();
  await comeFurther();
  await workers[0]?.stop();
  await comeFurther();
  pouring = false;
  await pour;
  const all = Array.from({ length: published }, (_, index) => index + 1);
  await until(() => all.every((n) => reported(n).length > 0), () => `reports of ${all.filter((n) => reported(n).length === 0).slice(0, 10).join()} of ${published}`);
  expect([...fired].filter(([, times]) => times > 1)).toEqual([]);
  for (const n of all) {
    const ends = reported(n);
    const notFired = ends.length === 1 && ends[0]?.status === 'failed' && ends[0].failure.notApplied === true;
    expect([n, ends.map(({ status }) => status), fired.get(n) ?? 0]).toEqual(notFired ? [n, ['failed'], 0] : [n, ['succeeded'], 1]);
  }
}, 180_000);
