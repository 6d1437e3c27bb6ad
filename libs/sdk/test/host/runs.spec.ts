import { beforeEach, expect, test } from '@jest/globals';
import { Fence, IntentRefused, RunDropped, Step, StepSettled, ToolsHeld, topics, TryAnswered, WaitSettled, WorkerId, type HistoryStep, type Outcome } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent, type AgentDefinition } from '../../src/define/agent.js';
import { fromService, give, ORCHESTRATOR, RUN, RUNS, settle, stage, task, TASKS, until, type Stage } from './kit.js';
import { AGENT, fromOrchestrator, granted, TestRuns } from './run-kit.js';

let made: Stage;
let runs: TestRuns;

beforeEach(async () => {
  runs = new TestRuns();
  made = await stage({ agents: [AGENT], execute: runs.execute });
  await give(made.member);
});

const me = { worker: WorkerId.parse('worker-a'), fence: Fence.parse(1) };
const outcome: Outcome = { status: 'rejected', reason: 'no', evidence: { kind: 'ledger' } };
const recorded = (step: string): HistoryStep => ({ kind: 'record', step: Step.parse(step), as: 'step', name: 's', result: { value: 1 } });

async function grant(...grants: Parameters<typeof granted>[]): Promise<void> {
  for (const args of grants) fromOrchestrator(made.broker, 0, granted(...args));
  await settle();
}

test('a grant begins a run with its whole history, page by page', async () => {
  await grant([1, { page: 1, pages: 3, steps: [recorded('1'), recorded('2')], observed: [Step.parse('1')] }], [1, { page: 2, pages: 3, steps: [recorded('3')] }]);
  expect(runs.all).toEqual([]);
  await grant([1, { page: 3, pages: 3, steps: [recorded('4')] }]);
  expect(runs.last).toMatchObject({ started: true, grant: { run: RUN, fence: 1, tenant: 'default', input: { order: 7 }, observed: ['1'] } });
  expect(runs.last.grant.steps.map((step) => (step.kind === 'call' ? step.call.step : step.step))).toEqual(['1', '2', '3', '4']);
});

test('what was written for a run held here and nobody could read is logged, whoever wrote it', async () => {
  await grant([1]);
  const refused = { ...me, worker: null, intent: 'ReportTry', message: 'ReportTry: failure.class: invalid' } as const;
  const { fence: _, ...unread } = refused;
  fromOrchestrator(made.broker, 0, IntentRefused({ ...refused, fence: 7, reason: 'stale_fence' }));
  fromOrchestrator(made.broker, 0, IntentRefused({ ...unread, reason: 'fence_required' }));
  fromOrchestrator(made.broker, 0, IntentRefused({ ...unread, reason: 'invalid' }), 'not-held-here');
  await settle();
  const said = (): string[] => made.log.warnings.filter((line) => line.includes('was refused'));
  expect(said()).toEqual([]);
  fromOrchestrator(made.broker, 0, IntentRefused({ ...unread, reason: 'invalid' }));
  await settle();
  expect(said()).toEqual([`ReportTry of run ${RUN} was refused (invalid): ReportTry: failure.class: invalid`]);
  expect(runs.last.told).toEqual([]);
});

test('a newer grant in the middle of the pages of an older one takes their place', async () => {
  await grant([1, { page: 1, pages: 2, steps: [recorded('1')] }], [2, { page: 1, pages: 2, steps: [recorded('5')] }], [1, { page: 2, pages: 2 }], [2, { page: 2, pages: 2, steps: [recorded('6')] }]);
  expect(runs.all).toHaveLength(1);
  expect(runs.last.grant).toMatchObject({ fence: 2, steps: [{ step: '5' }, { step: '6' }] });
});

test.each<[string, { readonly type: string; readonly data: unknown }]>([
  ['of a newer type', { type: 'StepSettledV2', data: { ...me, step: '1' } }],
  ['with a history of a newer kind', { type: 'RunGranted', data: { ...granted(2).data, steps: [{ kind: 'dream', step: '1' }] } }],
])('a message %s sets its run at rest, alone of its lane; granted again in words that are understood, it goes on', async (_, message) => {
  const { broker, log } = made;
  await grant([1]);
  const [held] = runs.all;
  fromOrchestrator(broker, 0, message);
  await settle();
  expect(held?.abandoned).toMatch(/can't be understood by this version/);
  expect(log.alarms).toEqual([expect.stringMatching(`run ${RUN} rests: .*newer version`)]);
  fromOrchestrator(broker, 0, StepSettled({ ...me, step: Step.parse('1'), attempt: 1, outcome }));
  fromOrchestrator(broker, 0, granted(1), 'other-run');
  await settle();
  expect(runs.last.grant.run).toBe('other-run');
  await grant([3]);
  expect(runs.last.grant).toMatchObject({ run: RUN, fence: 3 });
});

test('what can’t be read and is another worker’s leaves this one’s run alone', async () => {
  await grant([1]);
  fromOrchestrator(made.broker, 0, { type: 'StepSettledV2', data: { worker: 'worker-b' } });
  await settle();
  expect([runs.last.abandoned, made.log.alarms]).toEqual([undefined, []]);
});

test('what is addressed to another worker is left alone', async () => {
  await grant([1, { worker: WorkerId.parse('worker-b') }]);
  expect(runs.all).toEqual([]);
});

test('a newer fence gives the older executor up; an older or the same one changes nothing', async () => {
  await grant([2], [3]);
  const [old, current] = runs.all;
  expect(old?.abandoned).toMatch(/fence 3/);
  await grant([3], [2]);
  expect(runs.all).toHaveLength(2);
  expect(current?.abandoned).toBeUndefined();
});

test('a grant of an earlier holding of the lane, written late, begins nothing', async () => {
  const { generation } = made.broker;
  await grant([1, { generation: generation - 1 }]);
  expect(runs.all).toEqual([]);
  await grant([2, { generation }]);
  expect(runs.last.grant.fence).toBe(2);
});

test('a message from before the taking, written late, is no beginning to count from', async () => {
  const { broker, log } = made;
  const { generation } = broker;
  const late = granted(1, { generation: generation - 1 });
  broker.append(RUNS, 0, fromService(ORCHESTRATOR, RUN, late, { lane: 0, seq: 1005, prev: 1004 }));
  broker.append(RUNS, 0, fromService(ORCHESTRATOR, RUN, granted(2, { generation }), { lane: 0, seq: 1020, prev: 1019 }));
  await settle();
  expect(log.alarms).toEqual([]);
  expect(runs.last.grant.fence).toBe(2);
  broker.append(RUNS, 0, fromService(ORCHESTRATOR, RUN, granted(3, { generation }), { lane: 0, seq: 1030, prev: 1029 }));
  await settle();
  expect(log.alarms).toEqual([expect.stringMatching(/the last one seen has ce_seq 1020/)]);
});

test('answers reach the executor whose fence they name', async () => {
  await grant([1]);
  const step = Step.parse('1');
  fromOrchestrator(made.broker, 0, StepSettled({ ...me, step, attempt: 1, outcome }));
  fromOrchestrator(made.broker, 0, StepSettled({ ...me, fence: Fence.parse(7), step, attempt: 1, outcome }));
  fromOrchestrator(made.broker, 0, TryAnswered({ ...me, step, attempt: 2, retryAt: null }));
  fromOrchestrator(made.broker, 0, IntentRefused({ ...me, intent: 'CallTool', step, reason: 'unknown_tool', message: 'no such tool' }));
  fromOrchestrator(made.broker, 0, IntentRefused({ ...me, worker: null, intent: 'CallTool', reason: 'invalid', message: 'another client\'s' }));
  await settle();
  expect(runs.last.told).toEqual([
    { what: 'settled', about: { step, attempt: 1, outcome } },
    { what: 'tryAnswered', about: { step, attempt: 2, retryAt: null } },
    { what: 'refused', about: { intent: 'CallTool', step, reason: 'unknown_tool', message: 'no such tool' } },
  ]);
});

test('the end of a wait, and the word that it is let go, reach the executor whose fence they name; then it is forgotten', async () => {
  await grant([1]);
  const step = Step.parse('1');
  const end = { status: 'expired', deadline: 5 } as const;
  fromOrchestrator(made.broker, 0, WaitSettled({ ...me, step, end }));
  fromOrchestrator(made.broker, 0, WaitSettled({ ...me, fence: Fence.parse(7), step, end }));
  fromOrchestrator(made.broker, 0, RunDropped({ ...me, fence: Fence.parse(7), because: 'another' }));
  fromOrchestrator(made.broker, 0, RunDropped({ ...me, because: 'it waits' }));
  fromOrchestrator(made.broker, 0, WaitSettled({ ...me, step, end }));
  await settle();
  expect(runs.last.told).toEqual([{ what: 'waitEnded', about: { step, end } }, { what: 'dropped', about: 'it waits' }]);
  expect(runs.last.abandoned).toBeUndefined();
  await grant([2]);
  expect(runs.all).toHaveLength(2);
  expect(runs.all[0]?.abandoned).toBeUndefined();
});

test('a run that is let go before all pages of its grant have come is not begun', async () => {
  await grant([1, { page: 1, pages: 2, steps: [recorded('1')] }]);
  fromOrchestrator(made.broker, 0, RunDropped({ ...me, because: 'paused' }));
  await grant([1, { page: 2, pages: 2, steps: [recorded('2')] }]);
  expect(runs.all).toEqual([]);
});

test('a message that the orchestrator published twice is taken once', async () => {
  await grant([1]);
  const again = made.broker.records(RUNS, 0).slice(-1);
  runs.last.finished.open();
  await settle();
  made.broker.append(RUNS, 0, ...again);
  await settle();
  expect(runs.all).toHaveLength(1);
});

test('a gap in run.tasks stops the lane with an alarm', async () => {
  await grant([1]);
  const [last] = made.broker.records(RUNS, 0).slice(-1);
  const headers = { ...last?.headers, ce_seq: '100', ce_prevseq: '99' };
  made.broker.append(RUNS, 0, { key: RUN, headers, value: last?.value ?? '' });
  await settle();
  expect(made.log.alarms).toEqual([expect.stringMatching(/run\.tasks.* stands still/)]);
});

test('a granted effect that ends in this process is told to its run at once', async () => {
  await grant([1]);
  made.broker.append(TASKS, 0, task({ seq: 1, step: '4' }));
  await until(() => runs.last.told.length === 1, 'told');
  expect(runs.last.told).toMatchObject([{ what: 'seen', about: { step: '4', attempt: 1, outcome: { status: 'succeeded' } } }]);
});

test('a finished run is forgotten', async () => {
  await grant([1]);
  runs.last.finished.open();
  await settle();
  made.broker.append(TASKS, 0, task({ seq: 1 }));
  await settle();
  expect(runs.last.told).toEqual([]);
});

test('a lost lane gives up its runs, and no others; one that stays keeps them', async () => {
  await grant([1]);
  fromOrchestrator(made.broker, 1, granted(1), 'run-2');
  await until(() => runs.all.length === 2, 'both');
  made.broker.rebalance(new Map([[made.member, [0, 1]]]));
  await settle();
  expect(runs.all.map(({ abandoned }) => abandoned)).toEqual([undefined, undefined]);
  made.broker.rebalance(new Map([[made.member, [1]]]));
  await settle();
  expect(runs.all.map(({ abandoned }) => abandoned)).toEqual([expect.stringMatching(/another worker/), undefined]);
});

test('a lane that stays reads run.tasks on where it was', async () => {
  await grant([1]);
  made.member.revoke();
  fromOrchestrator(made.broker, 0, StepSettled({ ...me, step: Step.parse('1'), attempt: 1, outcome }));
  made.broker.rebalance(new Map([[made.member, [0, 1]]]));
  await until(() => runs.last.told.length === 1, 'what came meanwhile');
  expect(runs.all).toHaveLength(1);
});

test('a run of an older version goes to the code that says it carries it on, and to no other', async () => {
  const newer = new TestRuns();
  const agent = defineAgent({ name: 'clerk', version: '2', compatibleWith: ['1'], input: z.unknown(), output: z.unknown(), run: () => null }) as unknown as AgentDefinition;
  const begun: string[] = [];
  const other = await stage({ agents: [agent], execute: (grant, of, port) => (begun.push(`${grant.agent.version} by ${of.version}`), newer.execute(grant, of, port)) });
  await give(other.member);
  fromOrchestrator(other.broker, 0, granted(1));
  fromOrchestrator(other.broker, 0, granted(1, { agent: { name: 'clerk', version: '0' } }), 'run-0');
  await settle();
  expect(begun).toEqual(['1 by 2']);
});

test('a tool that is held still on a lane is so for its runs, until a later word leaves it out', async () => {
  const lane = '~lane/default/0';
  fromOrchestrator(made.broker, 0, ToolsHeld({ worker: me.worker, tools: [{ name: 'put' }, { name: 'pay', version: '2' }] }), lane);
  fromOrchestrator(made.broker, 0, ToolsHeld({ worker: WorkerId.parse('worker-b'), tools: [] }), lane);
  await grant([1]);
  const held = (): unknown[] => [['put', '1'], ['pay', '1'], ['pay', '2']].map(([name = '', version = '']) => runs.last.port.heldStill?.(RUN, { name, version }));
  expect(held()).toEqual([true, false, true]);
  fromOrchestrator(made.broker, 0, ToolsHeld({ worker: me.worker, tools: [] }), lane);
  await settle();
  expect(held()).toEqual([false, false, false]);
});

test('intents of one turn travel in one produce, in order', async () => {
  await grant([1]);
  const produces: number[] = [];
  made.broker.onPublish = (records) => void produces.push(records.length);
  const { port } = runs.last;
  const intent = (name: string) => ({ type: 'ReportSteps', data: { name } });
  await Promise.all([port.intend(RUN, runs.last.grant.tenant, [intent('a'), intent('b')]), port.intend(RUN, runs.last.grant.tenant, [intent('c')])]);
  expect(produces).toEqual([3]);
  expect(made.broker.sent('ReportSteps')).toEqual([{ name: 'a' }, { name: 'b' }, { name: 'c' }]);
  expect(made.broker.written.at(-1)).toMatchObject({ topic: topics.agentIntents, key: RUN, headers: { ce_source: 'worker/worker-a', ce_subject: RUN, ce_tenant: 'default' } });
});
