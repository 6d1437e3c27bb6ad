import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { topics, type Json } from '@holdfast/protocol';
import { accepted, applied, defineTool, MayHaveApplied, notApplied, PartlyApplied, pending, stillUnknown, type ServedWorker, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { Sink, type Mode } from './support/sink.js';
import { STACK_LIMIT_MS, TestStack, type Seen } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const TIMEOUT_MS = 700;
const QUEUE_MS = 1500;
const PATIENT_MS = 20_000;

let sink: Sink;
let stack: TestStack;
let worker: ServedWorker | undefined;

const place = (run: string, key: string): string => `${sink.url}/${encodeURIComponent(run)}/${key}`;

/** Calls the sink once, and says nothing that the sink did not say. */
async function pay(run: string, key: string, signal: AbortSignal): Promise<{ readonly status: number; readonly body: string }> {
  const response = await fetch(place(run, key), { method: 'POST', signal });
  return { status: response.status, body: await response.text() };
}

const common = { version: '1', effect: 'irreversible', input: z.object({ amount: z.number() }), output: z.object({ success: z.boolean() }), timeout: TIMEOUT_MS, queueTimeout: QUEUE_MS, settleDelay: 200, owner: 'the desk' } as const;

const probe = {
  sealing: false,
  schedule: { initial: 300, factor: 1.5, max: 1500 },
  ask: async (_args: unknown, { run, operationKey }: { run: string; operationKey: string }) => {
    const response = await fetch(place(run, operationKey));
    if (response.status === 202) return pending('it is working on it');
    if (response.status === 404) return notApplied('nothing under the key');
    return response.ok ? applied({ success: true }, `the sink holds ${operationKey.slice(0, 8)}`) : stillUnknown(`the sink answers ${response.status}`);
  },
};

/** A careful tool: only a plain yes is a success, and a time-out, an empty answer or "already used" is no failure. */
const execute: ToolDefinition<(typeof common)['input'], (typeof common)['output']>['execute'] = async (_args, { run, operationKey, signal }) => {
  const { status, body } = await pay(run, operationKey, signal);
  if (status === 202) return accepted((JSON.parse(body) as { operation: string }).operation) as never;
  const answer = z.object({ success: z.literal(true) }).safeParse(status === 200 ? JSON.parse(body) : null);
  if (!answer.success) throw new MayHaveApplied(`the sink answered ${status} ${JSON.stringify(body)}`);
  return answer.data;
};

const tools: ToolDefinition[] = [
  defineTool({ ...common, name: 'pay', probe, execute }),
  // These answer, however busy the machine: time is nothing that they are about.
  defineTool({ ...common, name: 'pay-slowly', timeout: PATIENT_MS, queueTimeout: PATIENT_MS, probe, execute }),
  defineTool({ ...common, name: 'pay-blind', ageing: { escalateTo: 'the head of the desk' }, execute }),
  defineTool({ ...common, name: 'pay-quiet', heartbeat: 500, timeout: 60_000, probe, execute: async (args, context) => {
    context.heartbeat();
    return execute(args, context);
  } }),
  defineTool({ ...common, name: 'pay-late', probe: { ...probe, schedule: { initial: 60_000, max: 60_000 } }, execute: async (args, context) => {
    const answer = await fetch(place(context.run, context.operationKey), { method: 'POST' });
    await eventually('the attempt is over for the ledger', () => stack.events(context.run, topics.effectEvents).some(({ envelope }) => envelope.type === 'EffectOutcomeUnknown'));
    return (await answer.json()) as { success: boolean };
  } }),
  defineTool({ ...common, name: 'pay-lines', timeout: PATIENT_MS, queueTimeout: PATIENT_MS, probe, execute: async (_args, { run, operationKey, signal }) => {
    await pay(run, operationKey, signal);
    throw new PartlyApplied({ lines: [1, 2] }, 'line 3 of 5 timed out');
  } }),
];

beforeAll(async () => {
  sink = await Sink.start();
  stack = await TestStack.start();
  worker = await work(stack.brokers, { tools });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
  await sink?.close();
}, STACK_LIMIT_MS);

const ask = (run: string, tool: string): Promise<unknown> => stack.intent(run, 'CallTool', { step: '1', tool: { name: tool, version: '1' }, args: { amount: 5 } });

async function begin(run: string, tool: string, ...modes: Mode[]): Promise<void> {
  sink.answers(run, ...modes);
  await stack.intent(run, 'StartRun', { agent: null, input: { for: run } });
  await ask(run, tool);
}

const cases = (run: string): Seen[] => stack.events(run, topics.reconciliationEvents).filter(({ envelope }) => envelope.type === 'CaseOpened');
const settledBy = async (run: string): Promise<Json> => (await stack.event(run, 'CaseSettled', () => true, topics.reconciliationEvents)).data['by'] ?? null;

interface Way {
  readonly way: string;
  readonly tool?: string;
  readonly modes: readonly Mode[];
  readonly cause: string;
  /** What settles the first case. */
  readonly by: string;
  readonly attempts: number;
}

const ways: readonly Way[] = [
  { way: 'the write was applied, and the answer is an error without words', modes: [{ commit: true, answer: '500' }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 1 },
  { way: 'the write was applied, and the answer says "success: false" and nothing else', modes: [{ commit: true, answer: 'empty' }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 1 },
  { way: 'the write was applied, and no answer came in time', modes: [{ commit: true, answer: 'hang' }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 1 },
  { way: 'the target says that the key was already used', modes: [{ commit: true, answer: 'used' }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 1 },
  { way: 'a read-back comes too early and finds nothing yet', modes: [{ commit: true, answer: '500', unseenForMs: 2500 }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 1 },
  { way: 'the target accepted the work, which goes on for a while', tool: 'pay-slowly', modes: [{ commit: true, answer: 'accepted', pending: 3 }], cause: 'accepted', by: 'probe', attempts: 1 },
  { way: 'a part is proved, the rest is not', tool: 'pay-lines', modes: [{ commit: true, answer: 'ok' }], cause: 'partial_effect', by: 'probe', attempts: 1 },
  { way: 'a long attempt shows no life any more', tool: 'pay-quiet', modes: [{ commit: true, answer: 'hang' }], cause: 'heartbeat_lost', by: 'probe', attempts: 1 },
  { way: 'the result comes after everyone gave it up', tool: 'pay-late', modes: [{ commit: true, answer: 'ok' }], cause: 'deadline', by: 'late_result', attempts: 1 },
  { way: 'nothing was applied, which a read-back proves once nothing can take effect any more', modes: [{ commit: false, answer: '500' }, { commit: true, answer: 'ok' }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 2 },
  { way: 'the target hung before it did anything', modes: [{ commit: false, answer: 'hang' }, { commit: true, answer: 'ok' }], cause: 'may_have_applied|deadline', by: 'probe', attempts: 2 },
];

describe('whatever leaves everyone in doubt opens one case, blocks the run, and is settled with one effect in the world', () => {
  const runOf = (way: Way): string => `way ${ways.indexOf(way) + 1}`;
  beforeAll(() => Promise.all(ways.map((way) => begin(runOf(way), way.tool ?? 'pay', ...way.modes))));

  test.each(ways)('$way', async (way) => {
    const run = runOf(way);
    const blocked = await stack.event(run, 'RunBlocked');
    expect(blocked.data['cause']).toMatch(new RegExp(`^(${way.cause})$`));
    expect(await settledBy(run)).toBe(way.by);
    await stack.event(run, 'EffectSettled');
    await stack.finish(run);
    expect(cases(run).map(({ data }) => data['attempt'])).toEqual([1]);
    expect({ applied: sink.applied(run), calls: sink.calls(run) }).toEqual({ applied: 1, calls: way.attempts });
    const { data } = await stack.event(run, 'RunFinished');
    expect(data['effects']).toMatchObject([{ outcome: 'succeeded', attempts: way.attempts }]);
  });

  test('a reading that came too early is kept, and decided nothing', async () => {
    const run = 'way 5';
    await stack.event(run, 'CaseSettled', () => true, topics.reconciliationEvents);
    const early = stack.events(run, topics.reconciliationEvents).filter(({ envelope, data }) => envelope.type === 'ProbeConcluded' && (data['answer'] as { status: string }).status === 'not_applied');
    expect(early.length).toBeGreaterThan(0);
  });
});

describe('an unknown that nothing can read back', () => {
  test('waits for a person, however often the model asks again, and the run can’t complete over it', async () => {
    const run = 'blind';
    await begin(run, 'pay-blind', { commit: true, answer: 'hang' });
    await stack.event(run, 'RunBlocked');
    const { data } = await stack.event(run, 'CaseEscalated', () => true, topics.reconciliationEvents);
    expect(data).toMatchObject({ to: 'the head of the desk', reason: 'nothing_helps' });
    for (let again = 0; again < 3; again += 1) await ask(run, 'pay-blind');
    await stack.intent(run, 'FinishRun', { ending: { status: 'completed', output: { value: 'done' } } });
    await stack.event(run, 'IntentRejected', ({ reason }) => reason === 'outcome_unknown');
    expect({ applied: sink.applied(run), calls: sink.calls(run), cases: cases(run).length }).toEqual({ applied: 1, calls: 1, cases: 1 });
    expect(cases(run)[0]?.data).toMatchObject({ owner: 'the desk', nextLookAt: null });
  });

  test('is told in words that invite no second try', async () => {
    const { data } = await stack.event('blind', 'RunBlocked');
    expect(String(data['message'])).not.toMatch(/again|retry|try/i);
  });
});

describe('reports that are late, doubled, malformed or about another attempt', () => {
  test('change nothing but the record', async () => {
    const run = 'reports';
    await begin(run, 'pay', { commit: true, answer: 'ok' });
    const { data } = await stack.event(run, 'EffectDispatched', () => true, topics.effectEvents);
    const key = data['key'] ?? null;
    await stack.event(run, 'EffectSettled');
    const report = (over: { readonly [member: string]: Json }) => stack.send({ topic: topics.toolResults, key: run, type: 'EffectReported', value: JSON.stringify({ step: '1', key, attempt: 1, worker: 'test.x', outcome: { status: 'succeeded', result: { value: { success: true } }, evidence: { kind: 'receipt' } }, ...over }) });
    await report({});
    await report({ attempt: 7, outcome: { status: 'failed', failure: { class: 'transient', message: 'x', notApplied: true }, evidence: { kind: 'host' } } });
    await stack.deadLetter(await report({ outcome: { status: 'perhaps' } }));
    await report({ outcome: { status: 'failed', failure: { class: 'transient', message: 'no', notApplied: true }, evidence: { kind: 'host' } } });
    await stack.event(run, 'VerdictContradicted', () => true, topics.effectEvents);
    await stack.finish(run);
    expect({ applied: sink.applied(run), cases: cases(run).length, settled: stack.events(run).filter(({ envelope }) => envelope.type === 'EffectSettled').length }).toEqual({ applied: 1, cases: 0, settled: 1 });
    expect(stack.events(run, topics.effectEvents).map(({ envelope }) => envelope.type)).toEqual(['EffectDispatched', 'EffectSucceeded', 'LateResultRecorded', 'LateResultRecorded', 'VerdictContradicted']);
  });
});
