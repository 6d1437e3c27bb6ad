import type { ArtifactRef, Failure, Json, Named, RunId, Step, Tenant, Usage } from '@holdfast/protocol';
import type { z } from 'zod';
import type { JsonCompatible } from '../define/json.js';
import type { AgentReference } from '../define/agent.js';
import type { ToolReference } from '../define/tool.js';
import type { Approval, ApprovalOptions, ChildOptions, Compensated } from '../wait/ask.js';
import type { DeadlineOptions, When } from '../wait/when.js';

/** What recorded work gets: which try this is, and a signal that aborts when the run leaves this worker. */
export interface Try {
  /** From 1. */
  readonly attempt: number;
  /** Aborts when the run leaves this worker: what comes after it is not recorded. */
  readonly signal: AbortSignal;
}

/** A model's answer with what it used. */
export interface ModelAnswer<T> {
  /** What the code gets; recorded. */
  readonly output: T;
  /** Tokens and cost, counted against the run’s budgets. */
  readonly usage?: Usage | undefined;
}

/** Compiles only when a step's result is JSON (or nothing, which is recorded as null). */
export type JsonResult<T> = [T] extends [void] ? [] : T extends JsonCompatible<T> ? [] : [never, 'the result is not JSON: use strings, numbers, booleans, null, plain objects and arrays'];

/** A branch of `run.all` or `run.race`. It asks by the run that it is given, never by the outer one. */
export type Branch<T> = (run: Run) => Promise<T> | T;

/** How branches are recorded. */
export interface GroupOptions {
  /**
   * `each` (default): every step of a branch is a checkpoint. `group`: the whole group is recorded
   * as one; then each branch makes exactly one call, of a pure or idempotent tool hosted here, and a
   * failed one is neither mended nor taken over.
   */
  readonly checkpoint?: 'each' | 'group' | undefined;
}

/** What to do when a call fails for good. */
export interface ToolCallOptions<Args> {
  /**
   * Mends the arguments after a failure of class `invalid_request` or `invalid_output`, once: the call
   * is made again as the next step, with what this gives; undefined gives up. Must depend on its
   * arguments and on recorded work alone (it may ask `run.model`), since a replay asks again.
   */
  repair?(failure: Failure, args: Args): Promise<Args | undefined> | Args | undefined;
  /** `throw`: the contract's fallback is not called, the failure is thrown. */
  readonly fallback?: 'throw' | undefined;
  /**
   * What `run.approval` gave for exactly this tool and these arguments. Used up with the call; mended
   * arguments, and a fallback, need another one.
   */
  readonly approval?: Approval<Args> | undefined;
}

/** A wait for a third party's answer. */
export interface Callback<T> {
  /** Shows that whoever answers was asked; the same on every replay. Give it, or the URL, to the third party and to nobody else. */
  readonly token: string;
  /** Where the answer is to be sent. @throws NotConfigured when this worker doesn't know where the gateway is */
  readonly url: string;
  /** Await it. @throws WaitExpired, InvalidPayload */
  readonly answer: Promise<T>;
}

/** What of an effect is answered, and until when. */
export interface CompensateOptions extends DeadlineOptions {
  /** So much of it, in the smallest unit, where the contract says `partial`. Default: what is left. */
  readonly amount?: number | undefined;
}

/** How far back, and until when. */
export interface RollbackOptions extends DeadlineOptions {
  /** The step that stays, as `run.lastStep()` gave it; `start`: none. */
  readonly to: Step | 'start';
}

/** Made by `run.completePartially`; returned by the agent, it ends the run so. */
export class CompletedPartially<Output> {
  constructor(
    /** As much of the output as there is; fits the output’s schema. */
    readonly output: Output,
    /** What is missing, and why: for people. */
    readonly because: string,
  ) {}
}

/**
 * What an agent's code asks of the world, durably. Each ask takes the next number of its scope at
 * the moment it is made; after a crash the code runs again and gets what is recorded under that
 * number. Await every promise that comes from here.
 */
export interface Run {
  /** The run’s id: the same after every crash. */
  readonly id: RunId;
  /** Whose run it is. */
  readonly tenant: Tenant;
  /** Steps whose result was given by a tool that took over, so far, in the order of their numbers. */
  readonly degraded: readonly Step[];

  /**
   * Calls a tool. Resolves with its result once that is proved and recorded; while nobody knows whether
   * it happened it stays pending, however long that takes. When its attempts are spent, the fallback
   * that the tool declares is called as the next step, and its result is this call's (see `degraded`).
   * @throws EffectRejected the business said no
   * @throws EffectFailed it did not happen, and the ledger has given up
   * @throws InvalidArguments, NotJson, ValueTooLarge before anything is recorded
   * @throws IntentRefusedError the orchestrator refused it, `reason` says why; as BudgetExhausted, ApprovalRequired or
   *   ApprovalInvalid where that is the reason
   */
  call<Input extends z.ZodType, Output extends z.ZodType>(tool: ToolReference<Input, Output>, args: z.input<Input>, options?: ToolCallOptions<z.input<Input>>): Promise<z.output<Output>>;
  /**
   * The same by name, among the tools registered with this worker: for loops whose model chooses.
   * @throws UnregisteredTool naming those that are registered
   */
  call(tool: string, args: Json, options?: ToolCallOptions<Json>): Promise<Json>;

  /**
   * Work without side effects, done once and recorded. Tried again when it throws, as the
   * orchestrator says.
   * @throws StepFailed when its tries are spent
   */
  step<T>(name: string, work: (attempt: Try) => Promise<T> | T, ...json: JsonResult<T>): Promise<T>;

  /** A model call: `step` whose usage is recorded and counted. */
  model<T>(name: string, ask: (attempt: Try) => Promise<ModelAnswer<T> | T> | ModelAnswer<T> | T, ...json: JsonResult<T>): Promise<T>;

  /** The time now, epoch milliseconds; recorded. */
  now(): number;
  /** A number in [0, 1); recorded. */
  random(): number;
  /** A random UUID; recorded. */
  uuid(): string;

  /**
   * Runs branches side by side; each gets a run of its own to ask. Over when every branch is over;
   * then rejects with the error of the branch that failed first, if any.
   */
  all<T extends readonly unknown[]>(branches: readonly [...{ [I in keyof T]: Branch<T[I]> }], options?: GroupOptions): Promise<T>;

  /**
   * Runs branches side by side until the first is over, and settles as that one does. The others make no
   * further progress: what they wait for is abandoned; their calls that are intended already go on and are
   * recorded. Which branch is first is recorded, and a replay takes the same one.
   */
  race<T extends readonly unknown[]>(branches: readonly [...{ [I in keyof T]: Branch<T[I]> }]): Promise<T[number]>;

  /** The step that was asked for last in this scope: a place to roll back to, or the effect to compensate. */
  lastStep(): Step;

  /**
   * Has the effect at a step answered, as its tool's contract says: all of it, or so much of its amount. Waits
   * until that is done, or can't go on by itself: `status` says which, and `effects` what stands. An effect is
   * answered once, whoever asks.
   * @throws IntentRefusedError with the reason `not_compensable`, before anything is done
   */
  compensate(step: Step, options?: CompensateOptions): Promise<Compensated>;

  /**
   * Has every effect since a step of this scope answered, the latest first unless contracts say otherwise; `start`: every
   * one of the run. What the code calls afterwards has new steps, and so new keys; `again` says which keys are used up.
   * @throws IntentRefusedError with the reason `not_compensable` where one of them can't be answered: then nothing is done
   */
  rollback(options: RollbackOptions): Promise<Compensated>;

  /** Waits for so long (from now), or until a moment, without holding a process: `run.sleep('2 days')`. */
  sleep(when: When): Promise<void>;

  /**
   * Waits for a signal of this name that fits the schema; one that came before counts, each once, in order.
   * @throws WaitExpired at its deadline
   * @throws InvalidPayload what was taken doesn't fit what the schema says by now
   */
  signal<Schema extends z.ZodType>(name: string, schema: Schema, options?: DeadlineOptions): Promise<z.output<Schema>>;

  /**
   * Asks people whether a tool may be called with these arguments, and gives what the call then needs:
   * `run.call(tool, approval.args, { approval })`.
   * @throws ApprovalRejected with the person's feedback
   * @throws WaitExpired nobody decided in time
   */
  approval<Input extends z.ZodType>(options: ApprovalOptions<Input>): Promise<Approval<z.input<Input>>>;

  /**
   * Waits for a third party, which answers with the token. `token` is there at once; `answer` comes later.
   * @throws NotConfigured when this worker has no secret to make tokens with
   */
  callback<Schema extends z.ZodType>(schema: Schema, options?: DeadlineOptions): Callback<z.output<Schema>>;

  /**
   * Starts another run and waits for its output.
   * @throws ChildFailed it ended otherwise than completed, or ran out of time before it had an output
   * @throws WaitExpired it took longer than the deadline allows
   */
  child<Input extends z.ZodType, Output extends z.ZodType>(agent: AgentReference<Input, Output>, input: z.input<Input>, options?: ChildOptions): Promise<z.output<Output>>;
  child(agent: Named & { readonly input?: never }, input: Json, options?: ChildOptions): Promise<Json>;

  /**
   * Guards code that was changed while runs were open: true where this run comes to this place with
   * nothing recorded here or beyond, which is then recorded; false where it went on from here by the code
   * of before. Each place decides for itself: ask once and keep the answer where several must agree.
   * Keep it in the code, with both branches, while runs are open that came by here.
   */
  changed(name: string): boolean;

  /** Keeps bytes, text or JSON as an artifact, and gives the reference to pass to tools. */
  artifact(name: string, data: Uint8Array | string | Json, mediaType?: string): Promise<ArtifactRef>;

  /** Return it: `return run.completePartially(output, 'two of three suppliers answered')`. */
  completePartially<Output>(output: Output, because: string): CompletedPartially<Output>;
}
