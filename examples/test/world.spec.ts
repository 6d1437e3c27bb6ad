import { describe, expect, it } from '@jest/globals';
import { compare } from '../src/tasks/world.js';
import { isPure, toolName } from '../src/tasks/task-file.js';

const tasks = [{ task: 'a', actions: [{ tool: 'get_x', args: {} }, { tool: 'pay', args: { n: 1 } }, { tool: 'mail', args: { to: 'x' } }] }];
const pay = { run: 'a', step: '2', tool: 'pay', args: { n: 1 } };
const mail = { run: 'a', step: '3', tool: 'mail', args: { to: 'x' } };

describe('what the demo counts in the world', () => {
  it.each([
    ['all as asked', [pay, mail], { effects: 2, fired: 2, duplicates: 0, missing: 0, outOfOrder: 0 }],
    ['one twice', [pay, mail, pay], { effects: 2, fired: 3, duplicates: 1, missing: 0, outOfOrder: 0 }],
    ['one not there', [pay], { effects: 2, fired: 1, duplicates: 0, missing: 1, outOfOrder: 0 }],
    ['out of order', [mail, pay], { effects: 2, fired: 2, duplicates: 0, missing: 0, outOfOrder: 1 }],
    ['other arguments', [{ ...pay, args: { n: 2 } }, mail], { effects: 2, fired: 2, duplicates: 0, missing: 1, outOfOrder: 0 }],
  ])('%s', (_, rows, expected) => {
    expect(compare(rows, tasks)).toEqual(expected);
  });

  it.each([['get_user', true], ['search_flights', true], ['calculate', true], ['think', true], ['book', false], ['forget_it', false]])('takes %s as pure: %s', (tool, pure) => {
    expect(isPure(tool)).toBe(pure);
  });

  it('gives any tool a name that Holdfast takes', () => {
    expect(toolName('9 lives/é')).toMatch(/^[A-Za-z][A-Za-z0-9_.:-]*$/);
  });
});
