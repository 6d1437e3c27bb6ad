/** Something that may have one completion to hand over. Must not throw. */
export interface Turn {
  turn(): void;
  /** Set while it waits for its turn. */
  queued: boolean;
}

/**
 * One loop for all runs of a process: in each macrotask every waiting run gets one turn. Between
 * two turns of one run lies a macrotask, so the microtasks that the first caused have run out.
 */
class Turns {
  #waiting: Turn[] = [];
  #scheduled = false;

  soon(turn: Turn): void {
    if (turn.queued) return;
    turn.queued = true;
    this.#waiting.push(turn);
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(this.#run);
  }

  readonly #run = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#scheduled = false;
    for (const turn of waiting) {
      turn.queued = false;
      turn.turn();
    }
  };
}

export const turns = new Turns();
