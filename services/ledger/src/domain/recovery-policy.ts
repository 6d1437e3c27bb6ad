import type { EffectClass, FailureClass, Recovery, ToolContract } from '@holdfast/protocol';

/** Failure class × effect class. Doesn't compile until it is full. */
export const recoveryPolicy: Record<FailureClass, Record<EffectClass, Recovery>> = {
  invalid_request: { pure: 'repair_once', idempotent: 'repair_once', irreversible: 'repair_once' },
  // The effect may well have happened: only its answer was unusable.
  invalid_output: { pure: 'repair_once', idempotent: 'repair_once', irreversible: 'unknown' },
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

/** Whether a failure of this class leaves it open if a change was applied all the same, where nobody says that it was not. */
const LEAVES_DOUBT: Readonly<Record<FailureClass, boolean>> = {
  invalid_request: false,
  invalid_output: true,
  permission_denied: false,
  policy_denied: false,
  business_rejected: false,
  human_rejected: false,
  transient: true,
  overloaded: true,
  partial_effect: true,
  unknown_outcome: true,
  concurrency_conflict: false,
  cancelled: true,
  expired: false,
  incompatible_state: false,
};

export const leavesDoubt = (failure: { readonly class: FailureClass; readonly notApplied?: boolean | undefined }, effect: EffectClass): boolean =>
  effect !== 'pure' && failure.notApplied !== true && LEAVES_DOUBT[failure.class];

/** Classes after which another tool may take over. Authorisation fails closed, and what the business refused stays refused. */
const MAY_FALL_BACK: ReadonlySet<FailureClass> = new Set<FailureClass>(['invalid_request', 'invalid_output', 'transient', 'overloaded', 'unknown_outcome', 'concurrency_conflict', 'expired']);
export const mayFallBack = (failureClass: FailureClass): boolean => MAY_FALL_BACK.has(failureClass);

/** The contract's word where it has one, else the default. No contract makes an irreversible effect fire again without evidence. */
export function recoveryOf(contract: ToolContract | null, failureClass: FailureClass, effect: EffectClass): Recovery {
  const stated = contract?.recovery?.[failureClass];
  if (stated === undefined) return recoveryPolicy[failureClass][effect];
  return effect === 'irreversible' && (stated === 'retry' || stated === 'retry_once') ? 'retry_if_not_applied' : stated;
}
