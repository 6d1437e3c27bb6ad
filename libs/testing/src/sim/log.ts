import { topics } from '@holdfast/protocol';
import type { LogRecord, LogWriter, Outgoing } from '@holdfast/runtime';
import { laneOf } from '@holdfast/runtime/kafka';
import type { Core } from './core.js';
import { Digests } from './digests.js';
import type { Site } from './faults.js';
import type { SimProcess } from './process.js';

type Appended = (record: LogRecord) => void;

/** The broker's topics: partitions, offsets, order within each. Records are kept for ever. */
export class SimLog {
  readonly #topics = new Map<string, LogRecord[][]>();
  readonly #waiting = new Map<string, (() => void)[]>();
  readonly #watchers: Appended[] = [];
  readonly #lanes = new Map<string, number>();
  readonly #digests = new Digests();
  /** Whether nobody in this world ever reads a topic. */
  isUnread: (topic: string) => boolean = () => false;
  /** When a record was last written. */
  lastAppendAt = 0;

  constructor(
    private readonly core: Core,
    readonly partitions: number,
  ) {}

  laneOf = (key: string): number => {
    let lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, (lane = laneOf(key, this.partitions)));
    return lane;
  };

  lane(topic: string, lane: number): LogRecord[] {
    let lanes = this.#topics.get(topic);
    if (lanes === undefined) this.#topics.set(topic, (lanes = Array.from({ length: this.partitions }, () => [])));
    const found = lanes[lane];
    if (found === undefined) throw new Error(`topic ${topic} has no partition ${lane}`);
    return found;
  }

  topic(topic: string): LogRecord[] {
    return Array.from({ length: this.partitions }, (_, lane) => this.lane(topic, lane)).flat();
  }

  /** What it holds, in words: one for each partition, whatever its length. */
  standing(): string {
    return [...this.#topics].flatMap(([topic, lanes]) => lanes.map((records, lane) => `${topic}/${lane}=${this.#digests.upTo(`${topic}/${lane}`, records)}`)).join();
  }

  /** Tells of every record as it is written. */
  watch(appended: Appended): void {
    this.#watchers.push(appended);
  }

  append(records: readonly Outgoing[]): void {
    const { now } = this.core.scheduler;
    // Signs of life come for ever, and move nothing.
    if (records.some(({ topic }) => topic !== topics.workerEvents)) this.lastAppendAt = now;
    const touched = new Set<string>();
    for (const { topic, key, headers, value, lane = this.laneOf(key) } of records) {
      const into = this.lane(topic, lane);
      const record: LogRecord = { topic, lane, offset: into.length, key, headers, value, time: Math.floor(now) };
      into.push(record);
      touched.add(`${topic}/${lane}`);
      this.core.trace('log', () => `${topic}/${lane}@${record.offset} ${headers['ce_type'] ?? ''} ${key} ${headers['ce_seq'] === undefined ? '' : `seq ${headers['ce_seq']} `}${value.length > 300 ? `${value.slice(0, 300)}…` : value}`);
      for (const tell of this.#watchers) tell(record);
    }
    for (const place of touched) {
      const waiting = this.#waiting.get(place);
      if (waiting === undefined) continue;
      this.#waiting.delete(place);
      for (const wake of waiting) wake();
    }
  }

  /** Calls back once, when a partition next grows. */
  onGrowth(topic: string, lane: number, wake: () => void): void {
    const place = `${topic}/${lane}`;
    const waiting = this.#waiting.get(place);
    if (waiting === undefined) this.#waiting.set(place, [wake]);
    else waiting.push(wake);
  }

  /** A process's way to write. */
  writer(process: SimProcess): LogWriter {
    return {
      publish: (records) => {
        const copy = records.slice();
        return process.ask({ site: siteOf(process, copy), server: 'broker', unseen: copy.every(({ topic }) => this.isUnread(topic)), texts: () => copy.map(({ value }) => value), apply: () => this.append(copy) });
      },
      close: () => Promise.resolve(),
    };
  }

  /** Reads a stretch of a partition. */
  read(process: SimProcess, topic: string, lane: number, from: number, to: number): Promise<LogRecord[]> {
    return process.ask({ site: 'group', server: 'broker', reads: true, apply: () => this.lane(topic, lane).slice(from, to) });
  }

  /** Follows a whole topic from its beginning, as the contract book does. */
  follow(process: SimProcess, topic: string, onRecord: Appended): { close(): Promise<void>; caughtUp: Promise<void> } {
    const { scheduler } = this.core;
    let closed = false;
    // In their order, also where the process was frozen when they came.
    const waiting: LogRecord[] = [];
    const deliver = (records: readonly LogRecord[]): void => {
      waiting.push(...records);
      scheduler.at(scheduler.now + 1, process, () => {
        for (const record of waiting.splice(0)) if (!closed) onRecord(record);
      }, { name: scheduler.nameOf(`${process.name} follows ${topic}`, records) });
    };
    const known = this.topic(topic);
    deliver(known);
    this.#watchers.push((record) => record.topic === topic && process.alive && deliver([record]));
    const caughtUp = new Promise<void>((resolve) => void scheduler.at(scheduler.now + 1, process, resolve, { name: scheduler.nameOf(`${process.name} has followed ${topic}`, known.length) }));
    return {
      close: () => {
        closed = true;
        return Promise.resolve();
      },
      caughtUp,
    };
  }
}

function siteOf(process: SimProcess, records: readonly Outgoing[]): Site {
  if (process.kind !== 'worker') return 'publish';
  const [first] = records;
  if (first?.topic === topics.toolResults) return 'publish.results';
  return first?.topic === topics.agentIntents ? 'publish.intents' : 'publish';
}
