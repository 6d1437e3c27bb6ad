import type { Message, Outcome, ProbeAnswer, RunId, Step, Usage } from '@holdfast/protocol';
import type { Shot } from './firing.js';
import type { ProbeTask } from './probing.js';

/** Recorded work of a run (a model call, a step) that was done here. */
export interface Worked {
  readonly run: RunId;
  readonly step: Step;
  readonly kind: string;
  readonly name: string;
  readonly attempt: number;
  /** Epoch milliseconds. */
  readonly startedAt: number;
  readonly failed: boolean;
  readonly usage: Usage | undefined;
}

/** Told what a worker did. It must not throw, and changes nothing. */
export interface HostObserver {
  onFired?(shot: Shot, startedAt: number, status: Outcome['status']): void;
  onProbed?(task: ProbeTask, startedAt: number, status: ProbeAnswer['status']): void;
  onWorked?(worked: Worked): void;
  /** A run was executed here, from its grant to its end or to where it was given up. */
  onExecuted?(run: RunId, fence: number, agent: string, startedAt: number): void;
  /** Names the span under which a message is written. */
  traceparent?(run: string, message: Message): string | undefined;
}

/** Several observers as one; undefined where nobody looks. */
export function observers(all: readonly HostObserver[]): HostObserver | undefined {
  const [first] = all;
  if (first === undefined || all.length === 1) return first;
  return {
    onFired: (...told) => all.forEach((each) => each.onFired?.(...told)),
    onProbed: (...told) => all.forEach((each) => each.onProbed?.(...told)),
    onWorked: (...told) => all.forEach((each) => each.onWorked?.(...told)),
    onExecuted: (...told) => all.forEach((each) => each.onExecuted?.(...told)),
    traceparent: (...told) => all.map((each) => each.traceparent?.(...told)).find((text) => text !== undefined),
  };
}
