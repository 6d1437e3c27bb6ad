import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import type pg from 'pg';
import { verify } from '@holdfast/cli';
import { defineAgent, HoldfastClient, type RunHandle, type ServedWorker } from '@holdfast/sdk';
import { openDatabase, PgStore } from '@holdfast/runtime';
import { createDatabase, databaseUrl } from '@holdfast/deploy';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { SERVICES, STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { countingTool, work, type Firing } from './support/worker.js';

jest.setTimeout(proof(STACK_LIMIT_MS, 4 * STACK_LIMIT_MS));

const RUNS = proof(40, 200);
const STEPS = 4;
const firings: Firing[] = [];
const pay = countingTool('pay', 'irreversible', firings);
const payer = defineAgent({ name: 'payer', version: '1', input: z.object({}), output: z.number(), run: async (run) => {
  for (let amount = 1; amount <= STEPS; amount += 1) await run.call(pay, { amount });
  return STEPS;
} });

let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

const starts = (prefix: string): Promise<RunHandle[]> => Promise.all(Array.from({ length: RUNS }, (_, i) => client.start(payer, {}, { runId: `${prefix}-${i}` })));
const firedOf = (prefix: string): string[] => firings.filter(({ run }) => run.startsWith(`${prefix}-`)).map(({ run, step }) => `${run}/${step}`);
const halfDone = (prefix: string, share: number) => eventually('some effects', () => firedOf(prefix).length >= RUNS * STEPS * share, 60_000);

async function allOnce(prefix: string, runs: readonly RunHandle[]): Promise<void> {
  const outcomes = await Promise.all(runs.map((run) => run.outcome({ timeoutMs: proof(60_000, 240_000) })));
  expect(outcomes.filter(({ status }) => status !== 'completed')).toEqual([]);
  expect(firedOf(prefix)).toHaveLength(RUNS * STEPS);
  expect(new Set(firedOf(prefix)).size).toBe(RUNS * STEPS);
}

beforeAll(async () => {
  stack = await TestStack.start({ ownServers: true });
  worker = await work(stack.brokers, { agents: [payer], tools: [pay], irreversibleConcurrency: 4 });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterEach(async () => {
  expect(await stack.halts()).toEqual([]);
});

afterAll(async () => {
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('services that are stopped gently and started again under load lose nothing and double nothing', async () => {
  const runs = await starts('gentle');
  for (const [i, share] of [0.1, 0.3, 0.5].entries()) {
    await halfDone('gentle', share);
    const exit = await stack.service(i % 2 === 0 ? 'orchestrator' : 'ledger').kill('SIGTERM');
    expect(exit).toMatchObject({ code: 0 });
    await stack.service(i % 2 === 0 ? 'orchestrator' : 'ledger').start();
  }
  await allOnce('gentle', runs);
});

test('runs asked for while the services are down and while they start are each carried out once', async () => {
  await Promise.all(stack.stack.services.map((service) => service.stop()));
  const early = await starts('early');
  const starting = Promise.all(stack.stack.services.map((service) => service.start()));
  const meanwhile = await starts('meanwhile');
  await starting;
  await allOnce('early', early);
  await allOnce('meanwhile', meanwhile);
});

test('cut database connections, again and again, skip no message and end no service', async () => {
  const runs = await starts('cut');
  const pids = stack.stack.services.map(({ pid }) => pid);
  for (const share of [0.1, 0.2, 0.3, 0.4, 0.5]) {
    await halfDone('cut', share);
    for (const service of SERVICES) await stack.rows(service, `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast-%'`);
  }
  await allOnce('cut', runs);
  expect(stack.stack.services.map(({ pid }) => pid)).toEqual(pids);
});

test('a database that takes no writes for a while is waited for; nothing is parked or skipped', async () => {
  const runs = await starts('readonly');
  await halfDone('readonly', 0.2);
  const set = async (mode: 'on' | 'off'): Promise<void> => {
    await stack.pool('postgres').query(`alter system set default_transaction_read_only = ${mode}`);
    await stack.pool('postgres').query('select pg_reload_conf()');
  };
  const refusals = async (): Promise<number> => (await Promise.all(stack.stack.services.map((service) => stack.log(service)))).flat().filter(({ error }) => String(error).includes('read-only')).length;
  await set('on');
  await eventually('a service meets the read-only database', async () => (await refusals()) >= 3);
  await stack.pool('postgres').query('set default_transaction_read_only = off');
  await set('off');
  await allOnce('readonly', runs);
  expect(stack.seen.filter(({ envelope }) => envelope.type === 'DeadLetter')).toEqual([]);
});

test('a database server that is killed and started again is found again', async () => {
  const runs = await starts('server');
  await halfDone('server', 0.3);
  await stack.stack.postgres?.kill();
  await stack.stack.postgres?.start();
  await allOnce('server', runs);
});

test('after all of it topics, journals and chains agree', async () => {
  await eventually('the agenda is at rest', async () => (await stack.rows<{ n: number }>('orchestrator', `select count(*)::int as n from agenda where open and stream not like '~%'`))[0]?.n === 0);
  expect((await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences).toEqual([]);
});

test('a connection that is cut as it changes hands ends no process', async () => {
  await createDatabase(stack.stack.databaseUrl, 'cut');
  const source = await openDatabase({ url: databaseUrl(stack.stack.databaseUrl, 'cut'), applicationName: 'cut' });
  try {
    const { master } = source.driver as unknown as { master: pg.Pool };
    // The pool listens no more, and whoever asked for it does not yet.
    await new Promise<void>((resolve, reject) => {
      master.connect((error, client, release) => {
        try {
          if (client === undefined) throw error;
          client.emit('error', new Error('terminating connection'));
          release(true);
          resolve();
        } catch (thrown) {
          reject(thrown as Error);
        }
      });
    });
    expect(await source.query('select 1 as one')).toEqual([{ one: 1 }]);
  } finally {
    await source.destroy();
  }
});

test('a write path that fails five hundred times leaves no connection in use', async () => {
  await createDatabase(stack.stack.databaseUrl, 'leak');
  const source = await openDatabase({ url: databaseUrl(stack.stack.databaseUrl, 'leak'), applicationName: 'leak', poolSize: 5 });
  const store = new PgStore(source);
  try {
    const [progress] = await store.takeLanes([0]);
    if (progress === undefined) throw new Error('the lane was not taken');
    const row = { lane: 0, seq: 1, topic: 't', prev: 0, stream: 's', type: 'T', version: 1, time: 0, tenant: 'default', hash: 'h', trace: null, data: 'a\u0000b' };
    const write = { progress: { ...progress, nextSeq: 2 }, expectedNextSeq: 1, rows: [row], agenda: [], shared: [] };
    const failing = Array.from({ length: 250 }, () => [store.append([write]), store.lock(['k']).then((locked) => locked.commit([write]))]).flat();
    const ends = await Promise.allSettled(failing);
    expect(ends.filter(({ status }) => status === 'rejected')).toHaveLength(500);
    expect([...(await store.append([{ ...write, rows: [{ ...row, data: '{}' }] }]))]).toEqual([0]);
  } finally {
    await store.close();
  }
});
