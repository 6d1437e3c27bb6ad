import { expect, test } from '@jest/globals';
import { ageMs, systemMoment } from '../src/system.js';

test.each([
  ['both clocks go on', { wall: 5000, steady: 100 }, { wall: 5300, steady: 400 }, 300],
  ['the clock was set back meanwhile', { wall: 5000, steady: 100 }, { wall: 1000, steady: 400 }, 300],
  ['the machine slept meanwhile', { wall: 5000, steady: 100 }, { wall: 65_000, steady: 130 }, 60_000],
])('an age where %s', (_, then, now, age) => {
  expect(ageMs(then, now)).toBe(age);
});

test('moments go on', () => {
  const then = systemMoment();
  expect(ageMs(then, systemMoment())).toBeGreaterThanOrEqual(0);
});
