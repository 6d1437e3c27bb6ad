import { ReportSteps, VALUE_BYTES_MAX, type Fence, type Message, type Report, type RunId, type Step, type Tenant } from '@holdfast/protocol';
import type { RunPort } from '../host/port.js';

/** What every intent of a worker carries besides its wish. */
export interface Progress {
  fence?: Fence | undefined;
  settles?: Report[] | undefined;
  observed?: Step[] | undefined;
}

export interface Draft {
  readonly message: Message;
  /** The message's own data: what is to be told rides on it. */
  readonly progress: Progress;
  /** Bytes of its JSON text, an upper bound. */
  readonly bytes: number;
  /** Called when Kafka has acknowledged it. */
  readonly onAcknowledged?: (() => void) | undefined;
  /** What time has overtaken is ignored, and what it carries with it: the order rides on another one as well. */
  readonly mayBeIgnored?: boolean;
}

interface Queued {
  readonly draft: Draft;
  readonly order: readonly Step[];
}

export interface OutgoingOptions {
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly fence: Fence;
  readonly port: RunPort;
  /** Nobody knows what became of the intents. */
  onLost(error: unknown): void;
}

const SETTLES_MAX = 200;
const OBSERVED_MAX = 1000;
/** Below the limit on a value, with room for the braces around everything. */
const MESSAGE_BYTES_MAX = VALUE_BYTES_MAX - 4096;
/** Of a report around its result, and of a draft around its payload. */
export const OVERHEAD_BYTES = 700;
const STEP_BYTES = 64;

const roomForObserved = ({ bytes }: Draft): number => Math.max(0, Math.min(OBSERVED_MAX, Math.floor((MESSAGE_BYTES_MAX - bytes) / STEP_BYTES)));

/**
 * The intents of one run, in the order in which they were made, each with the order in which the code was
 * told before it. Reports ride on the first of them; what is recorded lazily goes before it.
 */
export class Outgoing {
  readonly #options: OutgoingOptions;
  #queue: Queued[] = [];
  #settles: { readonly report: Report; readonly bytes: number }[] = [];
  #settlesBytes = 0;
  #observed: Step[] = [];
  #urgent = false;
  #flushing = false;
  #letGo = false;
  #stopped = false;

  constructor(options: OutgoingOptions) {
    this.#options = options;
  }

  /** Sent as soon as the code pauses. */
  intent(draft: Draft): void {
    this.#enqueue(draft);
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(this.#flushSoon);
  }

  /** Sent with the next intent, and at the latest by `flush`. */
  record(draft: Draft): void {
    this.#enqueue(draft);
    this.#urgent = true;
  }

  /** Sent with the next intent: nothing is lost should it never come. */
  lazily(draft: Draft): void {
    this.#enqueue(draft);
  }

  settle(report: Report, bytes: number): void {
    this.#settles.push({ report, bytes });
    this.#settlesBytes += bytes;
    this.#urgent = true;
  }

  observe(step: Step): void {
    this.#observed.push(step);
  }

  /** The order that a refused intent carried is told again, before what was observed since. */
  observeAgain(steps: readonly Step[]): void {
    this.#observed.unshift(...steps);
  }

  /** Sends what can't wait for a next intent. */
  flush(): void {
    if (this.#urgent) this.#send();
  }

  /** Asks for nothing more; ends of what has fired are still told. */
  letGo(): void {
    this.#letGo = true;
    this.#queue = [];
    this.#observed = [];
  }

  stop(): void {
    this.#stopped = true;
    this.#queue = [];
  }

  /**
   * With it goes the order in which the code was told until now. All that this names is in the log before it,
   * so that a write that is cut off never leaves an order of what was lost.
   */
  #enqueue(draft: Draft): void {
    this.#queue.push({ draft, order: this.#observed });
    this.#observed = draft.mayBeIgnored === true ? [...this.#observed] : [];
  }

  readonly #flushSoon = (): void => {
    this.#flushing = false;
    this.#send();
  };

  #send(): void {
    if (this.#stopped || (this.#queue.length === 0 && this.#settles.length === 0)) return;
    const queue = this.#queue;
    this.#queue = [];
    this.#urgent = false;
    const all = this.#settles.length === 0 ? [] : this.#reports(queue[0]);
    for (const { draft, order } of queue) all.push(...this.#ordered(draft, order));
    const { port, run, tenant } = this.#options;
    void port
      .intend(
        run,
        tenant,
        all.map(({ message }) => message),
      )
      .then(() => {
        if (this.#stopped || this.#letGo) return;
        for (const { onAcknowledged } of all) onAcknowledged?.();
      })
      .catch((error: unknown) => this.#options.onLost(error));
  }

  /**
   * Puts reports on the first intent; those that don't fit go before it in messages of their own, given
   * back. Without an intent only reports are told: the order matters to the next intent alone.
   */
  #reports(first: Queued | undefined): Draft[] {
    const extra: Draft[] = [];
    while (first === undefined ? this.#settles.length > 0 : !this.#fits(first)) {
      const target = this.#reportDraft();
      extra.push(target);
      this.#loadSettles(target);
    }
    if (first !== undefined) this.#loadSettles(first.draft);
    return extra;
  }

  #fits({ draft, order }: Queued): boolean {
    if (this.#settles.length === 0) return true;
    return this.#settles.length <= SETTLES_MAX && order.length <= OBSERVED_MAX && draft.bytes + this.#settlesBytes + order.length * STEP_BYTES <= MESSAGE_BYTES_MAX;
  }

  /** An intent with the order that goes with it; what doesn't fit goes before it in messages of its own. */
  #ordered(draft: Draft, order: readonly Step[]): Draft[] {
    const room = roomForObserved(draft);
    const extra: Draft[] = [];
    let told = 0;
    while (order.length - told > room) {
      const target = this.#reportDraft();
      const count = Math.min(OBSERVED_MAX, order.length - told - room);
      target.progress.observed = order.slice(told, told + count);
      told += count;
      extra.push(target);
    }
    if (told < order.length) draft.progress.observed = order.slice(told);
    return [...extra, draft];
  }

  #loadSettles({ progress, bytes }: Draft): void {
    let room = MESSAGE_BYTES_MAX - bytes;
    let count = 0;
    for (const settle of this.#settles) {
      if (count === SETTLES_MAX || (settle.bytes > room && count > 0)) break;
      room -= settle.bytes;
      count += 1;
    }
    if (count === 0) return;
    const settles = this.#settles.splice(0, count);
    for (const settle of settles) this.#settlesBytes -= settle.bytes;
    progress.settles = settles.map(({ report }) => report);
  }

  #reportDraft(): Draft {
    const progress: Progress = { fence: this.#options.fence };
    return { message: ReportSteps(progress), progress, bytes: OVERHEAD_BYTES };
  }
}
