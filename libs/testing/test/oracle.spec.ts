import { describe, expect, it } from '@jest/globals';
import type { CallOp, Op } from '../src/sim/agents.js';
import { expected } from '../src/sim/oracle.js';

describe('what an idempotent call with recorded words comes to', () => {
  const mail = (from: CallOp['from']): Op => ({ do: 'call', tool: 'mail.put', n: 9, target: 'run-1/9', from });
  const answers = (from: CallOp['from'], isBound: boolean) => expected('1', 'run-1', [{ do: 'random' }, mail(from)], { settles: false, cancels: () => false, isBound: (step) => isBound && step === '2' }).output;
  const [done] = answers('recorded', false) ?? [];

  it('is its result, or a conflict where a former holder may have fired it with words that were never recorded', () => {
    expect(answers('recorded', true)).toEqual([`${done}|refused: operation_conflict`]);
  });

  it('is its result where its words are always the same', () => {
    expect(answers('nothing', true)).toEqual([done]);
  });
});
