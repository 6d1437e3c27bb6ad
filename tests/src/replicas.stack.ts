import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { databaseUrl } from '@holdfast/deploy';
import { topics } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import pg from 'pg';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { SERVICES, STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';
import { World } from './support/world.js';

jest.setTimeout(STACK_LIMIT_MS);

const CROWD = 100;
const REPLICAS = 3;
/** How long the target takes: everyone who asks meanwhile comes while it is under way. */
const SLOW_MS = proof(1000, 2000);

let stack: TestStack;
let world: World;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

const refund = defineTool({
  name: 'refund',
  version: '1',
  effect: 'irreversible',
  keyScope: 'target',
  target: ({ order }) => order,
  input: z.object({ order: z.string() }),
  output: z.string(),
  owner: 'tests',
  execute: async ({ order }, { run, step, fence }) => {
    await world.note({ run, step, what: order, worker: 'test', fence });
    await new Promise((resolve) => {
      setTimeout(resolve, SLOW_MS);
    });
    return `receipt of ${order}`;
  },
});
const refunder = defineAgent({ name: 'refunder', version: '1', input: z.object({ order: z.string() }), output: z.string(), run: (run, { order }) => run.call(refund, { order }) });
const branching = defineAgent({
  name: 'branching',
  version: '1',
  input: z.object({ order: z.string() }),
  output: z.array(z.string()),
  run: (run, { order }) => run.all(Array.from({ length: 10 }, () => (branch: typeof run) => branch.call(refund, { order }))),
});

const firings = async (order: string): Promise<number> => (await world.effects()).filter(({ what }) => what === order).length;

beforeAll(async () => {
  stack = await TestStack.start({ instances: Object.fromEntries(SERVICES.map((service) => [service, REPLICAS])) });
  world = await World.open(stack);
  worker = await work(stack.brokers, { agents: [refunder, branching], tools: [refund] });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
  await eventually('every lane is taken', () => stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length > 0));
}, STACK_LIMIT_MS);

afterEach(async () => {
  // To lose is an answer, not an outage: no lane stands, nothing is parked, nobody tries again.
  expect(await stack.halts()).toEqual([]);
  expect(stack.seen.filter(({ envelope }) => envelope.type === 'DeadLetter' || envelope.type === 'EffectRetryScheduled')).toEqual([]);
});

afterAll(async () => {
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

/** All at once, on every lane. */
const crowd = async (order: string): Promise<unknown[]> => {
  const runs = await Promise.all(Array.from({ length: CROWD }, (_, i) => client.start(refunder, { order }, { runId: `${order}-${i}` })));
  expect(new Set(runs.map(({ id }) => stack.laneOf(id))).size).toBe(stack.lanes.length);
  return Promise.all(runs.map((run) => run.outcome({ timeoutMs: 60_000 })));
};
const allHave = (order: string) => Array.from({ length: CROWD }, () => expect.objectContaining({ status: 'completed', output: `receipt of ${order}` }));

test('of a hundred runs on three instances that ask for one effect at once, while its target is slow, one fires; all others join it and have its result', async () => {
  // The instances share the lanes: the requests meet in the database, not in one process.
  const holders = await Promise.all(SERVICES.map(async (service) => (await stack.rows<{ name: string }>(service, `select distinct application_name as name from pg_stat_activity where application_name like 'holdfast-${service}-%'`)).length));
  expect(holders).toEqual(SERVICES.map(() => REPLICAS));
  expect(await crowd('order-1')).toEqual(allHave('order-1'));
  expect(await firings('order-1')).toBe(1);
  expect(stack.seen.filter(({ topic, envelope, data }) => topic === topics.effectEvents && envelope.type === 'EffectJoined' && envelope.subject.startsWith('order-1-') && data !== null)).toHaveLength(CROWD - 1);
});

test('inside one run, ten branches that ask for it at once have it fired once', async () => {
  const run = await client.start(branching, { order: 'order-2' }, { runId: 'branches' });
  expect(await run.outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: Array.from({ length: 10 }, () => 'receipt of order-2') });
  expect(await firings('order-2')).toBe(1);
});

test('with the database at its limit of connections, which have just been cut, the crowd waits, and one fires', async () => {
  const taken: pg.Client[] = [];
  const takeOne = async (): Promise<boolean> => {
    const one = new pg.Client({ connectionString: databaseUrl(stack.stack.databaseUrl, 'postgres') });
    one.on('error', () => undefined);
    try {
      await one.connect();
      taken.push(one);
      return true;
    } catch (error) {
      expect(error).toMatchObject({ code: '53300' }); // too_many_connections
      return false;
    }
  };
  const admin = stack.pool('postgres');
  const held = await admin.connect();
  // Taken before the crowd: later there is none for us either.
  const eyes = await stack.pool('world').connect();
  try {
    while (await takeOne()); // Nothing is left but what superusers may take.
    await held.query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast-%'`);
    while (await takeOne());
    const outcomes = crowd('order-3');
    await eventually('an instance is refused a connection', async () => (await Promise.all(stack.stack.services.map((service) => stack.log(service)))).flat().some(({ error }) => /too many clients|remaining connection slots|sorry/.test(String(error))));
    expect((await eyes.query('select from effects where what = $1', ['order-3'])).rowCount).toBe(0);
    await Promise.all(taken.splice(0).map((one) => one.end()));
    expect(await outcomes).toEqual(allHave('order-3'));
    expect(await firings('order-3')).toBe(1);
  } finally {
    held.release();
    eyes.release();
    await Promise.all(taken.map((one) => one.end()));
  }
});
