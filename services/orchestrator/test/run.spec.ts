import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import {
  EffectRequested,
  EffectSettled,
  GroupRequested,
  laneStream,
  LaneTaken,
  LeaseGranted,
  RunAccepted,
  RunBlocked,
  RunFinished,
  RunQuarantined,
  RunResumed,
  StepFailed,
  StepRecorded,
  StepRetryScheduled,
  StepsReported,
  WorkerId,
  digestOf,
} from '@holdfast/protocol';
import { LOST_MAX } from '../src/domain/decide.js';
import { historyOf } from '../src/domain/history.js';
import { openSteps, phaseOf } from '../src/domain/run.js';
import {
  accepted,
  agent,
  asked,
  at,
  block,
  call,
  completed,
  ended,
  eventsOf,
  f,
  failure,
  finish,
  given,
  grant,
  group,
  holder,
  host,
  input,
  known,
  note,
  partially,
  played,
  pool,
  reports,
  requested,
  s,
  settle,
  start,
  succeeded,
  tenant,
  tried,
} from './kit.js';
import { unchanged } from './unchanged.js';

const lease = (fence: number, worker: string, taken: number) => ({ fence: f(fence), worker: WorkerId.parse(worker), taken });
const refused = (reason: string) => expect.objectContaining({ kind: 'refuse', because: expect.objectContaining({ reason }) });
const resumed = (fence: number, worker: string, taken: number, over: Partial<ReturnType<typeof RunResumed>['data']> = {}, checked: Partial<ReturnType<typeof RunResumed>['data']['revalidated']> = {}) =>
  RunResumed({
    lease: lease(fence, worker, taken),
    because: 'worker_changed',
    revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none', ...unchanged, ...checked },
    replayed: 0,
    refired: [],
    ...over,
  });

describe('start', () => {
  const facts = { tenant, agent, pool, input, inputDigest: digestOf(input) };

  test('a run is accepted, and held at once where a worker is there', () => {
    expect(given().when(start())).toEqual(record(RunAccepted({ at, ...facts, lease: lease(1, 'w1', 10) })));
  });

  test('without a worker of its version it waits', () => {
    expect(given().when(start({ holder: null }))).toEqual(record(RunAccepted({ at, ...facts })));
    expect(given().when(start({ holder: holder('w1', 10, [{ name: 'clerk', version: '2' }]) }))).toEqual(record(RunAccepted({ at, ...facts })));
    expect(phaseOf(known(given(RunAccepted({ at, ...facts })).state()))).toBe('queued');
  });

  test('again is a duplicate, also when the run has ended', () => {
    expect(given(accepted()).when(start())).toEqual(ignore('duplicate'));
    expect(given(...played([accepted()], finish())).when(start())).toEqual(ignore('duplicate'));
  });

  test('with another input or agent is refused', () => {
    expect(given(accepted()).when(start({ input: { order: 8 } }))).toEqual(refused('run_exists_with_other_input'));
    expect(given(accepted({ agent: { name: 'clerk', version: '2' } })).when(start())).toEqual(refused('run_exists_with_other_input'));
  });

  test('of a run that never was: all else is refused or nothing', () => {
    for (const command of [call('1', 'refund'), note('1', 'think'), finish()]) expect(given().when(command)).toEqual(refused('run_unknown'));
    for (const command of [grant(holder('w1', 1)), settle('1'), block('1')]) expect(given().when(command)).toEqual(ignore('run_over'));
  });
});

describe('call', () => {
  const before = [accepted(), asked('1', 'refund')];

  test('a new one is asked for', () => {
    expect(given(accepted()).when(call('1', 'refund'))).toEqual(record(EffectRequested({ call: requested(s('1'), 'refund'), fire: 'granted', fence: f(1) })));
    expect(given(accepted()).when(call('1', 'reserve', { fire: 'local' }))).toEqual(record(EffectRequested({ call: requested(s('1'), 'reserve'), fire: 'local', fence: f(1) })));
  });

  test('the same again is a duplicate, before any fence is looked at', () => {
    expect(given(...before).when(call('1', 'refund'))).toEqual(ignore('duplicate'));
    expect(given(...before, resumed(2, 'w2', 20)).when(call('1', 'refund', { fence: 1 }))).toEqual(ignore('duplicate'));
    expect(given(...played(before, settle('1'), finish())).when(call('1', 'refund'))).toEqual(ignore('duplicate'));
  });

  test('other arguments, tool or kind of step under the same step conflict', () => {
    expect(given(...before).when(call('1', 'refund', { args: { n: 2 } }))).toEqual(refused('operation_conflict'));
    expect(given(...before).when(call('1', 'lookup'))).toEqual(refused('operation_conflict'));
    expect(given(...before).when(note('1', 'think'))).toEqual(refused('operation_conflict'));
    expect(given(...played([accepted()], note('1', 'think'))).when(call('1', 'refund'))).toEqual(refused('operation_conflict'));
  });

  test('other arguments adopt the recorded intent where asked to, never another tool', () => {
    expect(given(...before).when(call('1', 'refund', { args: { n: 2 }, onConflict: 'adopt' }))).toEqual(ignore('adopted'));
    expect(given(...before).when(call('1', 'lookup', { onConflict: 'adopt' }))).toEqual(refused('operation_conflict'));
  });

  test('a fence that is not the run’s is refused', () => {
    const again = [accepted(), resumed(2, 'w2', 20)];
    expect(given(...again).when(call('1', 'refund', { fence: 1 }))).toEqual(refused('stale_fence'));
    expect(given(...again).when(call('1', 'refund', { fence: 3 }))).toEqual(refused('stale_fence'));
  });

  test('no fence is taken only while no worker holds the run', () => {
    expect(given(accepted()).when(call('1', 'refund', { fence: null }))).toEqual(refused('fence_required'));
    expect(given(accepted({ agent: null, lease: undefined })).when(call('1', 'refund', { fence: null }))).toMatchObject({ kind: 'record' });
  });

  test('a run that has ended, is in quarantine or past its deadline takes nothing more', () => {
    expect(given(...played([accepted()], finish())).when(call('1', 'refund'))).toEqual(refused('run_ended'));
    expect(given(accepted(), RunQuarantined({ reason: 'poison', message: 'm' })).when(call('1', 'refund'))).toEqual(refused('run_quarantined'));
    expect(given(accepted({ deadline: at - 1 })).when(call('1', 'refund'))).toEqual(refused('deadline_passed'));
    expect(given(accepted({ deadline: at - 1 })).when(finish())).toMatchObject({ kind: 'record' });
  });

  test('a tool that nobody declared, or arguments that break its schema, are refused', () => {
    expect(given(accepted()).when(call('1', 'refund', { identity: { contract: null } }))).toEqual(refused('unknown_tool'));
    expect(given(accepted()).when(call('1', 'refund', { identity: { invalid: 'amount: must be number' } }))).toEqual(refused('invalid_arguments'));
  });

  test('an irreversible call never fires locally, and binds nothing: its worker does not fire it', () => {
    const decision = given(accepted()).when(call('1', 'refund', { fire: 'local' }));
    expect(decision).toEqual(refused('local_not_allowed'));
    expect(decision).not.toHaveProperty('because.bound');
  });

  test('a step beyond the budget is refused, a known one is not', () => {
    const budgeted = [accepted({ budgets: { stepsMax: 1 } }), asked('1', 'refund')];
    expect(given(...budgeted).when(call('2', 'refund'))).toEqual(refused('budget_exhausted'));
    expect(given(...budgeted).when(note('2', 'think'))).toEqual(refused('budget_exhausted'));
    expect(given(...budgeted).when(call('1', 'refund'))).toEqual(ignore('duplicate'));
  });

  test('a local idempotent call that is refused may have fired: it holds its key', () => {
    const again = [accepted(), resumed(2, 'w2', 20)];
    const stale = given(...again).when(call('1', 'reserve', { fire: 'local', fence: 1 }));
    expect(stale).toMatchObject({ kind: 'refuse', because: { reason: 'stale_fence', bound: requested(s('1'), 'reserve') } });
    const bound = [...again, ...eventsOf(stale)];
    expect(given(...bound).when(call('1', 'reserve', { fire: 'local', fence: 2 }))).toMatchObject({ kind: 'record', events: [{ type: 'EffectRequested', data: { fence: 2 } }] });
    expect(given(...bound).when(call('1', 'reserve', { fire: 'local', fence: 2, args: { n: 2 } }))).toEqual(refused('operation_conflict'));
    expect(given(...bound).when(call('1', 'reserve', { fire: 'local', fence: 1 }))).toEqual(ignore('already_refused'));
    const fired = played(bound, call('1', 'reserve', { fire: 'local', fence: 2 }));
    expect(known(given(...fired).state()).steps.get(s('1'))).toMatchObject({ attempt: 2, bound: false });
  });

  test('a refused intent’s results are kept, and its observed order by the holder only', () => {
    const settles = [ended('1')];
    expect(given(...before).when(call('2', 'refund', { identity: { contract: null }, settles, observed: [s('1')] }))).toMatchObject({ kind: 'refuse', because: { settles, observed: ['1'] } });
    const stale = given(...before, resumed(2, 'w2', 20)).when(call('2', 'refund', { settles, observed: [s('1')] }));
    expect(stale).toMatchObject({ kind: 'refuse', because: { reason: 'stale_fence', settles } });
    expect(stale).not.toHaveProperty('because.observed');
  });
});

describe('a refusal', () => {
  test('is spoken once, however often its intent is read', () => {
    const events = played([accepted()], call('1', 'refund', { identity: { contract: null } }));
    expect(events).toHaveLength(2);
    expect(given(...events).when(call('1', 'refund', { identity: { contract: null } }))).toEqual(ignore('already_refused'));
    expect(given(...events).when(call('2', 'refund', { identity: { contract: null } }))).toEqual(refused('unknown_tool'));
  });

  test('spoken before still lets what its intent reports be heard', () => {
    const events = played([accepted(), asked('1', 'refund')], call('2', 'refund', { identity: { contract: null } }));
    expect(given(...events).when(call('2', 'refund', { identity: { contract: null }, settles: [ended('1')] }))).toEqual(record(StepsReported({ settles: [ended('1')] })));
  });
});

describe('group', () => {
  const members = [['1.1', 'lookup'], ['1.2', 'reserve']] as const;

  test('of pure and idempotent calls is recorded as one, and again is a duplicate', () => {
    const event = GroupRequested({ step: s('1'), calls: [requested(s('1.1'), 'lookup'), requested(s('1.2'), 'reserve')], fence: f(1) });
    expect(given(accepted()).when(group('1', members))).toEqual(record(event));
    expect(given(accepted(), event).when(group('1', members))).toEqual(ignore('duplicate'));
    expect(given(accepted(), event, resumed(2, 'w2', 20)).when(group('1', members, 1))).toEqual(ignore('duplicate'));
    expect(given(accepted(), event).when(group('1', [['1.1', 'lookup', { n: 2 }]]))).toEqual(refused('operation_conflict'));
  });

  test('with an irreversible call is refused whole', () => {
    expect(given(accepted()).when(group('1', [...members, ['1.3', 'refund']]))).toEqual(refused('group_not_allowed'));
  });

  test('counts each member against the budget', () => {
    expect(given(accepted({ budgets: { stepsMax: 1 } })).when(group('1', members))).toEqual(refused('budget_exhausted'));
  });

  test('holds its own step as well as its members’', () => {
    const grouped = played([accepted()], group('1', members));
    expect(given(...grouped).when(call('1', 'refund'))).toEqual(refused('operation_conflict'));
    expect(given(...grouped).when(note('1', 'think'))).toEqual(refused('operation_conflict'));
    expect(given(...grouped).when(tried('1', 1))).toEqual(refused('operation_conflict'));
    expect(given(...grouped).when(group('1', [['1.3', 'lookup']]))).toEqual(refused('operation_conflict'));
    expect(given(...grouped).when(group('2', [['1', 'lookup']]))).toEqual(refused('operation_conflict'));
    expect(given(...grouped).when(group('2', [['2.1', 'lookup']]))).toMatchObject({ kind: 'record' });
  });

  test('at a step that something else holds conflicts', () => {
    for (const before of [call('1', 'refund'), note('1', 'think'), tried('1', 1)]) expect(given(...played([accepted()], before)).when(group('1', members))).toEqual(refused('operation_conflict'));
  });

  test('that names a step twice, or its own, is refused: one of the two would be lost', () => {
    expect(given(accepted()).when(group('1', [...members, ['1.2', 'reserve']]))).toEqual(refused('group_not_allowed'));
    expect(given(accepted()).when(group('1', [['1.1', 'lookup'], ['1.1', 'reserve']]))).toEqual(refused('group_not_allowed'));
    expect(given(accepted()).when(group('1', [['1', 'lookup']]))).toEqual(refused('group_not_allowed'));
  });

  test('that is refused may have fired: its calls hold their keys, and may be asked for again', () => {
    const again = [accepted(), resumed(2, 'w2', 20)];
    const stale = given(...again).when(group('1', members, 1));
    expect(stale).toMatchObject({ kind: 'refuse', because: { reason: 'stale_fence', boundGroup: [requested(s('1.1'), 'lookup'), requested(s('1.2'), 'reserve')] } });
    const bound = [...again, ...eventsOf(stale)];
    expect(known(given(...bound).state()).steps.get(s('1.2'))).toMatchObject({ bound: true, attempt: 1 });
    expect(given(...bound).when(group('1', members, 1))).toEqual(ignore('already_refused'));
    expect(given(...bound).when(group('1', [['1.1', 'lookup'], ['1.2', 'reserve', { n: 2 }]], 2))).toEqual(refused('operation_conflict'));
    expect(given(...bound).when(call('1.2', 'reserve', { fence: 2, args: { n: 2 } }))).toEqual(refused('operation_conflict'));
    const fired = played(bound, group('1', members, 2));
    expect(known(given(...fired).state()).steps.get(s('1.2'))).toMatchObject({ attempt: 2, bound: false, group: '1' });
    expect(given(...fired).when(group('1', members, 2))).toEqual(ignore('duplicate'));
    // What it did is evidence, though it was refused.
    expect(given(...bound).when(reports([ended('1.2')], 1))).toMatchObject({ kind: 'record', events: [{ type: 'StepsReported', data: { settles: [{ step: '1.2', local: { key: requested(s('1.2'), 'reserve').key } }] } }] });
  });

  test('that is refused and has fired is recorded whole: what has not reported yet is under way, as in any other', () => {
    const over = [accepted({ budgets: { stepsMax: 1 } })];
    const bound = played(over, group('1', members, 1));
    expect(known(given(...bound).state()).steps.size).toBe(2);
    expect(historyOf(known(given(...bound).state()))).toEqual([]);
    for (const [first, other] of [['1.1', '1.2'], ['1.2', '1.1']] as const) {
      const told = played(bound, reports([ended(first)], 1));
      expect(historyOf(known(given(...told).state()))).toMatchObject([
        { call: { step: '1.1' }, group: '1', fire: 'local' },
        { call: { step: '1.2' }, group: '1', fire: 'local' },
      ]);
      expect(openSteps(known(given(...told).state())).map(({ call: { step } }) => step)).toEqual([other]);
      // Whoever asks for it again, as the history has it, is told nothing new.
      expect(given(...told).when(group('1', members, 1))).toEqual(ignore('duplicate'));
    }
  });

  test('of reads alone that is refused is asked for again: nothing of it needs to be kept', () => {
    expect(given(accepted({ budgets: { stepsMax: 1 } })).when(group('1', [['1.1', 'lookup'], ['1.2', 'lookup']], 1))).toMatchObject({ kind: 'refuse', because: { reason: 'budget_exhausted' } });
    expect(played([accepted({ budgets: { stepsMax: 1 } })], group('1', [['1.1', 'lookup'], ['1.2', 'lookup']], 1)).at(-1)).not.toHaveProperty('data.boundGroup');
  });

  test('asked for again within its budget is counted once', () => {
    const budgeted = [accepted({ budgets: { stepsMax: 2 } }), resumed(2, 'w2', 20)];
    expect(given(...played(budgeted, group('1', members, 1))).when(group('1', members, 2))).toMatchObject({ kind: 'record' });
    expect(given(...played([accepted({ budgets: { stepsMax: 1 } }), resumed(2, 'w2', 20)], call('1', 'reserve', { fire: 'local', fence: 1 }))).when(call('1', 'reserve', { fire: 'local', fence: 2 }))).toMatchObject({ kind: 'record' });
  });
});

describe('recorded work', () => {
  const facts = { step: s('1'), kind: 'step' as const, name: 'think', fence: f(1) };

  test('is recorded, and again is a duplicate whatever its fence', () => {
    const event = StepRecorded({ ...facts, result: { value: 1 } });
    expect(given(accepted()).when(note('1', 'think'))).toEqual(record(event));
    expect(given(accepted(), event, resumed(2, 'w2', 20)).when(note('1', 'think'))).toEqual(ignore('duplicate'));
    expect(given(accepted(), event).when(note('1', 'other'))).toEqual(refused('operation_conflict'));
  });

  test('that failed is answered with when to try again, in the end that the budget is spent', () => {
    const scheduled = (attempt: number, retryAt: number) => StepRetryScheduled({ ...facts, attempt, failure: failure(), retryAt });
    expect(given(accepted()).when(tried('1', 1))).toEqual(record(scheduled(1, at + 100)));
    expect(given(accepted(), scheduled(1, at + 100)).when(tried('1', 1))).toEqual(ignore('duplicate'));
    expect(given(accepted(), scheduled(1, at + 100)).when(tried('1', 2))).toEqual(record(scheduled(2, at + 200)));
    const failed = StepFailed({ ...facts, attempt: 5, failure: failure() });
    expect(given(accepted(), scheduled(4, at)).when(tried('1', 5))).toEqual(record(failed));
    expect(given(accepted(), scheduled(4, at), failed).when(tried('1', 5))).toEqual(ignore('duplicate'));
  });

  test('that can’t succeed is not tried again', () => {
    expect(given(accepted()).when(tried('1', 1, 'invalid_request'))).toEqual(record(StepFailed({ ...facts, attempt: 1, failure: failure('invalid_request') })));
  });

  test('that succeeds in the end is recorded', () => {
    expect(given(...played([accepted()], tried('1', 1))).when(note('1', 'think'))).toEqual(record(StepRecorded({ ...facts, result: { value: 1 } })));
  });
});

describe('a report', () => {
  const before = [accepted(), asked('1', 'refund')];

  test('is evidence: a stale fence does not refuse it, but the order of the code is the holder’s word', () => {
    const settles = [ended('1')];
    expect(given(...before).when(reports(settles, 1, [s('1')]))).toEqual(record(StepsReported({ settles, observed: [s('1')], fence: f(1) })));
    expect(given(...before, resumed(2, 'w2', 20)).when(reports(settles, 1, [s('1')]))).toEqual(record(StepsReported({ settles, fence: f(1) })));
    expect(given(...before, RunQuarantined({ reason: 'poison', message: 'm' })).when(reports(settles))).toEqual(record(StepsReported({ settles, fence: f(1) })));
  });

  test('of what is known already, or of a step that never was, is nothing new', () => {
    expect(given(...before, EffectSettled(ended('1'))).when(reports([ended('1')]))).toEqual(ignore('nothing_new'));
    expect(given(...before).when(reports([ended('9')]))).toEqual(ignore('nothing_new'));
  });

  test('of nothing but the order in which code was told is recorded, once, and by the holder’s word', () => {
    const ran = played(before, settle('1'), note('2', 'think'));
    expect(given(...ran).when(reports([], 1, [s('2'), s('1')]))).toEqual(record(StepsReported({ observed: [s('2'), s('1')], fence: f(1) })));
    const told = played(ran, reports([], 1, [s('2')]));
    expect(known(given(...told).state()).observed).toEqual(['2']);
    expect(given(...told).when(reports([], 1, [s('2')]))).toEqual(ignore('nothing_new'));
    expect(given(...told).when(reports([], 1, [s('2'), s('1')]))).toEqual(record(StepsReported({ observed: [s('1')], fence: f(1) })));
    expect(given(...told, resumed(2, 'w2', 20)).when(reports([], 1, [s('1')]))).toEqual(ignore('nothing_new'));
    expect(given(...played(told, finish())).when(reports([], 1, [s('1')]))).toEqual(ignore('nothing_new'));
  });

  test('of a granted call’s failure is the ledger’s to judge', () => {
    expect(given(...before).when(reports([ended('1', { status: 'failed', failure: failure(), evidence: host })]))).toEqual(ignore('nothing_new'));
  });

  test('of a local call’s end says what was called, and a failure once', () => {
    const local = [accepted(), asked('1', 'reserve', { n: 1 }, 'local')];
    const { key, digest, tool, effect, args } = requested(s('1'), 'reserve');
    expect(given(...local).when(reports([ended('1')]))).toEqual(record(StepsReported({ settles: [{ ...ended('1'), local: { tool, effect, key, digest } }], fence: f(1) })));
    const failed = ended('1', { status: 'failed', failure: failure(), evidence: host });
    const told = given(...local).when(reports([failed]));
    expect(told).toEqual(record(StepsReported({ settles: [{ ...failed, local: { tool, effect, key, digest, args } }], fence: f(1) })));
    expect(given(...local, ...eventsOf(told)).when(reports([failed]))).toEqual(ignore('nothing_new'));
    expect(known(given(...local, ...eventsOf(told)).state()).steps.get(s('1'))).toMatchObject({ outcome: null, fire: 'granted' });
  });
});

describe('finish', () => {
  const before = [accepted(), asked('1', 'refund')];
  const effect = (outcome: 'succeeded' | 'unknown', evidence: string) => ({ step: s('1'), tool: { name: 'refund', version: '1' }, key: requested(s('1'), 'refund').key, outcome, evidence, attempts: 1 });

  test('names every effect, its outcome and what shows it', () => {
    expect(given(...before, EffectSettled(ended('1'))).when(finish())).toEqual(
      record(RunFinished({ ending: completed, effects: [effect('succeeded', 'host')], steps: { fresh: 1, replayed: 0 }, fence: f(1) })),
    );
    expect(given(...played([...before, EffectSettled(ended('1'))], finish())).when(finish())).toEqual(ignore('duplicate'));
  });

  test('is refused while an effect has no end, unless the finishing intent brings it', () => {
    expect(given(...before).when(finish())).toEqual(refused('steps_open'));
    expect(given(...before).when(finish(completed, 1, [ended('1')]))).toMatchObject({ kind: 'record', events: [{ type: 'RunFinished', data: { settles: [ended('1')] } }] });
  });

  test('is refused while an outcome is unknown; completing partially says so', () => {
    const blocked = played(before, block('1'));
    expect(phaseOf(known(given(...blocked).state()))).toBe('blocked');
    expect(given(...blocked).when(finish())).toEqual(refused('outcome_unknown'));
    expect(given(...blocked).when(finish(partially))).toEqual(
      record(RunFinished({ ending: partially, effects: [effect('unknown', 'none: no end by its deadline')], steps: { fresh: 1, replayed: 0 }, fence: f(1) })),
    );
  });

  test('counts steps of an earlier fence as replayed', () => {
    const events = played([accepted()], note('1', 'think'), grant(holder('w2', 20)), note('2', 'think', 2));
    expect(given(...events).when(finish(completed, 2))).toMatchObject({ kind: 'record', events: [{ data: { steps: { fresh: 1, replayed: 1 } } }] });
  });

  test('stands, whatever is sent to the run afterwards', () => {
    const events = played([accepted()], finish());
    expect(given(...events).when({ type: 'poison', at, message: 'boom' })).toEqual(ignore('run_over'));
    expect(given(accepted()).when({ type: 'poison', at, message: 'boom' })).toEqual(record(RunQuarantined({ reason: 'poison', message: 'boom' })));
  });

  test('with another ending, or by an earlier holder, is refused', () => {
    expect(given(...played([accepted()], finish())).when(finish(partially))).toEqual(refused('run_ended'));
    expect(given(accepted(), resumed(2, 'w2', 20)).when(finish())).toEqual(refused('stale_fence'));
  });
});

describe('the ledger’s word', () => {
  const before = [accepted(), asked('1', 'refund')];

  test('settles a call, once', () => {
    expect(given(...before).when(settle('1'))).toEqual(record(EffectSettled(ended('1'))));
    expect(given(...played(before, settle('1'))).when(settle('1'))).toEqual(ignore('already_settled'));
    expect(given(...before).when(settle('9'))).toEqual(ignore('step_unknown'));
  });

  test('blocks the run while nobody knows, once, until it is settled', () => {
    expect(given(...before).when(block('1'))).toEqual(record(RunBlocked({ step: s('1'), attempt: 1, cause: 'deadline', message: 'no end by its deadline', since: at })));
    const blocked = played(before, block('1'));
    expect(given(...blocked).when(block('1'))).toEqual(ignore('already_settled'));
    expect(given(...blocked).when(settle('1'))).toEqual(record(EffectSettled(ended('1'))));
    expect(known(given(...played(blocked, settle('1'))).state()).steps.get(s('1'))).toMatchObject({ outcome: succeeded });
  });

  test('hears nothing new of an attempt after which another one was released', () => {
    const release = { type: 'release', at, step: s('1'), attempt: 1, because: 'proved not applied' } as const;
    const released = played(before, block('1'), release);
    for (const command of [block('1'), release]) expect(given(...released).when(command)).toEqual(ignore('already_settled'));
    const again = played(released, { ...block('1'), attempt: 2 });
    expect(given(...again).when(release)).toEqual(ignore('already_settled'));
    expect(given(...again).when({ ...release, attempt: 2 })).toMatchObject({ kind: 'record' });
  });

  test('never makes a known end unknown', () => {
    expect(given(...played(before, settle('1'))).when(block('1'))).toEqual(ignore('already_settled'));
  });
});

describe('grant', () => {
  test('the first', () => {
    expect(given(accepted({ lease: undefined })).when(grant(holder('w1', 10)))).toEqual(record(LeaseGranted({ lease: lease(1, 'w1', 10), because: 'worker_arrived' })));
  });

  test('to another worker raises the fence, replays what is known and fires again what is local and open', () => {
    const events = [...played([accepted()], note('1', 'think')), asked('2', 'reserve', { n: 1 }, 'local'), asked('3', 'refund')];
    expect(given(...events).when(grant(holder('w2', 20)))).toEqual(record(resumed(2, 'w2', 20, { replayed: 1, refired: [{ step: s('2'), attempt: 2 }] }, { tools: 'declared' })));
  });

  test('to the same worker come back is said so; its same announcement changes nothing', () => {
    expect(given(accepted()).when(grant(holder('w1', 11)))).toEqual(record(resumed(2, 'w1', 11, { because: 'worker_returned' })));
    expect(given(accepted()).when(grant(holder('w1', 10)))).toEqual(ignore('already_held'));
  });

  test('to a worker without the run’s version leaves it waiting', () => {
    expect(given(accepted()).when(grant(holder('w2', 20, [{ name: 'clerk', version: '2' }])))).toEqual(ignore('version_not_hosted'));
  });

  test('of a run that is over, or whose client owns its loop, is nothing', () => {
    expect(given(...played([accepted()], finish())).when(grant(holder('w2', 20)))).toEqual(ignore('run_over'));
    expect(given(accepted({ agent: null, lease: undefined })).when(grant(holder('w2', 20)))).toEqual(ignore('run_over'));
  });

  test('a local step that took every worker down puts its run in quarantine', () => {
    let events = [accepted(), asked('1', 'reserve', { n: 1 }, 'local')];
    for (let lost = 1; lost < LOST_MAX; lost += 1) events = played(events, grant(holder(`w${lost + 1}`, 10 + lost)));
    expect(known(given(...events).state()).lease?.fence).toBe(LOST_MAX);
    expect(given(...events).when(grant(holder('w99', 99)))).toMatchObject({ kind: 'record', events: [{ type: 'RunQuarantined', data: { reason: 'poison', step: '1' } }] });
    expect(given(...events).when(grant(holder(`w${LOST_MAX}`, 99)))).toMatchObject({ kind: 'record', events: [{ type: 'RunResumed', data: { because: 'worker_returned' } }] });
  });

  test('a local step whose worker is granted its run anew, however often, goes on there', () => {
    let events = [accepted(), asked('1', 'reserve', { n: 1 }, 'local')];
    for (let offset = 11; offset < 10 + 2 * LOST_MAX; offset += 1) events = played(events, grant(holder('w1', offset)));
    expect(given(...events).when(grant(holder('w2', 99)))).toMatchObject({ kind: 'record', events: [{ type: 'RunResumed', data: { because: 'worker_changed' } }] });
  });
});

describe('a stream of a lane', () => {
  test('is no run', () => {
    const lane = LaneTaken({ pool, lane: 3, worker: WorkerId.parse('w1'), agents: [agent], taken: {}, offset: 4 });
    expect(given(lane).when(start())).toEqual(ignore('not_a_run'));
    expect(given(lane).when(call('1', 'refund'))).toEqual(ignore('not_a_run'));
    expect(laneStream(pool, 3)).toBe('~lane/agents/3');
  });
});
