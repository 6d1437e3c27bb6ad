import { describe, expect, test } from '@jest/globals';
import { EffectStopped, type Failure, type Settled } from '@holdfast/protocol';
import type { Command } from '../src/domain/commands.js';
import type { EffectEvent } from '../src/domain/effect.js';
import { digest, dispatched, due, given, hostLost, key, notApplied, now, QUEUE_MS, report, sameKeyAgain, sending, step, TIMEOUT_MS, tool, verdict } from './kit.js';

const cancel = (effect: 'pure' | 'idempotent' | 'irreversible' = 'irreversible'): Command<'cancel'> => ({ type: 'cancel', step, because: 'mia has cancelled the run', ...sending(effect) });
const stopped: EffectEvent = EffectStopped({ step, key, attempt: 1, because: 'mia has cancelled the run' });
const transient: Failure = { class: 'transient', message: '503' };
const failed = (failure: Failure) => ({ status: 'failed' as const, failure, evidence: { kind: 'host' as const } });
const events = (first: EffectEvent[], ...commands: Parameters<ReturnType<typeof given>['when']>[0][]): EffectEvent[] => {
  const all = [...first];
  for (const command of commands) {
    const decision = given(...all).when(command);
    if (decision.kind === 'record') all.push(...decision.events);
  }
  return all;
};
const types = (all: readonly EffectEvent[]): string[] => all.map(({ type }) => type);

describe('an effect of a run that is cancelled', () => {
  test('that is under way is stopped, once', () => {
    expect(given(dispatched()).when(cancel())).toEqual({ kind: 'record', events: [stopped] });
    expect(given(dispatched(), stopped).when(cancel())).toEqual({ kind: 'ignore', because: 'recorded_before' });
  });

  test.each([
    ['a failure that may pass, nothing applied', 'idempotent', report(1, failed({ ...transient, notApplied: true }), 'idempotent'), 'EffectFailed'],
    ['a failure that may pass', 'idempotent', report(1, failed(transient), 'idempotent'), 'EffectOutcomeUnknown'],
    ['a failed read', 'pure', report(1, failed(transient), 'pure'), 'EffectFailed'],
    ['a failure of what may fire once, nothing applied', 'irreversible', report(1, failed({ ...transient, notApplied: true })), 'EffectFailed'],
    ['a lost host', 'idempotent', hostLost(9, 'idempotent'), 'EffectOutcomeUnknown'],
    ['its deadline', 'pure', due(now + QUEUE_MS + TIMEOUT_MS + 10_000, 'pure'), 'EffectFailed'],
    ['a success', 'irreversible', report(1, { status: 'succeeded', result: { value: 1 }, evidence: { kind: 'host' } }), 'EffectSucceeded'],
  ] as const)('ends with %s (%s), and is not tried again', (_, effect, end, type) => {
    expect(types(events([dispatched(1, effect)], cancel(effect), end))).toEqual(['EffectDispatched', 'EffectStopped', type]);
  });

  test('in doubt is not sent again when it is proved that nothing was applied', () => {
    const unknown = events([dispatched()], cancel(), report(1, { status: 'unknown', cause: 'may_have_applied', message: '?' }));
    expect(types(events(unknown, verdict(1, notApplied))).at(-1)).toBe('EffectFailed');
    const again = events([dispatched(1, 'idempotent')], cancel('idempotent'), hostLost(9, 'idempotent'), verdict(1, sameKeyAgain, 'idempotent'));
    expect(types(again).at(-1)).toBe('EffectOutcomeUnknown');
    const doubt = events([dispatched()], report(1, { status: 'unknown', cause: 'may_have_applied', message: '?' }), cancel(), verdict(1, notApplied));
    expect(types(doubt).at(-1)).toBe('EffectFailed');
  });

  test('that waits for another attempt is not called failed where the one before may have been applied', () => {
    const waits = (failure: Failure) => events([dispatched(1, 'idempotent')], report(1, failed(failure), 'idempotent'), cancel('idempotent')).at(-1);
    expect(waits(transient)).toMatchObject({ type: 'EffectOutcomeUnknown' });
    // Whoever looks into it must not send the key again, even before the end of the run is read.
    expect(waits(transient)).toMatchObject({ data: { last: true } });
    expect(waits({ ...transient, notApplied: true })).toMatchObject({ type: 'EffectFailed', data: { failure: { class: 'cancelled', notApplied: true } } });
  });

  test('in doubt says so to whoever looks into it, once, and is not sent again on his word', () => {
    const doubt = events([dispatched(1, 'idempotent')], report(1, failed(transient), 'idempotent'), cancel('idempotent'), cancel('idempotent'));
    expect(types(doubt)).toEqual(['EffectDispatched', 'EffectRetryScheduled', 'EffectOutcomeUnknown']);
    expect(events(doubt, verdict(1, sameKeyAgain, 'idempotent')).at(-1)).toMatchObject({ type: 'EffectOutcomeUnknown', data: { last: true } });
    const since = events([dispatched(1, 'idempotent')], hostLost(9, 'idempotent'));
    expect(since.every(({ data }) => !('last' in data))).toBe(true);
  });

  test.each([
    ['an unknown change', 'idempotent', { status: 'unknown', cause: 'host_lost', message: 'nobody knows' }, 'EffectOutcomeUnknown'],
    ['a change that failed for now', 'idempotent', failed(transient), 'EffectOutcomeUnknown'],
    ['a call that never fired', 'idempotent', failed({ class: 'cancelled', message: 'not fired', notApplied: true }), 'EffectFailed'],
    ['an unknown read', 'pure', { status: 'unknown', cause: 'host_lost', message: 'nobody knows' }, 'EffectFailed'],
  ] as const)('fired by its own worker: %s is never tried again by the ledger', (_, effect, outcome, type) => {
    const local: Settled['local'] = { tool, effect, key, digest, args: { amount: 5 }, last: true };
    expect(types(events([], { ...report(1, outcome, effect), local }))).toEqual([type]);
  });
});
