import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { STACK_LIMIT_MS, TestStack, type Seen } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const SLEEP_MS = 4000;
const fired: string[] = [];
const text = z.string();
const refund = defineTool({
  name: 'refund',
  version: '1',
  effect: 'irreversible',
  owner: 'the desk',
  approval: { approvers: ['finance'], fourEyes: true },
  input: z.object({ order: text }),
  output: text,
  execute: ({ order }) => {
    fired.push(order);
    return `re-${order}`;
  },
});

const about = { version: '1', input: z.object({}), output: text };
const sleeper = defineAgent({ name: 'sleeper', ...about, run: async (run) => {
  await run.sleep(SLEEP_MS);
  return 'awake';
} });
/** It rests on a policy, and on a secret that is renewed while it waits. */
const listenerWith = (secret: string) => defineAgent({ name: 'listener', ...about, resume: { policy: { value: 'signals-2026', onChange: 'ask' }, secrets: { value: secret, onChange: 'go_on' } }, run: async (run) => `${await run.signal('first', text)} ${await run.signal('second', text)}` });
const desk = defineAgent({ name: 'desk', ...about, run: async (run) => {
  const approval = await run.approval({ what: 'refund order 7', tool: refund, args: { order: '7' } });
  return run.call(refund, approval.args, { approval });
} });
const helper = defineAgent({ name: 'helper', ...about, run: (run) => run.signal('answer', text) });
const parent = defineAgent({ name: 'parent', ...about, run: async (run) => `heard ${await run.child(helper, {})}` });

/** A third party that answers before its own reply is there. */
const ask = defineTool({ name: 'ask', version: '1', effect: 'irreversible', owner: 'the desk', input: z.object({ token: text }), output: text, execute: async ({ token }, { run }) => {
  await client.deliverCallback(run, '1', token, { ok: true });
  return 'asked';
} });
const scanner = defineAgent({ name: 'scanner', ...about, run: async (run) => {
  const callback = run.callback(z.object({ ok: z.boolean() }), { deadline: '1 h' });
  return `${await run.call(ask, { token: callback.token })} ${(await callback.answer).ok}`;
} });

const listener = listenerWith('vault/1');
const agents = { sleeper, listener, desk, parent, unwanted: helper };
const CHILD = 'parent/1';
const waiting = [...Object.keys(agents), CHILD];
const kate = { name: 'kate', roles: ['finance', 'operator'] };

let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;
const aWorker = (name: string, secret: string): Promise<ServedWorker> => work(stack.brokers, { worker: name, agents: [sleeper, listenerWith(secret), desk, helper, parent, scanner], tools: [refund, ask] });
const say = (run: string, type: string, data: { readonly [member: string]: Json }) => stack.send({ topic: topics.operatorCommands, key: run, type, value: JSON.stringify({ by: kate, ...data }) });
const types = (run: string): string[] => stack.events(run).map(({ envelope }) => envelope.type);
const refusedInput = (run: string, id: string): Promise<Seen> => stack.event(run, 'InputRefused', (data) => data['id'] === id);
const approve = (command: string, by: Json, more: { readonly [member: string]: Json } = {}) => say('desk', 'DecideApproval', { command, by, step: '1', decision: 'approve', ...more });

beforeAll(async () => {
  Object.assign(process.env, { HOLDFAST_CALLBACK_SECRET: 'only for this test', HOLDFAST_CALLBACK_URL: 'https://gate.example/v1/callbacks' });
  stack = await TestStack.start();
  worker = await aWorker('before', 'vault/1');
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('six runs wait and are held by nobody; a signal that comes before its wait is kept', async () => {
  for (const [id, agent] of Object.entries(agents)) await client.start(agent, {}, { runId: id, principal: 'joe' });
  await Promise.all(waiting.map((run) => stack.event(run, 'RunReleased')));
  await client.signal('listener', 'second', 'world');
  await stack.event('listener', 'SignalReceived');
});

test('whoever may not decide is told why, and nothing moves', async () => {
  await approve('wrong-role', { name: 'eve', roles: ['intern'] });
  expect((await refusedInput('desk', 'wrong-role')).data).toMatchObject({ reason: 'role_missing' });
  await approve('who-asked', { name: 'joe', roles: ['finance'] });
  expect((await refusedInput('desk', 'who-asked')).data).toMatchObject({ reason: 'four_eyes' });
  expect(types('desk')).not.toContain('WaitEnded');
});

test('their worker and the orchestrator are killed; what they wait for comes all the same, and they end', async () => {
  await worker?.stop({ graceMs: 0 });
  await stack.service('orchestrator').kill();
  await client.signal('listener', 'first', 'hello');
  await client.signal(CHILD, 'answer', 'forty-two');
  await approve('yes', kate);
  await approve('no', kate, { decision: 'reject' });
  await say('unwanted', 'CancelRun', { command: 'stop', reason: 'nobody wants it', scope: 'run', manner: 'graceful' });
  await stack.service('orchestrator').restart();
  worker = await aWorker('after', 'vault/2');
  const outcomes = await Promise.all(Object.keys(agents).map((run) => client.outcome(run, { timeoutMs: 60_000 })));
  expect(outcomes).toEqual([
    { status: 'completed', output: 'awake' },
    { status: 'completed', output: 'hello world' },
    { status: 'completed', output: 're-7' },
    { status: 'completed', output: 'heard forty-two' },
    { status: 'cancelled', reason: 'nobody wants it', by: 'kate' },
  ]);
  expect(fired).toEqual(['7']);
  // Where the orchestrator is back before the new worker, it gives the run to the old one first: by then it has read what the new one declares, or not yet.
  const found = stack.events('listener').flatMap(({ envelope, data }) => (envelope.type === 'RunResumed' ? [data['revalidated'] as { readonly secrets: string }] : []));
  expect(found.filter(({ secrets }) => secrets === 'changed')).toEqual([expect.objectContaining({ history: 'intact', agentVersion: 'same', policy: 'same', permissions: 'none' })]);
});

test('each wait ended once, the second decision was refused, and the cancelled run never ran again', async () => {
  for (const run of waiting.filter((name) => name !== 'unwanted')) expect([run, types(run).filter((type) => type === 'WaitEnded')]).toEqual([run, run === 'listener' ? ['WaitEnded', 'WaitEnded'] : ['WaitEnded']]);
  expect((await refusedInput('desk', 'no')).data).toMatchObject({ reason: 'already_decided' });
  expect(types('unwanted').slice(-2)).toEqual(['RunCancelRequested', 'RunFinished']);
  await client.signal('unwanted', 'answer', 'too late');
  await stack.event('unwanted', 'InputRefused');
  expect(types('unwanted').slice(-3)).toEqual(['RunCancelRequested', 'RunFinished', 'InputRefused']);
  expect(await stack.halts()).toEqual([]);
});

test('a third party that answers inside its own reply finds the wait (C61)', async () => {
  const run = await client.start(scanner, {}, { runId: 'scanner' });
  expect(await run.outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'asked true' });
  expect(types('scanner')).not.toContain('InputRefused');
});
