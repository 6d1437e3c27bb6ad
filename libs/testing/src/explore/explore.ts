import type { Choose } from './exploring-scheduler.js';

export interface Explored {
  /** Different states that were reached. */
  readonly states: number;
  /** Ways that were gone from the beginning on. */
  readonly ways: number;
  /** Ways that were gone to their end. */
  readonly ends: number;
  /** What was found to be wrong, with the choices that lead there. */
  readonly violations: readonly { readonly what: string; readonly choices: readonly number[] }[];
  /** False when the limit came first. */
  readonly whole: boolean;
}

/** One world, from its beginning to its end, with every choice asked for; says what is wrong with it. */
export type Way = (choose: Choose) => Promise<readonly string[]>;

/** Goes every way: each choice at each state, every state once. */
export async function explore(way: Way, statesMax = Infinity): Promise<Explored> {
  const seen = new Set<string>();
  const left: number[][] = [[]];
  const violations: { what: string; choices: readonly number[] }[] = [];
  let [ways, ends] = [0, 0];
  while (left.length > 0 && seen.size < statesMax) {
    const planned = left.pop() ?? [];
    const choices: number[] = [];
    let pruned = false;
    ways += 1;
    const wrong = await way((count, state) => {
      const index = choices.length;
      const given = planned[index];
      if (given === undefined) {
        if (state !== null && seen.has(state)) {
          pruned = true;
          return null;
        }
        if (state !== null) seen.add(state);
        for (let other = 1; other < count; other += 1) left.push([...choices, other]);
      }
      choices.push(given ?? 0);
      return given ?? 0;
    });
    // A way that was given up ended in the middle of things; whoever came to that state first has gone on from it.
    if (pruned) continue;
    for (const what of wrong) violations.push({ what, choices });
    ends += 1;
    if (violations.length > 0) break;
  }
  return { states: seen.size, ways, ends, violations, whole: left.length === 0 };
}
