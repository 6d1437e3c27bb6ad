import { isA } from '@holdfast/kernel';
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
 * `running`: the code advances. `ended`: it has returned or thrown. `let_go`: nothing is asked for or
 * handed over any more, and only ends of what has fired are still reported. `stopped`: not even those.
 */
export type Phase = 'running' | 'ended' | 'let_go' | 'stopped';

/** The code makes no further progress here. */
export const halted = ({ phase }: { readonly phase: Phase }): boolean => phase === 'stopped' || phase === 'let_go';

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
  readonly #unawaited = new Map<DurablePromise<unknown>, { readonly step: string; readonly label: () => string }>();
  readonly #strays: string[] = [];

  /** `step`: empty where the ask failed before it became one. */
  track<T>(promise: DurablePromise<T>, step: string, label: () => string, onAwaited: () => void = () => undefined): DurablePromise<T> {
    this.#unawaited.set(promise, { step, label });
    promise.whenAwaited(() => {
      this.#unawaited.delete(promise);
      onAwaited();
    });
    return promise;
  }

  /** An error that was handed to the code reached nobody. */
  stray(label: string, error: Error): void {
    this.#strays.push(`${label}, whose ${error.name} reached nobody`);
  }

  /** One line for each call that nobody awaited, or whose error nobody took, in the order made. */
  unawaited(): string[] {
    return [...[...this.#unawaited.values()].map(({ label }) => label()), ...this.#strays];
  }

  /** What a branch asked for that lost a race is nobody's business any more. */
  lose(prefix: string): void {
    for (const [promise, { step }] of this.#unawaited) if (step.startsWith(prefix)) this.#unawaited.delete(promise);
  }

  clear(): void {
    this.#unawaited.clear();
  }
}

/** Opens an entry for something that the code asks for. */
export function open(core: Core, step: Step, kind: AskedKind, name: string): Entry {
  const entry = new Entry(step, kind, name);
  core.completions.add(entry);
  // With a wait that is awaited now the code may have come to where it needs no process.
  void core.tracker.track(entry.promise, step, () => entry.label, entry.waits ? () => core.completions.soon() : undefined);
  entry.stray = (error) => {
    if (!entry.lost) core.tracker.stray(entry.label, error);
  };
  return entry;
}

/** A promise made of several asks, as durable as each of them. */
export function joined<T>(core: Core, whole: Promise<T>, step: Step, label: () => string): DurablePromise<T> {
  const promise = new DurablePromise<T>((resolve, reject) => {
    whole.then(resolve, (error: unknown) => {
      promise.hush();
      reject(error);
    });
  });
  return core.tracker.track(promise, step, label);
}

/** The answer to an ask that failed before it became a step. Never an unhandled rejection. */
export function refuse(core: Core, error: unknown, label: string): Promise<never> {
  if (error === HALT) return never();
  let reject: (error: unknown) => void = () => undefined;
  const promise = new DurablePromise<never>((_, no) => {
    reject = no;
  });
  if (isA(error, RunEnded)) promise.whenAwaited(() => undefined);
  else void core.tracker.track(promise, '', () => label);
  promise.hush();
  reject(error);
  return promise;
}
