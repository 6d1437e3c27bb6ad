import { describe, expect, it } from '@jest/globals';
import { explore, type Explored } from '../src/explore/explore.js';
import { twoHosts, type TwoHostsOptions } from '../src/explore/two-hosts.js';

const none: TwoHostsOptions = { tasks: 1, rebalance: 'none', crashes: false, loses: false, republishes: false, asks: false, holds: 0 };

/** Who fired each task, at the end of each way that was gone to its end. */
async function explored(options: TwoHostsOptions, statesMax?: number): Promise<Explored & { met: Set<string> }> {
  const met = new Set<string>();
  const result = await explore((choose) => {
    let isGivenUp = false;
    const asked: typeof choose = (count, state) => {
      const chosen = choose(count, state);
      isGivenUp ||= chosen === null;
      return chosen;
    };
    return twoHosts(asked, options, (firedBy) => {
      if (!isGivenUp) met.add(firedBy.join(' '));
    });
  }, statesMax);
  return { ...result, met };
}

describe('exhaustive exploration', () => {
  it.each([
    ['two attempts', { ...none, tasks: 2 }, ['worker-1#1 worker-1#1', 'worker-1#1 nobody']],
    ['a crash, a lost acknowledgement and a republication', { ...none, crashes: true, loses: true, republishes: true }, ['worker-1#1', 'nobody']],
    ['a message held up', { ...none, holds: 1 }, ['worker-1#1', 'nobody']],
    ['a rebalance that leaves the lane where it is', { ...none, rebalance: 'joins' }, ['worker-1#1']],
  ] satisfies [string, TwoHostsOptions, string[]][])('goes every way of %s through the host, and no attempt fires twice', async (_, options, outcomes) => {
    const { violations, whole, met } = await explored(options);
    expect(violations).toEqual([]);
    expect(whole).toBe(true);
    expect([...met].sort()).toEqual(outcomes.sort());
  });

  it('goes the ways that depart least of a rebalance that takes the lane away from a host that goes on', async () => {
    const { violations, departures, met } = await explored({ ...none, rebalance: 'counted out' }, 400);
    expect(violations).toEqual([]);
    expect(departures).toBeGreaterThanOrEqual(2);
    expect([...met].sort()).toEqual(['worker-1#1', 'worker-2#1']);
  });

  it('judges no way that was given up, where it came to a state that is known', async () => {
    const { violations, ways, ends } = await explore(async (choose) => {
      const first = choose(2, () => 'a');
      const second = first === null ? null : choose(2, () => 'b');
      return Promise.resolve(second === null ? ['unfinished'] : []);
    });
    expect({ violations, ways, ends }).toEqual({ violations: [], ways: 3, ends: 2 });
  });

  it('goes what departs least often first, and says how far it has come when the limit comes', async () => {
    const gone: string[] = [];
    const four = async (choose: (count: number, state: () => string) => number | null): Promise<string[]> => {
      const way: number[] = [];
      for (let n = 0; n < 4; n += 1) {
        const chosen = choose(2, () => `${n}${way.join('')}`);
        if (chosen === null) return Promise.resolve([]);
        way.push(chosen);
      }
      gone.push(way.join(''));
      return Promise.resolve([]);
    };
    const limited = await explore(four, 10);
    expect(limited).toMatchObject({ whole: false, departures: 1 });
    expect(gone.slice(0, 5).sort()).toEqual(['0000', '0001', '0010', '0100', '1000']);
    gone.length = 0;
    expect(await explore(four)).toMatchObject({ whole: true, states: 15, ends: 16, departures: 4 });
    expect(new Set(gone).size).toBe(16);
  });

  it('finds what is wrong, and names the way to it', async () => {
    const { violations } = await explore(async (choose) => {
      const first = choose(2, () => 'a');
      const second = first === null ? null : choose(2, () => `b${first}`);
      return Promise.resolve(first === 1 && second === 1 ? ['the last way'] : []);
    });
    expect(violations).toEqual([{ what: 'the last way', choices: [1, 1] }]);
  });
});
