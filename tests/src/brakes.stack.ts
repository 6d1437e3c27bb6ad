import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { brakeStream, topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const fired: string[] = [];
const tool = (name: string, effect: 'irreversible' | 'idempotent') =>
  defineTool({ name, version: '1', effect, owner: 'the desk', input: z.object({ run: z.string() }), output: z.string(), execute: ({ run }) => (fired.push(`${name} ${run}`), run) });
const pay = tool('pay', 'irreversible');
const put = tool('put', 'idempotent');
const about = { version: '1', input: z.object({}), output: z.string() };
/** Waits for a word, then does one thing of each kind. */
const worker = (name: string) => defineAgent({ name, ...about, run: async (run) => {
  const word = await run.signal('go', z.string());
  await run.call(put, { run: run.id });
  await run.call(pay, { run: run.id });
  return word;
} });
const clerk = worker('clerk');
const rare = worker('rare');

const kate = { name: 'kate', roles: ['operator'] };
let stack: TestStack;
let served: ServedWorker | undefined;
let client: HoldfastClient;
const types = (run: string): string[] => stack.events(run).map(({ envelope }) => envelope.type);
const firedBy = (run: string): string[] => fired.filter((line) => line.endsWith(` ${run}`));

/** Says something to every lane, and waits until each has decided on it. */
async function toLanes(type: 'SetBrake' | 'ReleaseBrake', command: string, target: Json): Promise<void> {
  const value = JSON.stringify({ command, by: kate, target, ...(type === 'SetBrake' ? { reason: 'look first' } : {}) });
  for (const lane of stack.lanes) await stack.send({ topic: topics.operatorCommands, key: brakeStream(lane), type, value, partition: lane });
  await Promise.all(stack.lanes.map((lane) => stack.event(brakeStream(lane), type === 'SetBrake' ? 'BrakeSet' : 'BrakeReleased', (data) => data['command'] === command)));
}

beforeAll(async () => {
  stack = await TestStack.start({ env: { orchestrator: { HOLDFAST_LIMITS: JSON.stringify({ agents: { rare: { openMax: 1, queueMax: 1 } } }) } } });
  served = await work(stack.brokers, { worker: 'first', agents: [clerk, rare], tools: [pay, put] });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await served?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('a tenant that is held still: runs that go on and runs that come stand, also when the orchestrator is killed; let go, they end', async () => {
  await client.start(clerk, {}, { runId: 'before' });
  await stack.event('before', 'RunReleased');
  await toLanes('SetBrake', 'hold-1', { kind: 'tenant', name: 'default' });
  await client.start(clerk, {}, { runId: 'meanwhile' });
  await Promise.all(['before', 'meanwhile'].map((run) => stack.event(run, 'RunPaused')));
  await client.signal('before', 'go', 'one');
  await client.signal('meanwhile', 'go', 'two');
  await stack.event('before', 'WaitEnded');
  await stack.service('orchestrator').kill();
  await stack.service('orchestrator').restart();
  // Whatever the new instance does first, a signal that came after it was up has been taken in by then.
  await client.signal('before', 'again', 'x');
  await stack.event('before', 'SignalReceived', (data) => data['name'] === 'again');
  expect([types('before').filter((type) => type === 'RunResumed'), types('meanwhile').includes('LeaseGranted'), fired]).toEqual([[], false, []]);
  await toLanes('ReleaseBrake', 'free-1', { kind: 'tenant', name: 'default' });
  expect(await Promise.all(['before', 'meanwhile'].map((run) => client.outcome(run, { timeoutMs: 60_000 })))).toMatchObject([{ status: 'completed', output: 'one' }, { status: 'completed', output: 'two' }]);
  expect([firedBy('before'), firedBy('meanwhile')]).toEqual([['put before', 'pay before'], ['put meanwhile', 'pay meanwhile']]);
});

test('a tool that is held still fires nothing, granted or local, until it is let go', async () => {
  for (const name of ['pay', 'put']) await toLanes('SetBrake', `hold-${name}`, { kind: 'tool', name });
  await client.start(clerk, {}, { runId: 'held' });
  await client.signal('held', 'go', 'three');
  // The intent of the local call is on record; its worker has been told before and does not fire it.
  await stack.event('held', 'EffectRequested');
  await toLanes('ReleaseBrake', 'free-put', { kind: 'tool', name: 'put' });
  await stack.event('held', 'EffectPaused', (data) => data['by'] === 'tool:pay', topics.effectEvents);
  expect(firedBy('held')).toEqual(['put held']);
  expect(stack.events('held').find(({ envelope, data }) => envelope.type === 'EffectRequested' && data['held'] !== undefined)?.data['held']).toEqual({ brake: 'tool:pay', by: 'kate', reason: 'look first' });
  await toLanes('ReleaseBrake', 'free-pay', { kind: 'tool', name: 'pay' });
  expect(await client.outcome('held', { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'three' });
  expect(firedBy('held')).toEqual(['put held', 'pay held']);
});

test('of one conversation one run goes on: the next waits, is refused, or takes over', async () => {
  const chat = { concurrencyKey: 'chat-7' } as const;
  await client.start(clerk, {}, { runId: 'chat-a', ...chat });
  await stack.event('chat-a', 'RunReleased');
  await client.start(clerk, {}, { runId: 'chat-b', ...chat });
  await stack.event('chat-b', 'RunQueued');
  const refused = await client.start(clerk, {}, { runId: 'chat-c', ...chat, onConcurrent: 'reject' });
  await expect(refused.outcome({ timeoutMs: 60_000 })).rejects.toMatchObject({ name: 'NotAdmitted', reason: 'concurrent_run', holder: 'chat-a' });
  await client.start(clerk, {}, { runId: 'chat-d', ...chat, onConcurrent: 'rollback' });
  expect(await client.outcome('chat-a', { timeoutMs: 60_000 })).toMatchObject({ status: 'cancelled', by: 'run chat-d' });
  await stack.event('chat-a', 'CompensationRequested');
  for (const run of ['chat-d', 'chat-b']) {
    await stack.event(run, 'RunAdmitted');
    await client.signal(run, 'go', run);
    expect(await client.outcome(run, { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: run });
  }
});

test('a limit lets in as many as may, queues as many as may wait, and refuses the rest with the time to ask again', async () => {
  await client.start(rare, {}, { runId: 'rare-a' });
  await stack.event('rare-a', 'RunReleased');
  await client.start(rare, {}, { runId: 'rare-b' });
  await stack.event('rare-b', 'RunQueued');
  const third = await client.start(rare, {}, { runId: 'rare-c' });
  await expect(third.outcome({ timeoutMs: 60_000 })).rejects.toMatchObject({ name: 'NotAdmitted', reason: 'queue_full', retryAt: expect.any(Number) });
  for (const run of ['rare-a', 'rare-b']) {
    await client.signal(run, 'go', run);
    expect(await client.outcome(run, { timeoutMs: 60_000 })).toMatchObject({ status: 'completed' });
  }
  await client.start(rare, {}, { runId: 'rare-c' });
  await stack.event('rare-c', 'RunAccepted');
  expect(await stack.halts()).toEqual([]);
});

test('a run that ended is forked from a step: what came before is replayed, and fires nothing again', async () => {
  await stack.send({ topic: topics.operatorCommands, key: 'before', type: 'ForkRun', value: JSON.stringify({ command: 'fork-1', by: kate, run: 'after', from: '3' }) });
  expect(await client.outcome('after', { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'one' });
  // Its code says again what it was given as its own id; the origin's put is replayed, and pay is the fork's own.
  expect(fired.filter((line) => line === 'put before')).toHaveLength(1);
  expect(firedBy('after')).toEqual(['pay after']);
  expect(types('after').slice(0, 2)).toEqual(['RunAccepted', 'StepsCopied']);
});
