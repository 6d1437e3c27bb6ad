import type { SpanMark } from '@holdfast/runtime';
import type { CaseEvent, RunCases } from './domain/case.js';

/** Each case, from the doubt to the verdict. */
export function marks(event: CaseEvent, { cases }: RunCases): readonly SpanMark[] {
  if (event.type !== 'CaseOpened' && event.type !== 'CaseSettled') return [];
  const { step, attempt } = event.data;
  const about = { parts: ['case', step, attempt], parent: ['step', step], name: 'case' };
  if (event.type === 'CaseOpened') return [{ ...about, mark: 'begins' }];
  const { verdict, by } = event.data;
  return [{ ...about, mark: 'ends', since: cases.get(step)?.since, attributes: { 'holdfast.step': step, 'holdfast.attempt': attempt, 'holdfast.verdict': verdict.status, 'holdfast.by': by } }];
}
