import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { CLOCK_SKEW_MS, DuplicateEffectDetected, EffectFailed, EffectOutcomeUnknown, EffectRetryScheduled, EffectSucceeded, LateResultRecorded, type EffectClass, type Evidence, type Outcome, type ToolContract } from '@holdfast/protocol';
import type { EffectEvent } from '../src/domain/effect.js';
import { about, applied, contradicted, dispatched, due, eventsOf, failed, fresh, given, now, notApplied, played, probed, QUEUE_MS, receipt, rejected, report, sameKeyAgain, step, succeeded, TIMEOUT_MS, under, unknown, verdict } from './kit.js';

const notAfter = now + QUEUE_MS;
const settleDelayMs = 2000;
const from = notAfter + CLOCK_SKEW_MS + settleDelayMs;
const inDoubt = (attempt = 1, effect: EffectClass = 'irreversible', more: { operationId?: string } = {}): EffectEvent =>
  EffectOutcomeUnknown({ ...fresh, attempt, cause: 'deadline', message: 'nobody knows', owner: 'payments@example.org', about: about(effect), notAfter, ...more });
const before = [dispatched(), inDoubt()];
const person: Evidence = { kind: 'person', note: 'statement 7' };
const plain = { sealing: false } as const;
const release = (over: Partial<ReturnType<typeof EffectRetryScheduled>['data']> = {}): EffectEvent =>
  EffectRetryScheduled({
    ...fresh,
    attempt: 1,
    failure: { class: 'unknown_outcome', message: 'it was looked up', notApplied: true },
    because: 'proved not applied: it was looked up',
    retryAt: now,
    reconciled: { by: 'probe' },
    ...over,
  });
const anew = (message: string) => record(EffectOutcomeUnknown({ ...fresh, attempt: 1, cause: 'deadline', message, owner: 'payments@example.org', about: about(), notAfter }));
const tooEarly = anew('it was read too early to prove that nothing was applied: something of the attempt might still have taken effect');
const withDelay = (delay: number | null): Partial<ToolContract> => ({ settleDelayMs: delay });

describe('applied', () => {
  test('the effect succeeds with what was found, marked reconciled', () => {
    expect(given(...before).when(verdict(1, applied))).toEqual(record(EffectSucceeded({ ...fresh, attempt: 1, result: { value: { id: 're_9' } }, evidence: probed, reconciled: { by: 'probe' } })));
  });

  test('by a person, who forced it: so it is marked', () => {
    expect(given(...before).when(verdict(1, applied, 'irreversible', { by: 'person', evidence: person, forced: true }))).toMatchObject({ events: [{ data: { evidence: person, reconciled: { by: 'person', forced: true } } }] });
  });

  test('of an attempt that another has followed settles the effect all the same, marked so', () => {
    const released = [...before, release(), dispatched(2)];
    expect(given(...released).when(verdict(1, applied, 'irreversible', { by: 'person', evidence: person, forced: true }))).toMatchObject({
      events: [{ type: 'EffectSucceeded', data: { attempt: 1, reconciled: { by: 'person', forced: true } } }, { type: 'VerdictContradicted', data: { recorded: { status: 'not_applied', by: 'probe' } } }],
    });
  });

  test('of what has succeeded says nothing new', () => {
    const done = EffectSucceeded({ ...fresh, attempt: 1, result: { value: { id: 're_9' } }, evidence: receipt });
    expect(given(...before, done).when(verdict(1, applied))).toEqual(ignore('already_settled'));
  });

  test('of an effect that nobody has heard of is ignored', () => {
    expect(given().when(verdict(1, applied))).toEqual(ignore('effect_unknown'));
  });
});

describe('not applied, irreversible', () => {
  test('sealed: another attempt under the same key, at once, with the reason', () => {
    const released = record(release());
    expect(given(...before).when(verdict(1, notApplied))).toEqual(released);
    expect(given(...before, ...released.events).when(due(now))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { attempt: 2, key: fresh.key, because: 'retry after unknown_outcome' } }] });
  });

  test('read in time: released; a millisecond earlier: nobody knows still, and the case is opened anew', () => {
    expect(given(...before).when(under(withDelay(settleDelayMs), verdict(1, notApplied, 'irreversible', { ...plain, readAt: from })))).toEqual(record(release()));
    expect(given(...before).when(under(withDelay(settleDelayMs), verdict(1, notApplied, 'irreversible', { ...plain, readAt: from - 1 })))).toEqual(tooEarly);
  });

  test('an early reading whose verdict arrives late is early all the same', () => {
    expect(given(...before).when(under(withDelay(settleDelayMs), verdict(1, notApplied, 'irreversible', { ...plain, readAt: from - 1, at: from + 1e6 })))).toEqual(tooEarly);
  });

  test('where the contract knows no settle delay, or the tool is not declared any more, no reading proves it', () => {
    expect(given(...before).when(verdict(1, notApplied, 'irreversible', { ...plain, readAt: now + 1e9 }))).toEqual(tooEarly);
    expect(given(...before).when({ ...verdict(1, notApplied, 'irreversible', { ...plain, readAt: now + 1e9 }), contract: null })).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown' }] });
    expect(given(...before).when(under(withDelay(0), verdict(1, notApplied, 'irreversible', { ...plain, readAt: null })))).toEqual(tooEarly);
  });

  test('forced by a person: released, and marked so', () => {
    expect(given(...before).when(verdict(1, notApplied, 'irreversible', { ...plain, readAt: now, by: 'person', forced: true }))).toEqual(record(release({ reconciled: { by: 'person', forced: true } })));
  });

  test('a host that reported has made its last check by then: the reading may be earlier', () => {
    const events = played([dispatched()], report(1, unknown));
    const readAt = now + CLOCK_SKEW_MS + settleDelayMs;
    expect(given(...events).when(under(withDelay(settleDelayMs), verdict(1, notApplied, 'irreversible', { ...plain, readAt })))).toMatchObject({ events: [{ type: 'EffectRetryScheduled' }] });
    expect(given(...events).when(under(withDelay(settleDelayMs), verdict(1, notApplied, 'irreversible', { ...plain, readAt: readAt - 1 })))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown' }] });
  });

  test('about another attempt than the latest changes nothing', () => {
    const second = [...before, release(), dispatched(2), inDoubt(2)];
    expect(given(...second).when(verdict(1, notApplied))).toEqual(ignore('other_attempt'));
    expect(given(...second).when(verdict(3, notApplied))).toEqual(ignore('other_attempt'));
    expect(given(...second).when(verdict(2, notApplied))).toMatchObject({ events: [{ type: 'EffectRetryScheduled', data: { attempt: 2 } }] });
  });

  test('after the effect has moved on changes nothing', () => {
    expect(given(dispatched()).when(verdict(1, notApplied))).toEqual(ignore('other_attempt'));
    expect(given(...before, release()).when(verdict(1, notApplied))).toEqual(ignore('other_attempt'));
    expect(given(...before, release(), dispatched(2)).when(verdict(1, notApplied))).toEqual(ignore('other_attempt'));
  });

  test('the case that is opened anew knows what the first one did', () => {
    const accepted = [dispatched(), inDoubt(1, 'irreversible', { operationId: 'op-7' })];
    expect(given(...accepted).when(verdict(1, notApplied, 'irreversible', plain))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown', data: { operationId: 'op-7' } }] });
  });
});

describe('not applied, idempotent', () => {
  test('needs no proof: what it costs is another attempt under the same key', () => {
    expect(given(dispatched(1, 'idempotent'), inDoubt(1, 'idempotent')).when(verdict(1, notApplied, 'idempotent', { ...plain, readAt: now }))).toEqual(record(release()));
  });
});

describe('a spent budget', () => {
  const third = [dispatched(), release(), dispatched(2), release({ attempt: 2 }), dispatched(3), inDoubt(3)];

  test('of attempts: it failed, proved not applied, and the fallback may take over', () => {
    expect(given(...third).when(under({ fallback: { name: 'cheque', version: '2' } }, verdict(3, notApplied)))).toEqual(
      record(
        EffectFailed({
          ...fresh,
          attempt: 3,
          failure: { class: 'unknown_outcome', message: 'it was looked up', notApplied: true, fallback: { name: 'cheque', version: '2' } },
          evidence: probed,
          because: 'proved not applied; all 3 attempts are spent',
          reconciled: { by: 'probe' },
        }),
      ),
    );
  });

  test.each<[string, Partial<ToolContract>]>([
    ['another attempt would begin later than 500 ms after the first', { retry: { attemptsMax: 3, initialMs: 100, maxMs: 1000, factor: 2, elapsedMaxMs: 500 } }],
    ['the target remembers keys for 500 ms only', { targetRemembersKeysForMs: 500 }],
  ])('of time: %s', (because, over) => {
    expect(given(...before).when(under(over, verdict(1, notApplied, 'irreversible', { at: now + 500 })))).toMatchObject({ events: [{ type: 'EffectRetryScheduled' }] });
    expect(given(...before).when(under(over, verdict(1, notApplied, 'irreversible', { at: now + 501 })))).toMatchObject({ events: [{ type: 'EffectFailed', data: { because: `proved not applied; ${because}` } }] });
  });

  test('of the run: nothing is tried again once it is spent', () => {
    const limited = [dispatched(1, 'irreversible', { attemptsMax: 1 }), inDoubt()];
    expect(given(...limited).when(verdict(1, notApplied))).toMatchObject({ events: [{ type: 'EffectFailed', data: { because: "proved not applied; the run's budget of 1 attempts is spent" } }] });
  });

  test('of a tool that no worker declares any more: it is not tried again', () => {
    expect(given(...before).when({ ...verdict(1, notApplied), contract: null })).toMatchObject({ events: [{ type: 'EffectFailed', data: { because: 'proved not applied; all 1 attempts are spent' } }] });
  });
});

describe('the same key again', () => {
  const doubt = [dispatched(1, 'idempotent'), inDoubt(1, 'idempotent')];
  const again = (attempt: number, effect: EffectClass = 'idempotent', at = now) => verdict(attempt, sameKeyAgain, effect, { by: 'policy', readAt: null, sealing: false, at });

  test('idempotent: sent at once, and nothing is claimed about the attempt before', () => {
    const sent = given(...doubt).when(again(1));
    expect(sent).toEqual(record(EffectRetryScheduled({ ...fresh, attempt: 1, failure: { class: 'unknown_outcome', message: 'it was looked up' }, because: 'it was looked up', retryAt: now })));
    expect(given(...doubt, ...eventsOf(sent)).when(report(1, succeeded, 'idempotent'))).toEqual(record(EffectSucceeded({ ...fresh, attempt: 1, result: { value: { id: 're_1' } }, evidence: receipt })));
  });

  test('goes beyond the attempts of the contract: it is the last thing before a person', () => {
    const third = [dispatched(1, 'idempotent'), dispatched(2, 'idempotent'), dispatched(3, 'idempotent'), inDoubt(3, 'idempotent')];
    expect(given(...third).when(again(3))).toMatchObject({ events: [{ type: 'EffectRetryScheduled', data: { attempt: 3 } }] });
  });

  test('not to a target that may have forgotten the key', () => {
    const remembers = { targetRemembersKeysForMs: 500 };
    expect(given(...doubt).when(under(remembers, again(1, 'idempotent', now + 500)))).toMatchObject({ events: [{ type: 'EffectRetryScheduled' }] });
    expect(given(...doubt).when(under(remembers, again(1, 'idempotent', now + 501)))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown', data: { attempt: 1 } }] });
  });

  test('irreversible: never', () => {
    expect(given(...before).when(again(1, 'irreversible'))).toEqual(anew('an irreversible effect is never sent again without evidence'));
  });

  test('after the effect has moved on: nothing', () => {
    expect(given(...doubt, EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt })).when(again(1))).toEqual(ignore('other_attempt'));
    expect(given(dispatched(1, 'idempotent')).when(again(1))).toEqual(ignore('other_attempt'));
  });
});

describe('the ledger’s own word, come back from its case', () => {
  test('says nothing new', () => {
    expect(given(...before).when(verdict(1, { status: 'ended', outcome: 'succeeded' }))).toEqual(ignore('already_settled'));
  });
});

describe('two proofs that differ', () => {
  const didNot = failed('expired', true);
  const late = (attempt: number, outcome: Outcome, because: string): EffectEvent => LateResultRecorded({ ...fresh, attempt, outcome, because });

  test('settled as not applied, then a late success: it settles the effect, and the contradiction is raised once', () => {
    const released = [...before, release()];
    const told = given(...released).when(report(1, succeeded));
    expect(told).toEqual(record<EffectEvent>(EffectSucceeded({ ...fresh, attempt: 1, result: { value: { id: 're_1' } }, evidence: receipt }), contradicted(1, 'not_applied', 'probe', succeeded)));
    expect(given(...released, ...eventsOf(told)).when(report(1, succeeded))).toEqual(ignore('already_settled'));
  });

  test('also once another attempt is under way; where that succeeds too, it happened twice', () => {
    const sent = [...before, release(), dispatched(2)];
    const told = given(...sent).when(report(1, succeeded));
    expect(told).toMatchObject({ events: [{ type: 'EffectSucceeded', data: { attempt: 1 } }, { type: 'VerdictContradicted', data: { attempt: 1 } }] });
    expect(given(...sent, ...eventsOf(told)).when(report(2, succeeded))).toMatchObject({ events: [DuplicateEffectDetected({ ...fresh, attempts: [1, 2], message: 'attempts 1 and 2 of refund both report success: the effect happened twice' })] });
  });

  test('also once the other attempt has succeeded', () => {
    const done = [...before, release(), dispatched(2), EffectSucceeded({ ...fresh, attempt: 2, result: { value: 1 }, evidence: receipt })];
    const told = given(...done).when(report(1, succeeded));
    expect(told).toMatchObject({ events: [{ type: 'DuplicateEffectDetected', data: { attempts: [2, 1] } }, { type: 'VerdictContradicted', data: { attempt: 1, recorded: { status: 'not_applied' } } }] });
    expect(given(...done, ...eventsOf(told)).when(report(1, succeeded))).toEqual(ignore('recorded_before'));
  });

  test('a person who looks for the first attempt finds what the second has done: that is no second firing', () => {
    const retried = played([dispatched()], report(1, failed('transient', true)));
    const done = (at?: number) => [...retried, dispatched(2), EffectSucceeded({ ...fresh, attempt: 2, result: { value: 1 }, evidence: { ...receipt, ...(at === undefined ? {} : { at }) } })];
    const looked = (readAt: number | null) => verdict(1, applied, 'irreversible', { by: 'person', evidence: person, readAt });
    const contradiction = { type: 'VerdictContradicted', data: { attempt: 1, recorded: { status: 'failed', by: 'host' } } };
    const told = given(...done(now)).when(looked(now));
    expect(told).toMatchObject({ kind: 'record', events: [contradiction] });
    expect(eventsOf(told)).toHaveLength(1);
    expect(given(...done(now), ...eventsOf(told)).when(looked(now))).toEqual(ignore('already_settled'));
    // Read before the second can have begun, or where nobody knows when, it may have been the first one's.
    const begun = now - TIMEOUT_MS - CLOCK_SKEW_MS;
    expect(eventsOf(given(...done(now)).when(looked(begun)))).toMatchObject([contradiction]);
    for (const [events, readAt] of [[done(now), begun - 1], [done(now), null], [done(), now]] as const) {
      expect(given(...events).when(looked(readAt))).toMatchObject({ events: [{ type: 'DuplicateEffectDetected', data: { attempts: [2, 1] } }, contradiction] });
    }
  });

  test('a probe that was asked before the second attempt, and answered once that was done, has found what that one did', () => {
    const asked = now - TIMEOUT_MS - CLOCK_SKEW_MS - 1;
    const done = [dispatched(), inDoubt(), ...eventsOf(given(dispatched(), inDoubt()).when(report(1, didNot))), dispatched(2), EffectSucceeded({ ...fresh, attempt: 2, result: { value: 1 }, evidence: { ...receipt, at: now } })];
    const found = (over: number) => verdict(1, applied, 'irreversible', { readAt: asked, evidence: { ...probed, at: over } });
    const contradiction = { type: 'VerdictContradicted', data: { attempt: 1, recorded: { status: 'failed', by: 'host' } } };
    expect(eventsOf(given(...done).when(found(now)))).toMatchObject([contradiction]);
    expect(eventsOf(given(...done).when(found(now)))).toHaveLength(1);
    expect(given(...done).when(found(asked))).toMatchObject({ events: [{ type: 'DuplicateEffectDetected', data: { attempts: [2, 1] } }, contradiction] });
  });

  test('found for the first attempt while the second was under way: the success of that one is no second firing', () => {
    const sent = [...before, release(), dispatched(2)];
    const found = (over: number) => [...sent, ...eventsOf(given(...sent).when(verdict(1, applied, 'irreversible', { evidence: { ...probed, at: over } })))];
    const second: Outcome = { status: 'succeeded', result: { value: 1 }, evidence: { ...receipt, at: now } };
    const told = given(...found(now - 1)).when(report(2, second));
    expect(told).toEqual(record(late(2, second, 'what was found for attempt 1 may be what this one did')));
    expect(given(...found(now - 1), ...eventsOf(told)).when(report(2, second))).toEqual(ignore('recorded_before'));
    expect(given(...found(now - TIMEOUT_MS - CLOCK_SKEW_MS - 1)).when(report(2, second))).toMatchObject({ events: [{ type: 'DuplicateEffectDetected', data: { attempts: [1, 2] } }] });
  });

  test('about the first attempt, when the second was settled too since', () => {
    const twice = [...before, release(), dispatched(2), inDoubt(2), release({ attempt: 2 }), dispatched(3)];
    expect(given(...twice).when(report(1, succeeded))).toMatchObject({ events: [{ type: 'EffectSucceeded' }, contradicted(1, 'not_applied', 'probe', succeeded)] });
    expect(given(...twice).when(report(2, succeeded))).toMatchObject({ events: [{ type: 'EffectSucceeded' }, contradicted(2, 'not_applied', 'probe', succeeded)] });
  });

  test('settled as failed, then a late success: kept and raised; the effect stays as it was settled', () => {
    const failedIt = EffectFailed({ ...fresh, attempt: 1, failure: { class: 'unknown_outcome', message: 'm', notApplied: true }, evidence: probed, because: 'proved not applied', reconciled: { by: 'person' } });
    const told = given(...before, failedIt).when(report(1, succeeded));
    expect(told).toEqual(record<EffectEvent>(late(1, succeeded, 'the effect is failed'), contradicted(1, 'not_applied', 'person', succeeded)));
    expect(given(...before, failedIt, ...eventsOf(told)).state().get(step)).toMatchObject({ status: 'failed' });
    expect(given(...before, failedIt, ...eventsOf(told)).when(report(1, succeeded))).toEqual(ignore('recorded_before'));
  });

  test.each<[string, Outcome]>([
    ['a failure known not to have been applied', didNot],
    ['a rejection', rejected],
  ])('settled as applied, then %s: kept and raised', (_, outcome) => {
    const done = [...before, ...eventsOf(given(...before).when(verdict(1, applied, 'irreversible', { by: 'person', evidence: person })))];
    const told = given(...done).when(report(1, outcome));
    expect(told).toEqual(record<EffectEvent>(late(1, outcome, 'the effect has succeeded'), contradicted(1, 'succeeded', 'person', outcome)));
    expect(given(...done, ...eventsOf(told)).when(report(1, outcome))).toEqual(ignore('recorded_before'));
  });

  test('settled as applied, then a failure that proves nothing: kept, no contradiction', () => {
    const done = [...before, ...eventsOf(given(...before).when(verdict(1, applied)))];
    expect(given(...done).when(report(1, failed('transient')))).toEqual(record(late(1, failed('transient'), 'the effect has succeeded')));
  });

  test('settled as applied, then its own result, and that is another: kept', () => {
    const done = [...before, ...eventsOf(given(...before).when(verdict(1, applied)))];
    const told = given(...done).when(report(1, succeeded));
    expect(told).toEqual(record(late(1, succeeded, 'the effect has succeeded with another result')));
    expect(given(...done, ...eventsOf(told)).when(report(1, succeeded))).toEqual(ignore('recorded_before'));
  });

  test('its own success overtook the verdict "not applied": both are kept, and it is raised', () => {
    const done = [...before, EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt })];
    const told = given(...done).when(verdict(1, notApplied));
    expect(told).toMatchObject({ events: [{ type: 'LateResultRecorded', data: { attempt: 1, outcome: { status: 'failed', evidence: probed } } }, { type: 'VerdictContradicted', data: { recorded: { status: 'succeeded', by: 'receipt' } } }] });
    expect(given(...done, ...eventsOf(told)).when(verdict(1, notApplied))).toEqual(ignore('recorded_before'));
  });

  test('a person overrules the probe that found it: kept, raised, and nothing fires', () => {
    const done = [...before, ...eventsOf(given(...before).when(verdict(1, applied)))];
    expect(given(...done).when(verdict(1, notApplied, 'irreversible', { by: 'person', sealing: false, forced: true, evidence: person }))).toMatchObject({
      events: [{ type: 'LateResultRecorded' }, { type: 'VerdictContradicted', data: { recorded: { status: 'succeeded', by: 'probe' } } }],
    });
  });

  test('an idempotent effect that a look found missing early, and that came after all, contradicts nothing', () => {
    const doubt = [dispatched(1, 'idempotent'), inDoubt(1, 'idempotent'), EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt })];
    expect(given(...doubt).when(verdict(1, notApplied, 'idempotent', plain))).toEqual(ignore('other_attempt'));
  });

  test('an attempt that said itself that nothing was applied, and then that it succeeded', () => {
    const retried = played([dispatched()], report(1, failed('transient', true)));
    expect(given(...retried).when(report(1, succeeded))).toMatchObject({ events: [{ type: 'EffectSucceeded' }, { type: 'VerdictContradicted', data: { recorded: { status: 'failed', by: 'host' } } }] });
    expect(given(...retried, dispatched(2)).when(report(1, succeeded))).toMatchObject({ events: [{ type: 'EffectSucceeded' }, { type: 'VerdictContradicted' }] });
  });

  test('pure: a read can’t contradict itself', () => {
    const done = [dispatched(1, 'pure'), EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt })];
    expect(given(...done).when(report(1, rejected, 'pure'))).toMatchObject({ events: [{ type: 'LateResultRecorded' }] });
    expect(eventsOf(given(...done).when(report(1, rejected, 'pure')))).toHaveLength(1);
  });
});

describe('a rejection of an earlier attempt', () => {
  test('says nothing about the latest, of which nobody knows', () => {
    const second = [...before, release(), dispatched(2), inDoubt(2)];
    const told = given(...second).when(report(1, rejected));
    expect(told).toMatchObject({ kind: 'record', events: [{ type: 'LateResultRecorded', data: { attempt: 1 } }] });
    expect(given(...second, ...eventsOf(told)).state().get(step)).toMatchObject({ status: 'unknown', attempt: 2 });
  });

  test('nor about a later one that may have been applied and is tried again', () => {
    const events = [dispatched(1, 'idempotent'), ...eventsOf(given(dispatched(1, 'idempotent')).when(report(1, failed('transient'), 'idempotent'))), dispatched(2, 'idempotent')];
    const scheduled = [...events, ...eventsOf(given(...events).when(report(2, failed('transient'), 'idempotent')))];
    expect(given(...scheduled).when(report(1, rejected, 'idempotent'))).toMatchObject({ events: [{ type: 'LateResultRecorded' }] });
    expect(given(...scheduled).when(report(2, rejected, 'idempotent'))).toMatchObject({ events: [{ type: 'EffectRejected', data: { attempt: 2 } }] });
  });
});
