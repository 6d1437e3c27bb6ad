import { expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import type { ProbeAnswer as ReportedAnswer } from '@holdfast/protocol';
import { z } from 'zod';
import { applied, notApplied, pending, stillUnknown, type Probe, type ProbeContext } from '../../src/define/probe.js';
import { Gate, give, keyOf, question, settle, stage, task, TASKS, TestBroker, TestClock, until, type Stage, type StageOptions } from './kit.js';

interface Asked {
  readonly args: unknown;
  readonly context: ProbeContext;
}

interface Asking extends Stage {
  readonly asked: Asked[];
  answers(): ReportedAnswer[];
}

/** A worker whose tool `pay` has a probe that does what the test says. */
async function open(ask: (args: { n: number }, context: ProbeContext) => unknown, options: StageOptions = {}): Promise<Asking> {
  const made = await stage(options);
  const asked: Asked[] = [];
  const probe: Probe<{ n: number }> = {
    sealing: false,
    ask: (args, context) => {
      asked.push({ args, context });
      return ask(args, context) as never;
    },
  };
  Object.assign(made.tools.tool('pay'), { probe });
  await give(made.member);
  return Object.assign(made, { asked, answers: () => made.broker.sent<{ answer: ReportedAnswer }>('ProbeReported').map(({ answer }) => answer) });
}

const answered = async (made: Asking, count = 1): Promise<ReportedAnswer[]> => {
  await until(() => made.answers().length >= count, `${count} answers`);
  await settle();
  return made.answers();
};

test('a probe is asked with the arguments and the names of the attempt, without a commit, and its answer is reported', async () => {
  const made = await open(({ n }) => applied({ receipt: n }, 'pm_7 carries the key'));
  const { broker, clock, asked, tools } = made;
  broker.append(TASKS, 0, question({ seq: 1, of: 7, attempt: 2, probe: 3, operationId: 'op-9', timeoutMs: 400, issuedAt: 5 }));
  expect(await answered(made)).toEqual([{ status: 'applied', result: { value: { receipt: 7 } }, evidence: { kind: 'probe', note: 'pm_7 carries the key', at: clock.now() } }]);
  expect(asked).toMatchObject([{ args: { n: 7 }, context: { operationKey: keyOf(7), attempt: 2, probe: 3, operationId: 'op-9', fence: 1, deadline: clock.now() + 400, run: 'run-1', step: '7' } }]);
  expect(broker.sent('ProbeReported')).toMatchObject([{ step: '7', key: keyOf(7), attempt: 2, probe: 3, issuedAt: 5, worker: 'worker-a' }]);
  expect([tools.fired, broker.commits]).toEqual([[], []]);
});

test.each<[string, number, () => unknown]>([
  ['found, as late as its answer', 200, () => applied(1)],
  ['not found, as early as its asking', 0, () => notApplied()],
])('what is %s: another attempt may be made between the two', async (_, after, answer) => {
  const made = await open(() => new Promise((resolve) => made.clock.after(200, () => resolve(answer()))));
  const asked = made.clock.now();
  made.broker.append(TASKS, 0, question({ seq: 1, timeoutMs: 400 }));
  await until(() => made.asked.length === 1, 'asked');
  await made.clock.advance(200);
  expect(await answered(made)).toMatchObject([{ evidence: { kind: 'probe', at: asked + after } }]);
});

test.each<[string, (context: ProbeContext) => unknown, object]>([
  ['applied without a result', () => applied(undefined), { status: 'applied', result: { value: null } }],
  ['not applied', () => notApplied('no payment under the key'), { status: 'not_applied', evidence: { kind: 'probe', note: 'no payment under the key' } }],
  ['pending', () => pending('queued at the bank'), { status: 'pending', message: 'queued at the bank' }],
  ['pending without words', () => pending(), { status: 'pending' }],
  ['still unknown', () => stillUnknown('the replica is behind'), { status: 'still_unknown', message: 'the replica is behind' }],
  ['a promise', () => Promise.resolve(notApplied()), { status: 'not_applied', evidence: { kind: 'probe' } }],
  ['a throw', () => { throw new TypeError('no route'); }, { status: 'still_unknown', message: 'TypeError: no route' }],
  ['a rejection with nothing', () => Promise.reject(undefined), { status: 'still_unknown', message: 'undefined' }],
  ['nothing', () => undefined, { status: 'still_unknown', message: expect.stringMatching(/no answer that can be read.*return applied\(…\)/) }],
  ['a plain result', () => ({ receipt: 1 }), { status: 'still_unknown', message: expect.stringMatching(/no answer that can be read/) }],
  ['a status that there is none of', () => ({ status: 'found' }), { status: 'still_unknown', message: expect.stringMatching(/status/) }],
  ['words without end', () => stillUnknown('x'.repeat(100_000)), { status: 'still_unknown', message: expect.stringMatching(/^.{4000}$/s) }],
  ['a getter that throws', () => ({ get status() { throw new Error('boom'); } }), { status: 'still_unknown', message: expect.stringMatching(/boom/) }],
])('an answer is read for what it says, and anything else settles nothing: %s', async (_, ask, expected) => {
  const made = await open((_args, context) => ask(context));
  made.broker.append(TASKS, 0, question({ seq: 1 }));
  const answers = await answered(made);
  expect(answers).toHaveLength(1);
  expect(answers[0]).toMatchObject(expected);
  expect(made.asked).toHaveLength(1);
});

test.each<[string, unknown, object]>([
  ['does not fit the output schema', { ok: 'no' }, { result: { value: { ok: 'no' } }, evidence: { note: expect.stringMatching(/^seen; the result does not fit the output schema of pay@1: ok/) } }],
  ['is no JSON', { ok: true, total: 1n }, { result: { unreadable: expect.stringMatching(/total is a bigint/) } }],
])('what was applied stays applied though its result %s', async (_, result, expected) => {
  const made = await open(() => applied(result, 'seen'));
  Object.assign(made.tools.tool('pay'), { output: z.looseObject({ ok: z.boolean() }) });
  made.broker.append(TASKS, 0, question({ seq: 1 }));
  expect(await answered(made)).toMatchObject([{ status: 'applied', ...expected }]);
});

test('a large result goes to the artifact store, like that of a call', async () => {
  const artifacts: StageOptions['artifacts'] = { put: (bytes, { mediaType }) => Promise.resolve({ sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.byteLength, mediaType, scope: 'default/run-1' }) };
  const made = await open(() => applied({ text: 'x'.repeat(300 * 1024) }), { artifacts });
  made.broker.append(TASKS, 0, question({ seq: 1 }));
  expect(await answered(made)).toMatchObject([{ status: 'applied', result: { artifact: { mediaType: 'application/json' } } }]);
});

test.each<[string, object, RegExp]>([
  ['a tool without a probe', { tool: 'put' }, /put@1 has no probe; nothing was asked/],
  ['a tool that is not hosted here', { tool: 'fax' }, /worker-a does not host fax@1; nothing was asked/],
  ['arguments that do not fit', { args: { n: 'one' } }, /do not fit the input schema of pay@1; nothing was asked: n/],
])('%s: still unknown, and why', async (_, options, why) => {
  const made = await open(() => notApplied());
  made.broker.append(TASKS, 0, question({ seq: 1, ...options }));
  expect(await answered(made)).toMatchObject([{ status: 'still_unknown', message: expect.stringMatching(why) }]);
  expect(made.asked).toEqual([]);
});

test.each<[string, { timeoutMs: number; answerBy: number }]>([
  ['its own time-out', { timeoutMs: 100, answerBy: 9_000_000 }],
  ['the time until which an answer is waited for', { timeoutMs: 10_000, answerBy: 1_000_100 }],
])('a probe that does not answer ends with %s, is told so, and gives its place free', async (_, limits) => {
  let signal: AbortSignal | undefined;
  const made = await open((_args, context) => { signal = context.signal; return new Promise(() => undefined); });
  made.broker.append(TASKS, 0, question({ seq: 1, ...limits }));
  await until(() => made.asked.length === 1, 'it is asked');
  await made.clock.advance(99);
  expect([made.answers(), signal?.aborted]).toEqual([[], false]);
  await made.clock.advance(1);
  expect(made.answers()).toMatchObject([{ status: 'still_unknown', message: expect.stringMatching(/no answer within/) }]);
  expect(signal?.aborted).toBe(true);
});

test('past the time until which an answer is waited for nothing is asked, and nothing said', async () => {
  const made = await open(() => notApplied());
  made.broker.append(TASKS, 0, question({ seq: 1, answerBy: made.clock.now() }), question({ seq: 2, probe: 2 }));
  await answered(made);
  expect(made.broker.sent('ProbeReported')).toMatchObject([{ probe: 2 }]);
});

test('probes that hang hold up neither effects nor another tool’s probes; those of one tool wait their turn, and go when it is too late', async () => {
  const hanging = new Gate<unknown>();
  const made = await open(() => hanging.passed, { concurrency: 1, irreversibleConcurrency: 1 });
  const { broker, tools, clock } = made;
  Object.assign(tools.tool('put'), { probe: { sealing: false, ask: () => pending() } });
  for (let seq = 1; seq <= 10; seq += 1) broker.append(TASKS, 0, question({ seq, of: seq, timeoutMs: 1000, answerBy: clock.now() + 1500 }));
  broker.append(TASKS, 0, question({ seq: 11, of: 11, tool: 'put' }), task({ seq: 1 }), task({ seq: 2, effect: 'pure', tool: 'look' }));
  await until(() => made.report(1).length + made.report(2).length === 2, 'the effects');
  await until(() => broker.sent('ProbeReported').length === 1, 'the other tool’s probe');
  expect(broker.sent('ProbeReported')).toMatchObject([{ step: '11', answer: { status: 'pending' } }]);
  expect(made.asked).toHaveLength(4);
  await clock.advance(1000);
  expect(made.asked).toHaveLength(8);
  await clock.advance(500);
  expect(made.asked).toHaveLength(8); // The last two had no time left.
  expect(broker.sent('ProbeReported')).toHaveLength(9);
});

test('the same question delivered twice is asked once; a probe of another attempt is a question of its own', async () => {
  const made = await open(() => pending());
  const first = question({ seq: 1 });
  made.broker.append(TASKS, 0, first, first, question({ seq: 2, attempt: 2 }));
  await answered(made, 2);
  expect(made.asked.map(({ context }) => context.attempt)).toEqual([1, 2]);
});

test('what was asked is saved as read, so that a lane of nothing but questions does not fall behind its log', async () => {
  const made = await open(() => pending());
  made.broker.append(TASKS, 0, question({ seq: 1 }), question({ seq: 2, probe: 2 }));
  await answered(made, 2);
  await made.clock.advance(1000);
  expect(made.broker.committed.get(0)).toEqual({ offset: 2, metadata: JSON.stringify({ 'holdfast/reconciliation/i1': 2 }) });
});

test('a probe that hangs is no reason to fire again what has ended after it', async () => {
  const made = await open(() => new Promise(() => undefined));
  made.broker.append(TASKS, 0, question({ seq: 1 }), task({ seq: 1, effect: 'pure', tool: 'look' }));
  await until(() => made.report(1).length === 1, 'the effect');
  await made.clock.advance(1000);
  expect(made.broker.committed.get(0)?.offset).toBe(2);
});

test('a worker that stops asks nothing more, waits for what it has asked within its grace, and tells the rest', async () => {
  const broker = new TestBroker(new TestClock());
  const answer = new Gate<unknown>();
  const made = await open((_args, { probe }) => (probe === 1 ? answer.passed : new Promise(() => undefined)), { broker });
  broker.append(TASKS, 0, ...[1, 2, 3, 4, 5].map((probe) => question({ seq: probe, probe })));
  await until(() => made.asked.length === 4, 'four are asked');
  const stopped = made.worker.stop(500);
  answer.open(notApplied());
  await until(() => made.answers().length === 1, 'the answer within the grace time');
  await broker.clock.advance(500);
  await stopped;
  expect(made.asked.slice(1).map(({ context }) => context.signal.aborted)).toEqual([true, true, true]);
  expect(made.asked).toHaveLength(4);
});
