import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { brakeStream, topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { cli } from './support/cli.js';
import { eventually } from './support/eventually.js';
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
const [CHAPTERS, CHAPTER_CHARS] = [6, 70_000];
let written = 0;
let mayEnd = false;
/** Records much, and fails at its end until it may go on. */
const scribe = defineAgent({ name: 'scribe', version: '1', input: z.object({}), output: z.number(), run: async (run) => {
  let chars = 0;
  for (let chapter = 1; chapter <= CHAPTERS; chapter += 1) chars += (await run.step(`chapter ${chapter}`, () => ((written += 1), 'x'.repeat(CHAPTER_CHARS)))).length;
  if (!mayEnd) throw new Error('out of ink');
  return chars;
} });
/** Nobody owns its unknowns. */
const shred = defineTool({ name: 'shred', version: '1', effect: 'irreversible', input: z.object({}), output: z.null(), execute: () => null });

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
  stack = await TestStack.start({ env: { orchestrator: { HOLDFAST_STUCK_AFTER_MS: '1000', HOLDFAST_LIMITS: JSON.stringify({ agents: { rare: { openMax: 1, queueMax: 1 } } }) } } });
  served = await work(stack.brokers, { worker: 'first', agents: [clerk, rare, scribe], tools: [pay, put, shred] });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
  Object.assign(process.env, { HOLDFAST_BROKERS: stack.brokers.join(','), HOLDFAST_DATABASE_URL: stack.stack.databaseUrl, HOLDFAST_OPERATOR: 'kate', NO_COLOR: '1' });
}, STACK_LIMIT_MS);

afterAll(async () => {
  delete process.env['HOLDFAST_BROKERS'];
  delete process.env['HOLDFAST_DATABASE_URL'];
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
  // Who starts it by command, or attaches to it, hears so too.
  const asked = await cli('runs', 'start', 'rare', '--input', '{}', '--run-id', 'rare-d', '--wait', '1m');
  expect(asked).toMatchObject({ code: 1, out: expect.stringMatching(/^run rare-d: StartRun was refused \(queue_full\): .*; it may be started again from 20.*Z on\n$/) });
  expect(await cli('runs', 'show', 'rare-d')).toMatchObject({ code: 1, err: expect.stringMatching(/^there is no run rare-d: its start was refused \(queue_full\): /) });
  const chatting = await client.attach('chat-e', { concurrencyKey: 'chat-8' });
  await expect(client.attach('chat-f', { concurrencyKey: 'chat-8', onConcurrent: 'reject' })).rejects.toMatchObject({ name: 'NotAdmitted', reason: 'concurrent_run', holder: 'chat-e' });
  await chatting.finish(null);
  await chatting.close();
  for (const run of ['rare-a', 'rare-b']) {
    await client.signal(run, 'go', run);
    expect(await client.outcome(run, { timeoutMs: 60_000 })).toMatchObject({ status: 'completed' });
  }
  // Another process asks again under the same id: the refusal that it reads first is not its own.
  const other = await HoldfastClient.connect({ brokers: stack.brokers });
  const again = await other.start(rare, {}, { runId: 'rare-c' });
  await stack.event('rare-c', 'RunAccepted');
  await client.signal('rare-c', 'go', 'rare-c');
  expect(await again.outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed' });
  await other.close();
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

test('a run with a history larger than a message is tried again with all of it', async () => {
  await client.start(scribe, {}, { runId: 'long' });
  await stack.event('long', 'RunFinished');
  expect(await client.outcome('long', { timeoutMs: 60_000 })).toMatchObject({ status: 'failed' });
  mayEnd = true;
  await stack.send({ topic: topics.operatorCommands, key: 'long', type: 'ForkRun', value: JSON.stringify({ command: 'retry-1', by: kate, run: 'long-again' }) });
  expect(await client.outcome('long-again', { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: CHAPTERS * CHAPTER_CHARS });
  expect(types('long-again').filter((type) => type === 'StepsCopied').length).toBeGreaterThan(1);
  expect(written).toBe(CHAPTERS);
});

describe('at the command line', () => {
  const json = async (...args: string[]): Promise<{ code: number; said: { readonly [member: string]: Json } }> => {
    const { code, out, err } = await cli(...args, '--json');
    if (out === '') throw new Error(`nothing was said: ${err}`);
    return { code, said: JSON.parse(out) as { [member: string]: Json } };
  };
  const kateSays = ['--as', 'kate', '--role', 'operator'];

  test('a tool is held still and let go, for a reason that all see; twice is refused', async () => {
    expect(await cli('brakes', 'set', 'tool', 'pay', '--reason', 'look first', ...kateSays)).toMatchObject({ code: 0, out: `tool:pay is held still on ${stack.lanes.length} lanes\n` });
    expect(await json('brakes', 'list', '--kind', 'tool')).toMatchObject({ code: 0, said: { brakes: [{ brake: 'tool:pay', by: 'kate', reason: 'look first', lanes: stack.lanes.length }], next: null } });
    expect((await cli('brakes', 'list')).out).toMatch(/tool:pay\s.*kate\s.*look first/);
    expect(await cli('brakes', 'set', 'tool', 'pay', '--reason', 'again', ...kateSays)).toMatchObject({ code: 1, out: expect.stringContaining('refused') });
    expect(await json('brakes', 'release', 'tool', 'pay', ...kateSays)).toMatchObject({ code: 0, said: { brake: 'tool:pay', lanes: stack.lanes.length, refused: [] } });
    expect((await cli('brakes', 'list')).out).toBe('nothing is held still\n');
    expect(await cli('brakes', 'set', 'planet', 'earth', '--reason', 'no', ...kateSays)).toMatchObject({ code: 2, err: expect.stringContaining('names nothing that can be held still') });
  });

  test('a run whose call is held still says so, and why; let go, it is under way no more', async () => {
    await cli('brakes', 'set', 'tool', 'pay', '--reason', 'look first', ...kateSays);
    await stack.intent('holds', 'StartRun', { agent: null, input: 1 });
    await stack.intent('holds', 'CallTool', { step: '1', tool: { name: 'pay', version: '1' }, args: { run: 'holds' } });
    await eventually('the call is shown as held', async () => (await cli('runs', 'show', 'holds')).out.includes('held  '));
    const { out } = await cli('runs', 'show', 'holds');
    expect(out).toMatch(/\nnext +1 \(held\)\n/);
    expect(out).toMatch(/\nheld +step 1 \(pay@1\) since \d{4}-.*, not sent yet: kate holds tool:pay still: look first\n/);
    expect((await json('runs', 'show', 'holds')).said['steps']).toEqual([expect.objectContaining({ outcome: { status: 'held', since: expect.any(String), why: 'kate holds tool:pay still: look first', until: null } })]);
    expect(firedBy('holds')).toEqual([]);
    await cli('brakes', 'release', 'tool', 'pay', ...kateSays);
    await stack.event('holds', 'EffectSettled');
    expect((await cli('runs', 'show', 'holds')).out).toMatch(/\nnext +2\n/);
    expect(firedBy('holds')).toEqual(['pay holds']);
    await stack.finish('holds');
  });

  test('a run is forked from a step, and one that was cancelled is tried again from where it stood', async () => {
    expect(await json('runs', 'fork', 'before', '--from', '3', '--run-id', 'by-hand', ...kateSays)).toMatchObject({ code: 0, said: { run: 'by-hand', event: 'RunForked', from: '3' } });
    expect(await client.outcome('by-hand', { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'one' });
    expect(firedBy('by-hand')).toEqual(['pay by-hand']);
    expect(await cli('runs', 'retry', 'before', ...kateSays)).toMatchObject({ code: 1, out: expect.stringMatching(/^refused \(not_possible\): only a run that ended otherwise than completed/) });
    await client.start(clerk, {}, { runId: 'dropped' });
    await stack.event('dropped', 'RunReleased');
    expect(await cli('runs', 'cancel', 'dropped', '--reason', 'too soon', ...kateSays)).toMatchObject({ code: 0, out: 'run dropped: RunCancelRequested\n' });
    await stack.event('dropped', 'RunFinished');
    expect(await cli('runs', 'retry', 'dropped', '--run-id', 'picked-up', ...kateSays)).toMatchObject({ code: 0, out: 'run dropped: RunForked as picked-up, from step 1\n' });
    await stack.event('picked-up', 'RunReleased');
    expect(await json('runs', 'signal', 'picked-up', 'go', '"four"')).toMatchObject({ code: 0, said: { event: 'SignalReceived' } });
    expect(await client.outcome('picked-up', { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'four' });
    expect((await json('runs', 'show', 'picked-up')).said).toMatchObject({ phase: 'completed', origin: expect.anything() });
    expect((await cli('runs', 'show', 'picked-up')).out).toMatch(/^run +picked-up\nphase +completed\n/);
    expect(await cli('runs', 'show', 'never-was')).toMatchObject({ code: 1, err: expect.stringContaining('never accepted here') });
  });

  test('runs are listed by phase and page, and one that nothing explains is shown as stuck with what it hangs on', async () => {
    await client.start({ name: 'hosted-by-nobody', version: '7' }, {}, { runId: 'alone' });
    await stack.event('alone', 'RunStuck');
    const why = 'no worker of hosted-by-nobody@7 in pool default holds its lane';
    expect((await json('runs', 'list', '--phase', 'stuck', '--agent', 'hosted-by-nobody')).said).toMatchObject({ runs: [{ run: 'alone', phase: 'stuck', stuck: expect.stringContaining(why) }], next: null });
    expect((await cli('runs', 'list', '--status', 'stuck')).out).toMatch(/alone\s.*stuck\s.*hosted-by-nobody/);
    expect((await json('runs', 'show', 'alone')).said).toMatchObject({ phase: 'stuck', stuck: expect.anything() });
    const first = (await json('runs', 'list', '--phase', 'completed', '--limit', '2')).said as { runs: { run: string }[]; next: string };
    const second = (await json('runs', 'list', '--phase', 'completed', '--limit', '2', '--after', first.next)).said as typeof first;
    expect(new Set([...first.runs, ...second.runs].map(({ run }) => run)).size).toBe(4);
  });

  test('what tools and agents declare is listed, shown line by line, and checked', async () => {
    expect((await json('contracts', 'list', '--kind', 'tool', '--effect', 'irreversible')).said).toMatchObject({ contracts: [{ name: 'pay@1', owner: 'the desk' }, { name: 'shred@1', owner: null }] });
    expect((await cli('contracts', 'list', '--kind', 'agent')).out).toMatch(/agent\s.*clerk@1/);
    expect((await cli('contracts', 'show', 'pay@1')).out).toMatch(/^tool pay@1\n(?=[^]*effect class\s.*irreversible)(?=[^]*owner of unknowns\s.*the desk)/);
    expect((await json('contracts', 'show', 'clerk@1')).said).toMatchObject({ contracts: [{ kind: 'agent' }] });
    expect(await cli('contracts', 'check')).toMatchObject({ code: 1, out: expect.stringMatching(/shred@1.*owner of unknowns/) });
    expect(await json('contracts', 'check')).toMatchObject({ code: 1, said: { problems: expect.arrayContaining([expect.stringContaining('shred@1')]) } });
    expect(await cli('contracts', 'show', 'nothing@9')).toMatchObject({ code: 2, err: expect.stringContaining('contracts list') });
  });
});
