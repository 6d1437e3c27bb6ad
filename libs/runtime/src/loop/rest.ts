/** From how many messages on a turn counts as busy, and how long the loop then waits for more, milliseconds. */
const BUSY_MESSAGES = 24;
const LINGER_MS = 5;
/** After so many turns in a row that came to nothing, the next one waits so long, milliseconds. */
const NOTHING_TURNS = 4;
const NOTHING_MS = 40;

/**
 * How long a loop waits between two turns, so that the next one is larger: fewer fetches, commits and
 * produces for the same messages. A service that reads much and has to do with little of it waits longer.
 */
export class Rest {
  #nothing = 0;

  /** A turn took so many messages; `decided`: it came to something. Returns milliseconds. */
  after(messages: number, decided: boolean): number {
    this.#nothing = decided ? 0 : this.#nothing + 1;
    if (this.#nothing >= NOTHING_TURNS) return NOTHING_MS;
    return messages >= BUSY_MESSAGES ? LINGER_MS : 0;
  }
}
