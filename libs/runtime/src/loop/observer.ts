import type { LogRecord } from '../ports.js';
import type { JournalRow } from '../store/types.js';

/** What one of a service's own events says about something that lasts: a run, a step, an attempt, a case, a plan. */
export interface SpanMark {
  /** Names it within its run; empty for the run itself. */
  readonly parts: readonly (string | number)[];
  /** What it is a part of; the run itself when absent. */
  readonly parent?: readonly (string | number)[];
  readonly name: string;
  readonly mark: 'begins' | 'ends';
  /** When it began, where the service's state says it. Epoch milliseconds. */
  readonly since?: number | undefined;
  /** Names and states alone: never what a tool or an agent was given or said. */
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
  /** A word for why it did not go well. */
  readonly failed?: string | undefined;
}

export interface Marked {
  readonly stream: string;
  readonly at: number;
  readonly mark: SpanMark;
}

/** One turn of the loop, once it is committed. Times are epoch milliseconds. */
export interface TurnFacts {
  readonly startedAt: number;
  readonly decidedAt: number;
  readonly committedAt: number;
  readonly messages: number;
  readonly timers: number;
  readonly lanes: readonly {
    /** Messages for which there is a handler, in order. */
    readonly handled: readonly LogRecord[];
    readonly rows: readonly JournalRow[];
    readonly marks: readonly Marked[];
  }[];
}

/** Told of each turn. It must not throw, and changes nothing. */
export interface LoopObserver {
  onTurn(turn: TurnFacts): void;
  /** Names the span under which a row is written: the `traceparent` that travels with it. `record`: the message that it follows from. */
  traceparent?(record: LogRecord | null, stream: string): string | null;
}
