import type { LaneWrite } from '../store/types.js';
import type { Lane } from './lane.js';

/** How long marks that led to no row may wait for a transaction of their own. */
const QUIET_WRITE_MS = 500;

/** How far lanes have read and published goes with their next row, or after a while in a transaction of its own. */
export class ReadOn {
  #wroteAt: number;
  /** Lanes that have read on without a transaction, and since when. */
  readonly #since = new Map<number, number>();

  constructor(now: number) {
    this.#wroteAt = now;
  }

  has(lane: number): boolean {
    return this.#since.has(lane);
  }

  note(lane: number, now: number): void {
    if (!this.#since.has(lane)) this.#since.set(lane, now);
  }

  /** A transaction was tried, and has written these lanes' parts. */
  written(lanes: ReadonlySet<number>, now: number): ReadonlySet<number> {
    this.#wroteAt = now;
    for (const lane of lanes) this.#since.delete(lane);
    return lanes;
  }

  forget(lane: number): void {
    this.#since.delete(lane);
  }

  /** What could not be written waits once more. */
  wait(now: number): void {
    this.#wroteAt = now;
    for (const lane of this.#since.keys()) this.#since.set(lane, now);
  }

  /** When they have waited long enough. `others`: whether there is more to write than how far was read. */
  dueAt(others: boolean): number {
    return Math.min(others ? this.#wroteAt : Infinity, ...this.#since.values()) + QUIET_WRITE_MS;
  }
}

/**
 * Whether all that a turn leaves of a lane is how far it has read. Should that be lost, the messages are read
 * again and come to nothing again. An answer that stands (`parked`) is no such mark.
 */
export function isReadingAlone<State>({ progress, rows, agenda, shared, shelf }: LaneWrite, { progress: before }: Pick<Lane<State>, 'progress'>): boolean {
  return rows.length === 0 && agenda.length === 0 && shared.length === 0 && shelf === undefined && Object.entries(progress.parked).every(([topic, offset]) => before.parked[topic] === offset);
}
