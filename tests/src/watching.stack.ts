import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics } from '@holdfast/protocol';
import type { ServedWorker } from '@holdfast/sdk';
import { tail, type Tail } from '@holdfast/runtime/kafka';
import { eventually } from './support/eventually.js';
import { SERVICES, STACK_LIMIT_MS, TestStack, type ServiceName } from './support/stack.js';
import { countingTool, work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

/** What anybody who watches from outside sees: lag by Kafka's own measure, and workers by their word. */

interface Shown {
  readonly worker: string;
  readonly state: string;
  readonly lanes: readonly number[];
  readonly tools: readonly { readonly name: string }[];
  readonly generation: number | null;
}

let stack: TestStack;
let worker: ServedWorker | undefined;
let reader: Tail | undefined;
const shown: Shown[] = [];
const keys = new Set<string | null>();

const reads: Record<ServiceName, readonly string[]> = {
  orchestrator: [topics.agentIntents, topics.effectEvents, topics.operatorCommands, topics.compensationEvents],
  ledger: [topics.runEvents, topics.toolResults, topics.reconciliationEvents, topics.compensationEvents],
  reconciliation: [topics.effectEvents, topics.toolResults, topics.operatorCommands],
  compensation: [topics.runEvents, topics.effectEvents, topics.toolResults, topics.operatorCommands],
};

/** How far a service's group is behind its topics, as any Kafka tool would work it out; null while it has said nothing. */
async function lag(service: ServiceName): Promise<number | null> {
  const ends = await stack.ends();
  const committed = await stack.admin.fetchOffsets({ groupId: `holdfast.${service}`, topics: [...reads[service]] });
  const places = committed.flatMap(({ topic, partitions }) => partitions.map(({ partition, offset }) => ({ end: ends[`${topic}/${partition}`] ?? 0, offset: Number(offset) })));
  if (places.length < reads[service].length * stack.lanes.length || places.some(({ offset }) => offset < 0)) return null;
  return places.reduce((sum, { end, offset }) => sum + end - offset, 0);
}

beforeAll(async () => {
  stack = await TestStack.start();
  reader = await tail({ brokers: stack.brokers, topics: [topics.workerEvents], from: 'beginning', onRecord: ({ key, value }) => {
    keys.add(key);
    shown.push(JSON.parse(value ?? '{}') as Shown);
  } });
  worker = await work(stack.brokers, { tools: [countingTool('pay', 'irreversible', [])] });
  await Promise.all(stack.lanes.map((lane) => stack.goodRun(stack.runOn(lane, 'run'), 'pay')));
}, STACK_LIMIT_MS);

afterAll(async () => {
  await reader?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('the services’ groups show no lag at rest, and what waits for a service while it is down', async () => {
  // All at once: what one is told last is another's doing.
  await eventually('every service has told that it is at the end', async () => (await Promise.all(SERVICES.map(lag))).every((behind) => behind === 0));
  await stack.service('orchestrator').stop();
  for (const lane of stack.lanes) await stack.intent(stack.runOn(lane, 'waiting'), 'StartRun', { agent: null, input: lane });
  expect(await lag('orchestrator')).toBe(stack.lanes.length);
  await stack.service('orchestrator').start();
  await eventually('the orchestrator has told that it is at the end', async () => (await lag('orchestrator')) === 0);
});

test('a worker is seen from its start to its end, with what it holds', async () => {
  const id = worker?.worker;
  await eventually('it serves every lane', () => shown.some(({ state, lanes }) => state === 'serving' && lanes.length === stack.lanes.length));
  await worker?.stop();
  await eventually('its last word', () => shown.some(({ state }) => state === 'stopped'));
  expect([...keys]).toEqual([id]);
  expect(shown[0]).toMatchObject({ worker: id, state: 'started', tools: [{ name: 'pay', version: '1' }] });
  expect(shown.at(-1)).toMatchObject({ worker: id, state: 'stopped', lanes: [] });
});
