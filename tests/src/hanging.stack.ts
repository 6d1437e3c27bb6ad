import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { verify } from '@holdfast/cli';
import { topics } from '@holdfast/protocol';
import { defineTool, type ServedWorker } from '@holdfast/sdk';
import getPort from 'get-port';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { STACK_LIMIT_MS, SERVICES, TestStack, type ServiceName } from './support/stack.js';
import { countingTool, work, type Firing } from './support/worker.js';

const LIMIT_MS = 2 * STACK_LIMIT_MS;
jest.setTimeout(LIMIT_MS);

const ATTEMPT_MS = 1500;

let stack: TestStack;
let worker: ServedWorker | undefined;
const firings: Firing[] = [];
const ports: Record<ServiceName, number> = { orchestrator: 0, ledger: 0, reconciliation: 0, compensation: 0 };
let release: (() => void) | undefined;

/** Its end comes when the test says so, long after the ledger has stopped to wait for it. */
const held = defineTool({
  name: 'held',
  version: '1',
  effect: 'irreversible',
  timeout: ATTEMPT_MS,
  queueTimeout: ATTEMPT_MS,
  input: z.object({}),
  output: z.string(),
  owner: 'tests',
  execute: (_, { run, step, attempt }) => {
    firings.push({ run, step, attempt, args: null });
    return new Promise<string>((resolve) => {
      release = () => resolve('late');
    });
  },
});

interface Answer {
  readonly status: number;
  readonly problem?: string;
}
const ask = async (service: ServiceName, page: 'readyz' | 'healthz'): Promise<Answer> => {
  const response = await fetch(`http://127.0.0.1:${ports[service]}/${page}`);
  return { ...((await response.json()) as object), status: response.status };
};
const unready = (service: ServiceName): Promise<string> =>
  eventually(`the ${service} says that it is not ready`, async () => {
    const { status, problem } = await ask(service, 'readyz');
    return status === 503 ? problem : undefined;
  }, 60_000);
const ready = (service: ServiceName): Promise<true> => eventually(`the ${service} is ready`, async () => (await ask(service, 'readyz')).status === 200 || undefined, 60_000).then(() => true as const);

beforeAll(async () => {
  for (const service of SERVICES) ports[service] = await getPort();
  stack = await TestStack.start({ ownServers: true, env: Object.fromEntries(SERVICES.map((service) => [service, { HOLDFAST_HEALTH_PORT: String(ports[service]) }])) });
  worker = await work(stack.brokers, { tools: [held, countingTool('pay', 'irreversible', firings)] });
  await stack.goodRun('warm', 'pay');
}, LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, LIMIT_MS);

test('a broker that takes a send and never answers: readiness says how long a row has waited, the process is let live, and once the broker answers every row stands on its topic in order and nothing has fired twice', async () => {
  const run = 'hangs';
  await stack.intent(run, 'StartRun', { agent: null, input: 1 });
  await stack.intent(run, 'CallTool', { step: '1', tool: { name: 'held', version: '1' }, args: {} });
  await eventually('the effect is under way', () => firings.some((firing) => firing.run === run));
  const broker = stack.stack.kafka?.pid;
  if (broker === undefined) throw new Error('this stack has no broker of its own');

  process.kill(broker, 'SIGSTOP');
  try {
    // Its deadline passes: the ledger decides by its clock, commits, and can't publish.
    await eventually('the ledger has committed that nobody knows', async () => (await stack.rows('ledger', `select from journal where stream = $1 and type = 'EffectOutcomeUnknown'`, [run])).length > 0);
    expect(await unready('ledger')).toMatch(/the oldest unpublished row has waited \d{5} ms/);
    expect((await ask('ledger', 'healthz')).status).toBe(200);
  } finally {
    process.kill(broker, 'SIGCONT');
  }
  await ready('ledger');
  await stack.event(run, 'RunBlocked');
  release?.();
  expect(await stack.event(run, 'EffectSettled')).toMatchObject({ data: { outcome: { status: 'succeeded', result: { value: 'late' } } } });
  await stack.finish(run);
  expect(firings.filter((firing) => firing.run === run)).toHaveLength(1);
  expect(stack.events(run, topics.effectEvents).filter(({ envelope }) => envelope.type === 'EffectOutcomeUnknown')).toHaveLength(1);

  await Promise.all(stack.lanes.map((lane) => stack.goodRun(stack.runOn(lane, 'after'), 'pay')));
  for (const topic of [topics.runEvents, topics.effectEvents]) {
    for (const lane of stack.lanes) {
      const rows = stack.seen.filter((record) => record.topic === topic && record.lane === lane);
      expect(rows.map(({ envelope }) => envelope.prev)).toEqual([0, ...rows.slice(0, -1).map(({ envelope }) => envelope.seq)]);
    }
  }
  expect(await stack.halts()).toEqual([]);
});

test('a database that takes a statement and never answers: what is asked meanwhile waits, and is done once when it answers', async () => {
  // Idle connections are given back: some are in use now.
  await stack.goodRun('warm again', 'pay');
  const backends = await stack.rows<{ pid: number }>('orchestrator', `select pid from pg_stat_activity where application_name like 'holdfast-%'`);
  expect(backends.length).toBeGreaterThan(1);
  // The server first: a new connection would find a process that answers.
  const frozen = [stack.stack.postgres?.pid ?? 0, ...backends.map(({ pid }) => pid)];
  expect(frozen[0]).toBeGreaterThan(0);
  for (const pid of frozen) process.kill(pid, 'SIGSTOP');
  const runs = stack.lanes.map((lane) => stack.runOn(lane, 'frozen'));
  try {
    for (const run of runs) {
      await stack.intent(run, 'StartRun', { agent: null, input: 1 });
      await stack.intent(run, 'CallTool', { step: '1', tool: { name: 'pay', version: '1' }, args: { amount: 1 } });
    }
    await eventually('the orchestrator has work under way that does not end', async () => JSON.stringify(await ask('orchestrator', 'readyz')).match(/"stuckMs":[1-9]/) !== null);
    // Ten seconds pass until that is called a fault: in full length they are waited for.
    if (proof(false, true)) expect(await unready('orchestrator')).toMatch(/the database has not answered for \d{5} ms/);
    expect(runs.flatMap((run) => stack.events(run))).toEqual([]);
  } finally {
    for (const pid of frozen) process.kill(pid, 'SIGCONT');
  }
  for (const run of runs) {
    await stack.event(run, 'EffectSettled');
    await stack.finish(run);
    expect(firings.filter((firing) => firing.run === run)).toHaveLength(1);
  }
  await ready('orchestrator');
  expect(await stack.halts()).toEqual([]);
  await eventually('topics, journals and chains agree', async () => (await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences.length === 0);
});
