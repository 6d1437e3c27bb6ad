import { expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import type { EffectClass, Json, Outcome } from '@holdfast/protocol';
import { z } from 'zod';
import { accepted } from '../../src/define/accepted.js';
import { AlreadyDone, Failed, MayHaveApplied, PartlyApplied, Rejected } from '../../src/errors.js';
import type { ArtifactPort } from '../../src/host/artifacts.js';
import { Gate, give, keyOf, settle, stage, task, TASKS, until, type Stage, type StageOptions, type TaskOptions } from './kit.js';

const TOOL: Record<EffectClass, string> = { pure: 'look', idempotent: 'put', irreversible: 'pay' };

async function open(options: StageOptions = {}): Promise<Stage> {
  const made = await stage(options);
  await give(made.member);
  return made;
}

/** Fires one task and waits for its report. */
async function outcomeOf(made: Stage, effect: EffectClass, act: () => unknown, options: Partial<TaskOptions> = {}): Promise<Outcome | undefined> {
  made.tools.act = act;
  made.broker.append(TASKS, 0, task({ seq: 1, effect, tool: TOOL[effect], ...options }));
  await until(() => made.report(1).length > 0, 'the report');
  await settle();
  expect(made.report(1)).toHaveLength(1);
  return made.report(1)[0];
}

const throwing = (error: unknown) => (): never => {
  throw error;
};

/* ---- C01: each attempt calls the tool once, whatever it throws ---- */

test.each<EffectClass>(['irreversible', 'idempotent', 'pure'])('C01: a tool that throws is called once in an attempt (%s)', async (effect) => {
  const made = await open();
  const outcome = await outcomeOf(made, effect, throwing(new TypeError('unexpected argument')));
  expect(made.tools.fired).toEqual([1]);
  expect(outcome).toMatchObject(effect === 'irreversible' ? { status: 'unknown', cause: 'may_have_applied' } : { status: 'failed', failure: { class: 'transient' } });
});

test('C01: arguments that do not fit are judged before the call: nothing fires, and that is said', async () => {
  const made = await open();
  const outcome = await outcomeOf(made, 'irreversible', () => ({}), { args: { n: 'one' } });
  expect(made.tools.fired).toEqual([]);
  expect(outcome).toMatchObject({ status: 'failed', failure: { class: 'invalid_request', notApplied: true, message: expect.stringMatching(/n: .*number/) }, evidence: { kind: 'host' } });
});

test('C01: an extra argument is no reason for a second call', async () => {
  const made = await open();
  const outcome = await outcomeOf(made, 'irreversible', throwing(new Error('500')), { args: { n: 1, x: 1 } });
  expect(made.tools.fired).toEqual([1]);
  expect(outcome).toMatchObject({ status: 'unknown' });
});

test('the tool gets what it must pass on', async () => {
  const made = await open();
  await outcomeOf(made, 'irreversible', () => ({}), { attempt: 3, timeoutMs: 700 });
  const context = made.tools.calls[0]?.context;
  expect(context).toMatchObject({ operationKey: keyOf(1), attempt: 3, fence: 1, deadline: made.clock.now() + 700, run: 'run-1', step: '1' });
  expect(context?.signal.aborted).toBe(false);
});

/* ---- what a throw means ---- */

const failure = (failureClass: 'transient' | 'overloaded' | 'permission_denied', more: object = {}): Failed => new Failed({ class: failureClass, message: 'no', ...more });

test.each<[string, unknown, EffectClass, object]>([
  ['Rejected', new Rejected('card declined'), 'irreversible', { status: 'rejected', reason: 'card declined', evidence: { kind: 'receipt' } }],
  ['Failed, to be tried again after the end of time', failure('transient', { retryAfterMs: 1e23 }), 'idempotent', { status: 'failed', failure: { class: 'transient', retryAfterMs: 365 * 24 * 60 * 60 * 1000 } }],
  ['Failed transient', failure('transient'), 'irreversible', { status: 'unknown', cause: 'may_have_applied' }],
  ['Failed transient, not applied', failure('transient', { notApplied: true }), 'irreversible', { status: 'failed', failure: { class: 'transient', notApplied: true } }],
  ['Failed overloaded', failure('overloaded'), 'irreversible', { status: 'unknown' }],
  ['Failed permission_denied', failure('permission_denied'), 'irreversible', { status: 'failed', failure: { class: 'permission_denied' } }],
  ['Failed transient', failure('transient', { retryAfterMs: 1500.2 }), 'idempotent', { status: 'failed', failure: { class: 'transient', retryAfterMs: 1501 } }],
  ['MayHaveApplied', new MayHaveApplied('lost the answer'), 'irreversible', { status: 'unknown', cause: 'may_have_applied' }],
  ['MayHaveApplied', new MayHaveApplied('lost the answer'), 'idempotent', { status: 'unknown', cause: 'may_have_applied' }],
  ['MayHaveApplied', new MayHaveApplied('lost the answer'), 'pure', { status: 'failed', failure: { class: 'transient' } }],
  ['AlreadyDone', new AlreadyDone(), 'irreversible', { status: 'unknown', cause: 'may_have_applied', message: 'AlreadyDone: the target answers that this was done already' }],
  ['AlreadyDone', new AlreadyDone('409 key in use'), 'idempotent', { status: 'unknown', cause: 'may_have_applied', message: 'AlreadyDone: 409 key in use' }],
  ['PartlyApplied', new PartlyApplied({ lines: [1, 2] }, 'line 3 timed out'), 'irreversible', { status: 'unknown', cause: 'partial_effect', message: 'PartlyApplied: line 3 timed out', proved: { lines: [1, 2] } }],
  ['PartlyApplied', new PartlyApplied({ lines: [1, 2] }, 'line 3 timed out'), 'idempotent', { status: 'unknown', cause: 'partial_effect', proved: { lines: [1, 2] } }],
  ['PartlyApplied', new PartlyApplied({ lines: [1, 2] }, 'line 3 timed out'), 'pure', { status: 'failed', failure: { class: 'partial_effect' } }],
  ['PartlyApplied with no JSON', new PartlyApplied({ n: 1n }, 'half'), 'irreversible', { status: 'unknown', cause: 'partial_effect', message: expect.stringMatching(/half \(what is proved can't be kept: .*bigint/) }],
  ['PartlyApplied with too much', new PartlyApplied('x'.repeat(17 * 1024), 'half'), 'irreversible', { status: 'unknown', cause: 'partial_effect', message: expect.stringMatching(/half \(what is proved has \d+ bytes/) }],
  ['Failed partial_effect', new Failed({ class: 'partial_effect', message: 'half' }), 'irreversible', { status: 'unknown', cause: 'partial_effect', message: 'partial_effect: half' }],
  ['nothing', undefined, 'irreversible', { status: 'unknown', message: 'undefined' }],
  ['an empty error', new Error(''), 'irreversible', { status: 'unknown' }],
  ['a huge error', new Error('x'.repeat(5_000_000)), 'irreversible', { status: 'unknown', message: expect.stringMatching(/^.{4000}$/s) }],
  ['a huge reason', new Rejected('x'.repeat(5_000_000)), 'irreversible', { status: 'rejected', reason: expect.stringMatching(/^.{4000}$/s) }],
  ['a failure of no known class', new Failed(JSON.parse('{"class":"oops","message":"no"}')), 'irreversible', { status: 'unknown' }],
  ['a rejection without a reason', new Rejected(undefined as unknown as string), 'irreversible', { status: 'unknown' }],
])('%s thrown: %#', async (_, error, effect, expected) => {
  expect(await outcomeOf(await open(), effect, throwing(error))).toMatchObject(expected);
});

test('what only the ledger may add to a failure is not in a report', async () => {
  const outcome = await outcomeOf(await open(), 'pure', throwing(new Failed(JSON.parse('{"class":"invalid_request","message":"no","repairable":true,"fallback":{"name":"a","version":"1"}}'))));
  expect(outcome).toEqual({ status: 'failed', failure: { class: 'invalid_request', message: 'no' }, evidence: expect.anything() });
});

test.each<[EffectClass, object]>([
  ['irreversible', { status: 'unknown', cause: 'accepted', operationId: 'op-1' }],
  ['idempotent', { status: 'unknown', cause: 'accepted', operationId: 'op-1' }],
  ['pure', { status: 'failed', failure: { class: 'invalid_output', message: expect.stringMatching(/look@1 is pure and answered accepted/) } }],
])('a target that works on it leaves the outcome unknown, under its own name for the work (%s)', async (effect, expected) => {
  const made = await open();
  expect(await outcomeOf(made, effect, () => accepted('op-1'))).toMatchObject(expected);
  expect(made.tools.fired).toEqual([1]);
});

test.each(['', 'x'.repeat(501), 7])('work taken on under the name %j, which can\'t be recorded, was taken on all the same', async (name) => {
  expect(await outcomeOf(await open(), 'idempotent', () => accepted(name as string))).toMatchObject({ status: 'unknown', cause: 'may_have_applied' });
});

/* ---- results: an effect that happened is never fired again for its result ---- */

test.each(['W\u0000s\u0000l', 'ok \ud83d', 'literal \\u0000', 'emoji 😀'])('C07: %j comes back exactly', async (text) => {
  const made = await open();
  const outcome = await outcomeOf(made, 'irreversible', () => ({ text, [text]: 1 }));
  expect(outcome).toMatchObject({ status: 'succeeded', result: { value: { text, [text]: 1 } } });
});

test.each<[string, () => unknown, RegExp]>([
  ['a bigint', () => ({ total: 1n }), /total is a bigint/],
  ['an unsafe integer', () => [2 ** 53 + 2], /\[0\] is the integer/],
  ['NaN', () => NaN, /NaN/],
  ['a Map', () => new Map([[1, 2]]), /instance of Map/],
  ['a cycle', () => { const value: Record<string, unknown> = {}; value['self'] = value; return value; }, /cycle|nested/],
  ['a getter that throws', () => ({ get broken() { throw new Error('boom'); } }), /boom/],
])('%s is no JSON: the effect has succeeded, its result is marked unreadable', async (_, act, why) => {
  const made = await open();
  const outcome = await outcomeOf(made, 'irreversible', act);
  expect(outcome).toMatchObject({ status: 'succeeded', result: { unreadable: expect.stringMatching(why) } });
  expect(made.tools.fired).toEqual([1]);
});

test.each<[string, unknown, Json]>([
  ['nothing', undefined, null],
  ['absent members', { a: 1, b: undefined, c: [{ d: undefined }] }, { a: 1, c: [{}] }],
  ['a date', { at: new Date(0) }, { at: '1970-01-01T00:00:00.000Z' }],
])('%s is kept as JSON has it', async (_, result, value) => {
  expect(await outcomeOf(await open(), 'irreversible', () => result)).toMatchObject({ status: 'succeeded', result: { value } });
});

const large = { text: 'x'.repeat(300 * 1024) };
const memoryStore = () => {
  const kept: { bytes: Uint8Array; about: object }[] = [];
  const artifacts: ArtifactPort = {
    put: (bytes, about) => {
      kept.push({ bytes, about });
      return Promise.resolve({ sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.byteLength, mediaType: about.mediaType, scope: 'default/run-1' });
    },
  };
  return { kept, artifacts };
};

test('a result of 300 KiB is stored as an artifact, and the report carries its reference', async () => {
  const { kept, artifacts } = memoryStore();
  const outcome = await outcomeOf(await open({ artifacts }), 'irreversible', () => large);
  expect(outcome).toMatchObject({ status: 'succeeded', result: { artifact: { bytes: JSON.stringify(large).length, mediaType: 'application/json' } } });
  expect(kept).toMatchObject([{ about: { scope: { tenant: 'default', run: 'run-1' } } }]);
  expect(JSON.parse(Buffer.from(kept[0]?.bytes ?? []).toString())).toEqual(large);
});

test('a result just below the limit travels in the message, though its text could be longer', async () => {
  const { kept, artifacts } = memoryStore();
  const value = { text: 'ü'.repeat(90 * 1024) };
  expect(await outcomeOf(await open({ artifacts }), 'irreversible', () => value)).toMatchObject({ result: { value } });
  expect(kept).toEqual([]);
});

test.each<[string, ArtifactPort | undefined, RegExp]>([
  ['no store', undefined, /no artifact store/],
  ['a full disk', { put: () => Promise.reject(new Error('no space left')) }, /no space left/],
])('with %s a large result is marked unreadable; the effect is not fired again', async (_, artifacts, why) => {
  const made = await open({ artifacts });
  expect(await outcomeOf(made, 'irreversible', () => large)).toMatchObject({ status: 'succeeded', result: { unreadable: expect.stringMatching(why) } });
  expect(made.tools.fired).toEqual([1]);
});

test.each<[EffectClass, object]>([
  ['irreversible', { status: 'succeeded', result: { value: { ok: 'no' } }, evidence: { kind: 'receipt', note: expect.stringMatching(/does not fit the output schema/) } }],
  ['idempotent', { status: 'succeeded', result: { value: { ok: 'no' } } }],
  ['pure', { status: 'failed', failure: { class: 'invalid_output' } }],
])('a result that does not fit its schema (%s)', async (effect, expected) => {
  const made = await open();
  Object.assign(made.tools.tool(TOOL[effect]), { output: z.object({ ok: z.boolean() }) });
  expect(await outcomeOf(made, effect, () => ({ ok: 'no' }))).toMatchObject(expected);
  expect(made.tools.fired).toEqual([1]);
});

/* ---- time-outs ---- */

test.each<[EffectClass, object]>([
  ['irreversible', { status: 'unknown', cause: 'deadline' }],
  ['idempotent', { status: 'failed', failure: { class: 'transient' } }],
  ['pure', { status: 'failed', failure: { class: 'transient' } }],
])('a call that takes too long ends its attempt, and its signal aborts (%s)', async (effect, expected) => {
  const made = await open();
  const { broker, tools, clock, report } = made;
  let signal: AbortSignal | undefined;
  tools.act = ({ context }) => {
    signal = context.signal;
    return new Promise(() => undefined);
  };
  broker.append(TASKS, 0, task({ seq: 1, effect, tool: TOOL[effect], timeoutMs: 100 }));
  await until(() => tools.fired.length === 1, 'the call');
  await clock.advance(99);
  expect(report(1)).toEqual([]);
  expect(signal?.aborted).toBe(false);
  await clock.advance(1);
  expect(report(1)).toMatchObject([expected]);
  expect(signal?.aborted).toBe(true);
});

test('an irreversible call that ends late is reported as well; one that may fire again is not', async () => {
  const made = await open();
  const { broker, tools, clock, report } = made;
  const ends = [new Gate<unknown>(), new Gate<unknown>(), new Gate<unknown>()];
  tools.act = ({ n }) => ends[Number(n) - 1]?.passed;
  broker.append(TASKS, 0, task({ seq: 1, timeoutMs: 100 }), task({ seq: 2, timeoutMs: 100 }), task({ seq: 3, effect: 'idempotent', tool: 'put', timeoutMs: 100 }));
  await until(() => tools.fired.length === 3, 'the calls');
  await clock.advance(100);
  ends[0]?.open({ receipt: 7 });
  ends[1]?.fail(new Failed({ class: 'transient', message: 'refused by the target', notApplied: true }));
  ends[2]?.open({ receipt: 8 });
  await until(() => report(2).length === 2, 'the late ends');
  expect(report(1)).toMatchObject([{ status: 'unknown', cause: 'deadline' }, { status: 'succeeded', result: { value: { receipt: 7 } } }]);
  expect(report(2)).toMatchObject([{ status: 'unknown' }, { status: 'failed', failure: { notApplied: true } }]);
  expect(report(3)).toMatchObject([{ status: 'failed', failure: { class: 'transient' } }]);
});

test('a late word that the target works on it, or has done a part, is reported', async () => {
  const { broker, tools, clock, report } = await open();
  const ends = [new Gate<unknown>(), new Gate<unknown>()];
  tools.act = ({ n }) => ends[Number(n) - 1]?.passed;
  broker.append(TASKS, 0, task({ seq: 1, timeoutMs: 100 }), task({ seq: 2, timeoutMs: 100 }));
  await until(() => tools.fired.length === 2, 'the calls');
  await clock.advance(100);
  ends[0]?.open(accepted('op-1'));
  ends[1]?.fail(new PartlyApplied([1], 'half'));
  await until(() => report(1).length + report(2).length === 4, 'the late ends');
  expect([report(1)[1], report(2)[1]]).toMatchObject([{ status: 'unknown', cause: 'accepted', operationId: 'op-1' }, { status: 'unknown', cause: 'partial_effect', proved: [1] }]);
});

test('a late end that shows nothing is not reported', async () => {
  const { broker, tools, clock, report } = await open();
  tools.act = ({ context }) => new Promise((_, reject) => context.signal.addEventListener('abort', () => reject(context.signal.reason)));
  broker.append(TASKS, 0, task({ seq: 1, timeoutMs: 100 }));
  await until(() => tools.fired.length === 1, 'the call');
  await clock.advance(200);
  expect(report(1)).toMatchObject([{ status: 'unknown', cause: 'deadline' }]);
});

test('a call that never ends gives its place free', async () => {
  const { broker, tools, clock } = await open({ irreversibleConcurrency: 1 });
  tools.act = ({ n }) => (n === 1 ? new Promise(() => undefined) : {});
  broker.append(TASKS, 0, task({ seq: 1, timeoutMs: 100 }), task({ seq: 2 }));
  await until(() => tools.fired.length === 1, 'the first call');
  await clock.advance(100);
  expect(tools.fired).toEqual([1, 2]);
});

/* ---- signs of life ---- */

test('heartbeats are sent, one a second at most, with the latest progress', async () => {
  const { broker, tools, clock } = await open();
  const end = new Gate<unknown>();
  tools.act = () => end.passed;
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => tools.fired.length === 1, 'the call');
  const { heartbeat } = tools.calls[0]?.context ?? { heartbeat: () => undefined };
  heartbeat({ done: 1 });
  heartbeat({ done: 2 });
  await clock.advance(1000);
  heartbeat({ done: 3 });
  end.open({});
  await settle();
  expect(broker.sent('EffectHeartbeat')).toMatchObject([{ attempt: 1, progress: { done: 1 }, worker: 'worker-a' }, { progress: { done: 3 } }]);
});

test('an attempt whose contract asks for signs of life shows the first at its start, and as many as that needs', async () => {
  const { broker, tools, clock } = await open();
  Object.assign(tools.tool('pay'), { heartbeatMs: 600 });
  const end = new Gate<unknown>();
  tools.act = () => end.passed;
  broker.append(TASKS, 0, task({ seq: 1, timeoutMs: 600_000 }), task({ seq: 2, effect: 'pure', tool: 'look' }));
  await until(() => tools.fired.length === 2, 'the calls');
  await settle();
  expect(broker.sent('EffectHeartbeat')).toEqual([{ step: '1', key: keyOf(1), attempt: 1, worker: 'worker-a' }]);
  const called = tools.calls.find(({ name }) => name === 'pay');
  called?.context.heartbeat({ done: 1 });
  called?.context.heartbeat({ done: 2 });
  await clock.advance(200);
  called?.context.heartbeat({ done: 3 });
  await settle();
  expect(broker.sent('EffectHeartbeat').map(({ progress }) => progress)).toEqual([undefined, { done: 1 }, { done: 3 }]);
});

/* ---- concurrency, and idempotent tasks past notAfter ---- */

test('no more effects fire at once than allowed; the others wait in order', async () => {
  const { broker, tools } = await open({ concurrency: 2 });
  const gates: Gate<unknown>[] = [];
  tools.act = () => {
    const gate = new Gate<unknown>();
    gates.push(gate);
    return gate.passed;
  };
  broker.append(TASKS, 0, ...[1, 2, 3, 4].map((seq) => task({ seq, effect: 'pure', tool: 'look' })));
  await settle();
  expect(tools.fired).toEqual([1, 2]);
  gates[1]?.open({});
  await until(() => tools.fired.length === 3, 'the next');
  expect(tools.fired).toEqual([1, 2, 3]);
});

test('an idempotent task past notAfter fires nothing and says nothing: another host may have fired it in time', async () => {
  const { broker, tools, clock, report } = await open();
  broker.append(TASKS, 0, task({ seq: 1, effect: 'idempotent', tool: 'put', notAfter: clock.now() - 1 }));
  await settle();
  expect(tools.fired).toEqual([]);
  expect(report(1)).toEqual([]);
});

test('a task marked milder than its tool is treated by the tool\'s class', async () => {
  const { broker, tools } = await open();
  broker.append(TASKS, 0, task({ seq: 1, effect: 'pure', tool: 'pay' }));
  await until(() => tools.fired.length === 1, 'it fires');
  expect(broker.commits).toHaveLength(1);
});
