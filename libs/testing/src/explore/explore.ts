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
  /** Every way that departs so often from the first choice has been gone; -1 when not even the way of first choices has. */
  readonly departures: number;
}

/** One world, from its beginning to its end, with every choice asked for; says what is wrong with it. */
export type Way = (choose: Choose) => Promise<readonly string[]>;

/** The choices of an earlier way, up to one that is made otherwise. */
interface Planned {
  readonly like: readonly number[];
  readonly until: number;
  readonly other: number;
}

/**
 * Goes every way: each choice at each state, every state once. Those that depart least often from
 * the first choice are gone first, so that where the limit comes first, what was gone has a name.
 */
export async function explore(way: Way, statesMax = Infinity): Promise<Explored> {
  const seen = new Set<string>();
  const left: Planned[][] = [[{ like: [], until: 0, other: -1 }]];
  const violations: { what: string; choices: readonly number[] }[] = [];
  let [ways, ends, departures, most] = [0, 0, 0, 0];
  for (;;) {
    while (left[departures]?.length === 0) departures += 1;
    const planned = left[departures]?.pop();
    if (planned === undefined) return { states: seen.size, ways, ends, violations, whole: true, departures: most };
    if (seen.size >= statesMax || violations.length > 0) return { states: seen.size, ways, ends, violations, whole: false, departures: departures - 1 };
    most = departures;
    const next = (left[departures + 1] ??= []);
    const choices: number[] = [];
    let pruned = false;
    ways += 1;
    const wrong = await way((count, state) => {
      const index = choices.length;
      if (index < planned.until || (index === planned.until && planned.other >= 0)) {
        const given = index < planned.until ? (planned.like[index] ?? 0) : planned.other;
        choices.push(given);
        return given;
      }
      const named = state?.();
      if (named !== undefined && seen.has(named)) {
        pruned = true;
        return null;
      }
      if (named !== undefined) seen.add(named);
      for (let other = 1; other < count; other += 1) next.push({ like: choices, until: index, other });
      choices.push(0);
      return 0;
    });
    // A way that was given up ended in the middle of things; whoever came to that state first has gone on from it.
    if (pruned) continue;
    for (const what of wrong) violations.push({ what, choices });
    ends += 1;
  }
}
