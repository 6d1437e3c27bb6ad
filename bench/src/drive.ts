import { decodeHeaders, encodeHeaders, StartRun, topics } from '@holdfast/protocol';
import type { LogWriter, Outgoing } from '@holdfast/runtime';
import { createWriter, tail, type Tail } from '@holdfast/runtime/kafka';

export const STEPS = 5;

/** Starts runs and sees them end, by headers alone, so that the bench itself costs little. */
export class Driver {
  readonly #writer: LogWriter;
  readonly #ended = new Map<string, () => void>();
  #tail: Tail | null = null;
  #queue: Outgoing[] = [];
  #sending = false;
  #lastEnd = 0;

  private constructor(writer: LogWriter) {
    this.#writer = writer;
  }

  static async open(brokers: readonly string[]): Promise<Driver> {
    const driver = new Driver(await createWriter({ brokers, clientId: 'bench' }));
    driver.#tail = await tail({
      brokers,
      topics: [topics.runEvents],
      from: 'end',
      onRecord: (record) => {
        if (String(record.headers['ce_type']) !== 'RunFinished') return;
        const run = decodeHeaders(record.headers, record.key, record.time)?.subject ?? '';
        driver.#ended.get(run)?.();
      },
    });
    await driver.#tail.caughtUp;
    return driver;
  }

  /** Runs once from start to finish; resolves with its time in milliseconds. */
  run(id: string): Promise<number> {
    const begun = performance.now();
    return new Promise((resolve) => {
      this.#ended.set(id, () => {
        this.#ended.delete(id);
        this.#lastEnd = performance.now();
        resolve(performance.now() - begun);
      });
      this.#send(id);
    });
  }

  /** Runs many, at most `inFlight` at once. */
  async many(ids: readonly string[], inFlight: number): Promise<number[]> {
    const times: number[] = [];
    const rest = [...ids];
    const lanes = Array.from({ length: inFlight }, async () => {
      for (let id = rest.shift(); id !== undefined; id = rest.shift()) times.push(await this.run(id));
    });
    await Promise.all(lanes);
    return times;
  }

  /** Runs that have not ended. */
  open(): number {
    return this.#ended.size;
  }

  /** When a run ended last, on the clock of `performance.now()`. */
  lastEnd(): number {
    return this.#lastEnd;
  }

  async close(): Promise<void> {
    await this.#tail?.close();
    await this.#writer.close();
  }

  #send(id: string): void {
    const message = StartRun({ agent: { name: 'five-steps', version: '1' }, input: { steps: STEPS } });
    const headers = encodeHeaders({ id: `bench/${id}`, type: message.type, source: 'bench', subject: id, time: Date.now(), tenant: 'default' });
    this.#queue.push({ topic: topics.agentIntents, key: id, headers, value: JSON.stringify(message.data) });
    if (!this.#sending) void this.#flush();
  }

  async #flush(): Promise<void> {
    this.#sending = true;
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#queue.length > 0) await this.#writer.publish(this.#queue.splice(0));
    this.#sending = false;
  }
}

export function percentile(sorted: readonly number[], p: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? 0;
}
