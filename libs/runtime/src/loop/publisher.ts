import { encodeHeaders, topics } from '@holdfast/protocol';
import type { Clock, LogWriter, Outgoing } from '../ports.js';
import type { JournalRow } from '../store/types.js';
import { crashPoint, inHand } from '../crash-point.js';
import { pause } from '../system.js';

/** Topics that outsiders write. */
const OUTSIDERS_TOPICS: ReadonlySet<string> = new Set([topics.agentIntents, topics.operatorCommands]);
const ROWS_PER_PRODUCE = 2000;
const RETRY_FIRST_MS = 100;
const RETRY_MOST_MS = 5000;

export interface PublisherOptions {
  readonly service: string;
  readonly source: string;
  readonly writer: LogWriter;
  readonly clock: Clock;
  readonly onPublished: (lane: number, seq: number) => void;
  readonly onTrouble: (error: Error) => void;
  /** Called between tries, so that what is missing (a pool's topics) can be made. */
  readonly repair: (topics: readonly string[]) => Promise<void>;
}

/**
 * Publishes journal rows in lane order: one produce in flight, retries included, so that no row of
 * a lane overtakes another. An outage is waited out; nothing is parked or skipped.
 */
export class Publisher {
  readonly #options: PublisherOptions;
  #queue: JournalRow[] = [];
  #running: Promise<void> | null = null;
  #oldest: number | null = null;
  #closed = false;

  constructor(options: PublisherOptions) {
    this.#options = options;
  }

  enqueue(rows: readonly JournalRow[]): void {
    if (rows.length === 0) return;
    for (const row of rows) this.#queue.push(row);
    this.#oldest ??= this.#options.clock.now();
    this.#running ??= this.#run();
  }

  /** Queues all rows of a lane that come after a `seq`. */
  async enqueueRest(rowsAfter: (seq: number) => Promise<readonly JournalRow[]>, seq: number): Promise<void> {
    for (let after = seq; ; ) {
      const rows = await rowsAfter(after);
      const last = rows.at(-1);
      if (last === undefined) return;
      this.enqueue(rows);
      after = last.seq;
    }
  }

  /** Forgets what is queued for lanes that another instance has taken: it publishes them itself. */
  drop(lanes: ReadonlySet<number>): void {
    this.#queue = this.#queue.filter(({ lane }) => !lanes.has(lane));
    if (this.#queue.length === 0) this.#oldest = null;
  }

  /** Since when something has been waiting to be published, epoch milliseconds; null when nothing is. */
  waitingSince(): number | null {
    return this.#oldest;
  }

  /** How many rows wait to be published. */
  waiting(): number {
    return this.#queue.length;
  }

  /** When the oldest row that waits was decided, epoch milliseconds; null when none waits. */
  oldestRowAt(): number | null {
    return this.#queue[0]?.time ?? null;
  }

  /** Resolves when the queue is empty, or after a time (milliseconds): what is left stays in the journal for the next holder. */
  async flush(withinMs: number): Promise<void> {
    await Promise.race([this.#running ?? Promise.resolve(), pause(this.#options.clock, withinMs)]);
  }

  close(): void {
    this.#closed = true;
  }

  async #run(): Promise<void> {
    let retryMs = RETRY_FIRST_MS;
    while (this.#queue.length > 0 && !this.#closed) {
      const rows = this.#queue.slice(0, ROWS_PER_PRODUCE);
      const about = (): string[] => rows.flatMap(({ stream, type, data }) => inHand(stream, type, data));
      crashPoint(`${this.#options.service}.before-publish`, about);
      try {
        await this.#options.writer.publish(rows.map((row) => toOutgoing(row, this.#options.source)));
      } catch (error) {
        this.#options.onTrouble(error instanceof Error ? error : new Error(String(error)));
        await this.#options.repair([...new Set(rows.map(({ topic }) => topic))]).catch(() => undefined);
        await pause(this.#options.clock, retryMs);
        retryMs = Math.min(retryMs * 2, RETRY_MOST_MS);
        continue;
      }
      crashPoint(`${this.#options.service}.after-publish`, about);
      retryMs = RETRY_FIRST_MS;
      const sent = new Set(rows);
      this.#queue = this.#queue.filter((row) => !sent.has(row));
      this.#oldest = this.#queue.length === 0 ? null : this.#options.clock.now();
      for (const [lane, seq] of lastSeqs(rows)) this.#options.onPublished(lane, seq);
    }
    this.#running = null;
  }
}

function lastSeqs(rows: readonly JournalRow[]): Map<number, number> {
  const last = new Map<number, number>();
  for (const { lane, seq } of rows) last.set(lane, seq);
  return last;
}

/** A journal row as it stands on its topic. */
export function toOutgoing(row: JournalRow, source: string): Outgoing {
  return {
    topic: row.topic,
    // What a service says as an outsider would, about another run, goes where that run's key belongs.
    ...(OUTSIDERS_TOPICS.has(row.topic) ? {} : { lane: row.lane }),
    key: row.stream,
    value: row.data,
    headers: encodeHeaders({
      id: `${source}/${row.lane}/${row.seq}`,
      type: row.type,
      source,
      subject: row.stream,
      time: row.time,
      tenant: row.tenant,
      lane: row.lane,
      seq: row.seq,
      prev: row.prev,
      ...(row.version === null ? {} : { version: row.version }),
      ...(row.hash === null ? {} : { hash: row.hash }),
      ...(row.trace === null ? {} : { traceparent: row.trace }),
    }),
  };
}
