/** What can be started again: a service, Kafka, PostgreSQL. */
export interface Restartable {
  readonly name: string;
  /** Undefined while it does not run. */
  readonly pid: number | undefined;
  start(): Promise<unknown>;
}

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;
/** Who ran this long was well: its next fall is a first one again. */
const WELL_AFTER_MS = 60_000;

export const restartDelayMs = (fallsInARow: number): number => Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (fallsInARow - 1));

/** Starts what fell again, waiting longer the more often it falls. */
export class Supervisor {
  readonly #pending = new Set<NodeJS.Timeout>();
  readonly #starting = new Set<Promise<void>>();
  readonly #falls = new Map<string, { inARow: number; at: number }>();
  #closed = false;

  constructor(private readonly log: (line: string) => void) {}

  fell(process: Restartable): void {
    if (this.#closed) return;
    const now = Date.now();
    const last = this.#falls.get(process.name);
    const inARow = last === undefined || now - last.at > WELL_AFTER_MS ? 1 : last.inARow + 1;
    this.#falls.set(process.name, { inARow, at: now });
    const delay = restartDelayMs(inARow);
    this.log(`Starting ${process.name} again in ${delay / 1000} s.`);
    const timer = setTimeout(() => {
      this.#pending.delete(timer);
      const starting = this.again(process).finally(() => this.#starting.delete(starting));
      this.#starting.add(starting);
    }, delay);
    this.#pending.add(timer);
  }

  /** After this nothing starts any more, and what was starting has. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const timer of this.#pending) clearTimeout(timer);
    await Promise.all(this.#starting);
  }

  private async again(process: Restartable): Promise<void> {
    // Somebody else may have started it in the meantime.
    if (process.pid !== undefined) return;
    try {
      await process.start();
      this.log(`${process.name} runs again.`);
    } catch (error) {
      this.log(error instanceof Error ? error.message : String(error));
      this.fell(process);
    }
  }
}
