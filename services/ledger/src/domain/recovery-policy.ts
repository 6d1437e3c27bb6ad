import type { EffectClass, FailureClass } from '@holdfast/protocol';

/**
 * What follows from a failed attempt.
 * `retry`: another attempt under the same key, by the contract's back-off, while its budget lasts.
 * `retry_if_not_applied`: only when whoever reports the failure knows that nothing was applied;
 *   else nobody knows, and the outcome is unknown.
 * `retry_once`: one more attempt, then fail.
 * `fail`: the effect did not happen; the agent decides what next.
 * `reject`: the business (or a person) said no.
 * `unknown`: nobody knows whether it happened; never tried again without evidence.
 */
export type Recovery = 'retry' | 'retry_if_not_applied' | 'retry_once' | 'fail' | 'reject' | 'unknown';

/** Failure class × effect class. Doesn't compile until it is full. Contracts may override it later. */
export const recoveryPolicy: Record<FailureClass, Record<EffectClass, Recovery>> = {
  invalid_request: { pure: 'fail', idempotent: 'fail', irreversible: 'fail' },
  // The effect may well have happened: only its answer was unusable.
  invalid_output: { pure: 'fail', idempotent: 'fail', irreversible: 'unknown' },
  permission_denied: { pure: 'fail', idempotent: 'fail', irreversible: 'fail' },
  policy_denied: { pure: 'fail', idempotent: 'fail', irreversible: 'fail' },
  business_rejected: { pure: 'reject', idempotent: 'reject', irreversible: 'reject' },
  human_rejected: { pure: 'reject', idempotent: 'reject', irreversible: 'reject' },
  transient: { pure: 'retry', idempotent: 'retry', irreversible: 'retry_if_not_applied' },
  overloaded: { pure: 'retry', idempotent: 'retry', irreversible: 'retry_if_not_applied' },
  partial_effect: { pure: 'fail', idempotent: 'unknown', irreversible: 'unknown' },
  unknown_outcome: { pure: 'retry', idempotent: 'retry', irreversible: 'unknown' },
  concurrency_conflict: { pure: 'retry_once', idempotent: 'retry_once', irreversible: 'retry_if_not_applied' },
  cancelled: { pure: 'fail', idempotent: 'fail', irreversible: 'fail' },
  // A task that its host found too old and did not fire: nothing was applied.
  expired: { pure: 'retry', idempotent: 'retry', irreversible: 'retry_if_not_applied' },
  incompatible_state: { pure: 'fail', idempotent: 'fail', irreversible: 'unknown' },
};
