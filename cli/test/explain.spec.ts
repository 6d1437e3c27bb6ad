import { describe, expect, it } from '@jest/globals';
import {
  EffectRequested,
  EffectSettled,
  Fence,
  IntentRejected,
  OperationKey,
  Pool,
  RunAccepted,
  RunFinished,
  RunResumed,
  Digest,
  Step,
  StepRecorded,
  Tenant,
  WorkerId,
  type RequestedCall,
} from '@holdfast/protocol';
import type { RunEvent } from '@holdfast/orchestrator';
import { explainEvents } from '../src/index.js';

const hex = (digit: string): string => digit.repeat(64);
const lease = (fence: number) => ({ fence: Fence.parse(fence), worker: WorkerId.parse(`w${fence}`), taken: fence });
const call = (step: string, tool: string, effect: RequestedCall['effect']): RequestedCall => ({
  step: Step.parse(step),
  tool: { name: tool, version: '1' },
  effect,
  keyScope: 'run',
  args: {},
  key: OperationKey.parse(hex('a')),
  digest: Digest.parse(hex('b')),
  digestVersion: 1,
});
const accepted = RunAccepted({ tenant: Tenant.parse('default'), agent: { name: 'a', version: '1' }, pool: Pool.parse('default'), input: null, inputDigest: Digest.parse(hex('c')), lease: lease(1) });
const succeeded = (step: string) => EffectSettled({ step: Step.parse(step), attempt: 1, outcome: { status: 'succeeded', result: { value: 1 }, evidence: { kind: 'receipt' } } });
const resumed = RunResumed({ lease: lease(2), because: 'worker_changed', revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none' }, replayed: 2, refired: [] });
const finished = RunFinished({ ending: { status: 'completed', output: { value: 1 } }, effects: [], steps: { fresh: 1, replayed: 2 }, fence: Fence.parse(2) });

const crashed: RunEvent[] = [
  accepted,
  StepRecorded({ step: Step.parse('1'), kind: 'model', name: 'choose', result: { value: 1 }, fence: Fence.parse(1) }),
  EffectRequested({ call: call('2', 'look_up', 'pure'), fire: 'granted', fence: Fence.parse(1) }),
  succeeded('2'),
  EffectRequested({ call: call('3', 'refund', 'irreversible'), fire: 'granted', fence: Fence.parse(1) }),
  succeeded('3'),
  resumed,
  IntentRejected({ intent: 'CallTool', step: Step.parse('3'), reason: 'stale_fence', message: 'late', token: 't' }),
  EffectRequested({ call: call('4', 'mail', 'irreversible'), fire: 'granted', fence: Fence.parse(2) }),
  succeeded('4'),
  finished,
];

describe('explaining a run', () => {
  it('labels what the last worker did itself and what it replayed', () => {
    expect(explainEvents('r', crashed)?.steps.map(({ step, origin }) => [step, origin])).toEqual([['1', 'replayed'], ['2', 'replayed'], ['3', 'replayed'], ['4', 'fresh']]);
  });

  it('names the first effect that a restart from the beginning would have done twice: no read, no recorded work', () => {
    expect(explainEvents('r', crashed)?.doubledByNaiveRestart).toEqual({ step: '3', tool: 'refund' });
  });

  it('counts what was refused, by reason', () => {
    expect(explainEvents('r', crashed)?.refused).toEqual({ stale_fence: 1 });
  });

  it('finds nothing to double in a run that was never resumed', () => {
    expect(explainEvents('r', crashed.filter(({ type }) => type !== 'RunResumed'))?.doubledByNaiveRestart).toBeNull();
  });

  it('says nothing of a run that was never accepted', () => {
    expect(explainEvents('r', [])).toBeNull();
  });
});
