import { describe, expect, test } from '@jest/globals';
import { EffectClass, FailureClass, Recovery } from '@holdfast/protocol';
import type { EffectEvent } from '../src/domain/effect.js';
import { mayFallBack } from '../src/domain/recovery-policy.js';
import { dispatched, eventsOf, failed, given, report, step, under } from './kit.js';

type Does = 'retried' | 'failed' | 'rejected' | 'unknown';

const events: Record<Does, EffectEvent['type']> = { retried: 'EffectRetryScheduled', failed: 'EffectFailed', rejected: 'EffectRejected', unknown: 'EffectOutcomeUnknown' };

/** What a failed attempt leads to: by failure class, then by effect class; the last column with proof that nothing was applied. */
const table: readonly (readonly [FailureClass, pure: Does, idempotent: Does, irreversible: Does, irreversibleNotApplied: Does])[] = [
  ['invalid_request', 'failed', 'failed', 'failed', 'failed'],
  ['invalid_output', 'failed', 'failed', 'unknown', 'unknown'],
  ['permission_denied', 'failed', 'failed', 'failed', 'failed'],
  ['policy_denied', 'failed', 'failed', 'failed', 'failed'],
  ['business_rejected', 'rejected', 'rejected', 'rejected', 'rejected'],
  ['human_rejected', 'rejected', 'rejected', 'rejected', 'rejected'],
  ['transient', 'retried', 'retried', 'unknown', 'retried'],
  ['overloaded', 'retried', 'retried', 'unknown', 'retried'],
  ['partial_effect', 'failed', 'unknown', 'unknown', 'unknown'],
  ['unknown_outcome', 'retried', 'retried', 'unknown', 'unknown'],
  ['concurrency_conflict', 'retried', 'retried', 'unknown', 'retried'],
  ['cancelled', 'failed', 'failed', 'failed', 'failed'],
  ['expired', 'retried', 'retried', 'unknown', 'retried'],
  ['incompatible_state', 'failed', 'failed', 'unknown', 'unknown'],
];

const cells = table.flatMap(([failure, pure, idempotent, irreversible, proved]) => [
  { failure, effect: 'pure' as EffectClass, notApplied: false, does: pure },
  { failure, effect: 'idempotent' as EffectClass, notApplied: false, does: idempotent },
  { failure, effect: 'irreversible' as EffectClass, notApplied: false, does: irreversible },
  { failure, effect: 'irreversible' as EffectClass, notApplied: true, does: proved },
]);

describe('what follows from a failed attempt', () => {
  test('the table has a row for each failure class', () => {
    expect(table.map(([failure]) => failure).sort()).toEqual([...FailureClass.options].sort());
    expect(new Set(cells.map(({ effect }) => effect))).toEqual(new Set(EffectClass.options));
  });

  test.each(cells)('$failure of a $effect effect (not applied: $notApplied) is $does', ({ failure, effect, notApplied, does }) => {
    const decision = given(dispatched(1, effect)).when(report(1, failed(failure, notApplied ? true : undefined), effect));
    expect(decision).toMatchObject({ kind: 'record', events: [{ type: events[does], data: { attempt: 1 } }] });
  });

  test.each(['pure', 'idempotent'] as const)('a concurrency conflict of a %s effect is tried once more only', (effect) => {
    const decision = given(dispatched(1, effect), dispatched(2, effect)).when(report(2, failed('concurrency_conflict'), effect));
    expect(decision).toMatchObject({ kind: 'record', events: [{ type: 'EffectFailed', data: { because: 'concurrency_conflict: all 2 attempts are spent' } }] });
  });
});

describe('a repair', () => {
  const mendable = { events: [{ type: 'EffectFailed', data: { failure: { repairable: true }, because: 'invalid_request: the agent may mend its call once' } }] };

  test.each(EffectClass.options)('%s: is offered once', (effect) => {
    expect(given(dispatched(1, effect)).when(report(1, failed('invalid_request'), effect))).toMatchObject(mendable);
    const again = given(dispatched(1, effect, { repairs: step })).when(report(1, failed('invalid_request'), effect));
    expect(again).toMatchObject({ events: [{ type: 'EffectFailed', data: { because: `invalid_request: step ${step} was mended once already` } }] });
    expect(JSON.stringify(again)).not.toContain('repairable');
  });

  test('then the fallback may take over', () => {
    const fallback = { name: 'cheque', version: '2' };
    expect(given(dispatched(1, 'pure', { repairs: step })).when(under({ fallback }, report(1, failed('invalid_request'), 'pure')))).toMatchObject({ events: [{ data: { failure: { fallback } } }] });
  });
});

describe('a fallback', () => {
  const fallback = { name: 'cheque', version: '2' };
  const after = (of: FailureClass): unknown => eventsOf(given(dispatched(3, 'pure')).when(under({ fallback }, report(3, failed(of), 'pure'))))[0]?.data;

  test.each(FailureClass.options.filter((of) => of !== 'business_rejected' && of !== 'human_rejected'))('after %s: where that is no matter of authority, of time or of what was done already', (of) => {
    const expected = ['invalid_request', 'invalid_output', 'transient', 'overloaded', 'unknown_outcome', 'concurrency_conflict', 'expired'].includes(of);
    expect(mayFallBack(of)).toBe(expected);
    expect(after(of)).toMatchObject(expected ? { failure: { class: of, fallback } } : { failure: { class: of } });
    if (!expected) expect(JSON.stringify(after(of))).not.toContain('fallback');
  });

  test('never while another attempt is to come, and never of what may have been applied', () => {
    const with_ = (effect: EffectClass, attempt: number): string => JSON.stringify(given(dispatched(attempt, effect)).when(under({ fallback }, report(attempt, failed('transient'), effect))));
    for (const [effect, attempt] of [['pure', 1], ['idempotent', 1], ['idempotent', 3], ['irreversible', 1]] as const) expect(with_(effect, attempt)).not.toContain('fallback');
    expect(with_('pure', 3)).toContain('fallback');
  });
});

describe('a contract that says otherwise', () => {
  const by = (effect: EffectClass, of: FailureClass, recovery: Recovery, notApplied?: boolean, attempt = 1) => given(dispatched(attempt, effect)).when(under({ recovery: { [of]: recovery } }, report(attempt, failed(of, notApplied), effect)));

  test.each<[Recovery, Does]>([
    ['retry', 'retried'],
    ['retry_if_not_applied', 'retried'],
    ['retry_once', 'retried'],
    ['repair_once', 'failed'],
    ['fail', 'failed'],
    ['reject', 'rejected'],
    ['unknown', 'unknown'],
  ])('idempotent, permission_denied: %s is %s', (recovery, does) => {
    expect(by('idempotent', 'permission_denied', recovery)).toMatchObject({ events: [{ type: events[does] }] });
  });

  test('has its word on one class only', () => {
    expect(given(dispatched(1, 'pure')).when(under({ recovery: { expired: 'fail' } }, report(1, failed('transient'), 'pure')))).toMatchObject({ events: [{ type: 'EffectRetryScheduled' }] });
  });

  test('retry_once: one more', () => {
    expect(by('pure', 'transient', 'retry_once', undefined, 1)).toMatchObject({ events: [{ type: 'EffectRetryScheduled' }] });
    expect(by('pure', 'transient', 'retry_once', undefined, 2)).toMatchObject({ events: [{ type: 'EffectFailed' }] });
  });

  test.each(FailureClass.options.flatMap((of) => Recovery.options.map((recovery) => [of, recovery] as const)))('irreversible, %s as %s: never fires again without evidence, under this key or a mended one’s', (of, recovery) => {
    const [event] = eventsOf(by('irreversible', of, recovery));
    expect(event?.type).not.toBe('EffectRetryScheduled');
    const doubtful: readonly FailureClass[] = ['invalid_output', 'transient', 'overloaded', 'partial_effect', 'unknown_outcome', 'cancelled'];
    if (recovery === 'repair_once' && doubtful.includes(of)) expect(event?.type).toBe('EffectOutcomeUnknown');
    const proved = eventsOf(by('irreversible', of, recovery, true))[0]?.type;
    if (recovery === 'retry') expect(proved).toBe('EffectRetryScheduled');
  });
});
