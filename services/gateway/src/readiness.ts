import { systemClock } from '@holdfast/runtime';
import type { Views } from './views/views.js';

/** How often the database is asked. Milliseconds. */
const LOOK_EVERY_MS = 1000;

/** Says whether the gateway can serve, and why not: by what it sees of its broker, its database and its read models. */
export class Readiness {
  #databaseAnsweredAt = systemClock.now();
  #databaseFailed = false;
  #stopped = false;
  #cancel: () => void = () => undefined;

  constructor(
    private readonly views: Views,
    private readonly stopping: AbortSignal,
    private readonly patienceMs: number,
  ) {
    stopping.addEventListener('abort', () => this.stop());
    this.#look();
  }

  /** Why it can't, or null. */
  get problem(): string | null {
    const now = systemClock.now();
    if (this.stopping.aborted) return 'it is stopping';
    const { views, patienceMs } = this;
    if (this.#databaseFailed || now - this.#databaseAnsweredAt > patienceMs) return 'the database can’t be reached';
    if (now - views.lookedAt > patienceMs) return 'the read models were not looked at for a while';
    if (views.silentMs() > patienceMs * 2) return 'the broker does not answer';
    const standing = views.standingMs();
    return standing > patienceMs * 3 ? `events stand on the topics and none was taken in for ${standing} ms` : null;
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel();
  }

  #look(): void {
    this.views.database
      .query('select 1')
      .then(
        () => {
          this.#databaseAnsweredAt = systemClock.now();
          this.#databaseFailed = false;
        },
        () => (this.#databaseFailed = true),
      )
      .finally(() => {
        if (!this.#stopped) this.#cancel = systemClock.after(LOOK_EVERY_MS, () => this.#look());
      });
  }
}
