import { describe, expect, test } from '@jest/globals';
import { digestOf, EffectConflicted, EffectFailed, EffectJoined, EffectOutcomeUnknown, EffectRejected, EffectRequested, EffectSucceeded, RunFinished, RunId, topics, type Failure, type Step } from '@holdfast/protocol';
import { effect, receipt, step } from './kit.js';
import { heard } from './turn-kit.js';

const { key, args, digest } = effect('1');
const book = { name: 'book', version: '1' };
const at1 = { step: step('1'), key, attempt: 1 } as const;
const owner = { run: RunId.parse('run-2'), step: step('4') };

const asks = (fire: 'local' | 'granted', tool = book) => [topics.runEvents, EffectRequested({ call: { ...at1, tool, effect: 'idempotent', keyScope: 'run', args, digest, digestVersion: 1 } as never, fire })] as const;
const ends = [topics.runEvents, RunFinished({ ending: { status: 'cancelled', reason: 'no', by: 'kate' }, effects: [], steps: { fresh: 0, replayed: 0 } })] as const;
const other: Failure = { class: 'unknown_outcome', message: 'looked', notApplied: true };

describe('of an effect that the ledger tells of before the orchestrator does', () => {
  test('its later words are kept as well, though only the first names its tool', () => {
    const local = { tool: book, effect: 'idempotent' as const, digest, args };
    const plans = heard(
      [topics.effectEvents, EffectOutcomeUnknown({ ...at1, cause: 'may_have_applied', message: 'no answer', owner: null, local, last: true }), 1],
      [topics.effectEvents, EffectFailed({ ...at1, failure: other, evidence: { kind: 'person', note: 'the books' }, because: 'proved not applied' }), 2],
      asks('local'),
      ends,
    );
    expect(plans.state.known.get(step('1'))).toMatchObject({ status: 'failed', version: 2 });
    expect(plans.state.plans.filter(({ status }) => status === 'open')).toEqual([]);
  });

  test('that another run holds its key is kept', () => {
    const plans = heard([topics.effectEvents, EffectConflicted({ step: step('1'), key, tool: book, digest: digestOf('other'), owner })], asks('granted'), ends);
    expect(plans.state.known.get(step('1'))).toMatchObject({ status: 'failed' });
    expect(plans.types).not.toContain('PlanOpened');
  });

  test('that another run’s effect answers it is kept', () => {
    const plans = heard(
      [topics.effectEvents, EffectJoined({ step: step('1'), key, tool: book, digest, owner }), 1],
      [topics.effectEvents, EffectSucceeded({ ...at1, result: { value: 'done' }, evidence: receipt, replayed: owner }), 2],
      asks('granted'),
      ends,
    );
    expect(plans.state.known.get(step('1'))).toMatchObject({ status: 'not_ours' });
    expect(plans.types).not.toContain('PlanOpened');
  });

  test('nothing is kept whose tool nobody could answer', () => {
    const mail = { name: 'mail', version: '1' };
    expect(heard([topics.effectEvents, EffectConflicted({ step: step('1'), key, tool: mail, digest, owner })], [topics.effectEvents, EffectSucceeded({ ...at1, result: { value: 1 }, evidence: receipt }), 2]).recorded).toEqual([]);
  });
});

describe('of a compensation that is for one version', () => {
  const before = [asks('local', { name: 'book.guarded', version: '1' }), [topics.effectEvents, EffectSucceeded({ ...at1, result: { value: { id: 'b', version: 7 } }, evidence: receipt }), 2], ends] as const;
  const answer = { step: '1~1' as Step, key, attempt: 1 } as const;
  const failed = (failure: Failure) => [topics.effectEvents, EffectFailed({ ...answer, failure, evidence: receipt, because: 'so it is' }), 3] as const;

  test.each([
    ['that somebody has changed it since, it stands', failed({ class: 'concurrency_conflict', message: 'version 8 is there', notApplied: true }), 'stands', []],
    ['that it is forbidden, people are told', failed({ class: 'permission_denied', message: 'no', notApplied: true }), 'failed', ['failed']],
    ['that the business refuses it, people are told', [topics.effectEvents, EffectRejected({ ...answer, reason: 'no', evidence: receipt }), 3] as const, 'failed', ['failed']],
  ])('%s', (_, said, standing, told) => {
    const plans = heard(...before, said);
    expect(plans.state.items.get(step('1'))?.settled?.standing).toBe(standing);
    expect(plans.recorded.flatMap((event) => (event.type === 'CompensationEscalated' ? [event.data.reason] : []))).toEqual(told);
  });
});
