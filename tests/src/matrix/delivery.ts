import { topics, runTasks, toolTasks, DEFAULT_POOL } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import { tail, type Tail } from '@holdfast/runtime/kafka';
import type { TestStack } from '../support/stack.js';
import type { Delivery } from './cells.js';

const COPY = 'test-copy';
const TOPICS = [topics.agentIntents, topics.runEvents, runTasks(DEFAULT_POOL), toolTasks(DEFAULT_POOL), topics.toolResults, topics.effectEvents, topics.reconciliationEvents, topics.compensationEvents];
/** How many later records of its run a copy waits for. */
const LATE_BY = 2;

/**
 * Writes every record of a run once more, on every topic, as an unsure producer would: `doubled` at
 * once, `reordered` after later ones, so that an old record comes when its run has gone on. The order
 * of what was written first stays, as Kafka keeps it.
 */
export class Copier {
  readonly #delivery = new Map<string, Delivery>();
  readonly #held = new Map<string, LogRecord[]>();
  #tail: Tail | undefined;
  readonly #copied = new Map<string, number>();

  private constructor(private readonly stack: TestStack) {}

  static async open(stack: TestStack): Promise<Copier> {
    const copier = new Copier(stack);
    copier.#tail = await tail({ brokers: stack.brokers, topics: TOPICS, from: 'end', onRecord: (record) => copier.#note(record) });
    await copier.#tail.caughtUp;
    return copier;
  }

  /** Records of a run are copied from now on. */
  follow(run: string, delivery: Delivery): void {
    if (delivery !== 'once') this.#delivery.set(run, delivery);
  }

  /** Records written once more so far. */
  get copies(): number {
    return [...this.#copied.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Those of one run. */
  copiesOf(run: string): number {
    return this.#copied.get(run) ?? 0;
  }

  /** What is still held comes late indeed: after the run's end. */
  async release(run: string): Promise<void> {
    const rest = this.#held.get(run) ?? [];
    this.#held.delete(run);
    this.#delivery.delete(run);
    await Promise.all(rest.map((record) => this.#copy(record)));
  }

  async close(): Promise<void> {
    await this.#tail?.close();
  }

  #note(record: LogRecord): void {
    const { key } = record;
    const delivery = key === null ? undefined : this.#delivery.get(key);
    if (key === null || delivery === undefined || record.headers[COPY] !== undefined) return;
    if (delivery === 'doubled') return void this.#copy(record);
    const held = this.#held.get(key) ?? [];
    held.push(record);
    this.#held.set(key, held);
    while (held.length > LATE_BY) {
      const late = held.shift();
      if (late !== undefined) void this.#copy(late);
    }
  }

  async #copy({ topic, lane, key, headers, value }: LogRecord): Promise<void> {
    if (key !== null) this.#copied.set(key, this.copiesOf(key) + 1);
    const words = Object.fromEntries(Object.entries(headers).map(([name, word]) => [name, word instanceof Uint8Array ? Buffer.from(word).toString('utf8') : String(word)]));
    // Without a broker there is nothing to deliver twice.
    await this.stack.send({ topic, partition: lane, key, value, headers: { ...words, [COPY]: '1' } }).catch(() => undefined);
  }
}
