import type { Clock } from '../ports.js';

export interface VitalsParts {
  readonly clock: Clock;
  /** Rejects when the database does not answer. */
  readonly ping: () => Promise<unknown>;
  readonly topics: readonly string[];
  /** The end of a topic on each lane. */
  readonly ends: (topic: string) => Promise<ReadonlyMap<number, number>>;
  /** How far each lane that is held has been decided, by topic. */
  readonly reached: () => ReadonlyMap<number, Readonly<Record<string, number>>>;
}

export interface Lag {
  readonly topic: string;
  readonly lane: number;
  /** Messages that stand on the topic and are not decided yet. */
  readonly messages: number;
}

/** How often it is looked, and how long one look may take, milliseconds. */
const LOOK_EVERY_MS = 2000;
const LOOK_WITHIN_MS = 10_000;
/** After so long what never answered is asked again, on a connection that may be better. */
const ASK_AGAIN_MS = 30_000;

/**
 * Looks, now and then, at what the loop itself can't know: whether the database answers while nothing is written,
 * and whether messages stand on the topics that no turn takes.
 */
export class Vitals {
  readonly #parts: VitalsParts;
  /** By place: how far it was when it was last seen to move, and since when it stands there with more to read. */
  readonly #standing = new Map<string, { offset: number; since: number }>();
  #answeredAt: number;
  #lag: readonly Lag[] = [];
  readonly #underWay = new Map<string, number>();
  #cancel: () => void = () => undefined;
  #stopped = false;

  constructor(parts: VitalsParts) {
    this.#parts = parts;
    this.#answeredAt = parts.clock.now();
  }

  /** Looks from now on. A broker that lets one look wait does not keep the database from being asked. */
  start(): void {
    if (this.#stopped) return;
    void this.look();
    this.#cancel = this.#parts.clock.after(LOOK_EVERY_MS, () => this.start());
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel();
  }

  get lag(): readonly Lag[] {
    return this.#lag;
  }

  /** Milliseconds for which the database has not answered. */
  databaseSilentMs(): number {
    const silent = this.#parts.clock.now() - this.#answeredAt;
    return silent <= LOOK_EVERY_MS * 2 ? 0 : silent;
  }

  /** Milliseconds for which a lane has had something to read and has not moved; the longest of them. */
  lagStuckMs(): number {
    const now = this.#parts.clock.now();
    return Math.max(0, ...[...this.#standing.values()].map(({ since }) => now - since));
  }

  async look(): Promise<void> {
    await Promise.all([this.#database(), this.#topics()]);
  }

  async #database(): Promise<void> {
    if (await this.#once('database', () => this.#parts.ping().then(() => true, () => false))) this.#answeredAt = this.#parts.clock.now();
  }

  async #topics(): Promise<void> {
    const { topics, ends, reached } = this.#parts;
    const read = await this.#once('topics', () => this.#allEnds(topics, ends).catch(() => null));
    // A broker that does not answer is told by its silence; what stood still goes on standing.
    if (read === null || read === undefined) return;
    const held = reached();
    const lag: Lag[] = [];
    const seen = new Set<string>();
    for (const { topic, ends: byLane } of read) {
      for (const [lane, offsets] of held) {
        const offset = offsets[topic] ?? 0;
        const messages = Math.max(0, (byLane.get(lane) ?? 0) - offset);
        lag.push({ topic, lane, messages });
        if (messages > 0) seen.add(this.#stands(`${topic}/${lane}`, offset));
      }
    }
    for (const place of this.#standing.keys()) if (!seen.has(place)) this.#standing.delete(place);
    this.#lag = lag;
  }

  #stands(place: string, offset: number): string {
    if (this.#standing.get(place)?.offset !== offset) this.#standing.set(place, { offset, since: this.#parts.clock.now() });
    return place;
  }

  /** One topic after the other: a broker that does not answer is asked once. */
  async #allEnds(topics: readonly string[], ends: VitalsParts['ends']): Promise<{ readonly topic: string; readonly ends: ReadonlyMap<number, number> }[]> {
    const all: { topic: string; ends: ReadonlyMap<number, number> }[] = [];
    for (const topic of topics) all.push({ topic, ends: await ends(topic) });
    return all;
  }

  /** Undefined where it takes too long; while it goes on all the same, it is not begun again: looking must not use up what it looks at. */
  async #once<T>(what: string, begin: () => Promise<T>): Promise<T | undefined> {
    const startedAt = this.#parts.clock.now();
    if (startedAt - (this.#underWay.get(what) ?? -Infinity) < ASK_AGAIN_MS) return undefined;
    this.#underWay.set(what, startedAt);
    const work = begin().finally(() => this.#underWay.get(what) === startedAt && this.#underWay.delete(what));
    let cancel: () => void = () => undefined;
    const late = new Promise<undefined>((resolve) => {
      cancel = this.#parts.clock.after(LOOK_WITHIN_MS, () => resolve(undefined));
    });
    return Promise.race([work, late]).finally(() => cancel());
  }
}
