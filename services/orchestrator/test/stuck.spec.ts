import { describe, expect, it } from '@jest/globals';
import { ignore } from '@holdfast/kernel';
import { RunReleased, WaitStarted, StepRetryScheduled } from '@holdfast/protocol';
import type { RunCommand } from '../src/domain/commands.js';
import { runDecider } from '../src/domain/decide.js';
import { absent, evolveAt, phaseOf, type KnownRun, type RunEvent } from '../src/domain/run.js';
import { STUCK_AFTER_MS, stuckAt } from '../src/domain/stuck.js';
import { dueAt } from '../src/domain/waiting.js';
import { readSettings } from '../src/settings.js';
import { accepted, asked, at, call, contract, f, failure, grant, holder, known, note, s } from './kit.js';

const kate = { name: 'kate', roles: ['operator'] };
const minute = 60_000;
/** Everything recorded in the minute before the first full one. */
const folded = (...events: RunEvent[]): KnownRun => known(events.reduce((run, event) => evolveAt(run, event, at), absent as ReturnType<typeof evolveAt>));
const due = (when: number): RunCommand => ({ type: 'due', at: when });
const from = minute + STUCK_AFTER_MS;

describe('a run that stands still', () => {
  it.each([
    ['with a call that has no end', [accepted(), asked('1', 'refund')], 'step 1 (refund, granted): no end since', ['1']],
    ['with a worker that asks for nothing', [accepted()], 'its worker w1 has asked for nothing since', []],
    ['without a worker', [accepted({ lease: undefined })], 'no worker of clerk@1', []],
  ] as const)('%s is stuck after a while, and says on what', (_, events, on, steps) => {
    const run = folded(...events);
    expect([stuckAt(run, STUCK_AFTER_MS), dueAt(run)]).toEqual([from, from]);
    expect(runDecider.decide(due(from - 1), run)).toEqual(ignore('not_due'));
    const decision = runDecider.decide(due(from), run);
    expect(decision).toMatchObject({ kind: 'record', events: [{ type: 'RunStuck', data: { since: at, on: expect.stringContaining(on), steps } }] });
    const after = folded(...events, ...(decision.kind === 'record' ? decision.events : []));
    expect([phaseOf(after), dueAt(after)]).toEqual(['stuck', null]);
    expect(runDecider.decide(due(from + 1), after)).toEqual(ignore('not_due'));
  });

  it('is stuck no more once anything moves, and not by being granted or refused', () => {
    const run = folded(accepted(), asked('1', 'refund'));
    const decision = runDecider.decide(due(from), run);
    const stuckRun = decision.kind === 'record' ? decision.events.reduce((state, event) => evolveAt(state, event, from), run as ReturnType<typeof evolveAt>) : absent;
    const play = (command: RunCommand): ReturnType<typeof evolveAt> => {
      const next = runDecider.decide(command, stuckRun);
      return next.kind === 'record' ? next.events.reduce((state, event) => evolveAt(state, event, from + 5), stuckRun) : stuckRun;
    };
    expect(phaseOf(known(play(grant(holder('w2', 20)))))).toBe('stuck');
    const moved = known(play(note('2', 'think')));
    expect([phaseOf(moved), moved.movedAt]).toEqual(['running', from + 5]);
  });

  it.each([
    ['a wait', [accepted(), WaitStarted({ step: s('1'), wait: { kind: 'sleep', until: at + 10 * STUCK_AFTER_MS }, since: at, onDeadline: { action: 'expire' }, fence: f(1) }), RunReleased({ waits: [s('1')], fence: f(1) })]],
    ['an operator', [accepted(), { type: 'RunPaused', data: { by: kate, reason: 'r', command: 'c', at } } as RunEvent]],
    ['a case', [accepted(), asked('1', 'refund'), { type: 'RunBlocked', data: { step: s('1'), attempt: 1, cause: 'deadline', message: 'm', since: at } } as RunEvent]],
    ['a client that owns its loop', [accepted({ agent: null, lease: undefined })]],
  ] as const)('because of %s is not stuck', (_, events) => {
    expect(stuckAt(folded(...events), STUCK_AFTER_MS)).toBeNull();
  });

  it('waits for its next try, and for a call as long as its contract says', () => {
    const retry = StepRetryScheduled({ step: s('1'), kind: 'step', name: 'think', attempt: 1, failure: failure(), retryAt: 5 * minute, fence: f(1) });
    expect(stuckAt(folded(accepted(), retry), STUCK_AFTER_MS)).toBe(5 * minute + STUCK_AFTER_MS);
    const long = { contract: { ...contract('refund'), timeoutMs: 60 * minute } };
    const decision = runDecider.decide(call('1', 'refund', { identity: long }), folded(accepted()));
    if (decision.kind !== 'record') throw new Error('it was not taken');
    expect(stuckAt(folded(accepted(), ...decision.events), STUCK_AFTER_MS)).toBe(from + 60 * minute + 1000);

  });

  it('is given as long as the operator sets', () => {
    // Looked at no more coarsely than that.
    expect(stuckAt(folded(accepted()), 1000)).toBe(at + 1000);
    expect(stuckAt(folded(accepted()), 90_000)).toBe(minute + 90_000);
    expect(readSettings({ HOLDFAST_STUCK_AFTER_MS: '2000' })).toMatchObject({ stuckAfterMs: 2000 });
    expect(() => readSettings({ HOLDFAST_STUCK_AFTER_MS: 'soon' })).toThrow('HOLDFAST_STUCK_AFTER_MS is "soon"');
  });
});
