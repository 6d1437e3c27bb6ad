import type { LogRecord } from '../ports.js';

/** One row of a service's journal: what it decided, in lane order. The outbox is the tail not yet published. */
export interface JournalRow {
  readonly lane: number;
  /** Rises by one within the lane. */
  readonly seq: number;
  readonly topic: string;
  /** `seq` of the row before it on the same topic and lane; 0 for the first. */
  readonly prev: number;
  /** The record's key: the run, or a lane's own stream. */
  readonly stream: string;
  readonly type: string;
  /** Version of the stream after this row, for the service's own events; null for other messages. */
  readonly version: number | null;
  /** Epoch milliseconds. */
  readonly time: number;
  readonly tenant: string;
  /** Head of the stream's hash chain after this row; null without a version. */
  readonly hash: string | null;
  readonly trace: string | null;
  /** JSON text, published as it stands. */
  readonly data: string;
}

/** How far a lane has come. Written in the same transaction as the journal rows that it led to. */
export interface Progress {
  readonly lane: number;
  readonly epoch: number;
  /** Next offset to read, by topic. */
  readonly offsets: Readonly<Record<string, number>>;
  /** Last `ce_seq` seen, by `topic|source|source lane`. */
  readonly seen: Readonly<Record<string, number>>;
  /** Offset up to which outsiders' messages have been answered for good (parked, refused), by topic: read again, they are skipped. */
  readonly parked: Readonly<Record<string, number>>;
  /** `seq` of the last row, by topic. */
  readonly last: Readonly<Record<string, number>>;
  readonly nextSeq: number;
  /** Rows up to this `seq` are known to be on their topics. */
  readonly published: number;
}

/** A stream that isn't at rest: what is open, and when it next needs attention. */
export interface AgendaEntry {
  readonly stream: string;
  readonly open: boolean;
  readonly dueAt: number | null;
  /** What the service looks streams up by (a pool). */
  readonly tag: string | null;
}

export interface SharedWrite {
  readonly key: string;
  readonly data: string;
}

/** A message kept for a stream whose history, or which itself, this version can't read. */
export interface Shelved {
  /** Rises within the lane: the order in which the messages came. */
  readonly id: number;
  readonly stream: string;
  readonly record: LogRecord;
}

/** What a turn puts on its lane's shelf, and the ids of what it takes from there. */
export interface ShelfWrite {
  readonly put: readonly Shelved[];
  readonly taken: readonly number[];
}

/** One lane's part of a transaction. */
export interface LaneWrite {
  /** Values after the transaction; `epoch` and the `nextSeq` before it are its condition. */
  readonly progress: Progress;
  readonly expectedNextSeq: number;
  readonly rows: readonly JournalRow[];
  readonly agenda: readonly AgendaEntry[];
  readonly shared: readonly SharedWrite[];
  /** Absent where nothing of it changes, which is nearly always. */
  readonly shelf?: ShelfWrite | undefined;
}

/** A transaction that holds locks on shared rows, for what spans lanes. */
export interface LockedStore {
  /** Data of each locked row; null for one that was not there before. */
  readonly rows: ReadonlyMap<string, string | null>;
  /**
   * Writes and commits every lane's part, or none: under a lock one lane's part was decided on
   * another's. Returns the lanes whose part was written.
   */
  commit(writes: readonly LaneWrite[]): Promise<ReadonlySet<number>>;
  rollback(): Promise<void>;
}

/** A service's database, as the loop sees it. */
export interface Store {
  /** Names this journal; a new one after a restore. */
  incarnation(): Promise<string>;
  /** Raises the epoch of each lane, so that whoever held it before can write no more, and returns its progress. */
  takeLanes(lanes: readonly number[]): Promise<Progress[]>;
  /** The next `seq` of every lane that was ever taken. */
  nextSeqs(): Promise<{ lane: number; nextSeq: number }[]>;
  /** Rows after a `seq`, in order, at most `limit`. */
  rowsAfter(lane: number, seq: number, limit: number): Promise<JournalRow[]>;
  openStreams(lane: number): Promise<AgendaEntry[]>;
  /** What stands on the lane's shelf, in the order in which it came. */
  shelved(lane: number): Promise<readonly Shelved[]>;
  /** Rows of each stream's own events, in version order. */
  loadStreams(topic: string, streams: readonly string[]): Promise<Map<string, JournalRow[]>>;
  /**
   * Writes every lane's part in one transaction, each on condition that the lane's epoch and next
   * seq are as expected; returns the lanes whose part was written.
   */
  append(writes: readonly LaneWrite[]): Promise<ReadonlySet<number>>;
  /** Locks shared rows (in key order, so that two instances can't wait for each other). */
  lock(keys: readonly string[]): Promise<LockedStore>;
  close(): Promise<void>;
}

/** An event, by its place in its stream's hash chain. */
export interface StreamHead {
  readonly stream: string;
  readonly version: number;
  readonly hash: string;
}

/** The journal that this process opened is no more: it is being rebuilt, or was. Only a new start can go on. */
export class JournalReplaced extends Error {
  override readonly name = 'JournalReplaced';
  constructor() {
    super('the journal is being rebuilt, or was since this instance started: it must start anew');
  }
}
