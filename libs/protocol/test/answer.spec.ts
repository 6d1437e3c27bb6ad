import { describe, expect, it } from '@jest/globals';
import { digestOf } from '../src/keys.js';
import { ApprovalDecided, askedUnder, AssignCase, BrakeReleased, BrakeSet, CancelRun, CaseAssigned, CaseCommandRefused, CaseSettled, CompensateRun, CompensationDecided, DecideApproval, DecideCompensation, ForkRun, InputRefused, otherThan, PauseRun, PlanCommandRefused, PlanOpened, PlanWidened, ReleaseBrake, ResolveCase, RunCancelRequested, RunForked, RunPaused, RunUnpaused, RunUnquarantined, SetBrake, SignalReceived, SignalRun, UnpauseRun, UnquarantineRun, type Asking, type MessageType, type Told } from '../src/index.js';

const by = { name: 'ann', roles: ['operator'] };
const command = 'INC-7';
const at = 1_800_000_000_000;
const digest = digestOf({ cents: 5 });

/** As it stands in its topic. */
const told = (event: MessageType, data: object): Told => ({ type: event.type, data: event.schema.parse({ command, by, at, ...data }) as Told['data'] });
/** As whoever asks builds it, from words. */
const asks = (message: MessageType, data: object): Asking => ({ type: message.type, data: message.schema.parse({ command, by, ...data }) }) as Asking;

const pay = { kind: 'tool', name: 'pay' };
const operator = (message: string) => ({ kind: 'operator', by, command, message });
const settled = (verdict: object, more: object = {}) => told(CaseSettled, { step: '1', attempt: 1, key: digest, verdict, by: 'person', evidence: { kind: 'person', note: 'statement 7', at }, because: 'ann: I called', readAt: at, sealing: false, forced: false, ...more });
const refusal = (input: string, more: object = {}) => told(InputRefused, { input, id: command, reason: 'not_possible', message: 'no', ...more });
const caseRefusal = (step: string, attempt = 1) => told(CaseCommandRefused, { step, attempt, reason: 'too_early', message: 'no' });
const planRefusal = (more: object = {}) => told(PlanCommandRefused, { reason: 'not_asked', message: 'no', ...more });
const resolves = (verdict: object, more: object = {}) => asks(ResolveCase, { step: '1', attempt: 1, verdict, reason: 'I called', evidence: 'statement 7', ...more });
const approval = { step: '2', decision: 'approve' };

const signal = asks(SignalRun, { signal: command, name: 'go', payload: { a: 1 } });
const cancel = asks(CancelRun, { reason: 'r', scope: 'run', manner: 'graceful' });
const pause = asks(PauseRun, { reason: 'r' });
const set = asks(SetBrake, { target: pay, reason: 'r' });
const approve = asks(DecideApproval, approval);
const compensate = asks(CompensateRun, { reason: 'r', steps: ['2'], amount: 5 });
const plan = { plan: 1, cause: operator('r'), scope: { kind: 'steps', steps: ['2'], amount: 5 } };
const decide = asks(DecideCompensation, approval);

describe('an event that carries a command’s id', () => {
  it.each<[Asking, Told]>([
    [signal, told(SignalReceived, { signal: command, name: 'go', payload: { a: 1 } })],
    [signal, refusal('SignalRun', { step: '4' })],
    [cancel, told(RunCancelRequested, { reason: 'r', scope: 'run', manner: 'graceful' })],
    [pause, told(RunPaused, { reason: 'r' })],
    [pause, told(RunPaused, { reason: 'r', by: { name: 'bob', roles: ['admin'] } })],
    [pause, refusal('PauseRun')],
    [asks(UnpauseRun, {}), told(RunUnpaused, {})],
    [asks(UnquarantineRun, { reason: 'r' }), told(RunUnquarantined, { reason: 'r' })],
    [asks(ForkRun, { run: 'f', from: '2' }), told(RunForked, { run: 'f', from: '2' })],
    [asks(ForkRun, { run: 'f', input: 7 }), told(RunForked, { run: 'f', from: '2', input: { value: 7 } })],
    [approve, told(ApprovalDecided, { step: '2', decision: 'approved' })],
    [approve, refusal('DecideApproval', { step: '2' })],
    [set, told(BrakeSet, { target: pay, reason: 'r' })],
    [asks(ReleaseBrake, { target: pay }), told(BrakeReleased, { target: pay })],
    [asks(AssignCase, { step: '1', attempt: 1, owner: null }), told(CaseAssigned, { step: '1', attempt: 1, key: digest, owner: null })],
    [asks(AssignCase, { step: '1', attempt: 1, owner: null }), caseRefusal('1')],
    [resolves({ status: 'not_applied' }), settled({ status: 'not_applied' }, { person: by, by: 'person' })],
    [resolves({ status: 'applied', result: { id: 7 } }), settled({ status: 'applied', result: { value: { id: 7 } } })],
    [resolves({ status: 'not_applied' }), caseRefusal('1')],
    [compensate, told(PlanOpened, plan)],
    [compensate, told(PlanWidened, plan)],
    [asks(CompensateRun, { reason: 'r' }), told(PlanOpened, { ...plan, scope: { kind: 'run' } })],
    [compensate, planRefusal({ step: '2' })],
    [compensate, planRefusal()],
    [decide, told(CompensationDecided, { plan: 1, of: '2', decision: 'approved', digest })],
    [decide, planRefusal({ step: '2' })],
  ])('answers it: %j by %j', (asked, event) => {
    expect(otherThan(asked, event)).toBeNull();
    expect(askedUnder(event)).toBe(command);
  });

  it.each<[Asking, Told, string]>([
    [set, told(BrakeSet, { target: { kind: 'tool', name: 'refund' }, reason: 'r' }), 'BrakeSet of tool:refund'],
    [set, told(BrakeSet, { target: pay, reason: 'other' }), 'BrakeSet of tool:pay, with reason "other"'],
    [asks(ReleaseBrake, { target: pay }), told(BrakeSet, { target: pay, reason: 'r' }), 'BrakeSet of tool:pay'],
    [asks(ReleaseBrake, { target: pay }), refusal('SetBrake'), 'InputRefused of SetBrake'],
    [cancel, told(RunPaused, { reason: 'r' }), 'RunPaused'],
    [cancel, told(RunCancelRequested, { reason: 'r', scope: 'tree', manner: 'graceful', compensate: true }), 'RunCancelRequested, with scope "tree", with compensate true'],
    [cancel, refusal('PauseRun'), 'InputRefused of PauseRun'],
    [signal, told(SignalReceived, { signal: command, name: 'go', payload: { a: 1, b: 2 } }), 'SignalReceived, with payload {"a":1,"b":2}'],
    [asks(ForkRun, { run: 'f', from: '2', input: 7 }), told(RunForked, { run: 'f', from: '2' }), 'RunForked, without input'],
    [approve, told(ApprovalDecided, { step: '3', decision: 'approved' }), 'ApprovalDecided of step 3'],
    [approve, told(ApprovalDecided, { step: '2', decision: 'rejected' }), 'ApprovalDecided of step 2, with decision "rejected"'],
    [approve, refusal('DecideApproval', { step: '3' }), 'InputRefused of DecideApproval, step 3'],
    [asks(AssignCase, { step: '1', attempt: 1, owner: 'bob' }), told(CaseAssigned, { step: '1', attempt: 1, key: digest, owner: null }), 'CaseAssigned of step 1, attempt 1, with owner null'],
    [resolves({ status: 'not_applied' }, { step: '2' }), settled({ status: 'not_applied' }), 'CaseSettled of step 1, attempt 1'],
    [resolves({ status: 'not_applied' }, { attempt: 2 }), caseRefusal('1'), 'CaseCommandRefused of step 1, attempt 1'],
    [resolves({ status: 'not_applied' }), settled({ status: 'applied', result: { value: 1 } }), 'CaseSettled of step 1, attempt 1, with verdict {"status":"applied","result":{"value":1}}'],
    [compensate, told(PlanOpened, { ...plan, scope: { kind: 'run' } }), 'PlanOpened, with scope {"kind":"run"}'],
    [compensate, planRefusal({ step: '3' }), 'PlanCommandRefused of step 3'],
    [decide, told(CompensationDecided, { plan: 1, of: '3', decision: 'approved', digest }), 'CompensationDecided of step 3'],
    [asks(DecideCompensation, { ...approval, digest: digestOf(7) }), told(CompensationDecided, { plan: 1, of: '2', decision: 'approved', digest }), `CompensationDecided of step 2, with digest "${digest}"`],
    [pause, { type: 'RunPaused', data: { command } }, 'RunPaused, without by, without reason, without at'],
  ])('answers another: %j by %j', (asked, event, words) => {
    expect(otherThan(asked, event)).toBe(words);
  });

  it('answers nobody where it is what a brake left in a run that it holds', () => {
    expect(askedUnder(told(RunPaused, { reason: 'r', brake: 'tool:pay' }))).toBeNull();
    expect(askedUnder(told(RunUnpaused, { brake: 'tool:pay' }))).toBeNull();
  });
});
