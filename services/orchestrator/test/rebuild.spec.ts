import { describe, expect, it } from '@jest/globals';
import { BrakeSet, brakeStream, CancelRun, laneStream, ReportChild, ReportSteps, RunCancelRequested, RunGranted, RunId, RunReleased, StartRun, ToolsHeld, WaitEnded, WaitStarted, type Json, type Operator } from '@holdfast/protocol';
import { grantedBefore } from '../src/domain/granted-before.js';
import type { Run, RunEvent } from '../src/domain/run.js';
import { orchestrator } from '../src/routes.js';
import { WaitHandlers } from '../src/wait-handlers.js';
import { accepted, agent, asked, at, completed, f, given, grant, holder, host, pool, run, s, tenant } from './kit.js';
import { unchanged } from './unchanged.js';
import { book, handlers, inboundOf, stateOf, turnOver } from './turn-kit.js';

const stream = laneStream(pool, 3);
const taken: Run = { status: 'lane', worker: holder('w1', 4).worker, agents: [agent], offset: 4, generation: 2, at, rebuilt: 0 };

describe('after a rebuild', () => {
  it('a lane is held as before, in a new life, and nothing is called taken', () => {
    const { turn, recorded } = turnOver(new Map([[stream, taken]]));
    handlers.reopen(stream, turn);
    expect(recorded).toEqual([{ type: 'LaneTaken', data: { pool, lane: 3, worker: 'w1', agents: [agent], taken: {}, offset: 4, at, generation: 2, rebuilt: 1 } }]);
    expect(turn.state(stream)).toEqual({ ...taken, rebuilt: 1 });
  });

  it('its holder hears again which tools are held still, where any are', () => {
    const brake = BrakeSet({ target: { kind: 'tool', name: 'refund' }, by: { name: 'kate', roles: ['operator'] }, reason: 'look first', command: 'c1', at });
    const { turn, sent } = turnOver(new Map([[stream, taken], [brakeStream(3), stateOf(brake)]]));
    handlers.reopen(stream, turn);
    expect(sent).toEqual([ToolsHeld({ worker: holder('w1', 4).worker, tools: [{ name: 'refund' }] })]);
    const none = turnOver(new Map([[stream, taken]]));
    handlers.reopen(stream, none.turn);
    expect(none.sent).toEqual([]);
  });

  it('says nothing to runs themselves', () => {
    const { turn, recorded, sent } = turnOver(new Map([[run as string, stateOf(accepted())]]));
    handlers.reopen(run, turn);
    expect([recorded, sent]).toEqual([[], []]);
  });

  it('a run is granted anew to the same worker, once', () => {
    expect(given(accepted()).when(grant(holder('w1', 10)))).toEqual({ kind: 'ignore', because: 'already_held' });
    const { turn, recorded } = turnOver(new Map([[run as string, stateOf(accepted())], [stream, { ...taken, offset: 10, rebuilt: 1 }]]));
    handlers.due(run, turn);
    handlers.due(run, turn);
    expect(recorded).toEqual([{ type: 'RunResumed', data: expect.objectContaining({ lease: { fence: 2, worker: 'w1', taken: 10, rebuilt: 1 }, because: 'worker_returned' }) }]);
  });

  it('a fence that was given out by a decision that is lost is on the record, and the holder gets the next one', () => {
    const granted = (fence: number) => RunGranted({ worker: holder('w9', 1).worker, fence: f(fence), tenant, agent, input: null, page: 1, pages: 1, steps: [], observed: [] }).data;
    expect(grantedBefore(granted(1), stateOf(accepted()))).toBeNull();
    const event = grantedBefore(granted(2), stateOf(accepted(), asked('1', 'reserve', { n: 1 }, 'local')));
    expect(event).toMatchObject({ type: 'RunResumed', data: { lease: { fence: 2, worker: 'w9' }, refired: [{ step: '1', attempt: 2 }] } });
    expect(grantedBefore(granted(1), stateOf(accepted({ lease: undefined })))).toMatchObject({ type: 'LeaseGranted', data: { lease: { fence: 1 } } });
    if (event === null) throw new Error('nothing was recorded');
    expect(given(accepted(), event).when(grant(holder('w1', 10)))).toMatchObject({ kind: 'record', events: [{ data: { lease: { fence: 3, worker: 'w1' } } }] });
  });

  it.each([
    ['LaneTaken', { offset: 7 }, { topic: 'agent.intents', offset: 7 }],
    ['IntentRejected', { offset: 9 }, { topic: 'agent.intents', offset: 9 }],
    ['IntentRejected', {}, null],
  ])('%s %j shows how far the intents had been answered', (type, data, expected) => {
    expect(orchestrator(handlers, new WaitHandlers(handlers, book)).rebuild?.answers?.[type]?.(data as Json)).toEqual(expected);
  });
});

describe('what runs said to each other before', () => {
  const child = RunId.parse('run-1/1');
  const kate: Operator = { name: 'kate', roles: ['operator'] };
  const waits = WaitStarted({ step: s('1'), wait: { kind: 'child', run: child, agent, input: 5 }, since: at, deadline: at + 1000, onDeadline: { action: 'expire' }, fence: f(1) });
  const asksChild = { type: 'StartRun', data: expect.objectContaining({ agent, input: 5, parent: { run, step: '1' }, deadline: at + 1000 }) };

  it('is said again: a child that is waited for is started, and cancelled with its parent', () => {
    const { turn, sent } = turnOver(new Map([[run as string, stateOf(accepted(), waits)]]));
    handlers.reopen(run, turn);
    expect(sent).toEqual([asksChild]);
    const cancelling = turnOver(new Map([[run as string, stateOf(accepted(), asked('2', 'refund'), waits, RunCancelRequested({ by: kate, reason: 'no', scope: 'tree', manner: 'graceful', command: 'c', at }))]]));
    handlers.reopen(run, cancelling.turn);
    expect(cancelling.sent).toEqual([asksChild, CancelRun({ command: 'c/1', by: kate, reason: 'no', scope: 'tree', manner: 'graceful' }), expect.objectContaining({ type: 'RunDropped', data: expect.objectContaining({ worker: 'w1', fence: 1, cancelled: true }) })]);
  });

  it('is answered again by a child that has ended', () => {
    const over: RunEvent = { type: 'RunFinished', data: { ending: completed, effects: [], steps: { fresh: 0, replayed: 0 } } };
    const data = StartRun({ agent, pool, input: { order: 7 }, parent: { run, step: s('1') } }).data;
    const { turn, sent, recorded } = turnOver(new Map([[child as string, stateOf(accepted(), over)]]));
    handlers.start(inboundOf('StartRun', child, data), turn);
    expect([sent, recorded]).toEqual([[ReportChild({ step: s('1'), child, ending: completed })], []]);
  });

  it('a cancelled run whose end was lost ends when it is looked at', () => {
    const { turn, recorded } = turnOver(new Map([[run as string, stateOf(accepted(), RunCancelRequested({ by: kate, reason: 'no', scope: 'run', manner: 'graceful', command: 'c', at }))], [stream, taken]]));
    handlers.due(run, turn);
    expect(recorded).toEqual([expect.objectContaining({ type: 'RunFinished' })]);
  });

  it('a grant from before a run was let go gives it to nobody', () => {
    const old = RunGranted({ worker: holder('w9', 1).worker, fence: f(1), tenant, agent, input: null, page: 1, pages: 1, steps: [], observed: [] }).data;
    const released = [accepted(), waits, RunReleased({ waits: [s('1')], fence: f(1) })];
    expect(grantedBefore(old, stateOf(...released))).toBeNull();
    const woken = stateOf(...released, WaitEnded({ step: s('1'), end: { status: 'expired', deadline: at }, at }));
    expect(grantedBefore({ ...old, fence: f(2) }, woken)).toMatchObject({ type: 'RunResumed', data: { lease: { fence: 2, worker: 'w9' } } });
  });
});

describe('an end that another than the holder reports', () => {
  const report = (fence: number) => {
    const { data } = ReportSteps({ fence: f(fence), settles: [{ step: s('1'), attempt: 1, outcome: { status: 'succeeded', result: { value: 1 }, evidence: host } }] });
    const inbound = inboundOf('ReportSteps', run, data);
    const resumed: RunEvent = { type: 'RunResumed', data: { lease: { fence: f(2), worker: holder('w2', 20).worker, taken: 20 }, because: 'worker_changed', revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none', ...unchanged }, replayed: 0, refired: [] } };
    const { turn, sent } = turnOver(new Map([[run as string, stateOf(accepted(), asked('1', 'refund'), resumed)]]), inbound.record);
    handlers.reportSteps(inbound, turn);
    return sent;
  };

  it('is told to the holder, who would wait for it else: the ledger’s word will be no news', () => {
    expect(report(1)).toEqual([{ type: 'StepSettled', data: expect.objectContaining({ worker: 'w2', fence: 2, step: '1', attempt: 1 }) }]);
  });

  it('needs no telling when the holder itself reports it', () => {
    expect(report(2)).toEqual([]);
  });
});
