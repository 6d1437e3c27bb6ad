import { decodeHeaders, parseJson, topics, type Json } from '@holdfast/protocol';
import { systemClock, type LogRecord } from '@holdfast/runtime';
import { tail, type Tail } from '@holdfast/runtime/kafka';
import type { ServiceLog } from '@holdfast/runtime/nest';

/** An event that may answer somebody, with where it stands. */
export interface Told {
  readonly type: string;
  readonly tenant: string;
  readonly data: { readonly [member: string]: Json };
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
}

interface Waiter {
  readonly matches: (told: Told) => boolean;
  readonly answered: (told: Told) => void;
}

const ANSWER_TOPICS = [topics.runEvents, topics.reconciliationEvents, topics.compensationEvents];
const START_AGAIN_MS = 1000;

/** Follows what services decide, for those who wait for it. Whoever waits begins before it asks. */
export class Answers {
  readonly #waiters = new Map<string, Set<Waiter>>();
  readonly #tails = new Map<string, Tail>();
  readonly #cancels = new Set<() => void>();
  #stopped = false;

  constructor(
    private readonly brokers: readonly string[],
    private readonly log: ServiceLog,
  ) {}

  async start(): Promise<void> {
    await Promise.all(ANSWER_TOPICS.map((topic) => this.#follow(topic)));
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const cancel of this.#cancels) cancel();
    await Promise.all([...this.#tails.values()].map((reader) => reader.close()));
  }

  /** Waits for an event of a run; `event` is null when none came in time (milliseconds), or the asker went. */
  wait(run: string, matches: (told: Told) => boolean): { readonly within: (ms: number, signal: AbortSignal) => Promise<Told | null>; readonly forget: () => void } {
    let answered: (told: Told | null) => void = () => undefined;
    const answer = new Promise<Told | null>((resolve) => (answered = resolve));
    const waiter: Waiter = { matches, answered };
    const waiters = this.#waiters.get(run) ?? new Set();
    this.#waiters.set(run, waiters.add(waiter));
    const forget = (): void => {
      waiters.delete(waiter);
      if (waiters.size === 0 && this.#waiters.get(run) === waiters) this.#waiters.delete(run);
    };
    const within = async (ms: number, signal: AbortSignal): Promise<Told | null> => {
      const giveUp = (): void => answered(null);
      const cancel = systemClock.after(ms, giveUp);
      signal.addEventListener('abort', giveUp);
      if (signal.aborted) giveUp();
      try {
        return await answer;
      } finally {
        cancel();
        signal.removeEventListener('abort', giveUp);
        forget();
      }
    };
    return { within, forget };
  }

  async #follow(topic: string): Promise<void> {
    const reader = await tail({ brokers: this.brokers, topics: [topic], from: 'end', onRecord: (record) => this.#tell(record), onError: (error) => this.#again(topic, error) });
    if (this.#stopped) return reader.close();
    this.#tails.set(topic, reader);
    await reader.caughtUp;
  }

  #again(topic: string, error: Error): void {
    if (this.#stopped) return;
    this.log.warn({ topic, error: error.message }, 'answers of services are not heard; their reader is started again');
    const before = this.#tails.get(topic);
    this.#tails.delete(topic);
    void before?.close().catch(() => undefined);
    const cancel = systemClock.after(START_AGAIN_MS, () => {
      this.#cancels.delete(cancel);
      void this.#follow(topic).catch((again: unknown) => this.#again(topic, again instanceof Error ? again : new Error(String(again))));
    });
    this.#cancels.add(cancel);
  }

  #tell(record: LogRecord): void {
    const waiters = this.#waiters.get(record.key ?? '');
    if (waiters === undefined) return;
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    const parsed = parseJson(record.value ?? '');
    if (envelope === undefined || !parsed.ok || typeof parsed.value !== 'object' || parsed.value === null || Array.isArray(parsed.value)) return;
    const told: Told = { type: envelope.type, tenant: envelope.tenant, data: parsed.value as Told['data'], topic: record.topic, lane: record.lane, offset: record.offset };
    for (const waiter of waiters) if (waiter.matches(told)) waiter.answered(told);
  }
}
