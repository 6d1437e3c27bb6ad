import type { Fence, OperationKey, RunId, Step } from '@holdfast/protocol';

/** What a probe gets besides the effect's arguments. */
export interface ProbeContext {
  /** The key under which the target was asked: what to look for. */
  readonly operationKey: OperationKey;
  /** The attempt in question. A sealing probe voids it and those before it, never a later one. */
  readonly attempt: number;
  /** The run’s fence: rises whenever it changes hands. */
  readonly fence: Fence;
  /** The target's own name for the work, where the tool answered `accepted`. */
  readonly operationId: string | undefined;
  /** The how-manieth time this attempt is asked about, from 1. */
  readonly probe: number;
  /** An answer later than this is not waited for; epoch milliseconds. */
  readonly deadline: number;
  /** Aborts at the deadline, and when the worker stops. */
  readonly signal: AbortSignal;
  /** The run that called. */
  readonly run: RunId;
  /** The step of that run at which it called. */
  readonly step: Step;
}

/** What a probe found out: made by `applied`, `notApplied`, `pending` and `stillUnknown`. */
export type ProbeAnswer<Result = unknown> =
  | { readonly status: 'applied'; readonly result: Result; readonly evidence?: string | undefined }
  | { readonly status: 'not_applied'; readonly evidence?: string | undefined }
  | { readonly status: 'pending'; readonly message?: string | undefined }
  | { readonly status: 'still_unknown'; readonly message: string };

/**
 * The effect was applied, by whichever attempt: the call returns `result`, as if the tool had
 * returned it. `evidence` says what shows that this very operation did it: the receipt that carries
 * the operation key, not merely a thing that looks like it.
 */
export const applied = <Result>(result: Result, evidence?: string): ProbeAnswer<Result> => ({ status: 'applied', result, evidence });

/**
 * Nothing of the effect was found. From a sealing probe that is final. From any other it proves
 * something only once the contract's `settleDelay` is over, since a replica or an early 404 shows an
 * earlier time: before that it is asked again.
 */
export const notApplied = (evidence?: string): ProbeAnswer<never> => ({ status: 'not_applied', evidence });

/** The target knows the operation and works on it. It is asked again. */
export const pending = (message?: string): ProbeAnswer<never> => ({ status: 'pending', message });

/** The target could not be asked, or its answer shows nothing. It is asked again. A throw means the same. */
export const stillUnknown = (message: string): ProbeAnswer<never> => ({ status: 'still_unknown', message });

/** Asks the tool's system of record, by operation key, what became of an attempt. */
export interface Probe<Args, Result = unknown> {
  /**
   * True only when asking voids earlier attempts at the target, in one step with the reading: then a
   * request that is still on its way takes no effect any more, and "not applied" is final.
   */
  readonly sealing: boolean;
  /**
   * May be asked several times, at once too, and by several workers. Whatever it throws is recorded
   * as "still unknown"; nothing of it is tried again but by the schedule.
   */
  ask(args: Args, context: ProbeContext): Promise<ProbeAnswer<Result>> | ProbeAnswer<Result>;
  /** How long one answer may take, milliseconds. Default 10,000. */
  readonly timeout?: number | undefined;
  /** When an answer that settles nothing is followed by the next asking. */
  readonly schedule?: ProbeSchedule | undefined;
}

/** When an answer that settles nothing is followed by the next asking. */
export interface ProbeSchedule {
  /** The first pause, milliseconds. Default 1000. */
  readonly initial?: number | undefined;
  /** How the pauses grow. Default 2. */
  readonly factor?: number | undefined;
  /** The longest pause, milliseconds: the rate at which it is asked from then on. Default 300,000. */
  readonly max?: number | undefined;
}
