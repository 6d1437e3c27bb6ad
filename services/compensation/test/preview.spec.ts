import { describe, expect, test } from '@jest/globals';
import { preview } from '../src/domain/preview.js';
import { ended, how, looking, note, register, someone, step, told } from './kit.js';

const asked = { command: 'c', by: someone('operator'), reason: 'to see' };

describe('what would be done', () => {
  test('is told in its order, with who is needed, and what would stand then', () => {
    const before = told(register('1'), register('2', { how: how({ authority: { approvers: ['manager'] } }) }), register('3', { how: how({ tool: { name: 'checked', version: '1' }, verify: true }) }), register('4', { how: how({ args: 'host' }) }), note('1'), note('2'), note('3'), note('4'), ended('completed')).state;
    const seen = preview(before, asked, looking());
    expect(seen.refused).toBeNull();
    expect(seen.would.map(({ of, tool, args, approvers }) => [of, tool.name, args, approvers])).toEqual([
      ['4', 'cancel', null, null],
      ['3', 'checked', { booking: 'b3' }, null],
      ['2', 'cancel', { booking: 'b2' }, ['manager']],
      ['1', 'cancel', { booking: 'b1' }, null],
    ]);
    expect(seen.then?.status).toBe('compensated');
    expect(before.plans).toEqual([]);
  });

  test('says what has to be settled first', () => {
    const before = told(register('1'), register('2'), note('1', { status: 'unknown' }), note('2'), ended('completed')).state;
    expect(preview(before, asked, looking())).toMatchObject({ would: [{ of: '2' }], unsettled: [{ step: '1', status: 'unknown' }], then: null });
  });

  test('is nothing where the wish would be refused', () => {
    expect(preview(told(register('1'), note('1'), ended('completed')).state, { ...asked, steps: [step('7')] }, looking())).toMatchObject({ refused: { reason: 'step_unknown' }, would: [] });
  });
});
