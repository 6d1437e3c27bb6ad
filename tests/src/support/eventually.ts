const EVERY_MS = 25;
export const WITHIN_MS = 60_000;

/** Asks until the answer is there (neither undefined nor false), and fails with what was waited for. */
export async function eventually<T>(what: string | (() => string), check: () => T | undefined | false | Promise<T | undefined | false>, withinMs = WITHIN_MS): Promise<T> {
  const until = Date.now() + withinMs;
  for (;;) {
    const answer = await check();
    if (answer !== undefined && answer !== false) return answer;
    if (Date.now() > until) throw new Error(`${typeof what === 'string' ? what : what()}: not so within ${withinMs} ms`);
    await new Promise((resolve) => {
      setTimeout(resolve, EVERY_MS);
    });
  }
}
