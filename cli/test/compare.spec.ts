import { describe, expect, it } from '@jest/globals';
import { EffectRequested, EffectSettled, Fence, OperationKey, Pool, RunAccepted, RunFinished, RunResumed, Digest, Step, StepRecorded, Tenant, WorkerId, type Json, type RequestedCall } from '@holdfast/protocol';
import type { RunEvent } from '@holdfast/orchestrator';
import { compareEvents } from '../src/index.js';

const hex = (digit: string): string => digit.repeat(64);
const lease = (fence: number) => ({ fence: Fence.parse(fence), worker: WorkerId.parse(`w${fence}`), taken: fence });
const call = (step: string, key: string, args: Json): RequestedCall => ({ step: Step.parse(step), tool: { name: 'mail', version: '1' }, effect: 'irreversible', keyScope: 'run', args, key: OperationKey.parse(hex(key)), digest: Digest.parse(hex('b')), digestVersion: 1 });
const accepted = (input = 'c') => RunAccepted({ tenant: Tenant.parse('default'), agent: { name: 'a', version: '1' }, pool: Pool.parse('default'), input: null, inputDigest: Digest.parse(hex(input)), lease: lease(1) });
const asked = (step: string, key: string, args: Json = { to: 'kate' }) => EffectRequested({ call: call(step, key, args), fire: 'granted', fence: Fence.parse(1) });
const settled = (step: string, result: Json, attempt = 1) => EffectSettled({ step: Step.parse(step), attempt, outcome: { status: 'succeeded', result: { value: result }, evidence: { kind: 'receipt' } } });
const chosen = (result: Json) => StepRecorded({ step: Step.parse('1'), kind: 'model', name: 'choose', result: { value: result }, fence: Fence.parse(1) });
const resumed = RunResumed({ lease: lease(2), because: 'worker_changed', revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none' }, replayed: 1, refired: [] });
const ended = (value: Json, fence = 1) => RunFinished({ ending: { status: 'completed', output: { value } }, effects: [], steps: { fresh: 1, replayed: 0 }, fence: Fence.parse(fence) });

const straight: RunEvent[] = [accepted(), chosen('mail'), asked('2', 'a'), settled('2', 'sent'), ended('done')];
const against = (...events: RunEvent[]) => compareEvents('run', events, 'reference', straight);

describe('a run beside another', () => {
  it('is alike where only keys, attempts and workers differ', () => {
    expect(against(accepted(), chosen('mail'), asked('2', 'd'), resumed, settled('2', 'sent', 2), ended('done', 2))).toMatchObject({ alike: true, resumes: { run: 1, reference: 0 }, steps: [{ step: '1', differs: [] }, { step: '2', differs: [] }] });
  });

  it.each<[string, RunEvent[], object]>([
    ['other arguments', [accepted(), chosen('mail'), asked('2', 'a', { to: 'eve' }), settled('2', 'sent'), ended('done')], { steps: [{ differs: [] }, { step: '2', differs: ['args'] }] }],
    ['another result', [accepted(), chosen('mail'), asked('2', 'a'), settled('2', 'bounced'), ended('done')], { steps: [{ differs: [] }, { differs: ['outcome'] }] }],
    ['other recorded work', [accepted(), chosen('call'), asked('2', 'a'), settled('2', 'sent'), ended('done')], { steps: [{ differs: ['outcome'] }, { differs: [] }] }],
    ['a step too few', [accepted(), chosen('mail'), ended('done')], { steps: [{ differs: [] }, { step: '2', run: null, differs: ['missing'] }] }],
    ['a step too many', [...straight.slice(0, 4), asked('3', 'e'), settled('3', 'sent'), ended('done')], { steps: [{ differs: [] }, { differs: [] }, { step: '3', reference: null, differs: ['missing'] }] }],
    ['another end', [...straight.slice(0, 4), ended('otherwise')], { ending: { differs: true, run: { completed: { value: 'otherwise' } } }, steps: [{ differs: [] }, { differs: [] }] }],
    ['no end yet', straight.slice(0, 4), { ending: { differs: true } }],
    ['another input', [accepted('d'), ...straight.slice(1)], { input: { differs: true } }],
  ])('differs by %s', (_, events, expected) => {
    expect(against(...events)).toMatchObject({ alike: false, ...expected });
  });

  it('must have been accepted', () => {
    expect(compareEvents('run', [], 'reference', straight)).toEqual({ missing: 'run' });
    expect(compareEvents('run', straight, 'reference', [])).toEqual({ missing: 'reference' });
  });
});
