import { describe, expect, test } from '@jest/globals';
import { digest, due, eventsOf, failed, given, HOLD_MS, now, otherDigest, played, QUEUE_MS, request, report, step, closedGate } from './kit.js';

const approval = (expiresAt?: number, of = digest) => ({ approval: { step, by: 'kate', digest: of, ...(expiresAt === undefined ? {} : { expiresAt }) } });
const asked = (expiresAt?: number, of = digest) => given().when(request('irreversible', { call: approval(expiresAt, of) }));
const denied = (message: string) => ({ kind: 'record', events: [{ type: 'EffectFailed', data: { failure: { class: 'policy_denied', notApplied: true, message: expect.stringContaining(message) } } }] });

describe('an effect that was approved', () => {
  test('is sent while its approval may be used, and fires no later than that', () => {
    expect(asked()).toMatchObject({ events: [{ type: 'EffectDispatched', data: { notAfter: now + QUEUE_MS } }] });
    expect(asked(now)).toMatchObject({ events: [{ type: 'EffectDispatched', data: { notAfter: now, approvedUntil: now } }] });
    expect(asked(now + 10)).toMatchObject({ events: [{ type: 'EffectDispatched', data: { notAfter: now + 10 } }] });
    expect(asked(now + 10 * QUEUE_MS)).toMatchObject({ events: [{ type: 'EffectDispatched', data: { notAfter: now + QUEUE_MS } }] });
  });

  test('is not sent for other arguments, nor once its approval has expired', () => {
    expect(asked(undefined, otherDigest)).toMatchObject(denied('other arguments'));
    expect(asked(now - 1)).toMatchObject(denied('has expired'));
  });

  test('that waited for its turn until then is not sent either', () => {
    const held = eventsOf(given().when(request('irreversible', { call: approval(now + 500), gate: closedGate })));
    expect(held).toMatchObject([{ type: 'EffectHeld', data: { approvedUntil: now + 500 } }]);
    expect(given(...held).when(due(now + 500))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { notAfter: now + 500 } }] });
    expect(given(...held).when(due(now + 501))).toMatchObject(denied('expired before its turn'));
    expect(501).toBeLessThan(HOLD_MS);
  });

  test('is not tried again after that: failed, or a case where the attempt before may have been applied', () => {
    const retry = (outcome: ReturnType<typeof failed>, effect: 'irreversible' | 'idempotent') => played(eventsOf(given().when(request(effect, { call: approval(now + 5000) }))), report(1, outcome, effect));
    const safe = retry(failed('transient', true), 'irreversible');
    expect(safe.at(-1)).toMatchObject({ type: 'EffectRetryScheduled' });
    expect(given(...safe).when(due(now + 4000))).toMatchObject({ events: [{ type: 'EffectDispatched', data: { attempt: 2, notAfter: now + 5000 } }] });
    expect(given(...safe).when(due(now + 5001))).toMatchObject({ events: [{ type: 'EffectFailed', data: { because: expect.stringContaining('its approval has expired') } }] });
    expect(given(...retry(failed('transient'), 'idempotent')).when(due(now + 5001, 'idempotent'))).toMatchObject({ events: [{ type: 'EffectOutcomeUnknown' }] });
  });
});
