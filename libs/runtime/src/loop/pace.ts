/** So many portions a second overdue work is taken in. */
const PORTIONS_A_SECOND = 20;
/** Milliseconds. */
const REST_MOST_MS = 1000;

/**
 * At which pace an instance takes what an outage has left behind: below what it can do, so that what comes in
 * meanwhile finds it free. That is a rate, in small portions, and at most half of its time: after a turn with
 * such work as long again without. What can't be taken in time is made up for, a second's worth at most.
 */
export class Pace {
  readonly #perSecond: number;
  readonly #portion: number;
  #left: number;
  #at: number | null = null;
  #taken = 0;
  #notBefore = -Infinity;

  /** `perSecond`: at least 1. */
  constructor(perSecond: number) {
    this.#perSecond = perSecond;
    this.#portion = Math.max(1, perSecond / PORTIONS_A_SECOND);
    this.#left = this.#portion;
  }

  /** How many of so many may be taken now. Asked while there are none, it saves nothing up. */
  allows(wanted: number, now: number): number {
    this.#refill(now);
    if (wanted === 0) this.#left = Math.min(this.#left, this.#portion);
    return now >= this.#notBefore && this.#left >= this.#need(wanted) ? Math.min(wanted, Math.floor(this.#left)) : 0;
  }

  take(count: number): void {
    this.#left -= count;
    this.#taken += count;
  }

  /** A turn is over at `now`, and took so many milliseconds. */
  turned(now: number, tookMs: number): void {
    if (this.#taken > 0) this.#notBefore = now + Math.min(REST_MOST_MS, tookMs);
    this.#taken = 0;
  }

  /** When some of so many may be taken, epoch milliseconds. */
  readyAt(wanted: number, now: number): number {
    this.#refill(now);
    return Math.max(this.#notBefore, now + Math.max(0, Math.ceil(((this.#need(wanted) - this.#left) * 1000) / this.#perSecond)));
  }

  #need(wanted: number): number {
    return Math.min(wanted, Math.floor(this.#portion));
  }

  #refill(now: number): void {
    const before = this.#at ?? now;
    if (now < before) this.#notBefore = now; // The clock was set back: that brings nothing, and takes nothing.
    else this.#left = Math.min(Math.max(this.#portion, this.#perSecond), this.#left + ((now - before) * this.#perSecond) / 1000);
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
