import type { HeaderValue } from '@holdfast/protocol';

/** A record as it was read from a topic. */
export interface LogRecord {
  readonly topic: string;
  /** The partition. */
  readonly lane: number;
  readonly offset: number;
  readonly key: string | null;
  readonly headers: Readonly<Record<string, HeaderValue>>;
  /** The value's text; null for a record without one. */
  readonly value: string | null;
  /** Record time, epoch milliseconds. */
  readonly time: number;
}

/** A record to be written. */
export interface Outgoing {
  readonly topic: string;
  /** Explicit partition; absent: by the key (murmur2). */
  readonly lane?: number;
  readonly key: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly value: string;
}

/** Writes records durably (`acks=all`). */
export interface LogWriter {
  /**
   * Resolves when the broker has acknowledged every record. Records for one partition keep their
   * order. On rejection nobody knows which of them were written.
   */
  publish(records: readonly Outgoing[]): Promise<void>;
  close(): Promise<void>;
}

/** The member id and generation under which records were polled; a commit must carry the same. */
export interface Membership {
  readonly memberId: string;
  readonly generation: number;
}

export interface Assignment {
  readonly membership: Membership;
  readonly lanes: readonly number[];
  /** Lanes held without a gap since the generation before; all others are newly taken. */
  readonly retained: readonly number[];
}

export interface CommittedOffset {
  /** Next offset to read; null when the group never committed for that lane. */
  readonly offset: number | null;
  readonly metadata: string;
}

/** How a commit ended. `unknown`: it may have been accepted; fire and commit nothing until a new generation. */
export type CommitEnd = 'accepted' | 'refused' | 'unknown';

/** What a member of a lane group is told. Handlers must not throw. */
export interface LaneGroupHandlers {
  /** Lanes are assigned; nothing is delivered from them until `open` is called for them. */
  onAssigned(assignment: Assignment): void;
  /** A rebalance has begun or the membership is lost: every unfired task is to be dropped, at once. */
  onRevoked(): void;
  /** Records of one lane of one topic, in order. The promise holds back further fetching (back-pressure). */
  onRecords(records: readonly LogRecord[], polled: Membership): Promise<void>;
  /** Outside its group, because of trouble that may pass; it tries to join again by itself. */
  onTrouble?(error: Error): void;
  /** The member can't go on by itself: it has never been in the group, a broker refuses it, or a handler failed. */
  onCrash(error: Error): void;
}

/** A member of a consumer group in which one member holds the same partition number of all topics. */
export interface LaneGroup {
  start(): Promise<void>;
  /** Leaves the group at once, so that others take the lanes without waiting for a time-out. */
  stop(): Promise<void>;
  /** Leaves and joins again under a new generation. */
  rejoin(): Promise<void>;
  /** Starts delivery of a lane of a topic from an offset. */
  open(positions: readonly { topic: string; lane: number; offset: number }[]): void;
  /** Committed offsets and metadata, read from the coordinator. */
  committed(topic: string, lanes: readonly number[]): Promise<Map<number, CommittedOffset>>;
  /** First and next offset of each lane of a topic. */
  offsets(topic: string): Promise<Map<number, { first: number; next: number }>>;
  commit(membership: Membership, offsets: readonly { topic: string; lane: number; offset: number; metadata: string }[]): Promise<CommitEnd>;
  /**
   * How long ago the last heartbeat that was answered without error in the present generation was
   * sent (milliseconds), whatever is done to the machine's clock; null as soon as any answer spoke
   * of a rebalance.
   */
  heartbeatAgeMs(): number | null;
  readonly sessionTimeoutMs: number;
}

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  /** Calls back once after a delay in milliseconds; returns a canceller. */
  after(delayMs: number, callback: () => void): () => void;
  /** Calls back once in a macrotask of its own: what is under way in microtasks has run out by then. */
  soon(callback: () => void): void;
}

export interface Random {
  /** In [0, 1). */
  next(): number;
  uuid(): string;
}
