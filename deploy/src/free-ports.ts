import { StackError } from './errors.js';

const TRIES_MAX = 4;

/**
 * A port that was free when we asked may be taken by another process before the server binds it.
 * Only when we chose the port ourselves is trying another one the right answer.
 */
export async function retryOnTakenPort<T>(chosenByUs: boolean, attempt: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await attempt();
    } catch (error) {
      const taken = error instanceof StackError && /in use/i.test(error.message);
      if (!taken || !chosenByUs || tries === TRIES_MAX) throw error;
    }
  }
}
