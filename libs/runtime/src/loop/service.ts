import type { Envelope, Json, Message, MessageType } from '@holdfast/protocol';
import type { LogRecord } from '../ports.js';
import type { AgendaEntry } from '../store/types.js';
import type { SpanMark } from './observer.js';

/** A message as a handler gets it. */
export interface Inbound<Data = unknown> {
  readonly envelope: Envelope;
  readonly record: LogRecord;
  readonly data: Data;
}

/**
 * What a handler may do within one turn of the loop. All of it is buffered and written in one
 * transaction; nothing here waits, asks the world or throws for a reason outside the message.
 */
export interface Turn<State, Event extends Message> {
  readonly lane: number;
  /** The instant of this turn, epoch milliseconds. */
  readonly now: number;
  /** In [0, 1). */
  random(): number;
  state(stream: string): State;
  tenantOf(stream: string): string;
  /** Appends an event to one of the service's own streams and folds it. */
  record(stream: string, tenant: string, event: Event): void;
  /** Sends a message on another topic, keyed by `stream`, in order with the events. */
  send(topic: string, stream: string, tenant: string, message: Message): void;
  /** The `seq` that the n-th row from now on will have (0: the very next). */
  seqAhead(n: number): number;
  /** Streams of this lane that are open and carry the tag; without one, all that are open. */
  open(tag?: string): readonly string[];
  /** Has the stream looked at (`onDue`) no later than `at`. */
  wake(stream: string, at: number): void;
  /** Data of a row that spans lanes, under its lock; null when new. Its key must be named by `locks`. */
  shared(key: string): string | null;
  putShared(key: string, data: string): void;
  /** Parks an outsider's message that no run can be told about. */
  park(reason: string, message: string): void;
  /** The outsider's message in hand has its answer for good: read again it is skipped, with all before it on its topic. */
  answered(): void;
  /** The record being handled; null in a look at a stream whose time has come. */
  readonly inHand: LogRecord | null;
  /** Counts something, by name and reason: duplicates suppressed, stale fences refused … `by`: how much, 1 when absent. */
  count(what: string, because: string, by?: number): void;
}

export interface Route<State, Event extends Message> {
  readonly topic: string;
  readonly type: string;
  readonly message: MessageType;
  /** Streams whose state the handler needs. */
  readonly streams: (inbound: Inbound, open: (tag: string) => readonly string[]) => readonly string[];
  readonly locks: (inbound: Inbound, state: (stream: string) => State) => readonly string[];
  readonly handle: (inbound: Inbound, turn: Turn<State, Event>) => void;
}

export interface RouteOptions<State, Data> {
  readonly streams?: (inbound: Inbound<Data>, open: (tag: string) => readonly string[]) => readonly string[];
  readonly locks?: (inbound: Inbound<Data>, state: (stream: string) => State) => readonly string[];
}

/** One row of a service's routes: which message goes to which handler. */
export function on<State, Event extends Message, Data>(
  topic: string,
  message: MessageType<string, Data>,
  handle: (inbound: Inbound<Data>, turn: Turn<State, Event>) => void,
  options: RouteOptions<State, Data> = {},
): Route<State, Event> {
  const { streams, locks } = options;
  return {
    topic,
    type: message.type,
    message,
    streams: streams === undefined ? (inbound) => [inbound.envelope.subject] : (inbound, open) => streams(inbound as Inbound<Data>, open),
    locks: locks === undefined ? () => [] : (inbound, state) => locks(inbound as Inbound<Data>, state),
    handle: (inbound, turn) => handle(inbound as Inbound<Data>, turn),
  };
}

export interface InboundTopic {
  readonly name: string;
  /**
   * `service`: written by a service, in numbered rows; a message that can't be understood makes
   * the lane wait. `outsider`: written by anyone; such a message is parked.
   */
  readonly writtenBy: 'service' | 'outsider';
  /** All types that the protocol knows on this topic, routed or not. */
  readonly types: readonly MessageType[];
}

/** A service, as the loop runs it. */
export interface Service<State, Event extends Message> {
  readonly name: string;
  /** Topic of the service's own events; its journal rows on that topic are its streams. */
  readonly ownTopic: string;
  readonly inbound: readonly InboundTopic[];
  readonly routes: readonly Route<State, Event>[];
  readonly initial: State;
  /** `at`: when the event was recorded, epoch milliseconds. */
  readonly evolve: (state: State, event: Event, at: number) => State;
  readonly agenda: (state: State, stream: string) => Omit<AgendaEntry, 'stream'>;
  /** Fetches what the handlers of these messages need from outside the lane (contracts), before they run. */
  readonly prepare?: (inbounds: readonly Inbound[]) => Promise<void>;
  readonly onDue: (stream: string, turn: Turn<State, Event>) => void;
  readonly dueLocks?: (stream: string, state: State) => readonly string[];
  /** An outsider's message that can't be read, when its run can: the run is told. */
  readonly onUnreadable: (problem: Unreadable, turn: Turn<State, Event>) => void;
  /** A handler failed on this stream's message: deterministic, so it would fail again. */
  readonly onPoison: (stream: string, tenant: string, error: Error, turn: Turn<State, Event>) => void;
  /** What one of its events says about things that last, for traces. `before`: the stream's state without it. */
  readonly marks?: (event: Event, before: State) => readonly SpanMark[];
  /** What a rebuild of the journal from the topics needs to know beyond the fold. */
  readonly rebuild?: RebuildRules<State, Event>;
}

/** A row that spans lanes, as one stream's state has it. Of several words on one row that of the highest rank counts. */
export interface SharedWord {
  readonly key: string;
  readonly data: string;
  readonly rank: number;
  /** Where words of one rank add up: this one together with the data of those before. Absent: the first one stays. */
  readonly join?: (before: string) => string;
}

/** A message that the service sent on another topic, read back. */
export interface SentRoute<State, Event extends Message> {
  readonly topic: (name: string) => boolean;
  readonly message: MessageType;
  /** Records what the message shows to have been decided, where the streams don't hold it. */
  readonly handle: (inbound: Inbound, turn: Turn<State, Event>) => void;
}

/** How a service's journal is made again from the topics when its database is new or older than they are. */
export interface RebuildRules<State, Event extends Message> {
  /** What a stream's state puts into rows that span lanes. */
  readonly shared?: (stream: string, state: State) => readonly SharedWord[];
  /** What one event has added to such rows, where a state doesn't say it any more. `now`: of the rebuild. Times are epoch milliseconds. */
  readonly added?: (before: State, event: Event, after: State, at: number, now: number) => readonly SharedWord[];
  /** Own events, by type, that name the outsider's message that they answer: all before it on its topic has been decided. */
  readonly answers?: Readonly<Record<string, (data: Json) => { readonly topic: string; readonly offset: number } | null>>;
  readonly sent?: readonly SentRoute<State, Event>[];
  /** Called for each open stream once all is folded: what it had sent may never have been published. */
  readonly reopen?: (stream: string, turn: Turn<State, Event>) => void;
}

export interface Unreadable {
  readonly record: LogRecord;
  readonly envelope: Envelope | undefined;
  readonly reason: string;
  readonly message: string;
  /** The data when it was JSON at all. */
  readonly data: Json | undefined;
}
