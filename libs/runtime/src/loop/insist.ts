import type { Clock } from '../ports.js';
import { pause } from '../system.js';
import { blameOf } from './faults.js';

/** Between two tries at the database, milliseconds: it doubles from the one up to the other. */
export const RETRY_FIRST_MS = 50;
export const RETRY_MOST_MS = 5000;

/**
 * Repeats database work until it succeeds; null when the service stops meanwhile.
 * @throws what {@link blameOf} blames on somebody: it would fail again
 */
export async function insist<T>(work: () => Promise<T>, clock: Clock, { onError, isStopping }: { readonly onError: (error: unknown) => void; readonly isStopping: () => boolean }): Promise<T | null> {
  for (let retryMs = RETRY_FIRST_MS; ; retryMs = Math.min(retryMs * 2, RETRY_MOST_MS)) {
    try {
      return await work();
    } catch (error) {
      onError(error);
      if (blameOf(error) !== null) throw error;
      if (isStopping()) return null;
      await pause(clock, retryMs);
    }
  }
}
