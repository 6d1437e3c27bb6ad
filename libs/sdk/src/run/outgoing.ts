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
 * The intents of one run, in the order in which they were made. Reports and the observed order ride
 * on the first of them; what is recorded lazily goes before it.
 */
export class Outgoing {
  readonly #options: OutgoingOptions;
  #drafts: Draft[] = [];
  #settles: { readonly report: Report; readonly bytes: number }[] = [];
  #settlesBytes = 0;
  #observed: Step[] = [];
  #urgent = false;
  #flushing = false;
  #stopped = false;

  constructor(options: OutgoingOptions) {
    this.#options = options;
  }

  /** Sent as soon as the code pauses. */
  intent(draft: Draft): void {
    this.#drafts.push(draft);
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(this.#flushSoon);
  }

  /** Sent with the next intent, and at the latest by `flush`. */
  record(draft: Draft): void {
    this.#drafts.push(draft);
    this.#urgent = true;
  }

  /** Sent with the next intent: nothing is lost should it never come. */
  lazily(draft: Draft): void {
    this.#drafts.push(draft);
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

  stop(): void {
    this.#stopped = true;
    this.#drafts = [];
  }

  readonly #flushSoon = (): void => {
    this.#flushing = false;
    this.#send();
  };

  #send(): void {
    if (this.#stopped || (this.#drafts.length === 0 && this.#settles.length === 0)) return;
    const drafts = this.#drafts;
    this.#drafts = [];
    this.#urgent = false;
    const all = this.#settles.length + this.#observed.length === 0 ? drafts : [...this.#tell(drafts[0]), ...drafts];
    const { port, run, tenant } = this.#options;
    void port
      .intend(
        run,
        tenant,
        all.map(({ message }) => message),
      )
      .then(() => {
        if (this.#stopped) return;
        for (const { onAcknowledged } of all) onAcknowledged?.();
      })
      .catch((error: unknown) => this.#options.onLost(error));
  }

  /**
   * Puts reports and order on the first intent; reports that don't fit go before it in messages of
   * their own, given back. Without an intent only reports are told: the order matters to the next
   * intent alone, and is recorded with it for certain.
   */
  #tell(first: Draft | undefined): Draft[] {
    const extra: Draft[] = [];
    while (first === undefined ? this.#settles.length > 0 : !this.#fits(first)) {
      const target = this.#reportDraft();
      extra.push(target);
      this.#loadSettles(target);
      if (first !== undefined && this.#settles.length === 0) this.#loadObserved(target, Math.min(OBSERVED_MAX, this.#observed.length - roomForObserved(first)));
    }
    if (first !== undefined) {
      this.#loadSettles(first);
      this.#loadObserved(first, this.#observed.length);
    }
    return extra;
  }

  #fits(draft: Draft): boolean {
    if (this.#settles.length > SETTLES_MAX || this.#observed.length > roomForObserved(draft)) return false;
    return this.#settles.length === 0 || draft.bytes + this.#settlesBytes + this.#observed.length * STEP_BYTES <= MESSAGE_BYTES_MAX;
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

  /** The order is told only once all that it names is: with or after the last report. */
  #loadObserved({ progress }: Draft, count: number): void {
    if (count > 0) progress.observed = this.#observed.splice(0, count);
  }

  #reportDraft(): Draft {
    const progress: Progress = { fence: this.#options.fence };
    return { message: ReportSteps(progress), progress, bytes: OVERHEAD_BYTES };
  }
}
