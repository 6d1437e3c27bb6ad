/** A bound on how much happens at once; what finds no room waits in order. */
export class Slots {
  #used = 0;
  #waiting: (() => void)[] = [];
  #head = 0;

  constructor(readonly most: number) {}

  get free(): number {
    return this.most - this.#used;
  }

  /** Calls back, holding a slot: at once when there is room. Whoever is called must release. */
  acquire(enter: () => void): void {
    if (this.#used < this.most) {
      this.#used += 1;
      enter();
    } else {
      this.#waiting.push(enter);
    }
  }

  /** Takes slots without waiting; the caller has looked at `free`. */
  reserve(count: number): void {
    this.#used += count;
  }

  release(): void {
    const next = this.#waiting[this.#head];
    if (next === undefined) {
      this.#used -= 1;
      return;
    }
    this.#head += 1;
    if (this.#head === this.#waiting.length) {
      this.#waiting = [];
      this.#head = 0;
    } else if (this.#head > 1000) {
      this.#waiting = this.#waiting.slice(this.#head);
      this.#head = 0;
    }
    next(); // The slot passes on.
  }
}
