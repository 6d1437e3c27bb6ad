import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { verify } from '@holdfast/cli';
import { createDatabase } from '@holdfast/deploy';
import { topics } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import type pg from 'pg';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(proof(STACK_LIMIT_MS, 4 * STACK_LIMIT_MS));

const RUNS = proof(40, 200);
const STEPS = 3;
const PAIRS = proof(20, 100);

let stack: TestStack;
let world: pg.Pool;
const workers: ServedWorker[] = [];

/** The world outside has no unique constraint: a second firing shows. */
const insert = async (what: string, run: string, step: string): Promise<string> =>
  (await world.query<{ id: string }>('insert into effects (what, run, step) values ($1, $2, $3) returning id::text', [what, run, step])).rows[0]?.id ?? '';

const mark = defineTool({ name: 'mark', version: '1', effect: 'irreversible', input: z.object({ n: z.number() }), output: z.string(), owner: 'tests', execute: (_, { run, step }) => insert('mark', run, step) });
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', keyScope: 'target', target: ({ order }) => order, input: z.object({ order: z.string(), amount: z.number() }), output: z.string(), owner: 'tests', execute: ({ order }, { run, step }) => insert(order, run, step) });
const marker = defineAgent({
  name: 'marker',
  version: '1',
  input: z.object({}),
  output: z.array(z.string()),
  run: async (run) => {
    const rows: string[] = [];
    for (let n = 1; n <= STEPS; n += 1) rows.push(await run.call(mark, { n }));
    return rows;
  },
});

const count = async (): Promise<number> => (await world.query<{ n: number }>(`select count(*)::int as n from effects where what = 'mark'`)).rows[0]?.n ?? 0;

beforeAll(async () => {
  stack = await TestStack.start({ instances: { orchestrator: 2, ledger: 2 } });
  await createDatabase(stack.stack.databaseUrl, 'world');
  world = stack.pool('world');
  await world.query('create table effects (id bigserial, what text, run text, step text)');
  workers.push(...(await Promise.all(['one', 'two'].map((worker) => work(stack.brokers, { worker, tools: [mark, refund], agents: [marker] })))));
  await eventually('every lane is taken', () => stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length > 0));
}, STACK_LIMIT_MS);

afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.stop({ graceMs: 0 })));
  await stack?.stop();
}, STACK_LIMIT_MS);

test('a killed orchestrator and a killed ledger leave every run completed and every effect done once', async () => {
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  const runs = await Promise.all(Array.from({ length: RUNS }, (_, i) => client.start(marker, {}, { runId: `run-${i}` })));
  await eventually('some effects', async () => (await count()) >= 10);
  await stack.service('orchestrator').kill();
  await eventually('more effects', async () => (await count()) >= 20);
  await stack.service('ledger').kill();
  const outcomes = await Promise.all(runs.map((run) => run.outcome({ timeoutMs: proof(60_000, 240_000) })));
  await Promise.all([stack.service('orchestrator').start(), stack.service('ledger').start()]);
  await client.close();

  expect(outcomes.map(({ status }) => status)).toEqual(runs.map(() => 'completed'));
  const { rows } = await world.query<{ run: string; step: string; n: number }>(`select run, step, count(*)::int as n from effects where what = 'mark' group by run, step`);
  expect(rows).toHaveLength(RUNS * STEPS);
  expect(rows.filter(({ n }) => n !== 1)).toEqual([]);
  expect(await stack.halts()).toEqual([]);
});

/** Two runs ask at once for an effect on one order. */
async function pair(i: number, amounts: readonly [number, number]): Promise<{ order: string; outcomes: { status: string; result?: unknown; failure?: unknown }[] }> {
  const order = `order-${i}-${amounts.join('-')}`;
  const runs = amounts.map((_, n) => stack.runOn((i + n) % stack.lanes.length, `${order}-${n}`));
  await Promise.all(runs.map((run) => stack.intent(run, 'StartRun', { agent: null, input: order })));
  await Promise.all(runs.map((run, n) => stack.intent(run, 'CallTool', { step: '1', tool: { name: 'refund', version: '1' }, args: { order, amount: amounts[n] ?? 0 }, target: order })));
  const settled = await Promise.all(runs.map((run) => stack.event(run, 'EffectSettled')));
  return { order, outcomes: settled.map(({ data }) => data['outcome'] as { status: string }) };
}

const firedFor = async (order: string): Promise<string[]> => (await world.query<{ id: string }>('select id::text from effects where what = $1', [order])).rows.map(({ id }) => id);

test(`of two runs that ask at once for one effect on one target one fires, and both have its result`, async () => {
  const pairs = await Promise.all(Array.from({ length: PAIRS }, (_, i) => pair(i, [5, 5])));
  for (const { order, outcomes } of pairs) {
    const fired = await firedFor(order);
    expect(fired).toHaveLength(1);
    for (const outcome of outcomes) expect(outcome).toMatchObject({ status: 'succeeded', result: { value: fired[0] } });
  }
  expect(stack.seen.filter(({ topic, envelope }) => topic === topics.effectEvents && envelope.type === 'EffectJoined')).toHaveLength(PAIRS);
});

test('of two that ask with other arguments one is refused as a conflict', async () => {
  const pairs = await Promise.all(Array.from({ length: PAIRS }, (_, i) => pair(i, [5, 6])));
  for (const { order, outcomes } of pairs) {
    expect(await firedFor(order)).toHaveLength(1);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['failed', 'succeeded']);
    expect(outcomes.find(({ status }) => status === 'failed')).toMatchObject({ failure: { class: 'concurrency_conflict', notApplied: true } });
  }
});

test('topics and databases agree afterwards', async () => {
  const result = await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl });
  expect(result.differences).toEqual([]);
  expect(result.streams).toBeGreaterThanOrEqual(2 * (RUNS + 4 * PAIRS));
});
