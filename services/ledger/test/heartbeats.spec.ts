import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { EffectOutcomeUnknown, EffectProgressed, EffectRetryScheduled, EffectSucceeded, type EffectClass } from '@holdfast/protocol';
import { dueAt } from '../src/domain/effect.js';
import { about, alive, dispatched, due, eventsOf, fresh, given, now, QUEUE_MS, receipt, request, step, under } from './kit.js';

const heartbeatMs = 300;
const notAfter = now + QUEUE_MS;
const long = (effect: EffectClass = 'irreversible') => dispatched(1, effect, { aliveUntil: notAfter + heartbeatMs });
const progressed = (aliveUntil: number) => EffectProgressed({ ...fresh, attempt: 1, aliveUntil, progress: { done: 3 } });
const message = 'attempt 1 showed no life until its time was up';

test('an attempt of a tool that shows life must do so from the last moment on at which it can have been fired', () => {
  expect(given().when(under({ heartbeatMs }, request()))).toEqual(record(long()));
});

describe('a sign of life', () => {
  test('the first one ends the wait for a host, though it brings the time forward', () => {
    expect(given(long()).when(alive(1, now + 10, heartbeatMs))).toEqual(record(progressed(now + 310)));
  });

  test('of a later one is recorded where it prolongs by a third of what is allowed, not each time', () => {
    const before = [long(), progressed(now + 310)];
    expect(given(...before).when(alive(1, now + 109, heartbeatMs))).toEqual(ignore('not_due'));
    expect(given(...before).when(alive(1, now + 110, heartbeatMs))).toEqual(record(progressed(now + 410)));
  });

  test('never shortens what an earlier one allowed', () => {
    expect(given(long(), progressed(now + 900)).when(alive(1, now + 100, heartbeatMs))).toEqual(ignore('not_due'));
  });

  test('without progress says only that it lives', () => {
    expect(given(long()).when({ ...alive(1, now + 10, heartbeatMs), progress: undefined })).toEqual(record(EffectProgressed({ ...fresh, attempt: 1, aliveUntil: now + 310 })));
  });

  test('of another attempt, of one that has ended, or of none at all changes nothing', () => {
    expect(given(long()).when(alive(2, now, heartbeatMs))).toEqual(ignore('not_under_way'));
    expect(given(long(), EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt })).when(alive(1, now, heartbeatMs))).toEqual(ignore('not_under_way'));
    expect(given().when(alive(1, now, heartbeatMs))).toEqual(ignore('not_under_way'));
  });

  test('of a tool whose contract asks for none changes nothing', () => {
    expect(given(dispatched()).when(alive(1, now))).toEqual(ignore('not_due'));
    expect(given(dispatched()).when(alive(1, now, heartbeatMs))).toEqual(ignore('not_due'));
  });

  test('puts off when the attempt is lost, never beyond its deadline', () => {
    const at = (aliveUntil: number) => {
      const effect = given(long(), progressed(aliveUntil)).state().get(step);
      return effect === undefined ? undefined : dueAt(effect);
    };
    expect(at(now + 310)).toBe(now + 310);
    expect(at(now + 1e6)).toBe(now + 3500);
  });
});

describe('an attempt without a sign of life', () => {
  const before = (effect: EffectClass = 'irreversible') => [long(effect), progressed(now + 310)];

  test('is not lost before its time', () => {
    expect(given(...before()).when(due(now + 309))).toEqual(ignore('not_due'));
  });

  test('irreversible: nobody knows, long before its deadline', () => {
    expect(given(...before()).when(due(now + 310))).toEqual(record(EffectOutcomeUnknown({ ...fresh, attempt: 1, cause: 'heartbeat_lost', message, owner: 'payments@example.org', about: about(), notAfter })));
  });

  test.each(['pure', 'idempotent'] as const)('%s: another attempt is due at once', (effect) => {
    const scheduled = record(EffectRetryScheduled({ ...fresh, attempt: 1, failure: { class: 'unknown_outcome', message }, because: message, retryAt: now + 310 }));
    expect(given(...before(effect)).when(due(now + 310, effect))).toEqual(scheduled);
    // The next one's time begins anew.
    const second = given(...before(effect), ...scheduled.events).when(under({ heartbeatMs }, due(now + 310, effect)));
    expect(eventsOf(second)).toMatchObject([{ type: 'EffectDispatched', data: { attempt: 2, aliveUntil: now + 310 + QUEUE_MS + heartbeatMs } }]);
  });

  test('past its deadline it is the deadline that is named', () => {
    expect(given(...before()).when(due(now + 3500))).toMatchObject({ events: [{ data: { cause: 'deadline' } }] });
  });
});
