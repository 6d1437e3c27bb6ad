/** Between two looks at a stream whose timer fails, milliseconds: it doubles from the one up to the other. */
const RETRY_FIRST_MS = 1000;
const RETRY_MOST_MS = 60_000;

/** A look at a stream that threw: it would again, so the next one waits. */
export interface FailedTimer {
  readonly stream: string;
  readonly error: Error;
  /** How often in a row. */
  readonly tries: number;
  readonly retryAt: number;
}

/** For the log: whose timer, why, and when it is tried again; null: never, since its stream is at rest or set apart. */
export type FailedTimerNews = Pick<FailedTimer, 'stream' | 'error' | 'tries'> & { readonly againMs: number | null };

/** Timers of one lane whose handler throws, as they are known since the lane was taken. */
export class FailedTimers {
  readonly #failed = new Map<string, FailedTimer>();

  /** Before when a stream is not to be looked at again; null: it may be at any time. */
  retryAt(stream: string): number | null {
    return this.#failed.get(stream)?.retryAt ?? null;
  }

  draft(now: number): FailedTimersDraft {
    return new FailedTimersDraft(this.#failed, now);
  }
}

/** What one turn finds of them; the lane knows of it once that is committed. */
export class FailedTimersDraft {
  readonly #found = new Map<string, FailedTimer | null>();
  readonly #news: FailedTimer[] = [];

  constructor(
    private readonly known: Map<string, FailedTimer>,
    private readonly now: number,
  ) {}

  failed(stream: string, error: Error): void {
    const tries = (this.known.get(stream)?.tries ?? 0) + 1;
    const failed = { stream, error, tries, retryAt: this.now + Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** (tries - 1)) };
    this.#found.set(stream, failed);
    this.#news.push(failed);
  }

  /** It was looked at, or is at rest: there is nothing to wait for. */
  passed(stream: string): void {
    if (this.known.has(stream) || this.#found.has(stream)) this.#found.set(stream, null);
  }

  /** Before when a stream is not to be looked at again; null: it may be at any time. */
  retryAt(stream: string): number | null {
    const found = this.#found.get(stream);
    return (found === undefined ? this.known.get(stream) : found)?.retryAt ?? null;
  }

  /** Those that failed in this turn. */
  news(): readonly FailedTimerNews[] {
    return this.#news.map(({ stream, error, tries, retryAt }) => ({ stream, error, tries, againMs: this.#found.get(stream) === null ? null : retryAt - this.now }));
  }

  apply(): void {
    for (const [stream, found] of this.#found) {
      if (found === null) this.known.delete(stream);
      else this.known.set(stream, found);
    }
  }
}
