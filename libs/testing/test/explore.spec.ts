import { describe, expect, it } from '@jest/globals';
import { explore, twoHosts } from '../src/index.js';

const none = { tasks: 1, joins: false, crashes: false, loses: false, republishes: false };

describe('exhaustive exploration', () => {
  it.each([
    ['two attempts', { ...none, tasks: 2 }, 400],
    ['a republication', { ...none, republishes: true }, 1000],
    ['a crash and a republication', { ...none, crashes: true, republishes: true }, 1000],
  ])('goes every way of %s through the host, and no attempt fires twice', async (_, options, statesLeast) => {
    const { states, violations, whole } = await explore((choose) => twoHosts(choose, options));
    expect(violations).toEqual([]);
    expect(whole).toBe(true);
    expect(states).toBeGreaterThanOrEqual(statesLeast);
  });

  it('judges no way that was given up, where it came to a state that is known', async () => {
    const { violations, ways, ends } = await explore(async (choose) => {
      const first = choose(2, 'a');
      const second = first === null ? null : choose(2, 'b');
      return Promise.resolve(second === null ? ['unfinished'] : []);
    });
    expect({ violations, ways, ends }).toEqual({ violations: [], ways: 3, ends: 2 });
  });

  it('finds what is wrong, and names the way to it', async () => {
    const { violations } = await explore(async (choose) => {
      const first = choose(2, 'a');
      const second = first === null ? null : choose(2, `b${first}`);
      return Promise.resolve(first === 1 && second === 1 ? ['the last way'] : []);
    });
    expect(violations).toEqual([{ what: 'the last way', choices: [1, 1] }]);
  });
});
