import { describe, expect, test } from '@jest/globals';
import { EffectClass, FailureClass } from '@holdfast/protocol';
import type { EffectEvent } from '../src/domain/effect.js';
import { dispatched, failed, given, report } from './kit.js';

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
