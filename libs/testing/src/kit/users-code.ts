import { AsyncLocalStorage } from 'node:async_hooks';
import type { EffectClass } from '@holdfast/protocol';
import type { SimProcess } from '../sim/process.js';
import type { Scheduler } from '../sim/scheduler.js';

/** Something that is done for a run: a call of a tool's code, or recorded work. */
export interface Deed {
  readonly kind: 'call' | 'step' | 'model';
  readonly run: string;
  readonly step: string;
  /** Of the tool, or of the recorded work. */
  readonly name: string;
  /** Null for recorded work. */
  readonly effect: EffectClass | null;
}

/** How one went. `cut`: it has not come to its end, since its process died or nothing more happens. */
export interface Done extends Deed {
  readonly end: { readonly how: 'returned'; readonly value: unknown; readonly afterMs: number } | { readonly how: 'threw' } | { readonly how: 'cut' };
}

/** What happens in place of a deed's code: it gives a value after a while, or (null) nothing happens and it never ends. */
export type Instead = { readonly value: unknown; readonly afterMs: number } | null;
export type Insteads = ReadonlyMap<string, Instead>;

export const placeOf = ({ run, step }: Pick<Deed, 'run' | 'step'>): string => `${run}/${step}`;
/** Names the nth deed at a place, from 1. */
export const nthAt = (deed: Pick<Deed, 'run' | 'step'>, nth: number): string => `${placeOf(deed)} ${nth}`;

type Noted = Deed & { end: Done['end'] };

/** A piece of code under way. */
interface Piece {
  readonly process: SimProcess;
  /** For how many things it waits in virtual time. */
  asleep: number;
}

/** Runs the code of those who test, each piece for the process that runs it and no longer than that lives. */
export class UsersCode {
  readonly #done: Noted[] = [];
  readonly #begun = new Map<string, number>();
  readonly #under = new Set<Piece>();
  readonly #inside = new AsyncLocalStorage<Piece>();

  constructor(
    private readonly scheduler: Scheduler,
    private readonly instead: Insteads,
  ) {}

  /** Everything that was begun, in order. */
  get deeds(): readonly Done[] {
    return this.#done;
  }

  /** Whether some of it is under way. */
  get isBusy(): boolean {
    this.#forgetDead();
    return this.#under.size > 0;
  }

  /** Whether some of it waits for something that is not virtual, as far as can be seen. */
  get isAwake(): boolean {
    this.#forgetDead();
    for (const { asleep } of this.#under) if (asleep === 0) return true;
    return false;
  }

  /** Waits in virtual time. What a process waits for in whose name this is called dies with it, as with a real one. */
  elapse(ms: number): Promise<void> {
    const piece = this.#inside.getStore();
    if (piece?.process.alive === false) return never();
    if (piece !== undefined) piece.asleep += 1;
    return new Promise((resolve) => {
      this.scheduler.at(this.scheduler.now + ms, piece?.process ?? null, () => {
        if (piece !== undefined) piece.asleep -= 1;
        resolve();
      });
    });
  }

  /** Code that is waited for. */
  run<T>(process: SimProcess, code: () => T): T {
    const piece: Piece = { process, asleep: 0 };
    this.#under.add(piece);
    return whenOver(() => this.#inside.run(piece, code), () => void this.#under.delete(piece));
  }

  /** Code that goes on beside everything else: an agent's. */
  host<T>(process: SimProcess, code: () => T): T {
    return this.#inside.run({ process, asleep: 0 }, code);
  }

  /** The same, noted. */
  perform(process: SimProcess, deed: Deed, code: () => unknown): unknown {
    const nth = (this.#begun.get(placeOf(deed)) ?? 0) + 1;
    this.#begun.set(placeOf(deed), nth);
    const done: Noted = { ...deed, end: { how: 'cut' } };
    this.#done.push(done);
    const beganAt = this.scheduler.now;
    const instead = this.instead.get(nthAt(deed, nth));
    return whenOver(
      () => this.run(process, instead === undefined ? code : () => this.#standIn(instead)),
      (value, threw) => {
        done.end = threw ? { how: 'threw' } : { how: 'returned', value, afterMs: this.scheduler.now - beganAt };
      },
    );
  }

  /** The value is one that the same code has given in another world. */
  async #standIn(instead: Instead): Promise<unknown> {
    if (instead !== null) {
      if (instead.afterMs > 0) await this.elapse(instead.afterMs);
      return instead.value;
    }
    const piece = this.#inside.getStore();
    if (piece !== undefined) piece.asleep += 1;
    return never();
  }

  #forgetDead(): void {
    for (const piece of this.#under) if (!piece.process.alive) this.#under.delete(piece);
  }
}

const never = <T>(): Promise<T> => new Promise<T>(() => undefined);

/** Tells when code that may or may not be asynchronous is over, and leaves what it gives as it is. */
function whenOver<T>(code: () => T, over: (value: unknown, threw: boolean) => void): T {
  let result: T;
  try {
    result = code();
  } catch (error) {
    over(undefined, true);
    throw error;
  }
  if (!isThenable(result)) {
    over(result, false);
    return result;
  }
  return Promise.resolve(result).then(
    (value) => {
      over(value, false);
      return value;
    },
    (error: unknown) => {
      over(undefined, true);
      throw error;
    },
  ) as T;
}

const isThenable = (value: unknown): value is PromiseLike<unknown> => typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
