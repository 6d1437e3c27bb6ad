import { isA } from '@holdfast/kernel';
import { describeIssues, FailureClass, type Failure } from '@holdfast/protocol';
import { classOf, clipped, Failed, MESSAGE_MAX, messageOf } from './errors.js';
import { RETRY_AFTER_MS_MAX } from './retry-after.js';

/** What code says of a failure. It may have no types, so that each member is looked at. */
type Said = Readonly<Partial<Record<'class' | 'message' | 'retryAfterMs' | 'notApplied', unknown>>>;

const NOTE_MAX = 500;

/**
 * A failure as every reader accepts it: a report that its schema refuses would be an end that nobody hears of. Of an
 * unknown class is `transient`, since it says nothing about itself; what else is no word of a failure is left out.
 */
export function sound({ class: said, message, retryAfterMs, notApplied }: Said): Failure {
  const failureClass = FailureClass.safeParse(said);
  const words = typeof message === 'string' ? message : messageOf(message);
  return {
    class: failureClass.success ? failureClass.data : 'transient',
    message: failureClass.success ? clipped(words) : `${clipped(words, MESSAGE_MAX - NOTE_MAX)} (${clipped(`class: ${describeIssues(failureClass.error)}`, NOTE_MAX - 3)})`,
    ...(typeof retryAfterMs === 'number' && Number.isFinite(retryAfterMs) ? { retryAfterMs: Math.min(RETRY_AFTER_MS_MAX, Math.max(0, Math.ceil(retryAfterMs))) } : {}),
    ...(typeof notApplied === 'boolean' ? { notApplied } : {}),
  };
}

/** What a step, a model call or a run is recorded with when this was thrown. Never throws. */
export const failureOf = (thrown: unknown): Failure => sound({ class: classOf(thrown), message: messageOf(thrown), retryAfterMs: pauseOf(thrown) });

/** How long whoever was asked wants to be left alone. */
function pauseOf(thrown: unknown): unknown {
  try {
    return thrown instanceof Failed ? thrown.failure.retryAfterMs : undefined;
  } catch {
    return undefined;
  }
}

/** What was thrown as an error that can be handed on. */
export const asError = (thrown: unknown): Error => (isA(thrown, Error) ? thrown : new Error(messageOf(thrown)));
