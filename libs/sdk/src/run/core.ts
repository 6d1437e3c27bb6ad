import type { Fence, RunId, Step, Tenant } from '@holdfast/protocol';
import { type IntentRefusedError, RunEnded } from '../errors.js';
import type { RunPort } from '../host/port.js';
import type { RunStore } from './artifacts.js';
import type { Completions } from './completions.js';
import { DurablePromise, never } from './durable.js';
import { Entry } from './entry.js';
import type { AskedKind, History, Mismatch } from './history.js';
import type { Outgoing } from './outgoing.js';

/**
 * `running`: the code advances. `ended`: it has returned or thrown. `stopped`: nothing more is sent
 * or handed over; why it stopped decides whether later calls are told.
 */
export type Phase = 'running' | 'ended' | 'stopped';

/** Thrown inside to unwind; the code never sees it. */
export const HALT = Symbol('halt');

/** What the parts of one run's executor share. */
export interface Core {
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly fence: Fence;
  readonly port: RunPort;
  readonly store: RunStore;
  readonly history: History;
  readonly outgoing: Outgoing;
  readonly completions: Completions;
  readonly signal: AbortSignal;
  readonly tracker: Tracker;
  /** Steps whose result was given by a tool that took over. */
  readonly degraded: Step[];
  phase: Phase;
  /** True while the synchronous part of recorded work runs. */
  insideWork: boolean;
  /** Something that the code has already been told was refused afterwards: it must come to an end. */
  refusedAfterwards: IntentRefusedError | null;
  /** Reports the divergence and stops the run for good; throws HALT. */
  diverge(mismatch: Mismatch): never;
  /** Something that an operator should hear of. */
  trouble(message: string): void;
}

/** Finds the durable calls that nobody awaits. */
export class Tracker {
  readonly #unawaited = new Map<DurablePromise<unknown>, () => string>();
  readonly #strays: string[] = [];

  track<T>(promise: DurablePromise<T>, label: () => string): DurablePromise<T> {
    this.#unawaited.set(promise, label);
    promise.whenAwaited(() => this.#unawaited.delete(promise));
    return promise;
  }

  /** An error that was handed to the code reached nobody. */
  stray(label: string, error: Error): void {
    this.#strays.push(`${label}, whose ${error.name} reached nobody`);
  }

  /** One line for each call that nobody awaited, or whose error nobody took, in the order made. */
  unawaited(): string[] {
    return [...[...this.#unawaited.values()].map((label) => label()), ...this.#strays];
  }

  clear(): void {
    this.#unawaited.clear();
  }
}

/** Opens an entry for something that the code asks for. */
export function open(core: Core, step: Step, kind: AskedKind, name: string): Entry {
  const entry = new Entry(step, kind, name);
  core.completions.add(entry);
  void core.tracker.track(entry.promise, () => entry.label);
  entry.stray = (error) => core.tracker.stray(entry.label, error);
  return entry;
}

/** A promise made of several asks, as durable as each of them. */
export function joined<T>(core: Core, whole: Promise<T>, label: () => string): DurablePromise<T> {
  const promise = new DurablePromise<T>((resolve, reject) => {
    whole.then(resolve, (error: unknown) => {
      promise.hush();
      reject(error);
    });
  });
  return core.tracker.track(promise, label);
}

/** The answer to an ask that failed before it became a step. Never an unhandled rejection. */
export function refuse(core: Core, error: unknown, label: string): Promise<never> {
  if (error === HALT) return never();
  let reject: (error: unknown) => void = () => undefined;
  const promise = new DurablePromise<never>((_, no) => {
    reject = no;
  });
  if (error instanceof RunEnded) promise.whenAwaited(() => undefined);
  else void core.tracker.track(promise, () => label);
  promise.hush();
  reject(error);
  return promise;
}
