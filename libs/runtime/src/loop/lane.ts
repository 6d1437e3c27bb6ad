import type { LogRecord } from '../ports.js';
import type { Progress } from '../store/types.js';
import { Agenda } from './agenda.js';
import type { Cached } from './streams.js';

/** How many streams that are at rest or asleep a lane keeps folded in memory. */
const RESTING_STREAMS_MAX = 2000;

/** What an instance holds of one lane: its progress as committed, what arrived, and folded states. */
export class Lane<State> {
  readonly id: number;
  readonly agenda = new Agenda();
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

  /** Whether everything that was there at assignment has been decided on. */
  caughtUp(): boolean {
    for (const [topic, end] of this.backlog) if ((this.progress.offsets[topic] ?? 0) < end) return false;
    return true;
  }

  /** Offsets up to which all was decided and all that it led to is published, as far as known; looked at now and then. */
  tellable(): Readonly<Record<string, number>> {
    const before = this.#toTell;
    const now = { offsets: this.progress.offsets, seq: this.progress.nextSeq - 1 };
    if (this.published >= now.seq) {
      this.#toTell = null;
      return now.offsets;
    }
    if (before !== null && this.published < before.seq) return {};
    this.#toTell = now;
    return before?.offsets ?? {};
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
