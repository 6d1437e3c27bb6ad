import type { SpanMark } from '@holdfast/runtime';
import type { Run, RunEvent } from './domain/run.js';

type Settles = { readonly settles?: readonly { readonly step: string; readonly outcome: { readonly status: string } }[] | undefined };

const ends = ({ settles = [] }: Settles): SpanMark[] => settles.map(({ step, outcome: { status } }) => ended(step, status));
const ended = (step: string, status: string): SpanMark => ({ parts: ['step', step], name: 'step', mark: 'ends', attributes: { 'holdfast.step': step, 'holdfast.outcome': status }, ...(status === 'failed' || status === 'unknown' ? { failed: status } : {}) });
const begins = (step: string): SpanMark => ({ parts: ['step', step], name: 'step', mark: 'begins' });

/** A run from its acceptance to its end, and its steps from the wish to the outcome. An unknown outcome ends no step. */
export function marks(event: RunEvent, before: Run): readonly SpanMark[] {
  switch (event.type) {
    case 'RunAccepted':
      return [{ parts: [], name: 'run', mark: 'begins' }];
    case 'EffectRequested':
      return [...ends(event.data), begins(event.data.call.step)];
    case 'GroupRequested':
      return [...ends(event.data), ...event.data.calls.map(({ step }) => begins(step))];
    case 'WaitStarted':
      return [...ends(event.data), begins(event.data.step)];
    case 'WaitEnded':
      return [{ ...ended(event.data.step, 'ended'), name: 'wait' }];
    case 'EffectSettled':
      return [ended(event.data.step, event.data.outcome.status)];
    case 'StepRecorded': {
      const { step, kind, usage } = event.data;
      const used = usage === undefined ? {} : { 'holdfast.tokens': (usage.tokensIn ?? 0) + (usage.tokensOut ?? 0), 'holdfast.cost': usage.cost ?? 0 };
      return [...ends(event.data), { parts: ['step', step], name: kind, mark: 'ends', attributes: { 'holdfast.step': step, ...used } }];
    }
    case 'RunFinished': {
      const facts = 'usage' in before ? { since: before.acceptedAt ?? undefined, attributes: { 'holdfast.tenant': before.tenant, 'holdfast.agent': before.agent === null ? '' : `${before.agent.name}@${before.agent.version}`, 'holdfast.status': event.data.ending.status, 'holdfast.resumes': before.resumes } } : {};
      const { status } = event.data.ending;
      return [...ends(event.data), { parts: [], name: 'run', mark: 'ends', ...facts, ...(status === 'completed' || status === 'completed_partially' ? {} : { failed: status }) }];
    }
    default:
      return 'settles' in event.data ? ends(event.data) : [];
  }
}
