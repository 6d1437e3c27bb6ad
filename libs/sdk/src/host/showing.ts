import { DEFAULT_TENANT, encodeHeaders, topics, WorkerSeen, type MessageOf } from '@holdfast/protocol';
import type { Clock, LogWriter } from '@holdfast/runtime';

/** Milliseconds. */
export const SHOW_EVERY_MS = 5000;

type Seen = MessageOf<typeof WorkerSeen>['data'];

export interface ShowingParts {
  readonly writer: LogWriter;
  readonly clock: Clock;
  readonly source: string;
  /** What there is to show at this moment. */
  readonly facts: () => Omit<Seen, 'state' | 'at' | 'everyMs'>;
}

/**
 * Shows on `worker.events` that the worker is there. Apart from the outbox: what could not be
 * written is left out, delays nothing and is not repeated, since the next one says more.
 */
export class Showing {
  readonly #parts: ShowingParts;
  #cancel: (() => void) | null = null;
  #started = false;
  #ended = false;
  #count = 0;
  /** One at a time: two that are under way together may be taken in the other order, and a worker that stopped would show as there. */
  #under: Promise<void> = Promise.resolve();

  constructor(parts: ShowingParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#started = true;
    void this.#show('started');
    this.#next();
  }

  /** The last word; resolves when it is written, or can't be. */
  async end(): Promise<void> {
    if (this.#ended || !this.#started) return;
    this.#ended = true;
    this.#cancel?.();
    await this.#show('stopped');
  }

  #next(): void {
    this.#cancel = this.#parts.clock.after(SHOW_EVERY_MS, () => {
      // One at a time: an outage must not pile them up.
      void this.#show('serving').then(() => {
        if (!this.#ended) this.#next();
      });
    });
  }

  #show(state: Seen['state']): Promise<void> {
    // A word that can't be said keeps none of the later ones back.
    this.#under = this.#under.then(() => this.#write(state)).catch(() => undefined);
    return this.#under;
  }

  async #write(state: Seen['state']): Promise<void> {
    const { writer, clock, source, facts } = this.#parts;
    const at = clock.now();
    const { type, data } = WorkerSeen({ ...facts(), state, at, everyMs: SHOW_EVERY_MS });
    this.#count += 1;
    const headers = encodeHeaders({ id: `${source}/seen/${this.#count}`, type, source, subject: data.worker, time: at, tenant: DEFAULT_TENANT });
    await writer.publish([{ topic: topics.workerEvents, key: data.worker, headers, value: JSON.stringify(data) }]);
  }
}
