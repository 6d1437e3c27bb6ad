import type { LogRecord } from '../ports.js';
import type { AgendaEntry, JournalRow, Progress, SharedWrite } from '../store/types.js';

/** The end of a stream: its version and the head of its hash chain. */
export interface Head {
  readonly version: number;
  readonly hash: string;
}

/** The topics, as a rebuild reads them. */
export interface RebuildLog {
  /** Every record that a topic holds now, in order within its lane; `onRecords` is given one stretch after the other. */
  read(topic: string, onRecords: (records: readonly LogRecord[]) => Promise<void>): Promise<void>;
  topics(): Promise<readonly string[]>;
  /** First and next offset of each lane. */
  bounds(topic: string): Promise<ReadonlyMap<number, { readonly first: number; readonly next: number }>>;
  /** Up to where the service's group had said that all was decided and published, by lane. */
  committed(topics: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<number, number>>>;
  /** Publishes rows under the source that they were written under. */
  publish(rows: readonly JournalRow[], source: string): Promise<void>;
}

/** The database, as a rebuild writes it. All of it may be repeated after a crash at any point. */
export interface RebuildStore {
  /** From here on no instance takes a lane until `finish`; whoever held one can write no more. */
  begin(lanes: readonly number[]): Promise<Progress[]>;
  rowsAfter(lane: number, seq: number, limit: number): Promise<JournalRow[]>;
  published(lane: number, seq: number): Promise<void>;
  /** Ends of a lane's streams. */
  heads(topic: string, lane: number): Promise<Map<string, Head>>;
  /** Appends rows that are on their topic already; nothing of them will be published. */
  addRows(lane: number, rows: readonly JournalRow[]): Promise<void>;
  /** The streams whose row of the version named has another hash, or is missing. */
  differing(topic: string, heads: ReadonlyMap<string, Head>): Promise<string[]>;
  loadStreams(topic: string, streams: readonly string[]): Promise<Map<string, JournalRow[]>>;
  /** Streams in order of their names, from after one on. */
  streamsAfter(topic: string, stream: string, limit: number): Promise<string[]>;
  clearViews(): Promise<void>;
  addViews(agenda: readonly (AgendaEntry & { readonly lane: number })[], shared: readonly SharedWrite[]): Promise<void>;
  setPositions(progress: readonly Progress[]): Promise<void>;
  /** Gives the journal its new name and lets instances take lanes. */
  finish(incarnation: string): Promise<void>;
}

/** What stands in the way, with what to do about it. */
export class RebuildProblem extends Error {
  override readonly name = 'RebuildProblem';
}
