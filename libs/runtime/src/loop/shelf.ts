import type { LogRecord } from '../ports.js';
import type { Shelved, ShelfWrite } from '../store/types.js';

/** How many messages a lane keeps for runs that this version can't read; beyond it the lane stops, since that is no single run's trouble. */
export const SHELF_MAX = 1000;

/** The lane's shelf is full: nothing more can be kept, and nothing may be passed over. */
export class ShelfFull extends Error {
  override readonly name = 'ShelfFull';
  constructor(reason: string) {
    super(`${SHELF_MAX} messages wait for runs that this version can’t read, the last of them because ${reason}; start a version that can`);
  }
}

/**
 * A run that a newer version has written to, or that a newer version tells something about, can't be decided on by
 * this one. It is set on its lane's shelf: what comes for it is kept there in its order, and its timers rest, until
 * an instance that can read it takes the lane. The lane's other runs go on.
 */
export class Shelf {
  /** What stood here when the lane was taken, and has not been looked at since. */
  #again: readonly Shelved[];
  readonly #kept = new Map<number, { readonly stream: string; readonly topic: string; readonly offset: number }>();
  readonly #counts = new Map<string, number>();
  readonly #reasons = new Map<string, string>();
  #news: { readonly stream: string; readonly reason: string }[] = [];
  #lastId = 0;

  constructor(kept: readonly Shelved[] = []) {
    this.#again = kept;
    for (const one of kept) this.#add(one);
  }

  /** Nothing is kept, and no stream rests. */
  get isEmpty(): boolean {
    return this.#kept.size === 0 && this.#reasons.size === 0;
  }

  /** How many messages are kept. */
  get size(): number {
    return this.#kept.size;
  }

  /** Streams that rest here, each with the reason; null where it has not been looked at yet. */
  streams(): { readonly stream: string; readonly reason: string | null; readonly messages: number }[] {
    return [...new Set([...this.#reasons.keys(), ...this.#counts.keys()])].map((stream) => ({ stream, reason: this.#reasons.get(stream) ?? null, messages: this.#counts.get(stream) ?? 0 }));
  }

  reasonOf(stream: string): string | undefined {
    return this.#reasons.get(stream);
  }

  count(stream: string): number {
    return this.#counts.get(stream) ?? 0;
  }

  /** The first message of a topic that is kept: all before it has been decided on. */
  firstOffset(topic: string): number | null {
    let first: number | null = null;
    for (const kept of this.#kept.values()) if (kept.topic === topic && (first === null || kept.offset < first)) first = kept.offset;
    return first;
  }

  /** This version can't go on with a stream, as long as it holds the lane. */
  rest(stream: string, reason: string): void {
    if (this.#reasons.has(stream)) return;
    this.#reasons.set(stream, reason);
    this.#news.push({ stream, reason });
  }

  /** What an earlier holder of the lane has kept, once. */
  takeAgain(): readonly Shelved[] {
    const again = this.#again;
    this.#again = [];
    return again;
  }

  /** Streams that came to rest here since it was last asked. */
  takeNews(): { readonly stream: string; readonly reason: string }[] {
    return this.#news.splice(0);
  }

  draft(): ShelfDraft {
    return new ShelfDraft(this, this.#lastId);
  }

  /** A turn's part is committed. */
  written({ put, taken }: ShelfWrite, reasons: ReadonlyMap<string, string>): void {
    for (const one of put) this.#add(one);
    for (const id of taken) this.#remove(id);
    for (const [stream, reason] of reasons) this.rest(stream, reason);
  }

  #add({ id, stream, record: { topic, offset } }: Shelved): void {
    this.#kept.set(id, { stream, topic, offset });
    this.#counts.set(stream, this.count(stream) + 1);
    this.#lastId = Math.max(this.#lastId, id);
  }

  #remove(id: number): void {
    const one = this.#kept.get(id);
    if (one === undefined) return;
    this.#kept.delete(id);
    const left = this.count(one.stream) - 1;
    if (left === 0) this.#counts.delete(one.stream);
    else this.#counts.set(one.stream, left);
  }
}

/** What one turn does to a lane's shelf, before it is written. */
export class ShelfDraft {
  readonly #of: Shelf;
  readonly #put: Shelved[] = [];
  readonly #taken: number[] = [];
  /** By how much the count of a stream changes. */
  readonly #change = new Map<string, number>();
  readonly #reasons = new Map<string, string>();
  #lastId: number;

  constructor(of: Shelf, lastId: number) {
    this.#of = of;
    this.#lastId = lastId;
  }

  get isEmpty(): boolean {
    return this.#of.isEmpty && this.#put.length === 0 && this.#reasons.size === 0;
  }

  /** Whether what comes for a stream has to be kept. */
  has(stream: string): boolean {
    return this.isStuck(stream) || this.#of.count(stream) + (this.#change.get(stream) ?? 0) > 0;
  }

  /** Whether this version has found that it can't go on with a stream. */
  isStuck(stream: string): boolean {
    return this.#reasons.has(stream) || this.#of.reasonOf(stream) !== undefined;
  }

  reasonOf(stream: string): string | undefined {
    return this.#reasons.get(stream) ?? this.#of.reasonOf(stream);
  }

  rest(stream: string, reason: string): void {
    if (!this.isStuck(stream)) this.#reasons.set(stream, reason);
  }

  /** @throws ShelfFull */
  put(stream: string, record: LogRecord): void {
    if (this.#of.size + this.#put.length - this.#taken.length >= SHELF_MAX) throw new ShelfFull(this.reasonOf(stream) ?? 'another waits before it');
    this.#lastId += 1;
    this.#put.push({ id: this.#lastId, stream, record });
    this.#change.set(stream, (this.#change.get(stream) ?? 0) + 1);
  }

  take({ id, stream }: Shelved): void {
    this.#taken.push(id);
    this.#change.set(stream, (this.#change.get(stream) ?? 0) - 1);
  }

  /** Undefined where nothing changes. */
  write(): ShelfWrite | undefined {
    return this.#put.length === 0 && this.#taken.length === 0 ? undefined : { put: this.#put, taken: this.#taken };
  }

  apply(): void {
    this.#of.written({ put: this.#put, taken: this.#taken }, this.#reasons);
  }
}
