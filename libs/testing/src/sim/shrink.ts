import { runSeed, type SeedResult } from './seeds.js';
import type { Fault } from './faults.js';

/** How many times a seed is run at most while its faults are made fewer. */
const TRIES_MAX = 300;

const kindOf = ({ violations }: SeedResult): string => (violations[0] ?? '').split(':')[0] ?? '';

/** The fewest faults with which a failing seed still fails in the same way: first by halves, then one by one. */
export async function shrink(failing: SeedResult): Promise<readonly Fault[]> {
  const kind = kindOf(failing);
  let tries = 0;
  const fails = async (faults: readonly Fault[]): Promise<boolean> => {
    tries += 1;
    const result = await runSeed(failing.seed, { faults });
    return result.violations.length > 0 && kindOf(result) === kind;
  };
  let left = failing.faults;
  for (let size = Math.ceil(left.length / 2); size >= 1 && tries < TRIES_MAX; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let from = 0; from < left.length && tries < TRIES_MAX; ) {
      const fewer = [...left.slice(0, from), ...left.slice(from + size)];
      if (await fails(fewer)) left = fewer;
      else from += size;
    }
  }
  return left;
}
