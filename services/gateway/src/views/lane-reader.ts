import { blameOf, pause, systemClock, type Assignment, type LaneGroup, type LogRecord } from '@holdfast/runtime';
import { createLaneGroup } from '@holdfast/runtime/kafka';
import type { ServiceLog } from '@holdfast/runtime/nest';
import { placeOf } from '../domain/position.js';
import type { SetApart } from './set-apart.js';

/** Takes records in, and remembers in the same transaction how far it has come. */
export interface LaneSink {
  /** Next offset of each topic and lane, by `topic/lane`; 0 where nothing was read yet. */
  positions(lanes: readonly number[]): Promise<Map<string, number>>;
  /** Takes a stretch of one lane of one topic. False: somebody else has taken it, or a part of it, meanwhile. */
  take(records: readonly LogRecord[], from: number): Promise<boolean>;
  /** Goes on behind a record without taking it. False as with `take`. */
  pass(record: LogRecord, from: number): Promise<boolean>;
}

export interface LaneReaderOptions {
  readonly brokers: readonly string[];
  readonly groupId: string;
  readonly topics: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly sink: LaneSink;
  readonly apart: SetApart;
  readonly log: ServiceLog;
  readonly createGroup?: typeof createLaneGroup;
}

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5000;
const START_AGAIN_MS = 1000;
/** Records of one transaction. */
const STRETCH_MAX = 500;

/**
 * One member of a group that reads topics into a database. Where to go on is the database's word,
 * never the broker's, so a record is taken once whoever reads it. A database that is down is waited
 * for; a record that it never takes is found, shown and passed over, and the rest goes on.
 */
export class LaneReader {
  readonly #options: LaneReaderOptions;
  readonly #next = new Map<string, number>();
  #group: LaneGroup | null = null;
  #stopped = false;
  #cancel: (() => void) | null = null;
  #heardAt = systemClock.now();
  /** What is being taken in. */
  readonly #standing = new Set<{ readonly since: number }>();
  #assigned: () => void = () => undefined;
  /** Resolves when lanes were assigned for the first time. */
  readonly assigned = new Promise<void>((resolve) => (this.#assigned = resolve));
  lanes: readonly number[] = [];

  constructor(options: LaneReaderOptions) {
    this.#options = options;
  }

  /** For how long what was read waits to be taken in. Milliseconds. */
  standingMs(now: number): number {
    return Math.max(0, ...[...this.#standing].map(({ since }) => now - since));
  }

  /** For how long the broker has not answered this reader. Milliseconds. */
  silentMs(now: number): number {
    const ageMs = this.#group?.heartbeatAgeMs() ?? null;
    if (ageMs !== null) this.#heardAt = Math.max(this.#heardAt, now - ageMs);
    return now - this.#heardAt;
  }

  async start(): Promise<void> {
    const { brokers, groupId, topics, sessionTimeoutMs, createGroup = createLaneGroup } = this.#options;
    try {
      const group = createGroup({
        brokers,
        groupId,
        clientId: groupId,
        topics,
        sessionTimeoutMs,
        handlers: {
          onAssigned: (assignment) => void this.#open(group, assignment),
          onRevoked: () => (this.lanes = []),
          onRecords: (records) => this.#take(group, records),
          onCrash: (error) => this.#again(error),
        },
      });
      this.#group = group;
      await group.start();
      if (this.#stopped) await group.stop();
    } catch (error) {
      this.#again(error instanceof Error ? error : new Error(String(error)));
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#group?.stop();
  }

  #again(error: Error): void {
    if (this.#stopped) return;
    this.#options.log.warn({ group: this.#options.groupId, error: error.message }, 'a reader of topics stopped, and is started again');
    const before = this.#group;
    this.#group = null;
    void before?.stop().catch(() => undefined);
    this.#cancel?.();
    this.#cancel = systemClock.after(START_AGAIN_MS, () => void this.start());
  }

  async #open(group: LaneGroup, { lanes }: Assignment): Promise<void> {
    try {
      this.lanes = lanes;
      const positions = await this.#persist(() => this.#options.sink.positions(lanes));
      if (positions === undefined || this.lanes !== lanes) return;
      for (const topic of this.#options.topics) {
        const bounds = await group.offsets(topic);
        const opened = lanes.map((lane) => ({ topic, lane, offset: Math.max(positions.get(placeOf(topic, lane)) ?? 0, bounds.get(lane)?.first ?? 0) }));
        for (const { lane } of opened) this.#next.set(placeOf(topic, lane), positions.get(placeOf(topic, lane)) ?? 0);
        group.open(opened);
      }
      this.#assigned();
    } catch (error) {
      this.#again(error instanceof Error ? error : new Error(String(error)));
    }
  }

  async #take(group: LaneGroup, records: readonly LogRecord[]): Promise<void> {
    const [first] = records;
    if (first === undefined) return;
    const { topic, lane } = first;
    const place = placeOf(topic, lane);
    const fresh = records.filter(({ offset }) => offset >= (this.#next.get(place) ?? 0));
    for (let i = 0; i < fresh.length; i += STRETCH_MAX) {
      const stretch = fresh.slice(i, i + STRETCH_MAX);
      const taken = await this.#stretch(stretch, place);
      if (taken === undefined) return;
      if (!taken) {
        const positions = await this.#persist(() => this.#options.sink.positions([lane]));
        const next = positions?.get(place);
        if (next === undefined) return;
        this.#next.set(place, next);
        group.open([{ topic, lane, offset: next }]);
        return;
      }
    }
  }

  /** Takes a stretch in; where one of its values is to blame that it never will be, in halves, until the one record is found. */
  async #stretch(stretch: readonly LogRecord[], place: string): Promise<boolean | undefined> {
    const from = this.#next.get(place) ?? 0;
    const { sink, apart, groupId } = this.#options;
    const end = await this.#persist(() => sink.take(stretch, from).catch(blamed));
    if (typeof end !== 'object') {
      if (end === true) this.#next.set(place, (stretch.at(-1)?.offset ?? 0) + 1);
      return end;
    }
    const [first, second] = stretch;
    if (first === undefined) return true;
    if (second !== undefined) {
      const half = Math.ceil(stretch.length / 2);
      const taken = await this.#stretch(stretch.slice(0, half), place);
      return taken === true ? this.#stretch(stretch.slice(half), place) : taken;
    }
    await this.#persist(() => apart.note(first, groupId, end.error));
    const passed = await this.#persist(() => sink.pass(first, from));
    if (passed === true) this.#next.set(place, first.offset + 1);
    return passed;
  }

  /** Tries until it is done; undefined when the reader was stopped meanwhile. */
  async #persist<T>(work: () => Promise<T>): Promise<T | undefined> {
    const standing = { since: systemClock.now() };
    this.#standing.add(standing);
    try {
      return await this.#insist(work);
    } finally {
      this.#standing.delete(standing);
    }
  }

  async #insist<T>(work: () => Promise<T>): Promise<T | undefined> {
    for (let tried = 0; !this.#stopped; tried += 1) {
      try {
        return await work();
      } catch (error) {
        const waitMs = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** tried);
        if (this.#stopped) return undefined;
        this.#options.log.warn({ group: this.#options.groupId, error: error instanceof Error ? error.message : String(error) }, 'a stretch of a topic could not be taken in; it is tried again');
        await pause(systemClock, waitMs);
      }
    }
    return undefined;
  }
}

/** An error that would come again with the same values is an answer; any other is waited out. */
function blamed(error: unknown): { readonly error: unknown } {
  if (blameOf(error) !== 'message') throw error;
  return { error };
}
