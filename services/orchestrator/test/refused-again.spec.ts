import { describe, expect, it } from '@jest/globals';
import { FinishRun, RecordStep, ReportSteps, RunDropped, RunReleased, RunResumed, WaitEnded, WaitStarted, type Settled } from '@holdfast/protocol';
import type { RunEvent } from '../src/domain/run.js';
import { accepted, asked, at, call, completed, contract, ended, f, given, holder, note, played, run, s, settle } from './kit.js';
import { handlers, inboundOf, stateOf, turnOver } from './turn-kit.js';

const budget = accepted({ budgets: { stepsMax: 1 } });
const resumed = (fence: number): RunEvent =>
  RunResumed({ lease: { fence: f(fence), worker: holder(`w${fence}`, 20).worker, taken: 20 }, because: 'worker_changed', revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'within' }, replayed: 0, refired: [] });
const over = note('2', 'think', 1);

describe('a step that was refused, asked for again by code that begins anew', () => {
  const refused = played([budget, asked('1', 'refund')], over);
  const ask = (events: readonly RunEvent[], fence: number, settles?: Settled[]) => {
    const { data } = RecordStep({ ...over.data, fence: f(fence), ...(settles === undefined ? {} : { settles }) });
    const inbound = inboundOf('RecordStep', run, data);
    const { turn, sent, recorded } = turnOver(new Map([[run as string, stateOf(...events)]]), inbound.record);
    handlers.recordStep(inbound, turn);
    return { told: sent.filter(({ type }) => type === 'IntentRefused'), recorded };
  };
  const answer = (worker: string, fence: number) => ({ type: 'IntentRefused', data: expect.objectContaining({ worker, fence, step: '2', reason: 'budget_exhausted' }) });

  it('is recorded as refused under the fence that asked, and told to it', () => {
    const first = ask([budget, asked('1', 'refund')], 1);
    expect(first).toEqual({ told: [answer('w1', 1)], recorded: [expect.objectContaining({ type: 'IntentRejected' })] });
  });

  it('is told to the new holder, and leaves no second event', () => {
    expect(ask([...refused, resumed(2)], 2)).toEqual({ told: [answer('w2', 2)], recorded: [] });
    expect(ask([...refused, resumed(2), resumed(3)], 3)).toEqual({ told: [answer('w3', 3)], recorded: [] });
  });

  it('is told as well after the run was let go and granted again', () => {
    const wait = WaitStarted({ step: s('1'), wait: { kind: 'sleep', until: at }, since: at, onDeadline: { action: 'expire' }, fence: f(1) });
    const slept = WaitEnded({ step: s('1'), end: { status: 'satisfied', value: { value: null }, by: 'clock' }, at });
    const refusedBefore = played([budget, wait], over);
    expect(ask([...refusedBefore, RunReleased({ waits: [s('1')], fence: f(1) }), slept, resumed(2)], 2).told).toEqual([answer('w2', 2)]);
  });

  it('keeps what the second asking reports', () => {
    expect(ask([...refused, resumed(2)], 2, [ended('1')])).toEqual({ told: [answer('w2', 2)], recorded: [ReportSteps({ settles: [ended('1')] })].map(({ data }) => ({ type: 'StepsReported', data })) });
  });

  it('is told to nobody when it is only read again', () => {
    expect(ask(refused, 1)).toEqual({ told: [], recorded: [] });
    expect(ask([...refused, resumed(2), resumed(3)], 2).told.every(({ data }) => (data as { worker: string | null }).worker === null)).toBe(true);
  });
});

describe('the end of a run', () => {
  const finish = (events: readonly RunEvent[]) => {
    const { turn, sent } = turnOver(new Map([[run as string, stateOf(...events)]]));
    handlers.finish(inboundOf('FinishRun', run, FinishRun({ ending: completed, fence: f(1) }).data), turn);
    return sent;
  };

  it('is told to its worker, which holds the run until its ending is taken', () => {
    expect(finish(played([budget, asked('1', 'refund')], settle('1')))).toEqual([RunDropped({ worker: holder('w1', 10).worker, fence: f(1), because: 'it has ended: completed' })]);
  });

  it('is not told while a step is open, which another worker may have asked for: the refusal is', () => {
    expect(finish(played([budget, asked('1', 'refund')]))).toEqual([expect.objectContaining({ type: 'IntentRefused', data: expect.objectContaining({ intent: 'FinishRun', reason: 'steps_open' }) })]);
  });
});

describe('a local call', () => {
  it.each([
    ['a limit on concurrency', { concurrencyMax: 2 }],
    ['a target that forgets keys', { targetRemembersKeysForMs: 1000 }],
  ])('of a tool with %s waits for the grant', (_, more) => {
    const limited = { contract: { ...contract('reserve'), ...more } };
    expect(given(accepted()).when(call('1', 'reserve', { fire: 'local', identity: limited }))).toMatchObject({ kind: 'refuse', because: { reason: 'local_not_allowed' } });
  });
});
