import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Pace, shareOut } from '../src/loop/pace.js';

/** Takes all that it may, whenever it is ready, until so many are taken; the times at which, with how many. */
function drain(pace: Pace, count: number, from: number): { at: number; taken: number }[] {
  const steps: { at: number; taken: number }[] = [];
  for (let left = count, now = from; left > 0; now = pace.readyAt(left, now)) {
    const taken = pace.allows(left, now);
    if (taken === 0) throw new Error(`nothing may be taken at ${now}, when it said that it was ready`);
    pace.take(taken);
    steps.push({ at: now, taken });
    left -= taken;
  }
  return steps;
}

describe('a pace', () => {
  test('takes one that is alone at once', () => {
    expect(drain(new Pace(200), 1, 5000)).toEqual([{ at: 5000, taken: 1 }]);
  });

  test('spreads many evenly, in small portions', () => {
    const steps = drain(new Pace(200), 1000, 0);
    expect(steps.every(({ taken }) => taken === 10)).toBe(true);
    expect(steps.map(({ at }) => at)).toEqual(Array.from({ length: 100 }, (_, i) => i * 50));
  });

  test('goes on as slowly as one a second', () => {
    expect(drain(new Pace(1), 3, 0).map(({ at }) => at)).toEqual([0, 1000, 2000]);
  });

  test('gains and loses nothing by a clock that is set back', () => {
    const pace = new Pace(200);
    drain(pace, 10, 10_000);
    expect(pace.allows(10, 4000)).toBe(0);
    expect(pace.readyAt(10, 4000)).toBe(4050);
  });

  test('rests as long as a turn with such work took, a second at most; a turn without any costs nothing', () => {
    const pace = new Pace(200);
    pace.take(pace.allows(1000, 0));
    pace.turned(300, 300);
    expect([pace.allows(1000, 599), pace.readyAt(1000, 599)]).toEqual([0, 600]);
    // What it could not take meanwhile.
    expect(pace.allows(1000, 600)).toBe(120);
    pace.turned(900, 300);
    expect(pace.allows(1000, 900)).toBeGreaterThan(0);
    pace.take(10);
    pace.turned(9000, 8000);
    expect(pace.readyAt(1000, 9000)).toBe(10_000);
  });

  test('saves nothing up while there is nothing to take', () => {
    const pace = new Pace(200);
    pace.allows(0, 0);
    pace.allows(0, 60_000);
    expect(pace.allows(1000, 60_000)).toBe(10);
  });

  test('no second sees more than the rate and a second’s worth', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 500 }), fc.array(fc.record({ after: fc.integer({ min: 0, max: 3000 }), wants: fc.integer({ min: 0, max: 400 }), takes: fc.integer({ min: 0, max: 500 }) }), { maxLength: 60 }), (perSecond, asked) => {
        const pace = new Pace(perSecond);
        const took: { at: number; taken: number }[] = [];
        let now = 0;
        for (const { after, wants, takes } of asked) {
          now += after;
          const taken = pace.allows(wants, now);
          expect(taken).toBeLessThanOrEqual(wants);
          pace.take(taken);
          took.push({ at: now, taken });
          now += takes;
          pace.turned(now, takes);
        }
        for (const { at } of took) {
          const inASecond = took.filter((one) => one.at >= at && one.at < at + 1000).reduce((sum, { taken }) => sum + taken, 0);
          expect(inASecond).toBeLessThanOrEqual(2 * perSecond + 1);
        }
      }),
    );
  });

  test('takes all in the end, in the time that the rate says', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2000 }), fc.integer({ min: 1, max: 3000 }), (perSecond, count) => {
        const steps = drain(new Pace(perSecond), count, 0);
        expect(steps.reduce((sum, { taken }) => sum + taken, 0)).toBe(count);
        // A millisecond may be lost at each step, by rounding.
        expect(steps.at(-1)?.at ?? 0).toBeLessThanOrEqual((count * 1000) / perSecond + 1000 + steps.length);
      }),
    );
  });
});

describe('room is shared out', () => {
  test('so that small wishes are met, and large ones have the rest', () => {
    expect(shareOut(100, [5, 1000, 20, 1000])).toEqual([5, 38, 20, 37]);
    expect(shareOut(100, [5, 10])).toEqual([5, 10]);
    expect(shareOut(1, [9, 9, 9], 0)).toEqual([1, 0, 0]);
    expect(shareOut(1, [9, 9, 9], 4)).toEqual([0, 1, 0]);
    expect(shareOut(9, [])).toEqual([]);
  });

  test('never beyond the room or the wish, all of it where it is wanted, and nobody’s wish is cut while another has more', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 500 }), fc.array(fc.integer({ min: 0, max: 300 }), { maxLength: 12 }), fc.nat(100), (room, wants, first) => {
        const shares = shareOut(room, wants, first);
        const sum = shares.reduce((a, b) => a + b, 0);
        expect(sum).toBe(Math.min(room, wants.reduce((a, b) => a + b, 0)));
        for (const [i, share] of shares.entries()) {
          expect(share).toBeLessThanOrEqual(wants[i] ?? 0);
          if (share < (wants[i] ?? 0)) expect(share).toBeGreaterThanOrEqual(Math.max(...shares) - 1);
        }
      }),
    );
  });
});
