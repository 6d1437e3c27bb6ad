import type { Run } from '@holdfast/sdk';
import type { CallOp } from './agents.js';

/** Some calls that can be answered, and then the wish that they be. */
export interface UndoOp {
  readonly do: 'undo';
  readonly n: number;
  readonly calls: readonly [CallOp, ...CallOp[]];
  /** All of them, or the first alone, or so much of the first. */
  readonly how: 'rollback' | 'compensate' | 'in part';
  readonly amount: number;
}

export async function undo(run: Run, { n, calls, how, amount }: UndoOp, call: (op: CallOp) => Promise<string>): Promise<string[]> {
  const said = [await run.step(`mark ${n}`, () => 'marked')];
  const mark = run.lastStep();
  let first = mark;
  for (const [index, each] of calls.entries()) {
    const ending = call(each);
    if (index === 0) first = run.lastStep();
    said.push(await ending);
  }
  const { status } = how === 'rollback' ? await run.rollback({ to: mark }) : await run.compensate(first, how === 'in part' ? { amount } : {});
  return [...said, status];
}
