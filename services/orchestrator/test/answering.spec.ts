import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { RunCancelRequested, RunCompensated, RunCompensating, RunFinished, WaitStarted, type MessageOf, type PlanConcluded, type PlanScope } from '@holdfast/protocol';
import { notCompensable } from '../src/domain/answering.js';
import { phaseOf } from '../src/domain/run.js';
import { dueAt, dueEvents } from '../src/domain/waiting.js';
import { accepted, asked, at, contract, failure, given, known, s } from './kit.js';

type Concluded = MessageOf<typeof PlanConcluded>['data'];
const concluded = (over: Partial<Concluded> = {}): Concluded => ({ plan: 1, status: 'compensated', effects: [], waits: [], ...over });
const over = [accepted(), RunFinished({ ending: { status: 'failed', failure: failure() }, effects: [], steps: { fresh: 0, replayed: 0 } })];
const opened = { type: 'compensating', at, plan: 1, because: 'it failed' } as const;

describe('a run that is over', () => {
  test('says that it is being compensated, and how that ended, once each', () => {
    const compensating = RunCompensating({ plan: 1, because: 'it failed' });
    expect(given(...over).when(opened)).toEqual(record(compensating));
    expect(given(...over, compensating).when(opened)).toEqual(ignore('duplicate'));
    expect(phaseOf(known(given(...over, compensating).state()))).toBe('compensating');
    const compensated = RunCompensated({ plan: 1, status: 'compensated', effects: [] });
    expect(given(...over, compensating).when({ type: 'compensated', at, concluded: concluded() })).toEqual(record(compensated));
    expect(given(...over, compensating, compensated).when({ type: 'compensated', at, concluded: concluded() })).toEqual(ignore('duplicate'));
    expect(given(...over, compensating, compensated).when(opened)).toEqual(ignore('duplicate'));
    expect(phaseOf(known(given(...over, compensating, compensated).state()))).toBe('compensated');
  });

  test('says what a later plan came to', () => {
    const before = [...over, RunCompensated({ plan: 1, status: 'compensation_failed', effects: [] })];
    expect(phaseOf(known(given(...before).state()))).toBe('compensation_failed');
    expect(given(...before).when({ type: 'compensated', at, concluded: concluded({ plan: 2 }) })).toEqual(record(RunCompensated({ plan: 2, status: 'compensated', effects: [] })));
  });
});

describe('a run under way', () => {
  const waiting = WaitStarted({ step: s('2'), wait: { kind: 'compensation', scope: { kind: 'run' } }, since: at, onDeadline: { action: 'expire' } });

  test.each([{ action: 'expire' }, { action: 'complete_partially', because: 'as it is' }, { action: 'compensate' }] as const)('that is being cancelled is not moved by what it waits for: $action', (onDeadline) => {
    const before = [accepted(), asked('1', 'refund'), WaitStarted({ step: s('2'), wait: { kind: 'compensation', scope: { kind: 'run' } }, since: at, deadline: at + 5, onDeadline })];
    const cancelled = RunCancelRequested({ by: { name: 'ada', roles: ['operator'] }, reason: 'a mistake', scope: 'run', manner: 'graceful', command: 'c1', at });
    expect(dueEvents(known(given(...before).state()), at + 5)).not.toEqual([]);
    expect(dueAt(known(given(...before).state()))).toBe(at + 5);
    expect(dueEvents(known(given(...before, cancelled).state()), at + 5)).toEqual([]);
    expect(dueAt(known(given(...before, cancelled).state()))).not.toBe(at + 5);
  });

  test('that is being cancelled does not go on', () => {
    const cancelled = RunCancelRequested({ by: { name: 'ada', roles: ['operator'] }, reason: 'a mistake', scope: 'run', manner: 'graceful', command: 'c1', at });
    expect(given(accepted(), asked('1', 'refund'), waiting, cancelled).when({ type: 'compensated', at, concluded: concluded({ waits: [s('2')] }) })).toEqual(ignore('already_settled'));
  });

  test('goes on once what it waits for is answered', () => {
    const decision = given(accepted(), asked('1', 'refund'), waiting).when({ type: 'compensated', at, concluded: concluded({ waits: [s('2')] }) });
    expect(decision).toMatchObject({ kind: 'record', events: [{ type: 'WaitEnded', data: { step: '2', end: { status: 'satisfied', by: 'plan 1' } } }] });
    expect(given(accepted(), waiting).when({ type: 'compensated', at, concluded: concluded({ waits: [s('7')] }) })).toEqual(ignore('already_settled'));
  });

  test.each<[string, PlanScope, RegExp | null]>([
    ['what its contracts answer', { kind: 'after', step: s('1') }, null],
    ['what nothing answers', { kind: 'run' }, /step 1 names no compensation/],
    ['a step that is none of its effects', { kind: 'steps', steps: [s('9')] }, /step 9 is no effect/],
  ])('may have answered: %s', (_, scope, problem) => {
    const run = known(given(accepted(), asked('1', 'refund'), asked('2', 'refund')).state());
    const how = { tool: { name: 'charge', version: '1' }, args: {}, order: 'reverse', authority: 'automatic', deadlineMs: 1, verify: false } as const;
    const said = notCompensable(run, scope, ({ call }) => ({ ...contract('refund'), ...(call.step === '2' ? { compensate: { ...how, args: {} } } : {}) }));
    if (problem === null) expect(said).toBeNull();
    else expect(said).toMatch(problem);
  });

  test('has no way back over a point of no return', () => {
    const run = known(given(accepted(), asked('1', 'refund'), asked('2', 'refund')).state());
    const how = { tool: { name: 'charge', version: '1' }, args: {}, order: 'reverse', authority: 'automatic', deadlineMs: 1, verify: false } as const;
    expect(notCompensable(run, { kind: 'steps', steps: [s('1')] }, ({ call }) => ({ ...contract('refund'), compensate: how, ...(call.step === '2' ? { pointOfNoReturn: true } : {}) }))).toMatch(/point of no return/);
  });
});
