import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { defineAgent, defineTool, MayHaveApplied, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { eventsOf, TestGateway } from './support/gateway.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const order = z.object({ order: z.string() });
const receipt = z.object({ id: z.string() });
const charge = defineTool({
  name: 'charge',
  version: '1',
  effect: 'irreversible',
  input: order,
  output: receipt,
  owner: 'the desk',
  settleDelay: 3_600_000,
  execute: ({ order: of }, { attempt }) => {
    if (of.startsWith('doubt') && attempt === 1) throw new MayHaveApplied('the line went dead');
    return { id: `re-${of}` };
  },
});
const desk = defineAgent({ name: 'desk', version: '1', input: order, output: receipt, run: (run, input) => run.call(charge, input) });
const agent = { name: 'desk', version: '1' };

let stack: TestStack;
let gateway: TestGateway;
let worker: ServedWorker | undefined;
let agentKey: string;
let viewerKey: string;

beforeAll(async () => {
  stack = await TestStack.start();
  [gateway, worker] = await Promise.all([TestGateway.start(stack), work(stack.brokers, { agents: [desk], tools: [charge] })]);
  [agentKey, viewerKey] = await Promise.all([gateway.key({ roles: ['agent'] }), gateway.key({ roles: ['viewer'] })]);
});
afterAll(async () => {
  await worker?.stop();
  await gateway?.stop();
  await stack?.stop();
});

const start = (runId: string, headers: Record<string, string> = {}) => gateway.post('/v1/runs', agentKey, { agent, input: { order: runId }, runId }, headers);

test('a run is started, watched and read', async () => {
  const started = await start('good-1');
  expect(started).toMatchObject({ status: 201, body: { id: 'good-1', agent, input: { order: 'good-1' }, principal: 'agent' } });
  expect(started.headers.get('location')).toBe('/v1/runs/good-1');
  const seen: string[] = [];
  for await (const { type } of eventsOf(`${gateway.url}/v1/runs/good-1/events`, viewerKey)) {
    seen.push(type);
    if (type === 'RunFinished') break;
  }
  expect(seen).toEqual(expect.arrayContaining(['RunAccepted', 'EffectRequested', 'EffectDispatched', 'EffectSucceeded']));
  const read = await gateway.ask('/v1/runs/good-1', { key: viewerKey });
  expect(read).toMatchObject({ status: 200, body: { status: 'completed', steps: { fresh: 1, replayed: 0 } } });
  const etag = read.headers.get('etag') ?? '';
  expect(await gateway.ask('/v1/runs/good-1', { key: viewerKey, headers: { 'if-none-match': etag } })).toMatchObject({ status: 304, text: '' });
});
