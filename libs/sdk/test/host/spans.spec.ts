import { beforeEach, expect, test } from '@jest/globals';
import { parseTraceparent, spanOf, traceOf, type RunId } from '@holdfast/protocol';
import type { SpanFacts } from '@holdfast/runtime/telemetry';
import { observers, type HostObserver } from '../../src/host/observer.js';
import { HostSpans } from '../../src/host/spans.js';
import { give, question, RUN, stage, task, TASKS, TestBroker, TestClock, until } from './kit.js';
import { AGENT, fromOrchestrator, granted, localCall, TestRuns } from './run-kit.js';

/* What a worker tells of in traces: each call under what asked for it, and nothing of what was in it. */

let told: SpanFacts[];
let clock: TestClock;
const tracing = { span: (facts: SpanFacts): void => void told.push(facts), close: (): Promise<void> => Promise.resolve() };
const spans = (): HostSpans => new HostSpans(tracing, clock.now);
const started = async (observer: HostObserver | undefined, more: Parameters<typeof stage>[0] = {}) => {
  const made = await stage({ broker: new TestBroker(clock), observer, ...more });
  await give(made.member);
  return made;
};
const spanIn = (headers: Readonly<Record<string, string>>): string | undefined => parseTraceparent(headers['traceparent'])?.span;

beforeEach(() => {
  told = [];
  clock = new TestClock();
});

test('a granted call is a span under the ledger’s attempt, and its report names it', async () => {
  const made = await started(spans());
  made.broker.append(TASKS, 0, task({ seq: 1, args: { n: 4711 }, attempt: 2 }));
  await until(() => made.report(1).length === 1, 'the report');
  expect(told).toMatchObject([{ trace: traceOf(RUN), span: spanOf(RUN, 'fire', '1', 2), parent: spanOf(RUN, 'attempt', '1', 2), name: 'pay@1', kind: 'client', attributes: { 'holdfast.outcome': 'succeeded', 'holdfast.effect': 'irreversible' }, failed: undefined }]);
  const report = made.broker.written.find(({ headers }) => headers['ce_type'] === 'EffectReported');
  expect(spanIn(report?.headers ?? {})).toBe(spanOf(RUN, 'fire', '1', 2));
  expect(JSON.stringify(told)).not.toContain('4711');
});

test('one that leaves doubt says so', async () => {
  const made = await started(spans());
  made.tools.act = () => Promise.reject(new Error('the line went dead'));
  made.broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => made.report(1).length === 1, 'the report');
  expect(told).toMatchObject([{ failed: 'unknown', attributes: { 'holdfast.outcome': 'unknown' } }]);
  expect(JSON.stringify(told)).not.toContain('the line');
});

test('a local call is a span under its step', async () => {
  const runs = new TestRuns();
  const made = await started(spans(), { agents: [AGENT], execute: runs.execute });
  fromOrchestrator(made.broker, 0, granted(1));
  await until(() => runs.all.length === 1, 'the run is granted');
  await runs.last.port.fireLocal(localCall(made.tools, 'put', 1, 1));
  expect(told).toMatchObject([{ span: spanOf(RUN, 'fire', '1', 1), parent: spanOf(RUN, 'step', '1') }]);
});

test('a question is a span under its case', async () => {
  const made = await started(spans());
  made.broker.append(TASKS, 0, question({ seq: 1, attempt: 3, probe: 2 }));
  await until(() => made.broker.sent('ProbeReported').length === 1, 'the answer');
  expect(told).toMatchObject([{ span: spanOf(RUN, 'probe', '1', 3, 2), parent: spanOf(RUN, 'case', '1', 3), name: 'probe pay@1', attributes: { 'holdfast.answer': 'still_unknown' } }]);
});

test('what a run asks for names its step, what it says of itself its run; what is of no run names nothing', () => {
  const of = (run: string, type: string, data: object): string | undefined => spanIn({ traceparent: spans().traceparent(run, { type, data }) ?? '' });
  expect(of('r', 'CallTool', { step: '3' })).toBe(spanOf('r', 'step', '3'));
  expect(of('r', 'FinishRun', {})).toBe(spanOf('r'));
  expect(of('r', 'ProbeReported', { step: '3', attempt: 1, probe: 2 })).toBe(spanOf('r', 'probe', '3', 1, 2));
  expect(of('~lane/default/0', 'AnnounceLane', {})).toBeUndefined();
});

test('recorded work and a run’s stay here have their time', () => {
  clock = new TestClock();
  const startedAt = clock.now() - 500;
  spans().onWorked({ run: 'r' as RunId, step: '2' as never, kind: 'model', name: 'decide', attempt: 1, startedAt, failed: false, usage: { tokensIn: 7, tokensOut: 3, cost: 0.1 } });
  spans().onExecuted('r' as RunId, 4, 'desk@1', startedAt);
  expect(told).toMatchObject([
    { name: 'model decide', parent: spanOf('r', 'step', '2'), startedAt, endedAt: startedAt + 500, attributes: { 'holdfast.tokens_in': 7, 'holdfast.tokens_out': 3, 'holdfast.cost': 0.1 } },
    { name: 'execute desk@1', span: spanOf('r', 'execution', 4), parent: spanOf('r') },
  ]);
});

test('without anybody who looks, nothing is named and nothing is told', async () => {
  expect(observers([])).toBeUndefined();
  const made = await started(undefined);
  made.broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => made.report(1).length === 1, 'the report');
  expect(made.broker.written.filter(({ headers }) => headers['traceparent'] !== undefined)).toEqual([]);
  expect(told).toEqual([]);
});
