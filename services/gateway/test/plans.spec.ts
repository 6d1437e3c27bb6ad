import { describe, expect, it } from '@jest/globals';
import { Step, type Json } from '@holdfast/protocol';
import { brakeOf, isOfTenant, parseBrakeName, type BrakeEvent } from '../src/domain/brake-view.js';
import { awaiting, evolvePlan, forecast, latestPlan, noPlan, standsOf, type PlanEvent, type PlanView } from '../src/domain/plan-view.js';
import { placeOfStep } from '../src/domain/step-view.js';

const key = 'a'.repeat(64);
const digest = 'b'.repeat(64);
const named = (name: string) => ({ name, version: '1' });
const how = (tool: string, authority: Json = 'automatic') => ({ tool: named(tool), args: {}, order: 'reverse', authority, deadlineMs: 1000, verify: true });
const event = (type: string, data: object): PlanEvent => ({ type, data }) as unknown as PlanEvent;
const registered = (step: string, tool: string, of: Json) => event('CompensationRegistered', { step, key, tool: named(tool), effect: 'irreversible', args: { of: tool }, digest, fire: 'granted', fence: 1, how: of });
const noted = (step: string, status: string) => event('EffectNoted', { step, status, attempt: 1, version: 1 });
const opened = event('PlanOpened', { plan: 1, cause: { kind: 'operator', by: { name: 'olga', roles: [] }, command: 'c', message: 'wrong guest' }, scope: { kind: 'run' }, at: 7 });
const of = (step: string, type: string, data: object = {}) => event(type, { plan: 1, of: step, ...data });
const viewOf = (...events: PlanEvent[]): PlanView => events.reduce((view, each, at) => evolvePlan(view, each, at), noPlan);
const stands = (view: PlanView, step: string) => {
  const found = view.effects.find((effect) => effect.step === step);
  return found === undefined ? null : standsOf(view, found);
};

const begun = [registered('1', 'room', how('room.cancel')), registered('2', 'seat', how('seat.cancel', { approvers: ['approver'] })), noted('1', 'succeeded'), noted('2', 'succeeded'), opened];
const known = of('2', 'ArgumentsKnown', { part: 1, args: { seat: 4 }, digest, by: 'contract' });
const asked = of('2', 'CompensationApprovalAsked', { approvers: ['approver'], tool: named('seat.cancel'), args: { seat: 4 }, digest });
const ordered = of('2', 'CompensationOrdered', { step: '2~1', part: 1, key, tool: named('seat.cancel'), effect: 'irreversible', args: { seat: 4 }, digest, fence: 2, after: 0, authorisedBy: 'ann', because: 'it was approved' });

describe('a plan’s page', () => {
  it('says of each effect what it waits for', () => {
    expect(stands(viewOf(...begun.slice(0, 2), opened), '2')).toBe('settle_first');
    expect(stands(viewOf(...begun), '2')).toBe('arguments');
    expect(stands(viewOf(...begun, known), '2')).toBe('turn');
    expect([stands(viewOf(...begun, known, asked), '2'), awaiting(viewOf(...begun, known, asked))]).toEqual(['approval', 1]);
    const approved = [...begun, known, asked, of('2', 'CompensationDecided', { decision: 'approved', digest, by: { name: 'ann', roles: [] }, command: 'd', at: 9 }), ordered];
    expect([stands(viewOf(...approved), '2'), awaiting(viewOf(...approved))]).toEqual(['answering', 0]);
    expect(stands(viewOf(...approved, of('2', 'CompensationNoted', { step: '2~1', status: 'unknown', attempt: 1, version: 1 })), '2')).toBe('in_case');
    expect(stands(viewOf(...approved, of('2', 'CompensationNoted', { step: '2~1', status: 'succeeded', attempt: 1, version: 1 })), '2')).toBe('verifying');
    const settled = viewOf(...approved, of('2', 'CompensationSettled', { standing: { step: '2', tool: named('seat'), key, standing: 'compensated', why: 'cancelled', answers: [] } }));
    expect([stands(settled, '2'), settled.effects[1]?.parts[0]?.authorisedBy]).toEqual(['compensated', 'ann']);
  });

  it('knows who asked, and how it ended', () => {
    const view = viewOf(...begun, event('PlanConcluded', { plan: 1, status: 'compensation_failed', effects: [], waits: [] }));
    expect(latestPlan(view)).toMatchObject({ status: 'compensation_failed', causes: [{ kind: 'operator', by: 'olga', message: 'wrong guest' }], openedAt: 7, concludedAt: 5 });
  });

  it('begins anew with what is taken up again, and keeps what was ordered', () => {
    const view = viewOf(...begun, known, asked, ordered, of('2', 'CompensationReopened', { because: 'again' }));
    expect([view.effects[1]?.approval, view.effects[1]?.parts.length]).toEqual([null, 1]);
  });

  it('means what its scope names', () => {
    const some = event('PlanOpened', { plan: 1, cause: { kind: 'agent', step: '3', message: 'm' }, scope: { kind: 'after', step: '1' }, at: 7 });
    const view = viewOf(...begun.slice(0, 4), some);
    expect([stands(view, '1'), stands(view, '2')]).toEqual(['not_meant', 'arguments']);
  });
});

describe('what a compensation would lead to', () => {
  it('names what is answered, latest first, and by whom it is approved', () => {
    expect(forecast(viewOf(...begun.slice(0, 4)), null)).toEqual({ would: [{ step: '2', tool: named('seat.cancel'), args: null, approvers: ['approver'] }, { step: '1', tool: named('room.cancel'), args: null, approvers: null }], unsettled: [], stand: [] });
  });

  it('names what stands, and why', () => {
    const view = viewOf(registered('1', 'room', how('room.cancel')), registered('2', 'post', null), registered('3', 'seat', how('seat.cancel')), registered('4', 'bus', how('bus.cancel')), ...['1', '2', '3'].map((step) => noted(step, 'succeeded')), noted('4', 'unknown'));
    expect(forecast(view, [Step.parse('3'), Step.parse('4')])).toMatchObject({ would: [{ step: '3' }], unsettled: [{ step: '4' }], stand: [{ step: '2', why: expect.stringContaining('not among') }, { step: '1' }] });
    const point = evolvePlan(view, event('CompensationRegistered', { step: '2', key, tool: named('post'), effect: 'irreversible', args: {}, digest, fire: 'granted', fence: 1, how: null, pointOfNoReturn: true }), 9);
    expect(forecast(point, null)).toMatchObject({ would: [{ step: '3' }], stand: [{ step: '2', why: expect.stringContaining('no return') }, { step: '1', why: expect.stringContaining('no return') }] });
  });

  it('waits for what became of a point of no return', () => {
    const point = event('CompensationRegistered', { step: '2', key, tool: named('post'), effect: 'irreversible', args: {}, digest, fire: 'granted', fence: 1, how: null, pointOfNoReturn: true });
    const before = [registered('1', 'room', how('room.cancel')), point, registered('3', 'seat', how('seat.cancel')), noted('1', 'succeeded'), noted('3', 'succeeded')];
    const view = viewOf(...before, noted('2', 'unknown'));
    expect(forecast(view, null)).toMatchObject({ would: [{ step: '3' }], unsettled: [{ step: '2' }, { step: '1' }], stand: [] });
    expect(['1', '2', '3'].map((step) => stands(viewOf(...before, noted('2', 'unknown'), opened), step))).toEqual(['settle_first', 'settle_first', 'arguments']);
    expect(['1', '2', '3'].map((step) => stands(viewOf(...before, noted('2', 'failed'), opened), step))).toEqual(['arguments', 'never_happened', 'arguments']);
    expect(stands(view, '2')).toBe('no_answer');
  });
});

describe('a brake', () => {
  it.each([
    ['tool:refund@2', { kind: 'tool', name: 'refund', version: '2' }],
    ['agent:desk', { kind: 'agent', name: 'desk' }],
    ['tenant:a@b', { kind: 'tenant', name: 'a@b' }],
    ['door:front', null],
    ['tool:', null],
  ])('%s', (text, target) => expect(parseBrakeName(text)).toEqual(target));

  it('of another tenant is nobody else’s', () => {
    const view = brakeOf({ type: 'BrakeSet', data: { target: { kind: 'tenant', name: 'acme' }, by: { name: 'kate', roles: [] }, reason: 'r', command: 'c', at: 1 } } as unknown as BrakeEvent);
    expect([view.name, view.isSet, isOfTenant(view.target, 'acme'), isOfTenant(view.target, 'other')]).toEqual(['tenant:acme', true, true, false]);
  });
});

it('what answers a step comes right behind it', () => {
  const order = (step: string) => placeOfStep(step).slice(1, -1).split(',').map((part) => part.padStart(3, '0')).join('.');
  expect(['10', '3.1', '3~1', '3', '3~2'].sort((a, b) => (order(a) < order(b) ? -1 : 1))).toEqual(['3', '3~1', '3~2', '3.1', '10']);
});
