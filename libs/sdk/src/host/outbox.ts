import { encodeHeaders, VALUE_BYTES_MAX, type Message } from '@holdfast/protocol';
import type { Clock, CrashPoint, LogWriter, Outgoing } from '@holdfast/runtime';
import { messageOf, ValueTooLarge } from '../errors.js';
import type { WorkerLog } from './log.js';

/** The worker stopped before Kafka acknowledged the message: it may or may not have been written. */
export class WorkerStopped extends Error {
  override readonly name = 'WorkerStopped';
  constructor() {
    super('the worker stopped before Kafka acknowledged this message');
  }
}

export interface OutboxParts {
  readonly writer: LogWriter;
  readonly clock: Clock;
  readonly log: WorkerLog;
  /** `ce_source` of everything written. */
  readonly source: string;
  /** Unique for this process: message ids begin with it. */
  readonly incarnation: string;
  /** Names the span under which a message is written, where traces are kept. */
  readonly traceparent?: ((key: string, message: Message) => string | undefined) | undefined;
  /** Passed by name where a test may kill the process. */
  readonly crashPoint?: CrashPoint;
}

export interface Delivery {
  /** An explicit partition; absent: by the key. */
  readonly lane?: number;
  /** Asked before every try: once false, the messages are withdrawn and the promise resolves. */
  readonly wanted?: () => boolean;
}

/** Below Kafka's default limit on a batch (1 MB): what passes one by one must pass together too. */
const PRODUCE_BYTES_MAX = 768 * 1024;
const RETRY_FIRST_MS = 100;
const RETRY_MOST_MS = 5000;
const HEADER_BYTES = 600;

/** What a record is to a crash point: its run and type, and with its step where it has one. */
function inHand({ key, headers, value }: Outgoing): string[] {
  const name = `${key}/${String(headers['ce_type'])}`;
  const { step } = JSON.parse(value) as { readonly step?: unknown };
  return typeof step === 'string' ? [name, `${name}/${step}`] : [name];
}

interface Waiting {
  left: number;
  readonly wanted: (() => boolean) | undefined;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}
interface Unit {
  readonly record: Outgoing;
  readonly bytes: number;
  readonly waiting: Waiting;
}

/**
 * Everything that a worker writes goes through here, in order: one produce in flight, and what is
 * queued meanwhile travels in the next one. A produce that fails is repeated as it was until it
 * succeeds, so that no message overtakes another of its partition and none is skipped.
 */
export class Outbox {
  readonly #parts: OutboxParts;
  #queue: Unit[] = [];
  #publishing: Unit[] = [];
  #scheduled = false;
  #closed = false;
  #count = 0;
  #wakeRetry: (() => void) | null = null;
  #idle: (() => void)[] = [];

  constructor(parts: OutboxParts) {
    this.#parts = parts;
  }

  /**
   * Queues messages under one key, and resolves when Kafka has acknowledged them. The data is
   * turned into text at once: what its owner does to it later changes nothing.
   * @throws ValueTooLarge (as a rejection) before anything is queued
   * @throws WorkerStopped (as a rejection) when the worker stops first
   */
  send(topic: string, key: string, tenant: string, messages: readonly Message[], delivery: Delivery = {}): Promise<void> {
    if (messages.length === 0) return Promise.resolve();
    if (this.#closed) return Promise.reject(new WorkerStopped());
    const drafts: { record: Outgoing; bytes: number }[] = [];
    for (const message of messages) {
      const draft = this.#draft(topic, key, tenant, message, delivery.lane);
      if (draft instanceof ValueTooLarge) return Promise.reject(draft);
      drafts.push(draft);
    }
    return new Promise((resolve, reject) => {
      const waiting: Waiting = { left: drafts.length, wanted: delivery.wanted, resolve, reject };
      for (const { record, bytes } of drafts) this.#queue.push({ record, bytes, waiting });
      this.#schedule();
    });
  }

  /** How many messages Kafka has not taken yet. */
  get unwritten(): number {
    return this.#queue.length + this.#publishing.length;
  }

  /** Resolves when nothing is queued and nothing is in flight. */
  drained(): Promise<void> {
    if (this.#queue.length === 0 && this.#publishing.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Takes nothing more; what is not acknowledged by now is given up. */
  close(): void {
    this.#closed = true;
    for (const { waiting } of [...this.#publishing, ...this.#queue]) waiting.reject(new WorkerStopped());
    this.#queue = [];
    this.#wakeRetry?.();
  }

  #draft(topic: string, key: string, tenant: string, message: Message, lane: number | undefined): { record: Outgoing; bytes: number } | ValueTooLarge {
    const value = JSON.stringify(message.data);
    const bytes = Buffer.byteLength(value);
    if (bytes > VALUE_BYTES_MAX) return new ValueTooLarge(message.type, bytes, VALUE_BYTES_MAX);
    const { source, incarnation, clock } = this.#parts;
    this.#count += 1;
    const traceparent = this.#parts.traceparent?.(key, message);
    const headers = encodeHeaders({ id: `${incarnation}.${this.#count}`, type: message.type, source, subject: key, time: clock.now(), tenant, ...(traceparent === undefined ? {} : { traceparent }) });
    return { record: { topic, key, headers, value, ...(lane === undefined ? {} : { lane }) }, bytes: bytes + HEADER_BYTES };
  }

  #schedule(): void {
    if (this.#scheduled || this.#publishing.length > 0) return;
    this.#scheduled = true;
    this.#parts.clock.soon(() => {
      this.#scheduled = false;
      void this.#publishNext();
    });
  }

  async #publishNext(): Promise<void> {
    const batch = this.#nextBatch();
    this.#publishing = batch;
    let tries = 0;
    while (!this.#closed) {
      const wanted = batch.filter(({ waiting }) => waiting.wanted?.() ?? true);
      try {
        if (wanted.length > 0) await this.#publish(wanted);
        break;
      } catch (error) {
        tries += 1;
        await this.#pause(tries, wanted.length, error);
      }
    }
    this.#publishing = [];
    for (const { waiting } of batch) {
      waiting.left -= 1;
      if (waiting.left === 0) waiting.resolve(); // Changes nothing for those that `close` has rejected.
    }
    if (this.#queue.length > 0) this.#schedule();
    else for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #publish(units: readonly Unit[]): Promise<void> {
    const { writer, crashPoint } = this.#parts;
    const about = (): string[] => units.flatMap(({ record }) => inHand(record));
    crashPoint?.('worker.before-publish', about);
    await writer.publish(units.map(({ record }) => record));
    crashPoint?.('worker.after-publish', about);
  }

  #nextBatch(): Unit[] {
    let bytes = 0;
    let count = 0;
    for (const unit of this.#queue) {
      if (count > 0 && bytes + unit.bytes > PRODUCE_BYTES_MAX) break;
      bytes += unit.bytes;
      count += 1;
    }
    const batch = count === this.#queue.length ? this.#queue : this.#queue.slice(0, count);
    this.#queue = count === this.#queue.length ? [] : this.#queue.slice(count);
    return batch;
  }

  #pause(tries: number, messages: number, error: unknown): Promise<void> {
    const delayMs = Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** (tries - 1));
    this.#parts.log.warn('Kafka did not take what this worker wrote; the same again, nothing is skipped', { messages, tries, retryInMs: delayMs, error: messageOf(error) });
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        this.#wakeRetry = null;
        resolve();
      };
      const cancel = this.#parts.clock.after(delayMs, done);
      this.#wakeRetry = done;
    });
  }
}
