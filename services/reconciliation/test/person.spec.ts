import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import { Attempt, CaseAssigned, CaseSettled, isoTime, type CaseCommandRefused, type MessageOf } from '@holdfast/protocol';
import type { CaseEvent } from '../src/domain/case.js';
import { ann, answered, APPLIED, applied, assign, eventsOf, given, key, looking, NOT_APPLIED, notApplied, now, open, opened, pending, played, READING_FROM, ref, resolve, sent, step } from './kit.js';

type Refused = MessageOf<typeof CaseCommandRefused>['data'];
const refused = (reason: Refused['reason'], message: unknown, over: Partial<Refused> = {}) => ({ kind: 'record', events: [{ type: 'CaseCommandRefused', data: { step, attempt: 1, command: 'c-1', reason, message, by: ann, ...over } }] });
const settled = (over: Partial<ReturnType<typeof CaseSettled>['data']> = {}): CaseEvent =>
  CaseSettled({
    ...ref,
    verdict: { status: 'applied', result: { value: { id: 're_7' } } },
    by: 'person',
    evidence: { kind: 'person', note: 'statement 7', at: READING_FROM },
    because: 'ann: I looked',
    readAt: READING_FROM,
    sealing: false,
    forced: false,
    person: ann,
    command: 'c-1',
    ...over,
  });
const didNot = { verdict: { status: 'not_applied' as const } };
const provedApplied = played([opened(), sent()], answered(1, applied));
const provedNot = played([opened(), sent(1, READING_FROM)], answered(1, notApplied, READING_FROM));

describe('a verdict', () => {
  test('applied: settles it, with who, why, what shows it and when they looked', () => {
    expect(given(opened()).when(resolve(APPLIED))).toEqual(record(settled()));
    expect(given(opened()).when(resolve(APPLIED, { readAt: now }))).toMatchObject({ events: [{ data: { readAt: now, evidence: { at: now } } }] });
  });

  test('not applied: by whoever looked when that was final', () => {
    expect(given(opened()).when(resolve(NOT_APPLIED))).toEqual(record(settled(didNot)));
    expect(given(opened()).when(resolve(NOT_APPLIED, { readAt: READING_FROM }, looking(READING_FROM + 1e6)))).toEqual(record(settled(didNot)));
  });

  test('nobody looks in the future', () => {
    expect(given(opened()).when(resolve(NOT_APPLIED, { readAt: READING_FROM + 1e6 }, looking(READING_FROM - 1)))).toMatchObject(refused('too_early', expect.anything()));
    expect(given(opened()).when(resolve(APPLIED, { readAt: now + 1e6 }, looking(now)))).toMatchObject({ events: [{ data: { readAt: now } }] });
  });

  test('while a probe is under way counts as well', () => {
    expect(given(opened(), sent()).when(resolve(APPLIED))).toEqual(record(settled()));
  });

  test('on an idempotent effect needs no time to pass: all it may cost is the same key again', () => {
    expect(given(opened({ effect: 'idempotent' })).when(resolve(NOT_APPLIED, {}, looking(now, 'idempotent')))).toMatchObject({ events: [{ type: 'CaseSettled', data: { forced: false } }] });
  });

  test.each<[string, Parameters<typeof opened>[0]]>([
    ['its run is over', { last: true }],
    ['its attempts are spent', { attempt: 3 }],
    ['the target may have forgotten the key', { keyKnownUntil: now - 1 }],
    ['a part of it has happened', { cause: 'partial_effect' }],
  ])('on an idempotent effect that no other attempt follows, since %s, waits as long as on any other: it is the last word', (_, over) => {
    const of = opened({ effect: 'idempotent', ...over });
    const attempt = { attempt: Attempt.parse(over?.attempt ?? 1) };
    expect(given(of).when(resolve(NOT_APPLIED, attempt, looking(READING_FROM - 1, 'idempotent')))).toMatchObject({ events: [{ type: 'CaseCommandRefused', data: { reason: 'too_early' } }] });
    expect(given(of).when(resolve(NOT_APPLIED, { ...attempt, force: true }, looking(READING_FROM - 1, 'idempotent')))).toMatchObject({ events: [{ type: 'CaseSettled', data: { forced: true } }] });
    expect(given(of).when(resolve(NOT_APPLIED, attempt, looking(READING_FROM, 'idempotent')))).toMatchObject({ events: [{ type: 'CaseSettled', data: { forced: false } }] });
  });

  test('read again is answered already, whatever it came to', () => {
    expect(given(opened(), settled()).when(resolve(APPLIED))).toEqual(ignore('command_answered'));
    const no = eventsOf(given(opened()).when(resolve(APPLIED, { by: { name: 'eve', roles: [] } })));
    expect(given(opened(), ...no).when(resolve(APPLIED))).toEqual(ignore('command_answered'));
  });
});

describe('is refused', () => {
  test('case_unknown', () => {
    expect(given().when(resolve(APPLIED))).toEqual(refused('case_unknown', 'step 3 has no case'));
  });

  test('role_missing: the one that the contract names, else operator; an admin has every role', () => {
    const treasury = looking(READING_FROM, 'irreversible', { ageing: { verdictRole: 'treasurer' } });
    expect(given(opened()).when(resolve(APPLIED, {}, treasury))).toEqual(refused('role_missing', 'a verdict on refund needs the role "treasurer"; ann has "operator"'));
    const nobody = { name: 'eve', roles: [] };
    expect(given(opened()).when(resolve(APPLIED, { by: nobody }))).toEqual(refused('role_missing', 'a verdict on refund needs the role "operator"; eve has none', { by: nobody }));
    for (const roles of [['treasurer'], ['admin']]) expect(given(opened()).when(resolve(APPLIED, { by: { name: 'ann', roles } }, treasury))).toMatchObject({ events: [{ type: 'CaseSettled' }] });
  });

  test('other_attempt', () => {
    const second = played([opened(), settled(didNot)], open({ attempt: 2, of: 6 }));
    expect(given(...second).when(resolve(APPLIED, { command: 'c-9' }))).toEqual(refused('other_attempt', 'the case is about attempt 2 of step 3, the verdict about attempt 1: look at it again', { command: 'c-9' }));
  });

  test('already_settled: a second one, the same or not, forced or not', () => {
    for (const verdict of [APPLIED, NOT_APPLIED]) {
      for (const force of [false, true]) expect(given(opened(), settled()).when(resolve(verdict, { command: 'c-9', force }))).toEqual(refused('already_settled', 'it was settled as applied by person', { command: 'c-9' }));
    }
    expect(given(...provedApplied).when(resolve(APPLIED))).toEqual(refused('already_settled', 'it was settled as applied by probe'));
  });

  test('too_early: with the time from which on it counts', () => {
    expect(given(opened()).when(resolve(NOT_APPLIED, {}, looking(READING_FROM - 1)))).toEqual(refused('too_early', `the attempt can still take effect until ${isoTime(READING_FROM)}: look then, and decide`));
    expect(given(opened({ readingFrom: null })).when(resolve(NOT_APPLIED))).toEqual(refused('too_early', expect.stringMatching(/settleDelay.*can't be known by looking; with force/)));
  });

  test('against_proof: what a probe has proved, or the target has said', () => {
    expect(given(...provedApplied).when(resolve(NOT_APPLIED))).toEqual(refused('against_proof', 'a probe has proved that it was applied; with force the verdict is recorded as contradicting it'));
    expect(given(...provedNot).when(resolve(APPLIED))).toEqual(refused('against_proof', 'a probe has proved that it was not applied; with force the verdict is recorded as contradicting it'));
    const working = played([opened(), sent()], answered(1, pending));
    expect(given(...working).when(resolve(NOT_APPLIED))).toEqual(refused('against_proof', 'the target has said that it is working on it; with force the verdict overrules it, and is marked so'));
    expect(given(...working).when(resolve(APPLIED))).toMatchObject({ events: [{ type: 'CaseSettled' }] });
  });

  test('invalid_result: one that the tool can’t have, forced or not', () => {
    for (const force of [false, true]) expect(given(opened()).when(resolve(APPLIED, { force }, { resultProblem: 'id is missing' }))).toEqual(refused('invalid_result', 'the result is none that refund can have: id is missing'));
  });
});

describe('force', () => {
  test('takes a person’s word before the time, and marks it', () => {
    expect(given(opened()).when(resolve(NOT_APPLIED, { force: true }, looking(now)))).toMatchObject({ events: [{ type: 'CaseSettled', data: { forced: true, verdict: { status: 'not_applied' }, readAt: now } }] });
    expect(given(opened({ readingFrom: null })).when(resolve(NOT_APPLIED, { force: true }))).toMatchObject({ events: [{ data: { forced: true } }] });
  });

  test('overrules the target’s own word, and marks it', () => {
    expect(given(...played([opened(), sent()], answered(1, pending))).when(resolve(NOT_APPLIED, { force: true }))).toMatchObject({ events: [{ data: { forced: true } }] });
  });

  test('overrules a proof once, and marks it', () => {
    const overruled = given(...provedApplied).when(resolve(NOT_APPLIED, { force: true }));
    expect(overruled).toMatchObject({ events: [{ type: 'CaseSettled', data: { verdict: { status: 'not_applied' }, by: 'person', forced: true, person: ann } }] });
    expect(given(...provedApplied, ...eventsOf(overruled)).when(resolve(APPLIED, { command: 'c-9', force: true }))).toMatchObject(refused('already_settled', expect.anything(), { command: 'c-9' }));
  });

  test('is not marked where it overrules nothing, and never stands for authority', () => {
    expect(given(opened()).when(resolve(NOT_APPLIED, { force: true }))).toEqual(record(settled(didNot)));
    expect(given(opened()).when(resolve(APPLIED, { force: true, by: { name: 'eve', roles: ['viewer'] } }))).toMatchObject(refused('role_missing', expect.anything(), { by: { name: 'eve', roles: ['viewer'] } }));
    expect(given(opened()).when(resolve(APPLIED, { force: true, attempt: 2 }))).toMatchObject(refused('other_attempt', expect.anything(), { attempt: 2 }));
  });
});

describe('to assign a case', () => {
  const mine = CaseAssigned({ ...ref, key, owner: 'bob', by: ann, command: 'c-2' });

  test('gives it to somebody, or to nobody', () => {
    expect(given(opened()).when(assign())).toEqual(record(mine));
    expect(given(opened(), mine).state().cases.get(step)?.owner).toBe('bob');
    expect(given(opened()).when(assign({ owner: null }))).toMatchObject({ events: [{ data: { owner: null } }] });
    expect(given(opened(), mine).when(assign())).toEqual(ignore('command_answered'));
  });

  test('whom it was given to is reminded and told', () => {
    const old = [opened({ remindAt: now + 60, escalateAt: now + 60 }), mine];
    expect(eventsOf(given(...old).when({ type: 'due', step, ...looking(now + 60) }))).toMatchObject([{ type: 'CaseReminded', data: { owner: 'bob' } }, { type: 'CaseEscalated', data: { to: 'bob' } }]);
  });

  test('takes the verdict’s role, or an operator’s', () => {
    const treasury = { ageing: { verdictRole: 'treasurer' } };
    for (const roles of [['treasurer'], ['operator'], ['admin']]) expect(given(opened()).when(assign({ by: { name: 'x', roles } }, treasury))).toMatchObject({ events: [{ type: 'CaseAssigned' }] });
    expect(given(opened()).when(assign({ by: { name: 'x', roles: ['viewer'] } }, treasury))).toMatchObject({ events: [{ type: 'CaseCommandRefused', data: { reason: 'role_missing', message: 'to assign a case of refund needs the role "treasurer" or "operator"' } }] });
  });

  test('is refused where there is none, where it is settled, and for another attempt', () => {
    expect(given().when(assign())).toMatchObject({ events: [{ data: { reason: 'case_unknown' } }] });
    expect(given(opened(), settled()).when(assign())).toMatchObject({ events: [{ data: { reason: 'already_settled' } }] });
    expect(given(opened()).when(assign({ attempt: 2 }))).toMatchObject({ events: [{ data: { reason: 'other_attempt' } }] });
  });
});
