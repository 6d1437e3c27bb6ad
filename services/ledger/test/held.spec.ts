import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { EffectFailed, EffectOutcomeUnknown, EffectRetryScheduled, type EffectClass } from '@holdfast/protocol';
import { ownKey } from '../src/domain/claim.js';
import type { EffectEvent } from '../src/domain/effect.js';
import { about, closedGate, dispatched, due, eventsOf, failed, failure, fresh, given, held, HOLD_MS, hostLost, now, played, rejected, report, request, step, succeeded, tool, under } from './kit.js';

const classes: readonly EffectClass[] = ['pure', 'idempotent', 'irreversible'];
const until = now + HOLD_MS;
const waits = (at: number, effect: EffectClass = 'irreversible') => due(at, effect, ownKey, closedGate);
const expired = `attempt 1 was not sent in time: ${closedGate.message}; nothing was fired`;
const scheduled = (effect: EffectClass): EffectEvent => EffectRetryScheduled({ ...fresh, attempt: 1, failure: failure('transient', effect === 'irreversible' ? true : undefined), because: 'transient', retryAt: now + 50 });

describe('a closed gate', () => {
  test.each(classes)('%s: holds a new effect back; it has not fired, and says until when it may wait', (effect) => {
    expect(given().when(request(effect, { gate: closedGate }))).toEqual(record(held(1, effect)));
    expect(given().when(under({ holdMs: 700 }, request(effect, { gate: closedGate })))).toEqual(record(held(1, effect, { until: now + 700 })));
  });

  test('of a tool that no worker declares any more: the default time', () => {
    expect(given().when({ ...request('pure', { gate: closedGate }), contract: null })).toMatchObject({ events: [{ type: 'EffectHeld', data: { until: now + 600_000 } }] });
  });

  test('carries what later attempts need', () => {
    const call = { attemptsMax: 9, repairs: step };
    expect(given(...eventsOf(given().when(request('irreversible', { gate: closedGate, call })))).state().get(step)).toMatchObject({ status: 'held', attempt: 1, args: { amount: 5 }, attemptsMax: 9, repairs: step });
  });

  test('holds a retry back too, as the attempt it would be', () => {
    expect(given(dispatched(1, 'pure'), scheduled('pure')).when(waits(now + 49, 'pure'))).toEqual(ignore('not_due'));
    expect(given(dispatched(1, 'pure'), scheduled('pure')).when(waits(now + 50, 'pure'))).toEqual(record(held(2, 'pure', { since: now + 50, until: now + 50 + HOLD_MS })));
  });
});

describe('a held effect', () => {
  test('read again is a duplicate', () => {
    expect(given(held()).when(request())).toEqual(ignore('duplicate'));
  });

  test('waits while its gate is closed', () => {
    expect(given(held()).when(waits(until - 1))).toEqual(ignore('still_held'));
  });

  test('is sent as soon as its gate is open: once, as the attempt that waited, its time counted from then', () => {
    const at = now + 5000;
    const sent = record(dispatched(1, 'irreversible', { because: 'its turn has come', since: at, notAfter: at + 1000, deadline: at + 3500 }));
    const { args: _, ...rest } = sent.events[0].data as { args?: unknown };
    expect(given(held()).when(due(at))).toEqual({ kind: 'record', events: [{ type: 'EffectDispatched', data: rest }] });
    expect(given(held(), ...sent.events).when(due(at))).toEqual(ignore('not_due'));
    expect(given(held(), ...eventsOf(given(held()).when(due(at)))).state().get(step)).toMatchObject({ status: 'dispatched', attempt: 1, args: { amount: 5 }, since: at });
  });

  test('that has waited too long fails, known not to have been applied', () => {
    expect(given(held()).when(waits(until))).toEqual(
      record(EffectFailed({ ...fresh, attempt: 1, failure: { class: 'expired', message: expired, notApplied: true }, evidence: { kind: 'ledger' }, because: 'it waited longer than its contract allows' })),
    );
  });

  test('whose gate is open at its last moment is sent all the same', () => {
    expect(given(held()).when(due(until))).toMatchObject({ events: [{ type: 'EffectDispatched' }] });
  });

  test('that has expired hands over to the declared fallback', () => {
    expect(given(held()).when(under({ fallback: { name: 'cheque', version: '2' } }, waits(until)))).toMatchObject({ events: [{ data: { failure: { class: 'expired', notApplied: true, fallback: { name: 'cheque', version: '2' } } } }] });
  });

  test('has no host to lose', () => {
    expect(given(held()).when(hostLost(99))).toEqual(ignore('already_settled'));
  });
});

describe('a held retry', () => {
  const before = (effect: EffectClass) => [dispatched(1, effect), scheduled(effect), held(2, effect)];

  test('of a change that may have been applied does not fail by waiting: nobody knows about the attempt before', () => {
    expect(given(...before('idempotent')).when(waits(until, 'idempotent'))).toEqual(
      record(
        EffectOutcomeUnknown({
          ...fresh,
          attempt: 1,
          cause: 'may_have_applied',
          message: `it was transient; attempt 2 was not sent in time: ${closedGate.message}`,
          owner: 'payments@example.org',
          about: about('idempotent'),
          notAfter: now + 1000,
        }),
      ),
    );
  });

  test.each(['pure', 'irreversible'] as const)('%s: expires as failed, since nothing was applied before either', (effect) => {
    expect(given(...before(effect)).when(waits(until, effect))).toMatchObject({ events: [{ type: 'EffectFailed', data: { attempt: 2, failure: { class: 'expired', notApplied: true } } }] });
  });

  test('gives way to a success of the attempt before, and to nothing less', () => {
    expect(given(...before('idempotent')).when(report(1, succeeded, 'idempotent'))).toMatchObject({ events: [{ type: 'EffectSucceeded', data: { attempt: 1 } }] });
    expect(given(...before('idempotent')).when(report(1, failed('overloaded'), 'idempotent'))).toEqual(ignore('retried_since'));
  });

  test('gives way to a rejection of the attempt before', () => {
    expect(given(...before('idempotent')).when(report(1, rejected, 'idempotent'))).toMatchObject({ events: [{ type: 'EffectRejected', data: { attempt: 1 } }] });
  });

  test('counts among the attempts of a run only once it is sent', () => {
    const other = { ...report(1, failed('transient'), 'pure'), step: '2' as typeof step, local: { tool, effect: 'pure' as const, key: fresh.key, digest: dispatched().data.key as never, args: 1, attemptsMax: 3 } };
    expect(given(...before('pure')).when(other)).toMatchObject({ events: [{ type: 'EffectRetryScheduled' }] });
    expect(given(...played(before('pure'), due(now + 100, 'pure'))).when(other)).toMatchObject({ events: [{ type: 'EffectFailed', data: { because: "transient: the run's budget of 3 attempts is spent" } }] });
  });
});
