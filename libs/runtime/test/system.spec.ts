import { afterEach, expect, jest, test } from '@jest/globals';
import { ageMs, systemClock, systemMoment } from '../src/system.js';

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

afterEach(() => {
  jest.useRealTimers();
});

const DAY_MS = 24 * 60 * 60 * 1000;
test.each([30, 90, 365])('a timer of %i days fires then, and not at once', (days) => {
  jest.useFakeTimers();
  const fired = jest.fn();
  systemClock.after(days * DAY_MS, fired);
  jest.advanceTimersByTime(days * DAY_MS - 1);
  expect(fired).not.toHaveBeenCalled();
  jest.advanceTimersByTime(1);
  expect(fired).toHaveBeenCalledTimes(1);
});
