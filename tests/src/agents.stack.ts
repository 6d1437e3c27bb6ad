import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { fileArtifactStore } from '@holdfast/runtime/artifacts';
import { defineAgent, defineTool, Failed, HoldfastClient, Rejected, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const fired: string[] = [];
const BIG = 300 * 1024;
const none = z.object({});

const put = defineTool({ name: 'put', version: '1', effect: 'idempotent', input: z.object({ n: z.number() }), output: z.object({ n: z.number() }), execute: ({ n }, { step }) => {
  fired.push(`put ${step}`);
  return { n };
} });
const flaky = defineTool({ name: 'flaky', version: '1', effect: 'idempotent', input: none, output: z.object({ attempt: z.number() }), retry: { attemptsMax: 5, initialMs: 5, maxMs: 20, factor: 2 }, execute: (_, { attempt, operationKey }) => {
  fired.push(`flaky ${operationKey}`);
  if (attempt < 3) throw new Failed({ class: 'transient', message: 'not yet' });
  return { attempt };
} });
const refuse = defineTool({ name: 'refuse', version: '1', effect: 'irreversible', input: none, output: none, owner: 'nobody', execute: () => {
  throw new Rejected('closed on Sundays');
} });
const big = defineTool({ name: 'big', version: '1', effect: 'irreversible', input: none, output: z.object({ text: z.string() }), owner: 'nobody', execute: (_, { step }) => {
  fired.push(`big ${step}`);
  return { text: 'x'.repeat(BIG) };
} });
const odd = defineTool({ name: 'odd', version: '1', effect: 'irreversible', input: z.object({ text: z.string() }), output: z.object({ text: z.string() }), owner: 'nobody', execute: ({ text }) => ({ text }) });
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', input: z.object({ order: z.string(), cents: z.number() }), output: none, owner: 'nobody', execute: ({ order }) => {
  fired.push(`refund ${order}`);
  return {};
} });
const vague = defineTool({ name: 'vague', version: '1', effect: 'irreversible', input: none, output: none, owner: 'the desk', execute: () => {
  throw new Error('');
} });

const agent = defineAgent({
  name: 'everything',
  version: '1',
  input: z.object({ odd: z.string() }),
  output: z.object({ sum: z.number(), attempt: z.number(), said: z.string(), length: z.number(), odd: z.string(), sha256: z.string(), random: z.boolean() }),
  run: async (run, input) => {
    const branches = await run.all([(b) => b.call(put, { n: 1 }), (b) => b.call(put, { n: 2 }), (b) => b.call(put, { n: 3 })], { checkpoint: 'group' });
    const { attempt } = await run.call(flaky, {});
    const said = await run.call(refuse, {}).then(() => 'yes', (error: unknown) => (error instanceof Error ? error.message : ''));
    const { text } = await run.call(big, {});
    const echo = await run.call(odd, { text: input.odd });
    const ref = await run.artifact('notes', 'some notes');
    const random = run.random() < 1 && run.now() > 0 && run.uuid().length === 36;
    return { sum: branches.reduce((sum, { n }) => sum + n, 0), attempt, said, length: text.length, odd: echo.text, sha256: ref.sha256, random };
  },
});
const unsure = defineAgent({ name: 'unsure', version: '1', input: none, output: none, run: async (run) => {
  await run.call(vague, {});
  return {};
} });

let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

beforeAll(async () => {
  stack = await TestStack.start();
  worker = await work(stack.brokers, { agents: [agent, unsure], tools: [put, flaky, refuse, big, odd, vague, refund], artifacts: fileArtifactStore(path.join(stack.stack.dir, 'artifacts')) });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('one run uses all that an agent can ask for, and each effect fires as often as its attempts say', async () => {
  const nasty = 'W\u0000s \ud83d \\u0000 😀';
  const run = await client.start(agent, { odd: nasty }, { runId: 'all of it' });
  const outcome = await run.outcome({ timeoutMs: 60_000 });
  expect(outcome).toEqual({ status: 'completed', output: { sum: 6, attempt: 3, said: expect.stringContaining('closed on Sundays'), length: BIG, odd: nasty, sha256: expect.stringMatching(/^[0-9a-f]{64}$/), random: true } });
  expect(fired.filter((what) => what.startsWith('put')).sort()).toEqual(['put 1.1', 'put 1.2', 'put 1.3']);
  const flakyKeys = fired.filter((what) => what.startsWith('flaky'));
  expect(flakyKeys).toHaveLength(3);
  expect(new Set(flakyKeys).size).toBe(1);
  expect(fired.filter((what) => what.startsWith('big'))).toHaveLength(1);
});

test('the group is one event, and the large result is an artifact in the stream', async () => {
  const events = stack.seen.filter(({ envelope }) => envelope.subject === 'all of it');
  expect(events.filter(({ envelope }) => envelope.type === 'GroupRequested')).toHaveLength(1);
  expect(JSON.stringify(events.map(({ data }) => data)).length).toBeLessThan(BIG);
  expect(JSON.stringify(events.map(({ data }) => data))).toContain('"artifact":{"sha256"');
});

test('an empty error of an irreversible tool is an unknown outcome: the run is blocked and nothing fires again', async () => {
  await client.start(unsure, {}, { runId: 'unsure' });
  const blocked = await stack.event('unsure', 'RunBlocked');
  expect(blocked.data).toMatchObject({ step: '1', attempt: 1, cause: 'may_have_applied' });
  expect(stack.seen.filter(({ envelope }) => envelope.subject === 'unsure' && envelope.type === 'EffectDispatched')).toHaveLength(1);
  expect(stack.seen.find(({ envelope }) => envelope.subject === 'unsure' && envelope.type === 'EffectOutcomeUnknown')?.data).toMatchObject({ owner: 'the desk' });
});

test('a harness that owns its loop gets the recorded outcome for a step asked for again, and no second firing', async () => {
  const before = fired.length;
  const harness = await client.attach('harness', { input: { mine: true } });
  const first = await harness.call('1', put, { n: 41 });
  const again = await (await client.attach('harness', { input: { mine: true } })).call('1', put, { n: 41 });
  expect([first, again]).toEqual([{ n: 41 }, { n: 41 }]);
  await expect(harness.call('1', put, { n: 42 })).rejects.toThrow(/operation_conflict/);
  expect(fired.length - before).toBe(1);
  await harness.finish({ done: true });
  expect(await client.outcome('harness', { timeoutMs: 20_000 })).toMatchObject({ status: 'completed' });
});

test('a hundred equal requests at once get one decision and one firing', async () => {
  await stack.intent('crowd', 'StartRun', { agent: null, input: null });
  const call = { step: '1', tool: { name: 'refund', version: '1' }, args: { order: 'crowd', cents: 1 } };
  await Promise.all(Array.from({ length: 100 }, () => stack.intent('crowd', 'CallTool', call)));
  await stack.event('crowd', 'EffectSettled');
  await stack.finish('crowd');
  expect(stack.events('crowd').map(({ envelope }) => envelope.type)).toEqual(['RunAccepted', 'EffectRequested', 'EffectSettled', 'RunFinished']);
  expect(fired.filter((what) => what === 'refund crowd')).toHaveLength(1);
});

test('the program without the SDK, as the docs show it, starts a run, has its tool fired once and ends it', async () => {
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const page = await readFile(path.join(root, 'docs/plain-kafka.md'), 'utf8');
  const code = /```js\n(.*?)```/s.exec(page)?.[1] ?? '';
  expect(code.trim().split('\n').length).toBeLessThanOrEqual(22);
  const program = spawn(process.execPath, ['--input-type=module', '-e', code], { cwd: root, env: { ...process.env, HOLDFAST_BROKERS: stack.brokers.join(',') }, stdio: 'ignore' });
  try {
    const finished = await stack.event('order-17', 'RunFinished');
    expect(finished.data).toMatchObject({ ending: { status: 'completed' }, effects: [{ step: '1', outcome: 'succeeded' }] });
    expect(fired.filter((what) => what === 'refund A-17')).toHaveLength(1);
  } finally {
    program.kill('SIGKILL');
  }
});
