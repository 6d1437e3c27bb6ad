import TinyQueue from 'tinyqueue';
import type { Chance } from './chance.js';

/** Whose event it is; null: the network's or a server's. */
export interface Owner {
  readonly name: string;
  readonly alive: boolean;
  /** While frozen, nothing happens in a process: what is for it waits. */
  readonly frozenUntil: number;
}

/** What a happening is, besides when: for those that explore orders. */
export interface About {
  /** Tells it from everything else that may be under way; absent, its owner's code has asked for it. */
  readonly name?: string;
  /** Its owner's code hears nothing of it. */
  readonly unheard?: boolean;
  /** Waits for time to pass, not for a message to arrive. */
  readonly timer?: boolean;
  /** As soon as what is being done is done, before any message arrives. */
  readonly soon?: boolean;
}

interface Happening {
  at: number;
  order: number;
  readonly owner: Owner | null;
  readonly happen: () => void;
  cancelled: boolean;
}

/** How those that explore orders have a question answered that changes nothing. */
export interface Reader {
  /** Has it answered at some moment, with what held at some moment before. `unheard`: the owner's code hears nothing of it. */
  read<T>(owner: Owner, about: { readonly name: string; readonly unheard: boolean }, look: () => T, hear: (answer: T) => void): void;
}

/** Where virtual time begins: epoch milliseconds. */
export const BEGINNING = 1_700_000_000_000;
/** Between macrotasks of the real loop, so that the host process stays responsive. */
const HAPPENINGS_A_MACROTASK = 512;

/**
 * Virtual time: one queue of happenings, each run with all the microtasks that follow from it
 * before the next. Nothing else moves the clock, so a run is a function of what is scheduled.
 */
export class Scheduler {
  now = BEGINNING;
  /** How many happenings have happened. */
  steps = 0;
  readonly #queue = new TinyQueue<Happening>([], (a, b) => a.at - b.at || a.order - b.order);
  #order = 0;

  /** Returns a canceller. `about` tells those that explore orders what else it is; time alone decides here. */
  at(time: number, owner: Owner | null, happen: () => void, _about?: About): () => void {
    this.#order += 1;
    const happening: Happening = { at: Math.max(time, this.now), order: this.#order, owner, happen, cancelled: false };
    this.#queue.push(happening);
    return () => {
      happening.cancelled = true;
    };
  }

  /** Present where orders are explored. */
  get reader(): Reader | null {
    return null;
  }

  /** How long one way takes, milliseconds. */
  latency(chance: Chance): number {
    return chance.between(0.3, 3);
  }

  /** A name for what a process's code asks now. Time alone decides here, so nothing is named. */
  nameFor(_owner: Owner): string {
    return '';
  }

  /** A name for an answer to what was asked. */
  nameOf(_asked: string, _answer: unknown): string {
    return '';
  }

  /** Notes that a process's code hears something, in the midst of what it hears nothing of by itself. */
  tell(_owner: Owner, _what: () => string): void {
    // Time alone decides here.
  }

  /** When something next happens; Infinity when nothing will. */
  nextAt(): number {
    return this.#queue.peek()?.at ?? Infinity;
  }

  /** When something happens that is further away than this; Infinity when nothing will. */
  nextBeyond(ms: number): number {
    return this.#queue.data.reduce((least, { at, cancelled }) => (!cancelled && at > this.now + ms && at < least ? at : least), Infinity);
  }

  /**
   * Lets time pass without anything happening: what was to happen within `soonMs` happens as long
   * after the leap as it would have after now. For a world in which only heartbeats go on.
   */
  leap(to: number, soonMs: number): void {
    const all = this.#queue.data.filter(({ cancelled }) => !cancelled).sort((a, b) => a.at - b.at || a.order - b.order);
    const byMs = to - this.now;
    const soon = this.now + soonMs;
    for (const happening of all) if (happening.at <= soon) happening.at += byMs;
    this.#queue.data = [];
    this.#queue.length = 0;
    for (const happening of all) this.#queue.push(happening);
    this.now = to;
  }

  /** Runs happenings until the fact holds, the queue is empty, or virtual time reaches `until`. */
  run(over: () => boolean, until: number): Promise<'over' | 'empty' | 'late'> {
    return new Promise((resolve, reject) => {
      let left = HAPPENINGS_A_MACROTASK;
      const settled = Promise.resolve();
      const tick = (): void => process.nextTick(step);
      const step = (): void => {
        try {
          const end = over() ? 'over' : this.#next(until);
          if (end !== null) return resolve(end);
        } catch (error) {
          return reject(error instanceof Error ? error : new Error(String(error)));
        }
        left -= 1;
        if (left <= 0) {
          left = HAPPENINGS_A_MACROTASK;
          setImmediate(step);
          return;
        }
        // From inside a microtask, a tick comes when the whole microtask queue has run out.
        void settled.then(tick);
      };
      setImmediate(step);
    });
  }

  #next(until: number): 'empty' | 'late' | null {
    for (;;) {
      const next = this.#queue.peek();
      if (next === undefined) return 'empty';
      if (next.at > until) {
        this.now = Math.max(this.now, until);
        return 'late';
      }
      this.#queue.pop();
      if (next.cancelled || next.owner?.alive === false) continue;
      if (next.owner !== null && next.owner.frozenUntil > next.at) {
        next.at = next.owner.frozenUntil;
        this.#queue.push(next);
        continue;
      }
      this.now = Math.max(this.now, next.at);
      this.steps += 1;
      next.happen();
      return null;
    }
  }
}
