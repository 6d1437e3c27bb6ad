import { expect, test } from '@jest/globals';
import { moreAfter, pageOf } from '../src/paging.js';
import { makeProgram } from '../src/index.js';

const all = ['a', 'b', 'c'];
const itself = (name: string): string => name;

test('a list comes in pages, each naming where the next begins', () => {
  expect(pageOf(all, itself, { limit: '2' })).toEqual({ page: ['a', 'b'], next: 'b' });
  expect(pageOf(all, itself, { limit: '2', after: 'b' })).toEqual({ page: ['c'], next: null });
  expect(pageOf(all, itself, { limit: '3' })).toEqual({ page: all, next: null });
  expect(pageOf(all, itself, { limit: '1', after: 'gone' })).toEqual({ page: ['a'], next: 'a' });
  expect(pageOf([], itself, { limit: '1' })).toEqual({ page: [], next: null });
  expect([moreAfter('b'), moreAfter(null)]).toEqual([['more: --after b'], []]);
  expect(() => pageOf(all, itself, { limit: 'many' })).toThrow('--limit many');
});

test('every listing has JSON, filters and pages', () => {
  for (const group of ['runs', 'cases', 'brakes', 'contracts']) {
    const list = makeProgram().commands.find((each) => each.name() === group)?.commands.find((each) => each.name() === 'list');
    const options = list?.options.map(({ long }) => long) ?? [];
    expect([group, options.length > 3, ['--json', '--limit', '--after'].every((name) => options.includes(name))]).toEqual([group, true, true]);
  }
});
