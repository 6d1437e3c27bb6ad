import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { EffectRequested, EffectSettled, RunBlocked, StepReleased, type Failure } from '@holdfast/protocol';
import { phaseOf, type RunEvent } from '../src/domain/run.js';
import { accepted, asked, at, block, call, ended, eventsOf, f, failure, finish, given, grant, holder, host, known, partially, played, release, reports, requested, s, settle, succeeded, tools } from './kit.js';

const doubt = played([accepted(), asked('1', 'refund')], block('1'));
const phase = (events: readonly RunEvent[]) => phaseOf(known(given(...events).state()));
const invalid = (message: unknown) => expect.objectContaining({ kind: 'refuse', because: expect.objectContaining({ intent: 'CallTool', reason: 'invalid', message }) });

describe('a step in doubt', () => {
  test('blocks its run, with what is not known and since when', () => {
    expect(given(accepted(), asked('1', 'refund')).when(block('1'))).toEqual(record(RunBlocked({ step: s('1'), attempt: 1, cause: 'deadline', message: 'no end by its deadline', since: at })));
    expect(phase(doubt)).toBe('blocked');
    expect(given(...doubt).when(block('1'))).toEqual(ignore('already_settled'));
  });

  test('is not completed over; partially, with its name, it may be', () => {
    expect(given(...doubt).when(finish())).toEqual(expect.objectContaining({ kind: 'refuse', because: expect.objectContaining({ reason: 'outcome_unknown' }) }));
    expect(given(...doubt).when(finish(partially))).toMatchObject({ events: [{ type: 'RunFinished', data: { effects: [{ outcome: 'unknown' }] } }] });
  });

  test('is released once it is proved that nothing was applied: another attempt is under way, the run goes on', () => {
    const released = record(StepReleased({ step: s('1'), attempt: 1, because: 'proved not applied' }));
    expect(given(...doubt).when(release('1'))).toEqual(released);
    const after = [...doubt, ...released.events];
    expect(phase(after)).toBe('running');
    expect(known(given(...after).state()).steps.get(s('1'))).toMatchObject({ attempt: 2, outcome: null });
    expect(given(...after).when(release('1'))).toEqual(ignore('already_settled'));
    expect(given(...after).when(finish())).toEqual(expect.objectContaining({ kind: 'refuse', because: expect.objectContaining({ reason: 'steps_open' }) }));
    expect(given(...after).when(settle('1'))).toEqual(record(EffectSettled({ step: s('1'), attempt: 1, outcome: succeeded })));
  });

  test('of a released attempt that nobody knows about either blocks anew', () => {
    const again = played(doubt, release('1'), { ...block('1'), attempt: 2 });
    expect(phase(again)).toBe('blocked');
    expect(phase(played(again, release('1', 2)))).toBe('running');
  });

  test('gives way to what is proved, and is no longer in doubt after it', () => {
    expect(phase(played(doubt, settle('1')))).toBe('running');
    expect(given(...played(doubt, settle('1'))).when(release('1'))).toEqual(ignore('already_settled'));
    expect(given(...doubt).when(reports([ended('1')]))).toMatchObject({ events: [{ type: 'StepsReported', data: { settles: [{ step: '1' }] } }] });
  });

  test('an ordinary retry releases nothing, and what is no call neither', () => {
    expect(given(accepted(), asked('1', 'refund')).when(release('1'))).toEqual(ignore('already_settled'));
    expect(given(accepted()).when(release('1'))).toEqual(ignore('step_unknown'));
    expect(given().when(release('1'))).toEqual(ignore('run_over'));
  });

  test('is replayed as unknown to whoever takes the run over, and as under way once it is released', () => {
    const resumed = played(doubt, grant(holder('w2', 20)));
    expect(phase(resumed)).toBe('blocked');
    expect(phase(played(resumed, release('1')))).toBe('running');
  });
});

describe('a call that answers a failed one', () => {
  const failedAs = (of: Partial<Failure>): RunEvent[] => [accepted(), asked('1', 'refund'), EffectSettled({ step: s('1'), attempt: 1, outcome: { status: 'failed', failure: { ...failure('invalid_request'), ...of }, evidence: host } })];
  const mendable = failedAs({ repairable: true });
  const replaceable = failedAs({ fallback: tools.reserve });
  const mends = (step = '2') => call(step, 'refund', { args: { n: 9 }, repairs: s('1') });
  const takesOver = (step = '2') => call(step, 'reserve', { fallbackFor: s('1') });

  test('mends it, where the ledger offered that: it carries whose arguments it mends', () => {
    expect(given(...mendable).when(mends())).toEqual(record(EffectRequested({ call: { ...requested(s('2'), 'refund', { n: 9 }), repairs: s('1') }, fire: 'granted', fence: f(1) })));
  });

  test('takes over for it, where the contract names that tool', () => {
    expect(given(...replaceable).when(takesOver())).toEqual(record(EffectRequested({ call: { ...requested(s('2'), 'reserve'), fallbackFor: s('1') }, fire: 'granted', fence: f(1) })));
  });

  test('asked for again is a duplicate', () => {
    expect(given(...played(mendable, mends())).when(mends())).toEqual(ignore('duplicate'));
    expect(given(...played(replaceable, takesOver())).when(takesOver())).toEqual(ignore('duplicate'));
  });

  test.each<[string, readonly RunEvent[], ReturnType<typeof call>, RegExp]>([
    ['does both at once', mendable, call('2', 'refund', { repairs: s('1'), fallbackFor: s('1') }), /either mends a failed step or takes over for it, not both/],
    ['answers a step that never was', mendable, call('2', 'refund', { repairs: s('7') }), /step 7 is no call that failed/],
    ['answers one that is still open', [accepted(), asked('1', 'refund')], mends(), /step 1 is no call that failed/],
    ['answers one of which nobody knows', doubt, mends(), /step 1 is no call that failed/],
    ['takes over for one of which nobody knows', doubt, takesOver(), /step 1 is no call that failed/],
    ['answers one that succeeded', played([accepted(), asked('1', 'refund')], settle('1')), takesOver(), /step 1 is no call that failed/],
    ['mends what was not offered', failedAs({}), mends(), /step 1 can't be mended by a call of refund/],
    ['mends another tool’s arguments', mendable, call('2', 'reserve', { repairs: s('1') }), /step 1 can't be mended by a call of reserve/],
    ['takes over where no fallback is declared', mendable, takesOver(), /tool reserve is not the declared fallback of step 1/],
    ['takes over as another tool than the declared one', replaceable, call('2', 'lookup', { fallbackFor: s('1') }), /tool lookup is not the declared fallback of step 1/],
    ['mends a second time', played(mendable, mends()), mends('3'), /step 1 is answered by step 2 already/],
    ['takes over a second time', played(replaceable, takesOver()), takesOver('3'), /step 1 is answered by step 2 already/],
  ])('is refused where it %s', (_, before, command, message) => {
    expect(given(...before).when(command)).toEqual(invalid(expect.stringMatching(message)));
  });

  test('that mended in vain leaves the fallback free, and the other way round', () => {
    const both = failedAs({ repairable: true, fallback: tools.reserve });
    expect(given(...played(both, mends())).when(takesOver('3'))).toMatchObject({ events: [{ type: 'EffectRequested' }] });
    expect(given(...played(both, takesOver())).when(mends('3'))).toMatchObject({ events: [{ type: 'EffectRequested' }] });
  });

  test('is refused once, however often it is read', () => {
    const told = played([...failedAs({})], mends());
    expect(told).toHaveLength(4);
    expect(given(...told).when(mends())).toEqual(ignore('already_refused'));
  });

  test('stands in the run’s end as what it is', () => {
    const done = played(replaceable, takesOver(), { ...settle('2') }, finish());
    expect(eventsOf(given(...done).when(finish()))).toEqual([]);
    expect(done.at(-1)).toMatchObject({ type: 'RunFinished', data: { effects: [{ step: '1', outcome: 'failed' }, { step: '2', outcome: 'succeeded', fallbackFor: '1' }] } });
  });
});

test('a run’s budget of attempts goes to the ledger with each call', () => {
  expect(given(accepted({ budgets: { attemptsMax: 7 } })).when(call('1', 'refund'))).toMatchObject({ events: [{ data: { call: { attemptsMax: 7 } } }] });
});
