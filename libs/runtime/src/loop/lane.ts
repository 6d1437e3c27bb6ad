import type { LogRecord } from '../ports.js';
import type { AgendaEntry, Progress, Shelved } from '../store/types.js';
import { Agenda } from './agenda.js';
import { Shelf } from './shelf.js';
import type { Cached } from './streams.js';
import { FailedTimers } from './timers.js';

/** How many streams that are at rest or asleep a lane keeps folded in memory. */
const RESTING_STREAMS_MAX = 2000;
/** At this pace the streams of a lane just taken are looked at, milliseconds. */
const LOOK_EVERY_MS = 2;

/** Open, and wanted by nothing but its own time: its state is folded again when that has come. */
export const sleeps = ({ tag, dueAt }: Omit<AgendaEntry, 'stream' | 'open'>): boolean => tag === null && dueAt !== null;

/** What an instance holds of one lane: its progress as committed, what arrived, and folded states. */
export class Lane<State> {
  readonly id: number;
  readonly agenda = new Agenda();
  readonly timers = new FailedTimers();
  /** Runs that this version can't read. */
  shelf = new Shelf();
  progress: Progress;
  inbox: LogRecord[] = [];
  /** Next offset that may enter the inbox, by topic. */
  readonly arriving: Map<string, number>;
  /** Ends of the topics when the lane was taken: no timer fires before all is read up to there. */
  readonly backlog: ReadonlyMap<string, number>;
  /** Set when the lane can't go on without help; says why. */
  halted: string | null = null;
  /** Its topics are delivered from where it stands; what arrives before was fetched for an earlier holding. */
  isOpen = false;
  /** Set when another instance has taken the lane, or this one gave it up. */
  gone = false;
  /** Published up to this `seq`, as the publisher last said. */
  published: number;
  #toTell: { readonly offsets: Readonly<Record<string, number>>; readonly seq: number } | null = null;
  readonly #streams = new Map<string, Cached<State>>();

  constructor(progress: Progress, backlog: ReadonlyMap<string, number>) {
    this.id = progress.lane;
    this.progress = progress;
    this.published = progress.published;
    this.backlog = backlog;
    this.arriving = new Map(Object.entries(progress.offsets));
  }

  /**
   * Takes the open streams of a lane just taken over. One that came to rest just before its holder died still
   * stands as open: each is looked at, a few at a time. One that nobody can want before its time is looked at
   * then; there may be very many of these. What stands on the shelf is tried again.
   */
  load(entries: readonly AgendaEntry[], shelved: readonly Shelved[], now: number): void {
    this.shelf = new Shelf(shelved);
    let lookAt = now;
    for (const entry of entries) {
      if (sleeps(entry)) {
        this.agenda.load(entry);
        continue;
      }
      this.agenda.load(entry, entry.dueAt === null || entry.dueAt < now ? lookAt : Math.min(lookAt, entry.dueAt));
      lookAt += LOOK_EVERY_MS;
    }
  }

  /** Whether everything that was there at assignment has been decided on. */
  caughtUp(): boolean {
    for (const [topic, end] of this.backlog) if ((this.progress.offsets[topic] ?? 0) < end) return false;
    return true;
  }

  /** Offsets up to which all was decided and all that it led to is published, as far as known; looked at now and then. */
  tellable(): Readonly<Record<string, number>> {
    const before = this.#toTell;
    const now = { offsets: this.#decided(), seq: this.progress.nextSeq - 1 };
    if (this.published >= now.seq) {
      this.#toTell = null;
      return now.offsets;
    }
    if (before !== null && this.published < before.seq) return {};
    this.#toTell = now;
    return before?.offsets ?? {};
  }

  /** What is on the shelf has been read and not been decided. */
  #decided(): Readonly<Record<string, number>> {
    if (this.shelf.size === 0) return this.progress.offsets;
    return Object.fromEntries(Object.entries(this.progress.offsets).map(([topic, offset]) => [topic, Math.min(offset, this.shelf.firstOffset(topic) ?? offset)]));
  }

  stream(id: string): Cached<State> | undefined {
    return this.#streams.get(id);
  }

  /** Keeps a stream's fold; the ones used least recently go first when there are too many. */
  keep(id: string, cached: Cached<State>): void {
    this.#streams.delete(id);
    this.#streams.set(id, cached);
  }

  /** Forgets folds beyond the limit, oldest use first, but none that is wanted. */
  trim(isWanted: (state: State, id: string) => boolean): void {
    let over = this.#streams.size - RESTING_STREAMS_MAX;
    if (over < RESTING_STREAMS_MAX / 4) return;
    for (const [id, { state }] of this.#streams) {
      if (over <= 0) return;
      if (isWanted(state, id)) continue;
      this.#streams.delete(id);
      over -= 1;
    }
  }

  committed(progress: Progress, streams: ReadonlyMap<string, Cached<State>>): void {
    this.progress = progress;
    for (const [id, cached] of streams) this.keep(id, cached);
  }
}
