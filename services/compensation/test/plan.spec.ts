import { describe, expect, test } from '@jest/globals';
import { operationKey, type Json } from '@holdfast/protocol';
import { DOUBT_AFTER_MS } from '../src/domain/advance.js';
import type { PlanCommand } from '../src/domain/commands.js';
import { planDecider } from '../src/domain/decide.js';
import { compensate, decideOn, due, effect, ended, how, keyOf, note, noteAnswer, now, openFor, register, someone, step, told } from './kit.js';

const run = { kind: 'run' } as const;

describe('a plan is made', () => {
  test.each(['failed', 'cancelled', 'expired'] as const)('of a run that %s, from what the ledger has recorded by then', (ending) => {
    const plans = told(register('1'), note('1'), ended(ending));
    expect(plans.types().slice(2)).toEqual(['RunEndNoted', 'PlanOpened', 'ArgumentsKnown', 'CompensationOrdered']);
    expect(plans.all('CompensationOrdered')).toMatchObject([{ of: '1', step: '1~1', tool: { name: 'cancel' }, args: { booking: 'b1' }, key: operationKey({ scope: 'compensation', effect: keyOf('1'), part: 1 }), authorisedBy: 'the contract of book1@1' }]);
  });

  test('not of one that completed, until an operator asks', () => {
    const plans = told(register('1'), note('1'), ended('completed'));
    expect(plans.types()).not.toContain('PlanOpened');
    expect(plans.on(compensate()).map(({ type }) => type)).toEqual(['PlanOpened', 'ArgumentsKnown', 'CompensationOrdered']);
  });

  test('not where there is nothing to answer', () => {
    expect(told(ended('completed')).events).toEqual([]);
    expect(told(ended()).types()).toEqual(['RunEndNoted']);
    expect(told(register('1'), note('1', { status: 'rejected', message: 'full' }), ended()).types()).not.toContain('PlanOpened');
  });

  test('by two causes at once it is one plan, and nothing is ordered twice', () => {
    const plans = told(register('1'), register('2'), note('1'), note('2'), openFor({ kind: 'steps', steps: [step('2')] }), ended(), compensate());
    expect(plans.all('PlanOpened')).toHaveLength(1);
    expect(plans.all('PlanWidened').map(({ cause }) => cause.kind)).toEqual(['run_ended', 'operator']);
    expect(plans.ordered()).toEqual(['2~1']);
    expect(plans.tell(noteAnswer('2~1')).ordered()).toEqual(['2~1', '1~1']);
  });

  test('and what the run did after a point alone is meant by a roll-back to it', () => {
    const plans = told(register('1'), register('2'), register('3'), note('1'), note('2'), note('3'), openFor({ kind: 'after', step: step('1') }), noteAnswer('3~1'), noteAnswer('2~1'));
    expect(plans.ordered()).toEqual(['3~1', '2~1']);
    expect(plans.conclusion).toMatchObject({ status: 'compensated', waits: ['9'] });
  });
});

describe('an effect', () => {
  test('registers before it fires: one that is under way is waited for, and joins', () => {
    const plans = told(register('1'), register('2'), note('1'), ended('cancelled'));
    expect(plans.ordered()).toEqual([]);
    expect(plans.tell(note('2')).ordered()).toEqual(['2~1']);
  });

  test('of unknown outcome is settled first', () => {
    const plans = told(register('1'), note('1', { status: 'unknown', message: 'no answer' }), ended());
    expect(plans.ordered()).toEqual([]);
    expect(plans.conclusion).toBeUndefined();
    expect(plans.tell(note('1', { version: 3 })).ordered()).toEqual(['1~1']);
  });

  test('of which its worker says only after the end of its run that it has happened is answered', () => {
    const plans = told(ended('cancelled'), register('1', { fire: 'local' }));
    expect(plans.all('PlanOpened')).toMatchObject([{ cause: { kind: 'landed_late', step: '1' }, scope: { kind: 'steps', steps: ['1'] } }]);
    expect(plans.tell(note('1')).ordered()).toEqual(['1~1']);
  });

  test('of which nobody says anything, begun as its run ended, is in doubt after a while', () => {
    const plans = told(ended('cancelled'), register('1', { fire: 'local' }), register('2', { fire: 'local' }), due(now + DOUBT_AFTER_MS));
    expect(plans.all('PlanOpened')).toHaveLength(1);
    expect(plans.all('EffectDoubted').map((doubted) => doubted.step)).toEqual(['2', '1']);
  });

  test('that the ledger tells of first takes its place when the orchestrator does', () => {
    const plans = told(register('2', { early: true }), note('2'), register('1'), register('2'), register('2', { early: true }), note('1'), ended());
    expect(plans.types().filter((type) => type === 'CompensationRegistered')).toHaveLength(3);
    expect(plans.ordered()).toEqual(['2~1']);
    expect(plans.tell(noteAnswer('2~1')).ordered()).toEqual(['2~1', '1~1']);
  });

  test('begun as its run had completed is not answered by itself', () => {
    expect(told(register('1'), ended('completed'), register('2', { fire: 'local' }), note('2')).types()).not.toContain('PlanOpened');
  });

  test('that is proved not to have happened needs no answer', () => {
    const plans = told(register('1'), note('1', { status: 'unknown' }), ended(), note('1', { status: 'failed', version: 3, message: 'proved not applied' }));
    expect(plans.ordered()).toEqual([]);
    expect(plans.standings()).toEqual({ 1: 'never_happened' });
  });

  test('that lands late after all is answered, in the plan that is open or in another', () => {
    const open = told(register('1'), register('2'), note('1', { status: 'failed' }), note('2'), ended(), note('1', { version: 3 }), noteAnswer('2~1'));
    expect(open.all('CompensationReopened')).toMatchObject([{ of: '1' }]);
    expect(open.ordered()).toEqual(['2~1', '1~1']);
    const over = told(register('1'), note('1', { status: 'unknown' }), ended(), note('1', { status: 'failed', version: 3 }), note('1', { version: 4 }));
    expect(over.all('PlanOpened').map(({ plan, cause }) => [plan, cause.kind])).toEqual([[1, 'run_ended'], [2, 'landed_late']]);
    expect(over.ordered()).toEqual(['1~1']);
  });

  test('that an agent asks for after its roll-back is what it wants: nothing answers it', () => {
    const plans = told(register('1'), register('2'), note('1'), note('2'), openFor({ kind: 'after', step: step('1') }, '3'), noteAnswer('2~1'), register('4'), note('4'));
    expect(plans.ordered()).toEqual(['2~1']);
    expect(told(register('1'), note('1'), openFor(run, '2'), register('3'), note('3'), noteAnswer('1~1')).ordered()).toEqual(['1~1']);
  });

  test('that its worker fired, and of which nobody ever says anything, is handed to the ledger as a doubt', () => {
    const plans = told(register('1', { fire: 'local', effect: 'idempotent' }), ended());
    expect(plans.on(due(now + DOUBT_AFTER_MS - 1))).toEqual([]);
    expect(plans.on(due(now + DOUBT_AFTER_MS))).toMatchObject([{ type: 'EffectDoubted', data: { step: '1', key: keyOf('1'), args: { n: '1' } } }]);
    expect(plans.on(due(now + 2 * DOUBT_AFTER_MS))).toEqual([]);
  });

  test('of another run under the same key is not answered by this one', () => {
    const plans = told(register('1'), register('2'), note('2'), note('1', { status: 'not_ours', message: 'the effect of run x' }), ended(), noteAnswer('2~1'));
    expect(plans.ordered()).toEqual(['2~1']);
    expect(plans.standings()).toEqual({ 1: 'never_happened', 2: 'compensated' });
  });

  test('before a point of no return stands, and so does the point itself', () => {
    const plans = told(register('1'), register('2', { how: null, pointOfNoReturn: true }), register('3'), note('1'), note('2'), note('3'), ended(), noteAnswer('3~1'));
    expect(plans.ordered()).toEqual(['3~1']);
    expect(plans.standings()).toEqual({ 1: 'stands', 2: 'stands', 3: 'compensated' });
    expect(plans.conclusion?.status).toBe('compensated_partially');
  });

  test('before a point of no return that did not happen is answered', () => {
    expect(told(register('1'), register('2', { how: null, pointOfNoReturn: true }), note('1'), note('2', { status: 'rejected' }), ended()).ordered()).toEqual(['1~1']);
  });

  describe('before a point of no return of which nobody knows whether it has happened', () => {
    const point = register('2', { how: null, pointOfNoReturn: true });
    const unclear = (...more: PlanCommand[]) => told(register('1'), point, register('3'), note('1'), note('3'), ...more, ended('cancelled'), noteAnswer('3~1'));

    test.each<[string, PlanCommand[]]>([
      ['it is unknown', [note('2', { status: 'unknown' })]],
      ['nothing was heard of it', []],
    ])('waits, where %s', (_, said) => {
      const plans = unclear(...said);
      expect(plans.ordered()).toEqual(['3~1']);
      expect(plans.conclusion).toBeUndefined();
      expect(plans.tell(note('2', { status: 'failed', version: 3 }), noteAnswer('1~1')).ordered()).toEqual(['3~1', '1~1']);
      expect(plans.standings()).toEqual({ 1: 'compensated', 2: 'never_happened', 3: 'compensated' });
      expect(unclear(...said).tell(note('2', { version: 3 })).standings()).toEqual({ 1: 'stands', 2: 'stands', 3: 'compensated' });
    });

    test('waits also where nothing else is to be answered', () => {
      const plans = told(register('1'), point, note('1'), note('2', { status: 'unknown' }), ended());
      expect(plans.types()).toContain('PlanOpened');
      expect(plans.tell(note('2', { status: 'failed', version: 3 })).ordered()).toEqual(['1~1']);
    });

    test('that its worker fired by itself waits until the ledger was asked', () => {
      const plans = told(register('1'), register('2', { how: null, pointOfNoReturn: true, fire: 'local', effect: 'idempotent' }), note('1'), ended());
      expect(plans.on(due(now + DOUBT_AFTER_MS))).toMatchObject([{ type: 'EffectDoubted', data: { step: '2' } }]);
      expect(plans.tell(note('2')).standings()).toEqual({ 1: 'stands', 2: 'stands' });
    });

    test('may be asked for by an operator, and waits', () => {
      const plans = told(register('1'), point, note('1'), note('2', { status: 'unknown' }), ended('completed_partially'), compensate({ steps: [step('1')] }));
      expect(plans.types()).not.toContain('PlanCommandRefused');
      expect(plans.tell(note('2', { version: 3 })).ordered()).toEqual([]);
      expect(plans.standings()).toEqual({ 1: 'stands' });
    });
  });

  test('of which an earlier plan has answered a part, or failed to, is let be once the run has passed a point of no return', () => {
    const begun = (...rest: PlanCommand[]) => told(register('1', { args: { cents: 100 }, how: how({ partial: { amount: { from: 'args', at: '/cents' }, as: 'cents' } }) }), note('1'), openFor({ kind: 'steps', steps: [step('1')], amount: 30 }, '2'), ...rest, register('3', { how: null, pointOfNoReturn: true }), register('4'), note('3'), note('4'), ended(), noteAnswer('4~1'));
    expect(begun(noteAnswer('1~1')).standings()).toEqual({ 1: 'in_part', 3: 'stands', 4: 'compensated' });
    expect(begun(noteAnswer('1~1', { status: 'failed' })).standings()).toEqual({ 1: 'failed', 3: 'stands', 4: 'compensated' });
    expect(begun(noteAnswer('1~1')).ordered()).toEqual(['1~1', '4~1']);
  });

  test('answered in part is answered wholly when the plan that is still open is widened', () => {
    const paid = { amount: { from: 'args' as const, at: '/cents' }, as: 'cents' };
    const plans = told(register('1', { args: { cents: 100 }, how: how({ partial: paid }) }), register('2', { how: how({ order: 'independent', authority: { approvers: ['manager'] } }) }), note('1'), note('2'), openFor({ kind: 'steps', steps: [step('2')] }, '8'), openFor({ kind: 'steps', steps: [step('1')], amount: 30 }, '9'), noteAnswer('1~1'));
    expect(plans.state.items.get(step('1'))?.settled?.standing).toBe('in_part');
    plans.tell(ended(), noteAnswer('1~2'), decideOn('2', { decision: 'reject' }));
    expect(plans.all('CompensationOrdered').map(({ step: name, args }) => [name, args])).toEqual([['1~1', { booking: 'b1', cents: 30 }], ['1~2', { booking: 'b1', cents: 70 }]]);
    expect(plans.standings()).toEqual({ 1: 'compensated', 2: 'stands' });
  });

  test('without a compensation stands, and is named', () => {
    const other = { step: step('2'), tool: { name: 'mail', version: '1' }, key: keyOf('2'), outcome: 'succeeded' as const };
    const plans = told(register('1'), note('1'), ended('failed', [other]), noteAnswer('1~1'));
    expect(plans.conclusion).toMatchObject({ status: 'compensated_partially', effects: [{ step: '1', standing: 'compensated' }, { step: '2', standing: 'stands' }] });
  });
});

describe('the order', () => {
  test('is the reverse one by default, each once the one before is answered', () => {
    const plans = told(register('1'), register('2'), register('3'), note('1'), note('2'), note('3'), ended());
    expect(plans.ordered()).toEqual(['3~1']);
    expect(plans.tell(noteAnswer('3~1')).ordered()).toEqual(['3~1', '2~1']);
    expect(plans.tell(noteAnswer('2~1'), noteAnswer('1~1')).conclusion?.status).toBe('compensated');
  });

  test('of independent effects is none: they are answered at once', () => {
    const independent = { how: how({ order: 'independent' }) };
    expect(told(register('1', independent), register('2', independent), register('3'), note('1'), note('2'), note('3'), ended()).ordered().sort()).toEqual(['1~1', '2~1', '3~1']);
  });

  test.each([
    ['after', { after: ['book1'] }, ['1~1', '2~1']],
    ['before', { before: ['book1'] }, ['2~1', '1~1']],
  ])('may be stated: %s', (_, order, expected) => {
    const plans = told(register('1', { how: how({ order: 'independent' }) }), register('2', { how: how({ order }) }), note('1'), note('2'), ended());
    expect(plans.ordered()).toEqual([expected[0]]);
    expect(plans.tell(noteAnswer(expected[0] ?? '')).ordered()).toEqual(expected);
  });

  test('that goes round in a circle becomes the reverse one', () => {
    const plans = told(register('1', { how: how({ order: { after: ['book2'] } }) }), register('2', { how: how({ order: { after: ['book1'] } }) }), note('1'), note('2'), ended());
    expect(plans.tell(noteAnswer('2~1')).ordered()).toEqual(['2~1', '1~1']);
  });
});

describe('arguments', () => {
  const args = (sources: Record<string, Json>, over = {}): Json => told(register('1', { args: { seat: { row: 4 } }, how: how({ args: sources as never, ...over }) }), note('1', { result: { value: { id: 'b', version: 7 } } }), ended()).all('CompensationOrdered')[0]?.args ?? null;

  test('come from what was called, what it came to, the key, and the contract', () => {
    expect(args({ row: { from: 'args', at: '/seat/row' }, whole: { from: 'result', at: '' }, of: { from: 'key' }, why: { value: 'trip off' } })).toEqual({ row: 4, whole: { id: 'b', version: 7 }, of: keyOf('1'), why: 'trip off' });
  });

  test('hold the version that the effect left, so that what was changed since is not overwritten', () => {
    const guarded = how({ precondition: { version: '/version', as: 'ifVersion' } });
    const plans = told(register('1', { how: guarded }), register('2'), note('1', { result: { value: { id: 'b', version: 7 } } }), note('2'), ended(), noteAnswer('2~1'));
    expect(plans.all('CompensationOrdered')[1]?.args).toEqual({ booking: 'b', ifVersion: 7 });
    plans.tell(noteAnswer('1~1', { status: 'failed', message: 'version 8 is there' }, true));
    expect(plans.standings()).toEqual({ 1: 'stands', 2: 'compensated' });
    expect(plans.conclusion?.effects[0]?.why).toContain('changed it since');
  });

  test('that are not there are no reason to call with others: people are told', () => {
    const plans = told(register('1', { how: how({ args: { booking: { from: 'result', at: '/nothing' } } }) }), note('1'), ended());
    expect(plans.ordered()).toEqual([]);
    expect(plans.all('CompensationEscalated')).toMatchObject([{ reason: 'arguments', to: 'the desk' }]);
    expect(plans.conclusion?.status).toBe('compensation_failed');
  });

  test('may be computed by a host, which is asked until it answers', () => {
    const plans = told(register('1', { how: how({ args: 'host' }) }), note('1'), ended());
    expect(plans.all('ArgumentsAsked')).toMatchObject([{ ask: 1, answerBy: now + 10_000 }]);
    plans.tell(due(now + 10_000), due(now + 11_000));
    expect(plans.all('ArgumentsAsked')).toHaveLength(2);
    expect(plans.on({ ...due(now), type: 'arguments', step: step('1'), ask: 1, answer: { status: 'known', args: { late: true } } } as never)).toEqual([]);
    plans.tell({ ...due(now + 11_001), type: 'arguments', step: step('1'), ask: 2, answer: { status: 'known', args: { seat: 4 } } } as never);
    expect(plans.all('CompensationOrdered')).toMatchObject([{ args: { seat: 4 } }]);
  });
});

describe('authority', () => {
  const asking = { how: how({ authority: { approvers: ['manager'] } }) };

  test('of a role: nothing is ordered before somebody with it has approved exactly these arguments', () => {
    const plans = told(register('1', asking), note('1'), ended());
    expect(plans.all('CompensationApprovalAsked')).toMatchObject([{ of: '1', approvers: ['manager'], args: { booking: 'b1' } }]);
    expect(plans.on(decideOn('1', { by: someone('operator') }))).toMatchObject([{ type: 'PlanCommandRefused', data: { reason: 'role_missing' } }]);
    expect(plans.on(decideOn('1', { command: 'd2', digest: effect('1').digest }))).toMatchObject([{ data: { reason: 'other_arguments' } }]);
    expect(plans.ordered()).toEqual([]);
    plans.tell(decideOn('1', { command: 'd3' }));
    expect(plans.all('CompensationOrdered')).toMatchObject([{ authorisedBy: 'ada' }]);
    expect(planDecider.decide(decideOn('1', { command: 'd3' }), plans.state)).toEqual({ kind: 'ignore', because: 'command_answered' });
  });

  test('refused: the effect stands, and the rest goes on', () => {
    const plans = told(register('1'), register('2', asking), note('1'), note('2'), ended(), decideOn('2', { decision: 'reject', reason: 'the guest has arrived' }), noteAnswer('1~1'));
    expect(plans.ordered()).toEqual(['1~1']);
    expect(plans.standings()).toEqual({ 1: 'compensated', 2: 'stands' });
    expect(plans.conclusion?.effects[1]?.why).toContain('the guest has arrived');
  });

  test('of the compensating tool itself holds here as well', () => {
    expect(told(register('1', { how: how({ tool: { name: 'guarded', version: '1' } }) }), note('1'), ended()).all('CompensationApprovalAsked')).toMatchObject([{ approvers: ['manager'] }]);
  });
});

describe('a compensation', () => {
  test('that is unknown goes the way of cases: nothing is concluded, and its dependents wait', () => {
    const plans = told(register('1'), register('2'), note('1'), note('2'), ended(), noteAnswer('2~1', { status: 'unknown' }));
    expect(plans.ordered()).toEqual(['2~1']);
    expect(plans.conclusion).toBeUndefined();
    expect(plans.tell(noteAnswer('2~1', { version: 3 })).ordered()).toEqual(['2~1', '1~1']);
  });

  test('that failed is brought to people, what hangs on it is not tried, siblings go on', () => {
    const independent = { how: how({ order: 'independent' }) };
    const plans = told(register('1'), register('2'), register('3', independent), note('1'), note('2'), note('3'), ended(), noteAnswer('2~1', { status: 'failed', attempt: 3, message: 'down' }), noteAnswer('3~1'));
    expect(plans.all('CompensationEscalated')).toMatchObject([{ of: '2', reason: 'failed', to: 'the desk' }]);
    expect(plans.standings()).toEqual({ 1: 'failed', 2: 'failed', 3: 'compensated' });
    expect(plans.conclusion?.status).toBe('compensation_failed');
  });

  test('that failed and is asked for again goes on under its own key, after the attempts that were made', () => {
    const plans = told(register('1'), note('1'), ended(), noteAnswer('1~1', { status: 'failed', attempt: 3 }), compensate({ steps: [step('1')] }));
    const [first, second] = plans.all('CompensationOrdered');
    expect(second).toMatchObject({ step: '1~1', key: first?.key, after: 3 });
    // What was said before says nothing of the new attempt.
    expect(plans.on(noteAnswer('1~1', { status: 'failed', attempt: 3, version: 2 }))).toEqual([]);
    expect(plans.tell(noteAnswer('1~1', { attempt: 4, version: 5 })).conclusion).toMatchObject({ plan: 2, status: 'compensated' });
  });

  test('that is done is never done again, whoever asks', () => {
    const plans = told(register('1'), note('1'), ended(), noteAnswer('1~1'));
    expect(plans.on(compensate())).toMatchObject([{ type: 'PlanCommandRefused', data: { reason: 'nothing_to_do' } }]);
    plans.tell(openFor(run));
    expect(plans.ordered()).toEqual(['1~1']);
    expect(plans.conclusion).toMatchObject({ plan: 2, status: 'compensated' });
  });

  test('counts once its probe has found it, where the contract says so', () => {
    const verified = { how: how({ tool: { name: 'checked', version: '1' }, verify: true }) };
    const plans = told(register('1', verified), note('1'), ended(), noteAnswer('1~1'));
    expect(plans.conclusion).toBeUndefined();
    expect(plans.all('VerificationAsked')).toMatchObject([{ step: '1~1', probe: 1, issuedAt: now }]);
    const answer = (probe: number, status: 'applied' | 'not_applied', at: number): never => ({ ...due(at), type: 'verified', step: '1~1', attempt: 1, probe, issuedAt: undefined, answer: { status, result: { value: null }, evidence: { kind: 'probe' } } }) as never;
    plans.tell(answer(1, 'not_applied', now + 10), due(now + 2000));
    expect(plans.all('VerificationAsked')).toHaveLength(2);
    plans.tell(answer(2, 'applied', now + 2001));
    expect(plans.conclusion).toMatchObject({ status: 'compensated', effects: [{ answers: [{ verified: true, evidence: 'probe' }] }] });
  });

  test('that its probe never finds has failed, whatever its tool said', () => {
    const verified = { how: how({ tool: { name: 'checked', version: '1' }, verify: true }) };
    const plans = told(register('1', verified), note('1'), ended(), noteAnswer('1~1'));
    for (let probe = 1, at = now; probe <= 6; probe += 1, at += 100_000) plans.tell(due(at), { ...due(at), type: 'verified', step: '1~1', attempt: 1, probe, issuedAt: undefined, answer: { status: 'not_applied', evidence: { kind: 'probe' } } } as never);
    expect(plans.all('CompensationEscalated').map(({ reason }) => reason)).toContain('not_found');
    expect(plans.conclusion?.status).toBe('compensation_failed');
  });

  test('that takes longer than its contract allows is brought to people once, and waited for', () => {
    const plans = told(register('1'), note('1'), ended());
    expect(plans.on(due(now + 60_000))).toMatchObject([{ type: 'CompensationEscalated', data: { reason: 'overdue' } }]);
    expect(plans.on(due(now + 120_000))).toEqual([]);
    expect(plans.tell(noteAnswer('1~1')).conclusion?.status).toBe('compensated');
  });

  test('names what remains all the same', () => {
    const plans = told(register('1', { how: how({ residual: [{ what: 'cancellation fee', amount: '/fee' }] }) }), note('1'), ended(), noteAnswer('1~1'));
    expect(plans.conclusion?.effects[0]?.residual).toEqual([{ what: 'cancellation fee', amount: 5 }]);
  });

  test('waits for a tool that nobody serves yet, visibly', () => {
    const plans = told(register('1'), note('1'));
    plans.tell({ ...ended(), ...due(now, {}), type: 'ended' } as never);
    expect(plans.ordered()).toEqual([]);
    expect(plans.on(due(now + 30_000, {}))).toMatchObject([{ data: { reason: 'no_host' } }]);
    expect(plans.tell(due(now + 40_000)).ordered()).toEqual(['1~1']);
  });

  test('of a run that is over carries a fence above all its workers’', () => {
    expect(told(register('1'), note('1'), ended()).all('CompensationOrdered')[0]?.fence).toBe(4);
    expect(told(register('1'), note('1'), openFor(run)).all('CompensationOrdered')[0]?.fence).toBe(3);
  });
});

describe('an amount', () => {
  const paid = { args: { cents: 100 }, how: how({ partial: { amount: { from: 'args', at: '/cents' }, as: 'cents' } }) };

  test('is answered in parts, each under a key of its own, never beyond the whole', () => {
    const plans = told(register('1', paid), note('1'), openFor({ kind: 'steps', steps: [step('1')], amount: 70 }), noteAnswer('1~1'));
    expect(plans.conclusion).toMatchObject({ status: 'compensated_partially', effects: [{ standing: 'in_part', amount: { whole: 100, answered: 70 } }] });
    plans.tell(ended());
    expect(plans.all('CompensationOrdered').map(({ step: at, args }) => [at, args])).toEqual([['1~1', { booking: 'b1', cents: 70 }], ['1~2', { booking: 'b1', cents: 30 }]]);
    expect(plans.all('CompensationOrdered')[0]?.key).not.toBe(plans.all('CompensationOrdered')[1]?.key);
    expect(plans.tell(noteAnswer('1~2')).conclusion).toMatchObject({ status: 'compensated', effects: [{ standing: 'compensated', amount: { whole: 100, answered: 100 } }] });
  });

  test('in parts needs an approval for each', () => {
    const plans = told(register('1', { ...paid, how: { ...paid.how, authority: { approvers: ['manager'] } } }), note('1'), openFor({ kind: 'steps', steps: [step('1')], amount: 70 }), decideOn('1'), ended(), noteAnswer('1~1'));
    expect(plans.all('CompensationApprovalAsked').map(({ args }) => args)).toEqual([{ booking: 'b1', cents: 70 }, { booking: 'b1', cents: 30 }]);
    expect(plans.ordered()).toEqual(['1~1']);
  });

  test('that is more than what is left is refused', () => {
    const plans = told(register('1', paid), note('1'), ended('completed'), compensate({ steps: [step('1')], amount: 70 }), noteAnswer('1~1'));
    expect(plans.on(compensate({ command: 'c2', steps: [step('1')], amount: 31 }))).toMatchObject([{ data: { reason: 'amount_exceeded' } }]);
    expect(plans.on(compensate({ command: 'c3', steps: [step('1')], amount: 30 }))[0]?.type).toBe('PlanOpened');
  });
});

describe('an operator', () => {
  test.each<[string, Parameters<typeof compensate>[0], string]>([
    ['without the role', { by: someone('viewer') }, 'role_missing'],
    ['who names a step that is none', { steps: [step('7')] }, 'step_unknown'],
    ['who names an effect that never happened', { steps: [step('2')] }, 'nothing_to_do'],
    ['who names one that nothing answers', { steps: [step('3')] }, 'not_compensable'],
  ])('%s is refused, with the reason', (_, over, reason) => {
    const other = { step: step('3'), tool: { name: 'mail', version: '1' }, key: keyOf('3'), outcome: 'succeeded' as const };
    expect(told(register('1'), register('2'), note('1'), note('2', { status: 'failed' }), ended('completed', [other])).on(compensate(over))).toMatchObject([{ type: 'PlanCommandRefused', data: { reason } }]);
  });

  test('may not compensate a run under way', () => {
    expect(told(register('1'), note('1')).on(compensate())).toMatchObject([{ data: { reason: 'run_open' } }]);
  });
});

describe('what is read again', () => {
  test('changes nothing', () => {
    const commands = [register('1'), note('1'), ended(), noteAnswer('1~1'), compensate()];
    const plans = told(...commands);
    const before = plans.state;
    for (const command of commands) expect(plans.on(command)).toEqual([]);
    expect(plans.state).toEqual(before);
  });
});
