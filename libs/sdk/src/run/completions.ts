import type { Step } from '@holdfast/protocol';
import type { Entry, Settlement } from './entry.js';

export interface CompletionsOptions {
  /** The recorded order in which completions were handed to the code. */
  readonly observed: readonly Step[];
  /** True when something is recorded, so that the code catches up first. */
  readonly replays: boolean;
  /** The code is about to be told of a step, and the log doesn't know it yet. */
  onHandOver(step: Step): void;
  /** A call was settled after the code's end. */
  onClosed(): void;
  /** Nothing is left to hand over now. */
  onIdle(): void;
  /** True once the code has asked for all that is recorded. */
  allAsked(): boolean;
  /** Calls back in a macrotask of its own. */
  soon(callback: () => void): void;
}

/**
 * Hands completions to the code one at a time, each in a macrotask of its own: first in the order
 * recorded as observed, waiting for each of them; then what else is recorded, in stream order; then
 * as things end. Live work that the code asks for meanwhile is held until nothing recorded is left
 * to hand over, so that a divergence is found before anything fires.
 */
export class Completions {
  /** Asked and not yet handed over. */
  readonly open = new Map<Step, Entry>();
  readonly #options: CompletionsOptions;
  readonly #observed: readonly Step[];
  #nextObserved = 0;
  #ready: Entry[] = [];
  #nextReady = 0;
  #held: (() => void)[] = [];
  #caughtUp: boolean;
  #loading = 0;
  #state: 'running' | 'ended' | 'stopped' = 'running';
  #queued = false;

  constructor(options: CompletionsOptions) {
    this.#options = options;
    // A refused intent's order is sent again with the next one; the first mention stands.
    this.#observed = [...new Set(options.observed)];
    this.#caughtUp = !options.replays && this.#observed.length === 0;
  }

  add(entry: Entry): void {
    this.open.set(entry.step, entry);
  }

  /** The first word on an entry is the one the code gets. */
  settle(entry: Entry, settlement: Settlement): void {
    if (entry.settlement !== null) return;
    entry.settlement = settlement;
    if (this.#state === 'running' && !entry.lost) {
      this.#ready.push(entry);
      this.soon();
    } else if (this.open.delete(entry.step)) {
      this.#options.onClosed();
      this.soon();
    }
  }

  /** Nothing recorded and nothing that has ended is left to hand over. */
  get quiet(): boolean {
    return this.#state === 'running' && this.#caughtUp && this.#loading === 0 && this.#ready.length === this.#nextReady;
  }

  /**
   * Nobody is told of what a branch has asked for any more. Calls that are in the log are only closed;
   * gives what is dropped.
   */
  lose(prefix: string): Entry[] {
    const dropped: Entry[] = [];
    for (const [step, entry] of this.open) {
      if (entry.lost || !step.startsWith(prefix)) continue;
      entry.lost = true;
      if (entry.kind === 'call' && entry.logged && entry.settlement === null) continue;
      entry.cancel?.();
      this.open.delete(step);
      dropped.push(entry);
    }
    return dropped;
  }

  /** A recorded value is on its way: until then the replay isn't through. */
  loading(change: 1 | -1): void {
    this.#loading += change;
    this.soon();
  }

  /** Does live work now, or once the replay can't go further by itself. */
  live(work: () => void): void {
    if (this.#caughtUp) work();
    else this.#held.push(work);
  }

  /**
   * There may be something to do when the code has had its turn: between two turns lies a macrotask,
   * so that the microtasks which the first caused have run out.
   */
  soon(): void {
    if (this.#queued) return;
    this.#queued = true;
    this.#options.soon(this.#turn);
  }

  /**
   * The code is over: nothing is handed over any more, and calls that are in the log are only closed.
   * What it asked for and was held is asked now: a call that lost a race was made all the same.
   * Gives what is dropped.
   */
  end(): Entry[] {
    this.#state = 'ended';
    for (const work of this.#held.splice(0)) work();
    const dropped: Entry[] = [];
    for (const [step, entry] of this.open) {
      if (entry.logged && entry.settlement === null && !entry.waits) continue;
      entry.cancel?.();
      this.open.delete(step);
      dropped.push(entry);
    }
    return dropped;
  }

  stop(): void {
    this.#state = 'stopped';
    this.#held = [];
    this.#ready = [];
    for (const { cancel } of this.open.values()) cancel?.();
    this.open.clear();
  }

  readonly #turn = (): void => {
    this.#queued = false;
    if (this.#state === 'stopped') return;
    const entry = this.#state === 'running' ? this.#next() : undefined;
    if (entry !== undefined) {
      this.open.delete(entry.step);
      entry.handOver();
      this.soon();
      return;
    }
    if (this.#loading === 0) this.#catchUp();
    this.#options.onIdle();
  };

  #next(): Entry | undefined {
    const recorded = this.#observed[this.#nextObserved];
    if (recorded !== undefined) {
      const entry = this.open.get(recorded);
      if (entry === undefined || entry.settlement === null) return undefined;
      this.#nextObserved += 1;
      if (this.#nextObserved === this.#observed.length) this.#sortReady();
      return entry;
    }
    for (;;) {
      const entry = this.#ready[this.#nextReady];
      if (entry === undefined) return undefined;
      this.#nextReady += 1;
      if (this.#nextReady === this.#ready.length) {
        this.#ready = [];
        this.#nextReady = 0;
      }
      if (entry.lost) continue;
      this.#options.onHandOver(entry.step);
      return entry;
    }
  }

  /** The recorded order is through: from here on, recorded outcomes in stream order, then the others as they came. */
  #sortReady(): void {
    const observed = new Set(this.#observed);
    // Infinity - Infinity is no order; `sort` is stable, so live ones keep theirs.
    this.#ready = this.#ready.filter(({ step }) => !observed.has(step)).sort((a, b) => (a.rank === b.rank ? 0 : a.rank - b.rank));
    this.#nextReady = 0;
  }

  #catchUp(): void {
    if (this.#caughtUp) return;
    this.#caughtUp = this.#nextObserved === this.#observed.length && this.#options.allAsked();
    const held = this.#held;
    this.#held = [];
    for (const work of held) work();
  }
}
