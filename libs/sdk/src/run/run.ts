import type { ArtifactRef, Failure, Json, RunId, Step, Tenant, Usage } from '@holdfast/protocol';
import type { z } from 'zod';
import type { JsonCompatible } from '../define/json.js';
import type { ToolReference } from '../define/tool.js';

/** What recorded work gets: which try this is, and a signal that aborts when the run leaves this worker. */
export interface Try {
  /** From 1. */
  readonly attempt: number;
  readonly signal: AbortSignal;
}

/** A model's answer with what it used. */
export interface ModelAnswer<T> {
  readonly output: T;
  readonly usage?: Usage | undefined;
}

/** Compiles only when a step's result is JSON (or nothing, which is recorded as null). */
export type JsonResult<T> = [T] extends [void] ? [] : T extends JsonCompatible<T> ? [] : [never, 'the result is not JSON: use strings, numbers, booleans, null, plain objects and arrays'];

export type Branch<T> = (run: Run) => Promise<T> | T;

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
}

/** Made by `run.completePartially`; returned by the agent, it ends the run so. */
export class CompletedPartially<Output> {
  constructor(
    readonly output: Output,
    readonly because: string,
  ) {}
}

/**
 * What an agent's code asks of the world, durably. Each ask takes the next number of its scope at
 * the moment it is made; after a crash the code runs again and gets what is recorded under that
 * number. Await every promise that comes from here.
 */
export interface Run {
  readonly id: RunId;
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
   * @throws IntentRefusedError the orchestrator refused it: a budget, a deadline, a conflict
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

  /** Keeps bytes, text or JSON as an artifact, and gives the reference to pass to tools. */
  artifact(name: string, data: Uint8Array | string | Json, mediaType?: string): Promise<ArtifactRef>;

  /** Return it: `return run.completePartially(output, 'two of three suppliers answered')`. */
  completePartially<Output>(output: Output, because: string): CompletedPartially<Output>;
}
