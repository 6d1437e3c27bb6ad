import { isoTime, type Failure, type FailureClass, type Step, type UnknownCause } from '@holdfast/protocol';
import { retryAfterMs } from './retry-after.js';

/**
 * Everything that Holdfast throws at an author's code, and what a tool may throw at Holdfast.
 * `failureClass` is what a run is recorded with when it dies of the error.
 */
export abstract class HoldfastError extends Error {
  /** What a run is recorded with when it dies of this. */
  abstract readonly failureClass: FailureClass;
}

/** What may be thrown at a host or a worker has no bound; what is recorded has. @internal */
export const MESSAGE_MAX = 4000;
/** @internal */
export const clipped = (text: string, max = MESSAGE_MAX): string => (text.length <= max ? text : `${text.slice(0, max - 1)}…`);

/** The words of anything that was thrown. Never throws. @internal */
export function messageOf(thrown: unknown): string {
  try {
    return clipped(thrown instanceof Error ? `${thrown.name === 'Error' ? '' : `${thrown.name}: `}${thrown.message}` : String(thrown));
  } catch {
    return 'something was thrown that can\'t be turned into text';
  }
}

/**
 * The class that a run is recorded with when this was thrown. An error that is not Holdfast's says
 * nothing about itself, so nothing speaks against trying the goal again: `transient`. Never throws.
 * @internal
 */
export function classOf(thrown: unknown): FailureClass {
  try {
    return thrown instanceof HoldfastError ? thrown.failureClass : 'transient';
  } catch {
    return 'transient';
  }
}

/* ---- thrown by tools ---- */

/** The business said no: nothing was applied, and the same request will be refused again. The agent replans. */
export class Rejected extends HoldfastError {
  override readonly name = 'Rejected';
  readonly failureClass = 'business_rejected';
  constructor(
    /** Why, in the words of the business: the agent reads them. */
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    super(reason, options);
  }
}

/** What a tool says of a failed attempt. What the ledger adds to it (`fallback`, `repairable`) is not a tool's to say. */
export interface FailedSpec extends Pick<Failure, 'class' | 'message' | 'notApplied'> {
  /** How long the target asks to be left alone, milliseconds. */
  readonly retryAfterMs?: number | undefined;
  /** The same as the target says it: seconds, the text of the header `Retry-After` (seconds or HTTP date), or a date. What is neither is ignored. */
  readonly retryAfter?: number | string | Date | null | undefined;
}

/** The attempt failed. For an irreversible tool only `notApplied: true` lets it be tried again. */
export class Failed extends HoldfastError {
  override readonly name = 'Failed';
  /** What the attempt is recorded with. */
  readonly failure: Failure;
  constructor({ retryAfter, retryAfterMs: statedMs, ...failure }: FailedSpec, options?: ErrorOptions) {
    super(failure.message, options);
    const times = [statedMs, retryAfterMs(retryAfter, Date.now())].filter((ms) => ms !== undefined && Number.isFinite(ms)) as number[];
    this.failure = { ...failure, message: clipped(String(failure.message)), ...(times.length === 0 ? {} : { retryAfterMs: Math.max(...times) }) };
  }
  get failureClass(): FailureClass {
    return this.failure.class;
  }
}

/**
 * The tool can't say whether the effect took place: a lost connection, an empty error, a 5xx, a
 * success whose body says otherwise, a read-back that finds nothing yet. The outcome is unknown
 * until evidence settles it.
 */
export class MayHaveApplied extends HoldfastError {
  override readonly name: string = 'MayHaveApplied';
  readonly failureClass = 'unknown_outcome';
  /** What the outcome is recorded with. */
  readonly unknownCause: UnknownCause = 'may_have_applied';
}

/**
 * The target answers "this key was already used" or "already exists". That is no failure, and not yet
 * a success of this very operation: unknown until it is read back. Where the tool can read back by
 * itself that the thing carries the operation key, it returns the result instead.
 */
export class AlreadyDone extends MayHaveApplied {
  override readonly name = 'AlreadyDone';
  constructor(answer = 'the target answers that this was done already', options?: ErrorOptions) {
    super(answer, options);
  }
}

/** A part of the effect took place, and of the rest nobody knows. `proved` (JSON of at most 16 KiB) is what is certain; it is kept with the case. */
export class PartlyApplied extends HoldfastError {
  override readonly name = 'PartlyApplied';
  readonly failureClass = 'partial_effect';
  constructor(
    /** What is certain to have taken place. */
    readonly proved: unknown,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/* ---- handed to the agent: recorded outcomes ---- */

/** The business said no to this effect. Replan: the same call will get the same answer. */
export class EffectRejected extends HoldfastError {
  override readonly name = 'EffectRejected';
  readonly failureClass = 'business_rejected';
  constructor(
    /** The tool’s name. */
    readonly tool: string,
    /** The step at which it was called. */
    readonly step: Step,
    /** Why, in the words of the business. */
    readonly reason: string,
  ) {
    super(`${tool} at step ${step} was rejected: ${reason}`);
  }
}

/** The effect did not happen, and the ledger won't try it again. A new call is a new decision. */
export class EffectFailed extends HoldfastError {
  override readonly name = 'EffectFailed';
  constructor(
    /** The tool’s name. */
    readonly tool: string,
    /** The step at which it was called. */
    readonly step: Step,
    /** How the last attempt failed; `repairable` and `fallback` say what may be done. */
    readonly failure: Failure,
  ) {
    super(`${tool} at step ${step} failed (${failure.class}): ${failure.message}`);
  }
  get failureClass(): FailureClass {
    return this.failure.class;
  }
}

/** Recorded work failed, and its budget of tries is spent. */
export class StepFailed extends HoldfastError {
  override readonly name = 'StepFailed';
  constructor(
    /** The name of the work. */
    readonly work: string,
    /** The step at which it was asked for. */
    readonly step: Step,
    /** How the last try failed. */
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(`${work} at step ${step} failed (${failure.class}): ${failure.message}`, options);
  }
  get failureClass(): FailureClass {
    return this.failure.class;
  }
}

/** The effect or step succeeded, but its result can't be read back. Never a reason to do it again. */
export class ResultUnreadable extends HoldfastError {
  override readonly name = 'ResultUnreadable';
  readonly failureClass = 'invalid_output';
  constructor(
    /** The step, or what else was to be read. */
    readonly step: string,
    /** Why it can’t be read. */
    readonly because: string,
  ) {
    super(`step ${step} succeeded, its result can't be read: ${because}`);
  }
}

/** Nobody answered in time. Not a no: nobody decided. */
export class WaitExpired extends HoldfastError {
  override readonly name = 'WaitExpired';
  readonly failureClass = 'expired';
  constructor(
    /** What was waited for. */
    readonly what: string,
    /** The step at which it was waited for. */
    readonly step: Step,
    /** Epoch milliseconds. */
    readonly deadline: number,
  ) {
    super(`${what} at step ${step} expired at ${isoTime(deadline)}`);
  }
}

/** A person said no. `feedback` is for whoever asked: replan by it, or stop; the same thing again needs another approval. */
export class ApprovalRejected extends HoldfastError {
  override readonly name = 'ApprovalRejected';
  readonly failureClass = 'human_rejected';
  constructor(
    /** What was asked. */
    readonly what: string,
    /** The step at which it was asked. */
    readonly step: Step,
    /** What the person said; empty when nothing. */
    readonly feedback: string,
    /** Who said no. */
    readonly by: string,
  ) {
    super(`${what} at step ${step} was rejected by ${by}${feedback === '' ? '' : `: ${feedback}`}`);
  }
}

/** A child run ended otherwise than completed. */
export class ChildFailed extends HoldfastError {
  override readonly name = 'ChildFailed';
  constructor(
    /** The child’s run id. */
    readonly run: string,
    /** The step at which it was waited for. */
    readonly step: Step,
    /** How it ended. */
    readonly failure: Failure,
  ) {
    super(`child run ${run} at step ${step} failed (${failure.class}): ${failure.message}`);
  }
  get failureClass(): FailureClass {
    return this.failure.class;
  }
}

/** What arrived no longer fits the schema that the code has for it: it was taken by the schema of when the wait began. */
export class InvalidPayload extends HoldfastError {
  override readonly name = 'InvalidPayload';
  readonly failureClass = 'invalid_request';
  constructor(
    /** What was waited for. */
    readonly what: string,
    /** The step at which it was waited for. */
    readonly step: Step,
    detail: string,
  ) {
    super(`${what} at step ${step} brought what doesn't fit its schema: ${detail}`);
  }
}

const CLASS_OF_REFUSAL: Readonly<Record<string, FailureClass>> = {
  invalid: 'invalid_request',
  invalid_arguments: 'invalid_request',
  unknown_tool: 'invalid_request',
  group_not_allowed: 'invalid_request',
  local_not_allowed: 'invalid_request',
  too_large: 'invalid_request',
  operation_conflict: 'concurrency_conflict',
  budget_exhausted: 'policy_denied',
  deadline_passed: 'expired',
  outcome_unknown: 'unknown_outcome',
  run_cancelled: 'cancelled',
  approval_required: 'permission_denied',
  approval_invalid: 'permission_denied',
};

/** The orchestrator refused what the agent asked for; nothing fires from it. `reason` says which rule. */
export class IntentRefusedError extends HoldfastError {
  override readonly name: string = 'IntentRefusedError';
  constructor(
    /** The intent’s type, such as `CallTool`. */
    readonly intent: string,
    /** The step that it was for, where it was for one. */
    readonly step: Step | undefined,
    /** Which rule, as one word: `operation_conflict`, `budget_exhausted` … */
    readonly reason: string,
    detail: string,
  ) {
    super(`${intent}${step === undefined ? '' : ` at step ${step}`} was refused (${reason}): ${detail}`);
  }
  get failureClass(): FailureClass {
    return CLASS_OF_REFUSAL[this.reason] ?? 'policy_denied';
  }
}

/** A budget of the run is spent: steps, attempts, tokens, cost or time. Complete partially, or let the run fail; what it did stays recorded. */
export class BudgetExhausted extends IntentRefusedError {
  override readonly name = 'BudgetExhausted';
}

/** There was no room for the run: its conversation has another, or a limit is reached. Start it again, under the same id, from `retryAt` (epoch milliseconds) on. */
export class NotAdmitted extends IntentRefusedError {
  override readonly name = 'NotAdmitted';
  constructor(
    reason: string,
    detail: string,
    /** From when on it may be asked again, epoch milliseconds. */
    readonly retryAt: number,
    /** The run that goes on in its conversation. */
    readonly holder: string | undefined,
  ) {
    super('StartRun', undefined, reason, detail);
  }
}

/** An operator holds the run still. Ask again when it is let go. */
export class RunIsPaused extends IntentRefusedError {
  override readonly name = 'RunIsPaused';
}

/** The run was cancelled: nothing new is taken for it. */
export class RunIsCancelled extends IntentRefusedError {
  override readonly name = 'RunIsCancelled';
}

/** The tool's contract lets nobody call it without an approval: ask for one, and give it to the call. */
export class ApprovalRequired extends IntentRefusedError {
  override readonly name = 'ApprovalRequired';
}

/** The approval is for another tool, target or arguments, has expired, or is used up. Ask for another one. */
export class ApprovalInvalid extends IntentRefusedError {
  override readonly name = 'ApprovalInvalid';
}

const REFUSALS: Readonly<Record<string, typeof IntentRefusedError>> = {
  budget_exhausted: BudgetExhausted,
  run_paused: RunIsPaused,
  run_cancelled: RunIsCancelled,
  approval_required: ApprovalRequired,
  approval_invalid: ApprovalInvalid,
};

/** A refusal as the error that says what may be done next. @internal */
export const refusalOf = (intent: string, step: Step | undefined, reason: string, detail: string): IntentRefusedError =>
  new (REFUSALS[reason] ?? IntentRefusedError)(intent, step, reason, detail);

/* ---- misuse: the message says what to change ---- */

/** The code asks for what can’t be; the message says what to change. */
export abstract class Misuse extends HoldfastError {
  readonly failureClass: FailureClass = 'invalid_request';
}

/** A definition that can't be. */
export class InvalidDefinition extends Misuse {
  override readonly name = 'InvalidDefinition';
}

/** A value that JSON can't carry as it is. `path` leads to it, `$` being the value itself. */
export class NotJson extends Misuse {
  override readonly name = 'NotJson';
  constructor(
    /** The value that was given. */
    readonly what: string,
    /** Where in it, `$.lines[0].at`. */
    readonly path: string,
    /** What is there. */
    readonly found: string,
  ) {
    super(`${what} is not JSON: ${path} is ${found}`);
  }
}

/** A value too large for a message. */
export class ValueTooLarge extends Misuse {
  override readonly name = 'ValueTooLarge';
  constructor(
    /** The value that was given. */
    readonly what: string,
    /** How many bytes of JSON it has, about. */
    readonly bytes: number,
    /** How many are taken. */
    readonly bytesMax: number,
    advice = 'store the large part as an artifact (run.artifact) and pass the reference',
  ) {
    super(`${what} has ${bytes} bytes of JSON, at most ${bytesMax} are taken: ${advice}`);
  }
}

/** Arguments that the tool's input schema refuses. Decided before anything is recorded or fired. */
export class InvalidArguments extends Misuse {
  override readonly name = 'InvalidArguments';
}

/** What was called is no tool that this worker knows. */
export class UnregisteredTool extends Misuse {
  override readonly name = 'UnregisteredTool';
}

/** A durable call on a scope that isn't the one whose turn it is. */
export class WrongScope extends Misuse {
  override readonly name = 'WrongScope';
}

/** A group that can't be recorded as one. */
export class GroupNotAllowed extends Misuse {
  override readonly name = 'GroupNotAllowed';
}

/** A durable call after the run's end. */
export class RunEnded extends Misuse {
  override readonly name = 'RunEnded';
}

/** The agent returned while nobody had awaited a durable call. */
export class NotAwaited extends Misuse {
  override readonly name = 'NotAwaited';
}

/** The agent's output doesn't fit its schema. */
export class InvalidOutput extends Misuse {
  override readonly name = 'InvalidOutput';
  override readonly failureClass = 'invalid_output';
}

/** A large value or an artifact, and no store to put it into. */
export class NoArtifactStore extends Misuse {
  override readonly name = 'NoArtifactStore';
}

/** Something that this process needs for it was not set. */
export class NotConfigured extends Misuse {
  override readonly name = 'NotConfigured';
}

/** No broker answers, not in time, or that it can't now: a topic isn't there, a leader is missing. Nothing that was recorded is lost; try again later. `cause`: what the broker's client said. */
export class BrokersUnavailable extends HoldfastError {
  override readonly name = 'BrokersUnavailable';
  readonly failureClass = 'transient';
}

/** A broker refuses, and will go on until rights or settings are changed. `cause`: what it said. */
export class BrokerRefused extends HoldfastError {
  override readonly name = 'BrokerRefused';
  readonly failureClass = 'permission_denied';
}

/** Waiting for an outcome took longer than the caller allowed. The run goes on. */
export class OutcomeTimeout extends HoldfastError {
  override readonly name = 'OutcomeTimeout';
  readonly failureClass = 'expired';
}
