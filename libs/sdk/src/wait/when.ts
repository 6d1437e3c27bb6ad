import { DURATION_MAX_MS, NamedInstant, type OnDeadline } from '@holdfast/protocol';
import ms, { type StringValue } from 'ms';
import { InvalidArguments } from '../errors.js';

/** A length of time: milliseconds, or words such as `'2 days'`, `'90 min'`, `'1.5h'`. */
export type Duration = number | StringValue;
/** From now on for so long, or until a moment (a Date, or epoch milliseconds). */
export type When = Duration | { readonly until: Date | number };

/** What happens when a deadline passes. It is decided where the wait's end is: in the run's stream. */
export type DeadlineAction =
  /** The wait ends as expired, and the agent decides. */
  | { readonly action: 'expire' }
  /** Whoever is asked is reminded, `times` times; then it expires. */
  | { readonly action: 'remind'; readonly every: Duration; readonly times: number }
  /** Brought to others, who get some more time; then it expires. */
  | { readonly action: 'escalate'; readonly to: string; readonly grace: Duration }
  /** The run ends as failed, and what it did is to be compensated. */
  | { readonly action: 'compensate' }
  /** The run ends as completed in part, without an output. */
  | { readonly action: 'complete_partially'; readonly because: string };

/** How long something is waited for, and what happens then. */
export interface DeadlineOptions {
  /** How long it may take, or until when. Every wait ends: without this, after 30 days. */
  readonly deadline?: When | undefined;
  /** Default: it expires. */
  readonly onDeadline?: DeadlineAction | undefined;
}

/** Milliseconds. @throws InvalidArguments for what is no length of time from 0 on */
export function durationMs(duration: Duration, what: string): number {
  const found = typeof duration === 'string' ? lengthOf(duration) : duration;
  if (typeof found === 'number' && found >= 0 && found <= DURATION_MAX_MS) return Math.ceil(found);
  throw new InvalidArguments(`${what} is ${typeof duration === 'string' ? JSON.stringify(duration) : String(duration)}; it takes milliseconds from 0 on, at most 100 years, or words such as "2 days", "90 min", "1.5h"`);
}

/** The library throws for a text that is empty or very long, and gives NaN for one that says nothing. */
function lengthOf(text: StringValue): number {
  try {
    return ms(text);
  } catch {
    return Number.NaN;
  }
}

/** Epoch milliseconds. @throws InvalidArguments for what is no moment */
export function momentOf(when: When, now: number, what: string): number {
  if (typeof when !== 'object') return now + durationMs(when, what);
  const at = when.until instanceof Date ? when.until.getTime() : when.until;
  if (NamedInstant.safeParse(at).success) return at;
  throw new InvalidArguments(`${what}: until is ${String(when.until)}; it takes a Date, or whole epoch milliseconds, up to the year 9999`);
}

/** @throws InvalidArguments for lengths of time that are none */
export function onDeadlineOf(action: DeadlineAction): OnDeadline {
  switch (action.action) {
    case 'remind':
      return { action: 'remind', everyMs: durationMs(action.every, 'onDeadline.every'), times: action.times };
    case 'escalate':
      return { action: 'escalate', to: action.to, graceMs: durationMs(action.grace, 'onDeadline.grace') };
    default:
      return action;
  }
}

export interface Deadline {
  readonly deadline?: number;
  readonly onDeadline?: OnDeadline;
}

export const deadlineOf = ({ deadline, onDeadline }: DeadlineOptions, now: number): Deadline => ({
  ...(deadline === undefined ? {} : { deadline: momentOf(deadline, now, 'deadline') }),
  ...(onDeadline === undefined ? {} : { onDeadline: onDeadlineOf(onDeadline) }),
});
