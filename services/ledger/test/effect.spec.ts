import { describe, expect, test } from '@jest/globals';
import {
  backoffMs,
  DuplicateEffectDetected,
  EffectConflicted,
  EffectFailed,
  EffectJoined,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectSucceeded,
  LateResultRecorded,
  Pool,
  type EffectClass,
  type Outcome,
} from '@holdfast/protocol';
import { ignore, record } from '@holdfast/kernel';
import { REPORT_GRACE_MS } from '../src/domain/decide.js';
import type { EffectEvent } from '../src/domain/effect.js';
import {
  about,
  callOf,
  contradicted,
  digest,
  dispatched,
  due,
  eventsOf,
  failed,
  failure,
  fresh,
  given,
  host,
  hostLost,
  key,
  now,
  otherDigest,
  owner,
  QUEUE_MS,
  rejected,
  report,
  request,
  retry,
  sending,
  step,
  succeeded,
  TIMEOUT_MS,
  tool,
  unknown,
} from './kit.js';

const ownerOf = 'payments@example.org';
const notAfter = now + QUEUE_MS;
const deadline = notAfter + TIMEOUT_MS + REPORT_GRACE_MS;
const classes: readonly EffectClass[] = ['pure', 'idempotent', 'irreversible'];
const again: readonly EffectClass[] = ['pure', 'idempotent'];

const result = { value: { id: 're_1' } };
const didSucceed = (attempt: number): EffectEvent => EffectSucceeded({ ...fresh, attempt, result, evidence: { kind: 'receipt', note: 'r-1' } });
const wasRejected: EffectEvent = EffectRejected({ ...fresh, attempt: 1, reason: 'card expired', evidence: host });
const isUnknown = (attempt = 1): EffectEvent =>
  EffectOutcomeUnknown({ ...fresh, attempt, cause: 'deadline', message: `attempt ${attempt} reported no end by its deadline`, owner: ownerOf, about: about(), notAfter });
const retryScheduled = (attempt: number, effect: EffectClass = 'irreversible'): EffectEvent =>
  EffectRetryScheduled({ ...fresh, attempt, failure: failure('transient', effect === 'irreversible' ? true : undefined), because: 'transient', retryAt: now + 50 });
const late = (attempt: number, outcome: Outcome, because: string) => record(LateResultRecorded({ ...fresh, attempt, outcome, because }));

describe('a request', () => {
  test.each(classes)('of a %s effect is dispatched, with times that are absolute', (effect) => {
    expect(given().when(request(effect))).toEqual(record(dispatched(1, effect)));
  });

  test('read again is a duplicate, whatever became of the effect', () => {
    expect(given(dispatched()).when(request())).toEqual(ignore('duplicate'));
    expect(given(dispatched(), didSucceed(1)).when(request())).toEqual(ignore('duplicate'));
    expect(given(dispatched(), isUnknown()).when(request())).toEqual(ignore('duplicate'));
  });

  test('of a tool that no worker declares any more goes to the default pool, with the default times', () => {
    expect(given().when({ ...request(), contract: null })).toMatchObject({ kind: 'record', events: [{ data: { pool: 'default', notAfter: now + 60_000, deadline: now + 60_000 + 30_000 + REPORT_GRACE_MS } }] });
  });

  test('keeps its arguments for the attempts after the first', () => {
    expect(given(dispatched(), dispatched(2)).state().get(step)).toMatchObject({ status: 'dispatched', attempt: 2, args: { amount: 5 } });
  });
});

describe('the end of the latest attempt', () => {
  test.each(classes)('%s: success', (effect) => {
    expect(given(dispatched(1, effect)).when(report(1, succeeded, effect))).toEqual(record(didSucceed(1)));
  });

  test.each(classes)('%s: rejection', (effect) => {
    expect(given(dispatched(1, effect)).when(report(1, rejected, effect))).toEqual(record(wasRejected));
  });

  test.each(classes)('%s: a failure that is not tried again', (effect) => {
    expect(given(dispatched(1, effect)).when(report(1, failed('permission_denied'), effect))).toEqual(
      record(EffectFailed({ ...fresh, attempt: 1, failure: failure('permission_denied'), evidence: host, because: 'permission_denied is not tried again' })),
    );
  });

  test('irreversible: unknown stays unknown, and could be fired no later than it was told', () => {
    expect(given(dispatched()).when(report(1, unknown))).toEqual(
      record(EffectOutcomeUnknown({ ...fresh, attempt: 1, cause: 'may_have_applied', message: 'connection lost after the request was sent', owner: ownerOf, about: about(), notAfter: now })),
    );
  });

  test.each(again)('%s: unknown is tried again, since it may fire again', (effect) => {
    const message = 'connection lost after the request was sent';
    expect(given(dispatched(1, effect)).when(report(1, unknown, effect))).toEqual(
      record(EffectRetryScheduled({ ...fresh, attempt: 1, failure: { class: 'unknown_outcome', message }, because: 'unknown_outcome: attempt 1 of 3 failed', retryAt: now + 50 })),
    );
  });

  test('of an effect nobody has heard of is ignored', () => {
    expect(given().when(report(1, succeeded))).toEqual(ignore('effect_unknown'));
  });

  test('of a locally fired effect is the ledger’s first word on it', () => {
    const local = { tool, effect: 'idempotent' as const, key, digest, args: { amount: 5 } };
    const told = { tool, effect: 'idempotent' as const, digest, args: { amount: 5 } };
    const command = { ...report(1, failed('transient'), 'idempotent'), local };
    expect(given().when(command)).toEqual(
      record(EffectRetryScheduled({ ...fresh, attempt: 1, failure: failure('transient'), because: 'transient: attempt 1 of 3 failed', retryAt: now + 50, local: { ...told, since: now } })),
    );
    const scheduled = EffectRetryScheduled({ ...fresh, attempt: 1, failure: failure('transient'), because: 'x', retryAt: now + 50, local: told });
    expect(given(scheduled).when(due(now + 50, 'idempotent'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectDispatched', data: { attempt: 2, digest } }] });
    expect(given(scheduled, dispatched(2, 'idempotent')).state().get(step)).toMatchObject({ args: { amount: 5 } });
  });
});

describe('an unknown outcome', () => {
  const before = [dispatched(), isUnknown()];

  test('gives way to success and to rejection', () => {
    expect(given(...before).when(report(1, succeeded))).toEqual(record(didSucceed(1)));
    expect(given(...before).when(report(1, rejected))).toEqual(record(wasRejected));
  });

  test('stays on a failure without proof, which is kept as evidence once', () => {
    const kept = late(1, failed('transient'), 'it does not prove that nothing was applied');
    expect(given(...before).when(report(1, failed('transient')))).toEqual(kept);
    expect(given(...before, ...kept.events).when(report(1, failed('transient')))).toEqual(ignore('recorded_before'));
    expect(given(...before, ...kept.events).state().get(step)?.status).toBe('unknown');
  });

  test('stays on another unknown', () => {
    expect(given(...before).when(report(1, unknown))).toEqual(ignore('already_settled'));
  });

  test('gives way to proof that the latest attempt was not applied: it may be tried again', () => {
    expect(given(...before).when(report(1, failed('transient', true)))).toMatchObject({ kind: 'record', events: [{ type: 'EffectRetryScheduled', data: { attempt: 1 } }] });
    expect(given(...before).when(report(1, failed('invalid_request', true)))).toMatchObject({ kind: 'record', events: [{ type: 'EffectFailed' }] });
  });

  test('stays on such a proof about an earlier attempt', () => {
    const second = [dispatched(), retryScheduled(1), dispatched(2), isUnknown(2)];
    expect(given(...second).when(report(1, failed('expired', true)))).toEqual(late(1, failed('expired', true), 'it does not prove that nothing was applied'));
  });

  test('stays, told once, where the class says that nobody can know', () => {
    const claim = failed('partial_effect', true);
    const kept = late(1, claim, 'it does not prove that nothing was applied');
    expect(given(...before).when(report(1, claim))).toEqual(kept);
    expect(given(...before, ...kept.events).when(report(1, claim))).toEqual(ignore('recorded_before'));
  });

  test('has nothing due: only evidence moves it', () => {
    expect(given(...before).when(due(now + 1e9))).toEqual(ignore('not_due'));
    expect(given(...before).when(hostLost(99))).toEqual(ignore('already_settled'));
  });
});

describe('two attempts', () => {
  const twice = [dispatched(), retryScheduled(1), dispatched(2)];

  test('a late success of the earlier settles the effect; the newer one’s success is a duplicate effect, told once', () => {
    expect(given(...twice).when(report(1, succeeded))).toEqual(record<EffectEvent>(didSucceed(1), contradicted(1, 'failed', 'host', succeeded)));
    const settled = [...twice, didSucceed(1)];
    const message = 'attempts 1 and 2 of refund both report success: the effect happened twice';
    const told = record(DuplicateEffectDetected({ ...fresh, attempts: [1, 2], message }));
    expect(given(...settled).when(report(2, succeeded))).toEqual(told);
    expect(given(...settled, ...told.events).when(report(2, succeeded))).toEqual(ignore('recorded_before'));
    expect(given(...settled, ...told.events).when(report(1, succeeded))).toEqual(ignore('already_settled'));
  });

  test.each(again)('a second success of a %s effect is no duplicate effect', (effect) => {
    const settled = [dispatched(1, effect), retryScheduled(1, effect), dispatched(2, effect), didSucceed(1)];
    expect(given(...settled).when(report(2, succeeded, effect))).toEqual(ignore('already_settled'));
  });

  test('another end of the earlier is kept as evidence once, and changes nothing', () => {
    const kept = late(1, unknown, 'attempt 2 is under way');
    expect(given(...twice).when(report(1, unknown))).toEqual(kept);
    expect(given(...twice, ...kept.events).when(report(1, unknown))).toEqual(ignore('recorded_before'));
    expect(given(...twice, ...kept.events).state().get(step)).toMatchObject({ status: 'dispatched', attempt: 2 });
  });

  test('a success while the next try is only scheduled settles the effect', () => {
    expect(given(dispatched(), retryScheduled(1)).when(report(1, succeeded))).toEqual(record<EffectEvent>(didSucceed(1), contradicted(1, 'failed', 'host', succeeded)));
    expect(given(dispatched(1, 'idempotent'), retryScheduled(1, 'idempotent')).when(report(1, succeeded, 'idempotent'))).toEqual(record(didSucceed(1)));
    expect(given(dispatched(), retryScheduled(1)).when(report(1, unknown))).toEqual(ignore('retried_since'));
  });
});

describe('a report read again changes nothing', () => {
  test.each<[string, EffectClass, Outcome]>([
    ['a failure that the policy calls a rejection', 'irreversible', failed('business_rejected')],
    ['a failure that the policy calls unknown', 'irreversible', failed('transient')],
    ['a failure that claims to be harmless and is not', 'irreversible', failed('partial_effect', true)],
    ['a failure that is tried again', 'idempotent', failed('transient')],
    ['an unknown that is tried again', 'idempotent', unknown],
  ])('%s', (_, effect, outcome) => {
    const first = given(dispatched(1, effect)).when(report(1, outcome, effect));
    expect(first.kind).toBe('record');
    const events = first.kind === 'record' ? first.events : [];
    expect(given(dispatched(1, effect), ...events).when(report(1, outcome, effect)).kind).toBe('ignore');
  });

  test('even after another attempt was sent, or the effect has ended', () => {
    const first = given(dispatched(1, 'idempotent')).when(report(1, failed('transient'), 'idempotent'));
    const events = first.kind === 'record' ? first.events : [];
    const second = [dispatched(1, 'idempotent'), ...events, dispatched(2, 'idempotent')];
    expect(given(...second).when(report(1, failed('transient'), 'idempotent'))).toEqual(ignore('recorded_before'));
    expect(given(...second, didSucceed(2)).when(report(1, failed('transient'), 'idempotent'))).toEqual(ignore('recorded_before'));
  });
});

describe('late results', () => {
  test('of an effect that has ended are recorded once', () => {
    const end = EffectFailed({ ...fresh, attempt: 1, failure: failure('invalid_request'), evidence: host, because: 'x' });
    const kept = given(dispatched(), end).when(report(1, succeeded));
    expect(kept).toEqual(record<EffectEvent>(...late(1, succeeded, 'the effect is failed').events, contradicted(1, 'failed', 'host', succeeded)));
    expect(given(dispatched(), end, ...eventsOf(kept)).when(report(1, succeeded))).toEqual(ignore('recorded_before'));
    expect(given(dispatched(), end).when(report(1, failed('invalid_request')))).toEqual(ignore('already_settled'));
  });

  test('of a success: another end is evidence, the same is nothing new', () => {
    expect(given(dispatched(), didSucceed(1)).when(report(1, rejected))).toEqual(record<EffectEvent>(...late(1, rejected, 'the effect has succeeded').events, contradicted(1, 'succeeded', 'receipt', rejected)));
    expect(given(dispatched(), didSucceed(1)).when(report(1, succeeded))).toEqual(ignore('already_settled'));
    expect(given(dispatched(), didSucceed(1)).when(report(1, unknown))).toEqual(ignore('already_settled'));
  });
});

describe('a lost host', () => {
  const message = 'the host of attempt 1 lost its lane before it reported an end';

  test.each(again)('%s: another attempt is due at once', (effect) => {
    const scheduled = record(EffectRetryScheduled({ ...fresh, attempt: 1, failure: { class: 'unknown_outcome', message }, because: message, retryAt: now }));
    expect(given(dispatched(1, effect)).when(hostLost(7, effect))).toEqual(scheduled);
    expect(given(dispatched(1, effect), ...scheduled.events).when(due(now, effect))).toEqual(record(dispatched(2, effect, { because: 'retry after unknown_outcome' })));
  });

  test('irreversible: nobody knows', () => {
    expect(given(dispatched()).when(hostLost(7))).toEqual(record(EffectOutcomeUnknown({ ...fresh, attempt: 1, cause: 'host_lost', message, owner: ownerOf, about: about(), notAfter })));
  });

  test('whose lane had not taken the task leaves it to the next host', () => {
    expect(given(dispatched()).when(hostLost(6))).toEqual(ignore('not_taken'));
  });

  test('of another pool has nothing to do with it', () => {
    expect(given(dispatched()).when(hostLost(7, 'irreversible', Pool.parse('mail')))).toEqual(ignore('other_pool'));
  });

  test('of an ended effect changes nothing', () => {
    expect(given(dispatched(), didSucceed(1)).when(hostLost(7))).toEqual(ignore('already_settled'));
    expect(given().when(hostLost(7))).toEqual(ignore('already_settled'));
  });
});

describe('due', () => {
  test.each(classes)('%s: not before the deadline', (effect) => {
    expect(given(dispatched(1, effect)).when(due(deadline - 1, effect))).toEqual(ignore('not_due'));
  });

  test('irreversible: the deadline makes it unknown', () => {
    expect(given(dispatched()).when(due(deadline))).toEqual(record(isUnknown()));
  });

  test.each(again)('%s: the deadline makes another attempt due at once, with times of its own', (effect) => {
    const at = deadline + 5;
    const message = 'attempt 1 reported no end by its deadline';
    const scheduled = record(EffectRetryScheduled({ ...fresh, attempt: 1, failure: { class: 'unknown_outcome', message }, because: message, retryAt: at }));
    expect(given(dispatched(1, effect)).when(due(at, effect))).toEqual(scheduled);
    expect(given(dispatched(1, effect), ...scheduled.events).when(due(at, effect))).toMatchObject({
      kind: 'record',
      events: [{ type: 'EffectDispatched', data: { attempt: 2, notAfter: at + QUEUE_MS, deadline: at + QUEUE_MS + TIMEOUT_MS + REPORT_GRACE_MS, since: now } }],
    });
  });

  test('a scheduled retry is sent when its time has come, not before', () => {
    const before = [dispatched(), retryScheduled(1)];
    expect(given(...before).when(due(now + 49))).toEqual(ignore('not_due'));
    expect(given(...before).when(due(now + 50))).toMatchObject({ kind: 'record', events: [{ type: 'EffectDispatched', data: { attempt: 2, because: 'retry after transient' } }] });
  });

  test('an effect that has ended, or never was, is not due', () => {
    expect(given(dispatched(), didSucceed(1)).when(due(deadline))).toEqual(ignore('not_due'));
    expect(given().when(due(deadline))).toEqual(ignore('not_due'));
  });
});

describe('a spent budget', () => {
  const last = (effect: EffectClass) => [dispatched(1, effect), dispatched(2, effect), dispatched(3, effect)];

  test('ends in failure where it is known that nothing was applied', () => {
    expect(given(...last('idempotent')).when(report(3, failed('transient', true), 'idempotent'))).toEqual(
      record(EffectFailed({ ...fresh, attempt: 3, failure: failure('transient', true), evidence: host, because: 'transient: all 3 attempts are spent' })),
    );
    expect(given(...last('pure')).when(report(3, failed('transient'), 'pure'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectFailed' }] });
  });

  test('idempotent: a failure after which the change may stand is not called failed', () => {
    expect(given(...last('idempotent')).when(report(3, failed('transient'), 'idempotent'))).toEqual(
      record(EffectOutcomeUnknown({ ...fresh, attempt: 3, cause: 'may_have_applied', message: 'it was transient; all 3 attempts are spent', owner: ownerOf, about: about('idempotent'), notAfter: now })),
    );
  });

  test('pure: a read that never came back did not happen', () => {
    expect(given(...last('pure')).when(due(deadline, 'pure'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectFailed', data: { failure: { class: 'unknown_outcome' }, evidence: { kind: 'ledger' } } }] });
  });

  test('idempotent: a change that may have happened is not called failed', () => {
    expect(given(...last('idempotent')).when(due(deadline, 'idempotent'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectOutcomeUnknown', data: { attempt: 3, cause: 'deadline' } }] });
  });

  test('back-off is exponential, bounded, and no shorter than the target asks', () => {
    expect([1, 2, 3, 4, 5].map((attempt) => backoffMs(retry, attempt, 1))).toEqual([100, 200, 400, 800, 1000]);
    expect(backoffMs(retry, 1, 0)).toBe(0);
    expect(backoffMs(retry, 1, 0.5, 5000)).toBe(5000);
  });
});

describe('a key whose scope is its target', () => {
  const held = { held: 'by_other' as const, owner, digest, outcome: null };
  const done = { ...held, outcome: { result, evidence: host } };
  const scoped = { call: callOf('irreversible', { keyScope: 'target' }) };
  const joined = EffectJoined({ ...fresh, tool, digest, owner });

  test.each([{ held: 'by_nobody' as const }, { held: 'by_me' as const }])('$held: the effect is dispatched', (claim) => {
    expect(given().when(request('irreversible', { ...scoped, claim }))).toEqual(record(dispatched(1, 'irreversible', { keyScope: 'target' })));
  });

  test('held by another with other arguments: conflict, nothing fires', () => {
    expect(given().when(request('irreversible', { ...scoped, claim: { ...held, digest: otherDigest } }))).toEqual(record(EffectConflicted({ ...fresh, tool, digest, owner })));
    expect(given().when(request('irreversible', { ...scoped, claim: { ...done, digest: otherDigest } }))).toEqual(record(EffectConflicted({ ...fresh, tool, digest, owner })));
  });

  test('held by another with the same arguments: joined, nothing fires', () => {
    expect(given().when(request('irreversible', { ...scoped, claim: held }))).toEqual(record(joined));
  });

  test('of a finished one: its recorded outcome, marked replayed', () => {
    expect(given().when(request('irreversible', { ...scoped, claim: done }))).toEqual(
      record<EffectEvent>(joined, EffectSucceeded({ ...fresh, attempt: 1, result, evidence: host, replayed: owner })),
    );
  });

  test('joined: waits for its owner, and takes its outcome', () => {
    expect(given(joined).when(due(now, 'irreversible', held))).toEqual(ignore('still_joined'));
    expect(given(joined).when(due(now, 'irreversible', done))).toEqual(record(EffectSucceeded({ ...fresh, attempt: 1, result, evidence: host, replayed: owner })));
  });

  test('joined, and its owner let go: it fails, known not to have been applied', () => {
    expect(given(joined).when(due(now, 'irreversible', { held: 'by_nobody' }))).toMatchObject({
      kind: 'record',
      events: [{ type: 'EffectFailed', data: { attempt: 1, failure: { class: 'concurrency_conflict', notApplied: true }, evidence: { kind: 'ledger' } } }],
    });
  });

  test.each([held, done])('joined, and its owner let go and another holds the key for other arguments: it fails, and takes nothing of that one', (claim) => {
    expect(given(joined).when(due(now, 'irreversible', { ...claim, digest: otherDigest }))).toMatchObject({ kind: 'record', events: [{ type: 'EffectFailed', data: { failure: { class: 'concurrency_conflict', notApplied: true } } }] });
  });

  test('a joined or conflicted effect never fires, whatever is reported', () => {
    expect(given(joined).when(report(1, succeeded))).toEqual(late(1, succeeded, 'the effect is joined'));
    expect(given(joined).when(hostLost(7))).toEqual(ignore('already_settled'));
    expect(given(EffectConflicted({ ...fresh, tool, digest, owner })).when({ ...due(now), ...sending() })).toEqual(ignore('not_due'));
  });
});
