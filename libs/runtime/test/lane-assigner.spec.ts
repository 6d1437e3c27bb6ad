import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { assignLanes } from '../src/kafka/index.js';

const assigned = (lanes: number, holding: Record<string, number[]>) => Object.fromEntries(assignLanes(lanes, new Map(Object.entries(holding))));
const sizes = (of: Record<string, number[]>): number[] => Object.values(of).map((lanes) => lanes.length);

describe('lanes', () => {
  test('are spread evenly over members that hold none', () => {
    expect(assigned(4, { a: [], b: [] })).toEqual({ a: [0, 1], b: [2, 3] });
    expect(sizes(assigned(7, { a: [], b: [], c: [] })).sort()).toEqual([2, 2, 3]);
  });

  test('stay with the member that holds them', () => {
    expect(assigned(4, { a: [1, 3], b: [0, 2] })).toEqual({ a: [1, 3], b: [0, 2] });
    expect(assigned(5, { a: [4, 0], b: [1, 2, 3] })).toEqual({ a: [4, 0], b: [1, 2, 3] });
  });

  test('move no more than a new member’s share', () => {
    const after = assigned(6, { a: [0, 1, 2], b: [3, 4, 5], c: [] });
    expect(after).toEqual({ a: [0, 1], b: [3, 4], c: [2, 5] });
  });

  test('of a lost member go to the others', () => {
    expect(assigned(6, { a: [0, 1], b: [3, 4] })).toEqual({ a: [0, 1, 2], b: [3, 4, 5] });
  });

  test('fewer than members leave some without', () => {
    expect(sizes(assigned(2, { a: [], b: [], c: [] })).sort()).toEqual([0, 1, 1]);
    expect(assigned(3, {})).toEqual({});
    expect(assigned(0, { a: [1] })).toEqual({ a: [] });
  });

  test('claimed twice, or not there, are given once', () => {
    expect(assigned(2, { a: [0, 0, 9, -1], b: [0] })).toEqual({ a: [0], b: [1] });
  });

  test('whatever was held: each goes to one member, evenly, and as many stay as evenness allows', () => {
    const groups = fc.tuple(fc.integer({ min: 0, max: 40 }), fc.uniqueArray(fc.string({ minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 8 })).chain(([lanes, members]) =>
      fc.tuple(fc.constant(lanes), fc.constant(members), fc.array(fc.option(fc.constantFrom(...members)), { minLength: lanes, maxLength: lanes })),
    );
    fc.assert(
      fc.property(groups, ([lanes, members, holder]) => {
        const holding = new Map(members.map((member) => [member, holder.flatMap((who, lane) => (who === member ? [lane] : []))]));
        const result = assignLanes(lanes, holding);
        expect([...result.keys()].sort()).toEqual([...members].sort());
        expect([...result.values()].flat().sort((a, b) => a - b)).toEqual(Array.from({ length: lanes }, (_, lane) => lane));
        const least = Math.floor(lanes / members.length);
        for (const mine of result.values()) expect([least, Math.ceil(lanes / members.length)]).toContain(mine.length);
        // The larger shares go to those who hold most: no other choice keeps more lanes in place.
        const larger = lanes - least * members.length;
        const held = [...holding.values()].map((mine) => mine.length).sort((a, b) => b - a);
        const most = held.reduce((sum, count, i) => sum + Math.min(count, i < larger ? least + 1 : least), 0);
        const stayed = [...result].reduce((sum, [member, mine]) => sum + mine.filter((lane) => holding.get(member)?.includes(lane)).length, 0);
        expect(stayed).toBe(most);
        expect(assignLanes(lanes, new Map([...holding].reverse()))).toEqual(result);
        expect([...assignLanes(lanes, result)].map(([member, mine]) => [member, [...mine].sort()])).toEqual([...result].map(([member, mine]) => [member, [...mine].sort()]));
      }),
    );
  });
});
