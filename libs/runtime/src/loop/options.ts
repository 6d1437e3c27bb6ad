import type { Message } from '@holdfast/protocol';
import type { Clock, LaneGroup, LaneGroupHandlers, LogWriter, Random } from '../ports.js';
import type { Store } from '../store/types.js';
import type { LoopObserver } from './observer.js';
import type { Service } from './service.js';

export interface LoopOptions<State, Event extends Message> {
  readonly service: Service<State, Event>;
  readonly store: Store;
  readonly writer: LogWriter;
  readonly clock: Clock;
  readonly random: Random;
  readonly laneOf: (key: string) => number;
  /** Makes this instance's membership in the service's lane group. */
  readonly join: (handlers: LaneGroupHandlers) => LaneGroup;
  /** Makes topics that publishing may be missing. */
  readonly repair: (topics: readonly string[]) => Promise<void>;
  /** Timers a second that are taken after an outage, beside what comes due meanwhile; default 200. */
  readonly overduePerSecond?: number;
  readonly observer?: LoopObserver | undefined;
  readonly onAlarm: (what: string, detail: Record<string, unknown>) => void;
  readonly onFatal: (error: Error) => void;
}

export interface LoopHealth {
  readonly lanes: number;
  readonly halted: readonly { readonly lane: number; readonly reason: string }[];
  /** Runs that this version can't read: what comes for them is kept. `reason` is null where an earlier holder's were not tried yet. */
  readonly shelved: readonly { readonly stream: string; readonly reason: string | null; readonly messages: number }[];
  /** Milliseconds that the oldest unpublished row has waited; 0 when none does. */
  readonly unpublishedMs: number;
  /** Milliseconds since the loop last came round while there was work. */
  readonly stuckMs: number;
  readonly waiting: number;
  /** Milliseconds for which the broker has not counted this instance in. */
  readonly silentMs: number;
  readonly unpublishedRows: number;
  /** Streams that are not at rest. */
  readonly openStreams: number;
}
