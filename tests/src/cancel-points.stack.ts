import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics, type Json } from '@holdfast/protocol';
import { HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import { BLOCKER, Desk } from './cancel/desk.js';
import { eventually } from './support/eventually.js';
import { Sink } from './support/sink.js';
import { STACK_LIMIT_MS, TestStack, type Seen } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

type Manner = 'graceful' | 'immediate';
type Scope = 'run' | 'tree';
/** Step → outcome, as the end says it. */
type Stands = Readonly<Record<string, string>>;

interface Point {
  readonly point: string;
  /** Whose runs can be held still there; null: a Kafka client that owns its loop. */
  readonly agent: string | null;
  /** How often its effects have been at the sink by then. */
  readonly fired: number;
  /** That the run is there. */
  reached(run: string): Promise<unknown>;
  readonly stands: Readonly<Record<Manner, Stands>>;
  /** Graceful only: the end comes once what is in flight has ended. */
  readonly waits?: true;
  /** What comes after the cancel: late results, answers, wishes. Says what must be kept of it in the run's stream. */
  after?(run: string, manner: Manner): Promise<unknown>;
}

let sink: Sink;
let desk: Desk;
let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

const kate = { name: 'kate', roles: ['operator'] };
const none: Stands = {};
const alike = (stands: Stands): Point['stands'] => ({ graceful: stands, immediate: stands });
const say = (run: string, type: string, data: { readonly [member: string]: Json }) => stack.send({ topic: topics.operatorCommands, key: run, type, value: JSON.stringify({ by: kate, ...data }) });
const cancel = (run: string, manner: Manner, scope: Scope) => say(run, 'CancelRun', { command: `stop ${run}`, reason: 'changed my mind', scope, manner });
const aWorker = (name: string): Promise<ServedWorker> => work(stack.brokers, { worker: name, agents: desk.agents, tools: desk.tools });
const called = (run: string): Promise<unknown> => eventually(`run ${run} has called the sink`, () => sink.calls(run) > 0);
const effectIs = (type: string) => (run: string) => stack.event(run, type, () => true, topics.effectEvents);
const runHas = (type: string) => (run: string) => stack.event(run, type);
const ask = (run: string, step: string) => stack.intent(run, 'CallTool', { step, tool: { name: 'pay', version: '1' }, args: {} });

/** The success stands in the run's stream: by the word of its worker, be it with an intent that came too late, or by the ledger's, whichever came first. */
const open = async (run: string): Promise<unknown> => {
  desk.open(run);
  const succeeded = ({ data }: Seen): boolean => [data, ...((data['settles'] ?? []) as { [member: string]: Json }[])].some(({ outcome }) => outcome !== undefined && statusOf(outcome) === 'succeeded');
  return eventually(() => `the success of run ${run} (${JSON.stringify(stack.events(run).map(({ envelope, data }) => [envelope.type, data['outcome'] ?? data['settles'] ?? null]))})`, () => stack.events(run).some(succeeded));
};
const statusOf = (outcome: Json | undefined): Json => (outcome as { status: string }).status;
const resolve = async (run: string): Promise<unknown> => {
  await stack.event(run, 'CaseOpened', () => true, topics.reconciliationEvents);
  await say(run, 'ResolveCase', { command: `resolve ${run}`, step: '1', attempt: 1, verdict: { status: 'applied', result: 'paid' }, reason: 'looked', evidence: 'bank statement' });
  return stack.event(run, 'EffectSettled', ({ outcome }) => statusOf(outcome) === 'succeeded');
};

const points: readonly Point[] = [
  { point: 'queued', agent: 'served-by-nobody', fired: 0, reached: runHas('RunAccepted'), stands: alike(none) },
  { point: 'model generating', agent: 'model', fired: 1, reached: called, stands: alike(none), after: async (run) => desk.open(run) },
  { point: 'model to be asked again', agent: 'model-later', fired: 1, reached: runHas('StepRetryScheduled'), stands: alike(none) },
  { point: 'between steps', agent: null, fired: 1, reached: async (run) => {
    desk.open(run);
    await ask(run, '1');
    await stack.event(run, 'EffectSettled');
  }, stands: alike({ 1: 'succeeded' }), after: async (run) => {
    await ask(run, '2');
    await stack.event(run, 'IntentRejected', ({ reason }) => reason === 'run_ended');
  } },
  { point: 'effect intended', agent: 'pay-in-turn', fired: 0, reached: effectIs('EffectHeld'), stands: { graceful: { 1: 'failed' }, immediate: { 1: 'unknown' } }, waits: true, after: effectIs('EffectFailed') },
  { point: 'dispatched', agent: 'pay', fired: 1, reached: called, stands: { graceful: { 1: 'succeeded' }, immediate: { 1: 'unknown' } }, waits: true, after: open },
  { point: 'fired by its own worker', agent: 'put', fired: 1, reached: called, stands: { graceful: { 1: 'succeeded' }, immediate: { 1: 'unknown' } }, waits: true, after: open },
  { point: 'unknown', agent: 'pay-in-doubt', fired: 1, reached: runHas('RunBlocked'), stands: alike({ 1: 'unknown' }), after: resolve },
  { point: 'waiting', agent: 'signal', fired: 0, reached: runHas('RunReleased'), stands: alike(none), after: async (run) => {
    await client.signal(run, 'go', 'late', { id: `late ${run}` });
    await stack.event(run, 'InputRefused', ({ id, reason }) => id === `late ${run}` && reason === 'run_ended');
  } },
  { point: 'retry scheduled, not applied', agent: 'pay-later', fired: 1, reached: effectIs('EffectRetryScheduled'), stands: { graceful: { 1: 'failed' }, immediate: { 1: 'unknown' } }, waits: true, after: effectIs('EffectFailed') },
  { point: 'retry scheduled, in doubt', agent: 'put-later', fired: 1, reached: effectIs('EffectRetryScheduled'), stands: alike({ 1: 'unknown' }), waits: true, after: resolve },
];

const cells = points.flatMap((point) => (['graceful', 'immediate'] as const).map((manner) => ({ ...point, manner, run: `${point.point} ${manner}`.replaceAll(/[ ,]+/g, '-') })));
const families = (['graceful', 'immediate'] as const).flatMap((manner) => (['run', 'tree'] as const).map((scope) => ({ manner, scope, run: `family-${manner}-${scope}`, child: `family-${manner}-${scope}/1` })));
const cancelledRuns = [...cells.map(({ run }) => run), ...families.flatMap(({ run, child, scope }) => (scope === 'tree' ? [run, child] : [run]))];

/** What may still be written of a run that was cancelled: its end, late results, answers to whoever still asks. */
const KEPT = ['RunCancelRequested', 'RunFinished', 'EffectSettled', 'StepsReported', 'RunBlocked', 'InputRefused', 'IntentRejected'];
const since = (run: string): Seen[] => {
  const events = stack.events(run);
  return events.slice(events.findIndex(({ envelope }) => envelope.type === 'RunCancelRequested'));
};
const dispatches = (run: string): number => stack.events(run, topics.effectEvents).filter(({ envelope }) => envelope.type === 'EffectDispatched').length;
const stillAsCancelled = (run: string): void => {
  expect([run, since(run).map(({ envelope }) => envelope.type).filter((type) => !KEPT.includes(type))]).toEqual([run, []]);
  expect([run, since(run).filter(({ envelope }) => envelope.type === 'RunFinished').map(({ data }) => statusOf(data['ending']))]).toEqual([run, ['cancelled']]);
};
const standing = async (run: string): Promise<Stands> => {
  const { data } = await stack.event(run, 'RunFinished');
  expect(data['ending']).toEqual({ status: 'cancelled', reason: 'changed my mind', by: 'kate' });
  return Object.fromEntries((data['effects'] as { step: string; outcome: string }[]).map(({ step, outcome }) => [step, outcome]));
};

async function begin(run: string, agent: string | null): Promise<void> {
  if (agent === null) await stack.intent(run, 'StartRun', { agent: null, input: {} });
  else await client.start({ name: agent, version: '1' }, {}, { runId: run });
}

beforeAll(async () => {
  sink = await Sink.start();
  desk = new Desk(sink);
  stack = await TestStack.start();
  worker = await aWorker('before');
  client = await HoldfastClient.connect({ brokers: stack.brokers });
  await stack.intent(BLOCKER, 'StartRun', { agent: null, input: {} });
  await stack.intent(BLOCKER, 'CallTool', { step: '1', tool: { name: 'pay-in-turn', version: '1' }, args: {} });
  await called(BLOCKER);
  await Promise.all([...cells.map(({ run, agent }) => begin(run, agent)), ...families.map(({ run }) => begin(run, 'parent'))]);
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
  await sink?.close();
}, STACK_LIMIT_MS);

test('before its start: there is nothing to cancel, whoever asked reads so, and the run begins when it is started', async () => {
  const place = await cancel('early', 'graceful', 'run');
  expect((await stack.deadLetter(place)).data).toMatchObject({ reason: 'run_unknown' });
  desk.open('early');
  await begin('early', 'pay');
  expect(await client.outcome('early', { timeoutMs: 30_000 })).toMatchObject({ status: 'completed' });
});

test.each(cells)('$point, $manner', async ({ run, manner, fired, stands, waits, reached, after }) => {
  await reached(run);
  expect(sink.calls(run)).toBe(fired);
  const sent = dispatches(run);
  await cancel(run, manner, 'run');
  await stack.event(run, 'RunCancelRequested');
  if (manner === 'immediate' || waits === undefined) {
    expect(await standing(run)).toEqual(stands[manner]);
    await after?.(run, manner);
  } else {
    if (after === open) expect(since(run).map(({ envelope }) => envelope.type)).toEqual(['RunCancelRequested']);
    if (after !== resolve) await after?.(run, manner);
    expect(await standing(run)).toEqual(stands[manner]);
    if (after === resolve) await after(run, manner);
  }
  await client.signal(run, 'last', null, { id: `last ${run}` });
  await stack.event(run, 'InputRefused', ({ id }) => id === `last ${run}`);
  stillAsCancelled(run);
  expect([sink.calls(run), dispatches(run)]).toEqual([fired, sent]);
});

test.each(families)('child running, $manner, scope $scope', async ({ run, child, manner, scope }) => {
  await called(child);
  await stack.event(run, 'RunReleased');
  await cancel(run, manner, scope);
  expect(await standing(run)).toEqual(none);
  if (scope === 'tree') await stack.event(child, 'RunCancelRequested');
  if (scope === 'tree' && manner === 'immediate') expect(await standing(child)).toEqual({ 1: 'unknown' });
  desk.open(child);
  if (scope === 'run') expect(await client.outcome(child, { timeoutMs: 30_000 })).toMatchObject({ status: 'completed' });
  else {
    await open(child);
    expect(await standing(child)).toEqual({ 1: manner === 'immediate' ? 'unknown' : 'succeeded' });
  }
  expect([sink.calls(run), sink.calls(child)]).toEqual([0, 1]);
});

test.each(['graceful', 'immediate'] as const)('completing, %s: the run’s stream takes one of both, and the other is told so', async (manner) => {
  const run = `completing-${manner}`;
  await begin(run, null);
  await stack.event(run, 'RunAccepted');
  await Promise.all([cancel(run, manner, 'run'), stack.intent(run, 'FinishRun', { ending: { status: 'completed', output: { value: 'done' } } })]);
  const { data } = await stack.event(run, 'RunFinished');
  if (statusOf(data['ending']) === 'cancelled') await stack.event(run, 'IntentRejected', ({ reason }) => reason === 'run_ended');
  else await stack.event(run, 'InputRefused', ({ reason }) => reason === 'run_ended');
  expect(stack.events(run).filter(({ envelope }) => envelope.type === 'RunFinished')).toHaveLength(1);
});

test('another worker takes the lanes, and what blocked a tool is gone: no cancelled run is granted, goes on or fires', async () => {
  const before = cancelledRuns.map((run) => [run, sink.calls(run), dispatches(run)]);
  desk.open(BLOCKER);
  await stack.event(BLOCKER, 'EffectSettled');
  await worker?.stop({ graceMs: 0 });
  worker = await aWorker('after');
  const fresh = stack.lanes.map((lane) => stack.runOn(lane, 'fresh'));
  for (const run of fresh) {
    desk.open(run);
    await begin(run, 'pay');
  }
  for (const run of fresh) expect(await client.outcome(run, { timeoutMs: 60_000 })).toMatchObject({ status: 'completed' });
  for (const run of cancelledRuns) stillAsCancelled(run);
  expect(cancelledRuns.map((run) => [run, sink.calls(run), dispatches(run)])).toEqual(before);
  expect(await stack.halts()).toEqual([]);
});
