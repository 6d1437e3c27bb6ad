import { describe, expect, it } from '@jest/globals';
import { laneStream, ReportSteps, RunGranted, type Json, type Message } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { grantedBefore } from '../src/domain/granted-before.js';
import { evolve, absent, type Run, type RunEvent } from '../src/domain/run.js';
import { RunHandlers } from '../src/handlers.js';
import { orchestrator } from '../src/routes.js';
import { WaitHandlers } from '../src/wait-handlers.js';
import { accepted, agent, asked, at, f, given, grant, holder, host, pool, run, s, tenant } from './kit.js';

const book: ContractBook = { tool: () => undefined, agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };
const handlers = new RunHandlers(book);

function turnOver(states: Map<string, Run>, inHand: Turn<Run, RunEvent>['inHand'] = null) {
  const recorded: RunEvent[] = [];
  const sent: Message[] = [];
  const turn: Turn<Run, RunEvent> = {
    lane: 3, now: at, random: () => 0, inHand,
    state: (stream) => states.get(stream) ?? absent,
    tenantOf: () => tenant,
    record: (stream, _tenant, event) => {
      recorded.push(event);
      states.set(stream, evolve(states.get(stream) ?? absent, event));
    },
    send: (_topic, _stream, _tenant, message) => sent.push(message),
    seqAhead: () => 1, open: () => [], wake: () => undefined, shared: () => null, putShared: () => undefined, park: () => undefined, answered: () => undefined, count: () => undefined,
  };
  return { turn, recorded, sent };
}

const stateOf = (...events: RunEvent[]): Run => events.reduce(evolve, absent);
const stream = laneStream(pool, 3);
const taken: Run = { status: 'lane', worker: holder('w1', 4).worker, agents: [agent], offset: 4, generation: 2, at, rebuilt: 0 };

describe('after a rebuild', () => {
  it('a lane is held as before, in a new life, and nothing is called taken', () => {
    const { turn, recorded } = turnOver(new Map([[stream, taken]]));
    handlers.reopen(stream, turn);
    expect(recorded).toEqual([{ type: 'LaneTaken', data: { pool, lane: 3, worker: 'w1', agents: [agent], taken: {}, offset: 4, at, generation: 2, rebuilt: 1 } }]);
    expect(turn.state(stream)).toEqual({ ...taken, rebuilt: 1 });
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

describe('an end that another than the holder reports', () => {
  const report = (fence: number) => {
    const { data } = ReportSteps({ fence: f(fence), settles: [{ step: s('1'), attempt: 1, outcome: { status: 'succeeded', result: { value: 1 }, evidence: host } }] });
    const inbound: Inbound<typeof data> = {
      data,
      envelope: { id: 'x', type: 'ReportSteps', source: 'w', subject: run, time: at, tenant },
      record: { topic: 'agent.intents', lane: 3, offset: 8, key: run, headers: {}, value: '{}', time: at },
    };
    const resumed: RunEvent = { type: 'RunResumed', data: { lease: { fence: f(2), worker: holder('w2', 20).worker, taken: 20 }, because: 'worker_changed', revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none' }, replayed: 0, refired: [] } };
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
