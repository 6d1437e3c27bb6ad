/** So many portions a second overdue work is taken in. */
const PORTIONS_A_SECOND = 20;

/**
 * At which pace an instance takes what an outage has left behind: a rate that lies below what it can do, in
 * small portions, so that what comes in meanwhile finds it free. What was not taken is not saved up.
 */
export class Pace {
  readonly #perSecond: number;
  readonly #portion: number;
  #left: number;
  #at = -Infinity;

  /** `perSecond`: at least 1. */
  constructor(perSecond: number) {
    this.#perSecond = perSecond;
    this.#portion = Math.max(1, perSecond / PORTIONS_A_SECOND);
    this.#left = this.#portion;
  }

  /** How many of so many may be taken now. */
  allows(wanted: number, now: number): number {
    this.#refill(now);
    return this.#left >= this.#need(wanted) ? Math.min(wanted, Math.floor(this.#left)) : 0;
  }

  take(count: number): void {
    this.#left -= count;
  }

  /** When some of so many may be taken, epoch milliseconds. */
  readyAt(wanted: number, now: number): number {
    this.#refill(now);
    return now + Math.max(0, Math.ceil(((this.#need(wanted) - this.#left) * 1000) / this.#perSecond));
  }

  #need(wanted: number): number {
    return Math.min(wanted, Math.floor(this.#portion));
  }

  #refill(now: number): void {
    // A clock that was set back brings nothing, and takes nothing.
    if (now > this.#at) this.#left = Math.min(this.#portion, this.#left + ((now - this.#at) * this.#perSecond) / 1000);
    this.#at = now;
  }
}

/** Shares room out among those that want some, so that nobody's wish is cut while another has more. `first`: who has what can't be shared evenly. */
export function shareOut(room: number, wants: readonly number[], first = 0): number[] {
  const shares = wants.map(() => 0);
  const order = wants.map((_, i) => (i + first) % wants.length).sort((a, b) => (wants[a] ?? 0) - (wants[b] ?? 0));
  let left = room;
  for (const [done, i] of order.entries()) {
    const share = Math.min(wants[i] ?? 0, Math.ceil(left / (order.length - done)));
    shares[i] = share;
    left -= share;
  }
  return shares;
}
