import { expect, test } from '@jest/globals';
import { Rest } from '../src/loop/rest.js';

test('a small turn is followed by the next at once, a large one a moment later', () => {
  const rest = new Rest();
  expect(rest.after(1, true)).toBe(0);
  const busy = rest.after(500, true);
  expect(busy).toBeGreaterThan(0);
  expect(rest.after(1, true)).toBe(0);
});

test('a service that has decided nothing for several turns waits longer, until it decides something', () => {
  const rest = new Rest();
  const busy = rest.after(500, true);
  // One that came to nothing between two that did is no sign: what follows it may be waited for.
  for (let turn = 0; turn < 10; turn += 1) expect([rest.after(1, true), rest.after(1, false)]).toEqual([0, 0]);
  const waits = Array.from({ length: 6 }, () => rest.after(1, false));
  expect(waits.at(-1)).toBeGreaterThan(busy);
  expect(rest.after(1, true)).toBe(0);
});
