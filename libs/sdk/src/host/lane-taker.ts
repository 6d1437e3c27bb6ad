import { decodeHeaders, runTasks, toolTasks, type Pool } from '@holdfast/protocol';
import type { Assignment, Clock, CommittedOffset, LaneGroup, LogRecord } from '@holdfast/runtime';
import { messageOf } from '../errors.js';
import type { Hold } from './hold.js';
import type { WorkerLog } from './log.js';
import type { Runs } from './runs.js';
import { arrive, decodeSeen, NOTHING_SEEN, type Seen } from './seen.js';
import type { ToolHost } from './tool-host.js';

/** Reads a stretch of one lane: from an offset up to, not including, another. */
export type ReadLane = (topic: string, lane: number, fromOffset: number, toOffset: number) => Promise<LogRecord[]>;

export interface LaneTakerParts {
  readonly group: LaneGroup;
  readonly hold: Hold;
  readonly host: ToolHost;
  readonly runs: Runs;
  readonly pool: Pool;
  readonly clock: Clock;
  readonly log: WorkerLog;
  readonly readLane: ReadLane;
  /** Writes the announcement into the lane itself; resolves when it is acknowledged or no longer wanted. */
  announce(lane: number, generation: number, taken: Readonly<Record<string, number>>, wanted: () => boolean): Promise<void>;
}

interface Bounds {
  readonly first: number;
  readonly next: number;
}

const RETRY_FIRST_MS = 200;
const RETRY_MOST_MS = 5000;

/**
 * Takes the lanes that the group assigns: finds out up to where former hosts had come, announces
 * the taking into the lane itself, and opens the lane when that is acknowledged. Lanes that stayed
 * are opened where they were, and their runs go on.
 */
export class LaneTaker {
  readonly #parts: LaneTakerParts;
  /** Counts assignments and revocations: work begun in another era is void. */
  #era = 0;
  #generation = 0;
  /** Lanes that are announced and open, or were until the rebalance. */
  readonly #taken = new Set<number>();

  constructor(parts: LaneTakerParts) {
    this.#parts = parts;
  }

  assigned({ lanes, retained, membership }: Assignment): void {
    this.#era += 1;
    this.#generation = membership.generation;
    const staying = retained.filter((lane) => this.#taken.has(lane));
    const fresh = lanes.filter((lane) => !staying.includes(lane));
    for (const lane of this.#taken) {
      if (!staying.includes(lane)) this.#lose(lane, lanes.includes(lane) ? 'the lane was taken anew' : 'the lane went to another worker');
    }
    const era = this.#era;
    for (const lane of staying) void this.#reopen(lane, era);
    if (fresh.length > 0) void this.#take(fresh, era);
  }

  revoked(): void {
    this.#era += 1;
  }

  /** Nothing is held any more. */
  ended(): void {
    this.#era += 1;
    this.#taken.clear();
  }

  /** Lanes that are announced and open, or were until a rebalance that is under way. */
  get lanes(): number[] {
    return [...this.#taken].sort((a, b) => a - b);
  }

  #lose(lane: number, because: string): void {
    this.#taken.delete(lane);
    this.#parts.host.forget(lane);
    this.#parts.runs.forget(lane, because);
  }

  async #reopen(lane: number, era: number): Promise<void> {
    const { host, runs, group, pool } = this.#parts;
    const tasksAt = await host.reopenAt(lane);
    if (era !== this.#era) return;
    if (tasksAt === 'anew') {
      this.#lose(lane, 'nobody knows how far the lane was committed: it was taken anew');
      await this.#take([lane], era);
      return;
    }
    const runsAt = runs.reopenAt(lane);
    group.open([
      ...(runsAt === undefined ? [] : [{ topic: runTasks(pool), lane, offset: runsAt }]),
      ...(tasksAt === 'stopped' ? [] : [{ topic: toolTasks(pool), lane, offset: tasksAt }]),
    ]);
  }

  async #take(lanes: readonly number[], era: number): Promise<void> {
    const current = (): boolean => era === this.#era;
    for (let tries = 0; current(); tries += 1) {
      try {
        await this.#tryToTake(lanes, current);
        return;
      } catch (error) {
        if (!current()) return;
        const delayMs = Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** tries);
        this.#parts.log.warn('lanes could not be taken yet', { lanes, retryInMs: delayMs, error: messageOf(error) });
        await new Promise<void>((resolve) => void this.#parts.clock.after(delayMs, resolve));
      }
    }
  }

  async #tryToTake(lanes: readonly number[], current: () => boolean): Promise<void> {
    const { group, pool, host } = this.#parts;
    const left = lanes.filter((lane) => !this.#taken.has(lane));
    // An own commit of an earlier membership must have ended before its trace is read.
    await Promise.all(left.map((lane) => host.quiet(lane)));
    const [runBounds, taskBounds, committed] = await Promise.all([group.offsets(runTasks(pool)), group.offsets(toolTasks(pool)), group.committed(toolTasks(pool), left)]);
    const ends = await Promise.allSettled(left.map((lane) => this.#takeOne(lane, known(runBounds, lane), known(taskBounds, lane), committed.get(lane), current)));
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  async #takeOne(lane: number, runs: Bounds, tasks: Bounds, committed: CommittedOffset | undefined, current: () => boolean): Promise<void> {
    const { group, hold, host, pool, log, announce } = this.#parts;
    // Answers that crossed a rebalance don't belong together: an alarm from them would be false.
    if (!current()) return;
    const offset = committed?.offset ?? tasks.first;
    if (offset < tasks.first || offset > tasks.next) {
      log.error(`lane ${lane} of ${toolTasks(pool)} stands still: the group's offset ${offset} is outside of what the topic holds (${tasks.first} to ${tasks.next}), so that tasks may be missing`, {
        lane,
        mend: 'look in the ledger for attempts without an end, then set the offset of the group by hand and restart this worker',
      });
      return;
    }
    const seen = await this.#seenUpTo(lane, tasks.first, committed);
    if (!current()) return;
    const generation = this.#generation;
    await announce(lane, generation, Object.fromEntries(seen), current);
    if (!current()) return;
    this.#taken.add(lane);
    host.take(lane, { offset, seen });
    this.#parts.runs.take(lane, runs.next, generation);
    group.open([
      { topic: runTasks(pool), lane, offset: runs.next },
      { topic: toolTasks(pool), lane, offset },
    ]);
    hold.settled();
  }

  /** What former hosts had seen of the lane: from the commit's metadata, or, since that is a cache, from the partition itself. */
  async #seenUpTo(lane: number, first: number, committed: CommittedOffset | undefined): Promise<Seen> {
    if (committed === undefined || committed.offset === null) return NOTHING_SEEN;
    const cached = decodeSeen(committed.metadata);
    if (cached !== null) return cached;
    let seen = NOTHING_SEEN;
    for (const record of await this.#parts.readLane(toolTasks(this.#parts.pool), lane, first, committed.offset)) {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      const arrival = envelope === undefined ? undefined : arrive(seen, lane, { ...envelope, prev: 0 });
      if (arrival?.kind === 'new') seen = arrival.seen;
    }
    return seen;
  }
}

function known(bounds: ReadonlyMap<number, Bounds>, lane: number): Bounds {
  const found = bounds.get(lane);
  if (found === undefined) throw new Error(`the broker told no offsets of lane ${lane}`);
  return found;
}
