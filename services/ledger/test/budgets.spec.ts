import { describe, expect, test } from '@jest/globals';
import { Step, type EffectClass, type ToolContract } from '@holdfast/protocol';
import { ownKey } from '../src/domain/claim.js';
import { closedGate, digest, dispatched, due, failed, given, hostLost, key, now, played, report, retry, step, succeeded, tool, under, unknown } from './kit.js';

const elapsed = (elapsedMaxMs: number): Partial<ToolContract> => ({ retry: { ...retry, elapsedMaxMs } });
const remembers = (ms: number): Partial<ToolContract> => ({ targetRemembersKeysForMs: ms });
const lost = (effect: EffectClass, at: number) => ({ ...hostLost(7, effect), at });
const transient = (effect: EffectClass, at = now, notApplied?: boolean) => report(1, failed('transient', notApplied), effect, at);
const again = { events: [{ type: 'EffectRetryScheduled' }] };

/** Jitter is 0.5: the first retry comes 50 ms after the failure. */
describe.each(['pure', 'idempotent'] as const)('%s, after a failure', (effect) => {
  const ends = effect === 'pure' ? 'EffectFailed' : 'EffectOutcomeUnknown';

  test('no attempt begins later than the contract allows, counted from the first', () => {
    expect(given(dispatched(1, effect)).when(under(elapsed(150), transient(effect, now + 100)))).toMatchObject(again);
    const over = given(dispatched(1, effect)).when(under(elapsed(149), transient(effect, now + 100)));
    expect(over).toMatchObject({ events: [{ type: ends }] });
    expect(JSON.stringify(over)).toContain('another attempt would begin later than 149 ms after the first');
  });

  test('a failure known to have applied nothing is a failure', () => {
    expect(given(dispatched(1, effect)).when(under(elapsed(100), transient(effect, now + 100, true)))).toMatchObject({ events: [{ type: 'EffectFailed' }] });
  });

  test('time counts from the first attempt, whichever failed', () => {
    const second = played([dispatched(1, effect)], transient(effect), due(now + 60, effect));
    expect(given(...second).when(under(elapsed(500), report(2, failed('transient'), effect, now + 400)))).toMatchObject(again);
    expect(given(...second).when(under(elapsed(499), report(2, failed('transient'), effect, now + 400)))).toMatchObject({ events: [{ type: ends }] });
  });

  test('the same holds for an attempt that was lost', () => {
    expect(given(dispatched(1, effect)).when(under(elapsed(100), lost(effect, now + 100)))).toMatchObject(again);
    expect(given(dispatched(1, effect)).when(under(elapsed(99), lost(effect, now + 100)))).toMatchObject({ events: [{ type: ends }] });
    expect(given(dispatched(1, effect)).when(under(elapsed(3499), due(now + 3500, effect)))).toMatchObject({ events: [{ type: ends }] });
  });

  test('the budget of the run is one for all its steps', () => {
    const other = dispatched(1, 'pure', { step: Step.parse('2'), attemptsMax: 3 });
    const before = [dispatched(1, effect, { attemptsMax: 3 }), other];
    expect(given(...before).when(transient(effect))).toMatchObject(again);
    const third = { ...other, data: { ...other.data, step: Step.parse('3') } } as typeof other;
    const over = given(...before, third).when(transient(effect));
    expect(over).toMatchObject({ events: [{ type: ends }] });
    expect(JSON.stringify(over)).toContain("the run's budget of 3 attempts is spent");
    expect(given(...before, third).when(lost(effect, now))).toMatchObject({ events: [{ type: ends }] });
  });

  test('the budget of a run counts what its worker fired by itself', () => {
    const local = { tool, effect, key, digest, args: { amount: 5 }, attemptsMax: 2 };
    expect(given().when({ ...transient(effect), local })).toMatchObject(again);
    expect(given().when({ ...report(2, failed('transient'), effect), local })).toMatchObject({ events: [{ type: ends }] });
    expect(given(dispatched(1, 'pure', { step: Step.parse('2') })).when({ ...transient(effect), local })).toMatchObject({ events: [{ type: ends }] });
  });
});

describe('a target that forgets keys', () => {
  test('idempotent: is sent none that it may have forgotten', () => {
    expect(given(dispatched(1, 'idempotent')).when(under(remembers(150), transient('idempotent', now + 100)))).toMatchObject(again);
    const over = given(dispatched(1, 'idempotent')).when(under(remembers(149), transient('idempotent', now + 100)));
    expect(over).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown', data: { message: 'it was transient; the target remembers keys for 149 ms only' } }] });
  });

  test('idempotent: neither after an attempt that was lost', () => {
    expect(given(dispatched(1, 'idempotent')).when(under(remembers(100), lost('idempotent', now + 100)))).toMatchObject(again);
    expect(given(dispatched(1, 'idempotent')).when(under(remembers(99), lost('idempotent', now + 100)))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown', data: { cause: 'host_lost' } }] });
  });

  test('idempotent: neither by a retry that was scheduled in time and comes to its turn too late', () => {
    const scheduled = played([dispatched(1, 'idempotent')], under(remembers(150), transient('idempotent')));
    expect(given(...scheduled).when(under(remembers(150), due(now + 150, 'idempotent')))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { attempt: 2 } }] });
    expect(given(...scheduled).when(under(remembers(150), due(now + 151, 'idempotent')))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown', data: { attempt: 1, cause: 'may_have_applied', notAfter: now + 1000 } }] });
  });

  test('idempotent: neither by one that waited for its tool', () => {
    const held = played([dispatched(1, 'idempotent')], transient('idempotent'), due(now + 50, 'idempotent', ownKey, closedGate));
    expect(given(...held).when(under(remembers(150), due(now + 150, 'idempotent')))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { attempt: 2 } }] });
    expect(given(...held).when(under(remembers(150), due(now + 151, 'idempotent')))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown', data: { attempt: 1 } }] });
  });

  test('irreversible: a retry that comes to its turn too late has failed, since nothing was applied', () => {
    const scheduled = played([dispatched()], transient('irreversible', now, true));
    expect(given(...scheduled).when(under(remembers(150), due(now + 151)))).toMatchObject({ events: [{ type: 'EffectFailed', data: { attempt: 1, failure: { notApplied: true }, because: 'transient: the target remembers keys for 150 ms only' } }] });
  });

  test('pure: has no key to forget', () => {
    expect(given(dispatched(1, 'pure')).when(under(remembers(1), transient('pure', now + 100)))).toMatchObject(again);
  });
});

test('what is known in part, or is under way at the target, is not tried again, be it idempotent', () => {
  for (const cause of ['partial_effect', 'accepted'] as const) {
    expect(given(dispatched(1, 'idempotent')).when(report(1, { status: 'unknown', cause, message: '?', operationId: 'op-1', proved: { sent: 3 } }, 'idempotent'))).toMatchObject({
      events: [{ type: 'EffectOutcomeUnknown', data: { cause, operationId: 'op-1', proved: { sent: 3 } } }],
    });
  }
  expect(given(dispatched(1, 'idempotent')).when(report(1, unknown, 'idempotent'))).toMatchObject(again);
});

test('Retry-After is the least that is waited', () => {
  const overloaded = (retryAfterMs: number) => report(1, { status: 'failed', failure: { class: 'overloaded', message: 'm', retryAfterMs }, evidence: { kind: 'host' } }, 'pure');
  expect(given(dispatched(1, 'pure')).when(overloaded(5000))).toMatchObject({ events: [{ data: { retryAt: now + 5000 } }] });
  expect(given(dispatched(1, 'pure')).when(overloaded(1))).toMatchObject({ events: [{ data: { retryAt: now + 50 } }] });
});

test('a success after all attempts were spent settles what is in doubt', () => {
  const spent = [dispatched(1, 'idempotent'), dispatched(2, 'idempotent'), dispatched(3, 'idempotent')];
  const doubt = played(spent, report(3, failed('transient'), 'idempotent'));
  expect(given(...doubt).state().get(step)).toMatchObject({ status: 'unknown', attempt: 3 });
  expect(given(...doubt).when(report(2, succeeded, 'idempotent'))).toMatchObject({ events: [{ type: 'EffectSucceeded', data: { attempt: 2 } }] });
});
