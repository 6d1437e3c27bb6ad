import { expect, it } from '@jest/globals';
import { newClusterId } from '../src/kafka.js';

it('a cluster id is 22 characters of base64url and never looks like an option', () => {
  const dash = Buffer.alloc(16, 0xf8); // begins with "-" in base64url
  expect(dash.toString('base64url')).toMatch(/^-/);
  expect(newClusterId(dash)).toMatch(/^[A-Za-z0-9_][A-Za-z0-9_-]{21}$/);
  expect(newClusterId(Buffer.alloc(16, 1))).toBe(Buffer.alloc(16, 1).toString('base64url'));
});
