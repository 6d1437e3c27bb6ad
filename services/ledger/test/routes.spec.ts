import { expect, test } from '@jest/globals';
import { runMessages, topics } from '@holdfast/protocol';
import { routes } from '../src/routes.js';

test('the ledger reads every run event that can carry ends of effects', () => {
  const read = new Set(routes({} as never).filter(({ topic }) => topic === topics.runEvents).map(({ message }) => message.type));
  const carrying = runMessages.filter(({ schema }) => 'shape' in schema && 'settles' in (schema.shape as object)).map(({ type }) => type);
  expect(carrying.length).toBeGreaterThan(5);
  expect(carrying.filter((type) => !read.has(type))).toEqual([]);
});
