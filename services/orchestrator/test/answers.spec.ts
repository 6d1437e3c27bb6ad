import { describe, expect, test } from '@jest/globals';
import { CallTool, DecideApproval, DeliverCallback, digestOf, digestOfText, material, RunCancelRequested, RunFinished, SignalRun, ToolContract, WaitStarted, type Json, type Operator, type Wait } from '@holdfast/protocol';
import type { ContractBook } from '@holdfast/runtime';
import { openWaits, phaseOf, type Run, type RunEvent } from '../src/domain/run.js';
import { RunHandlers } from '../src/handlers.js';
import { WaitHandlers } from '../src/wait-handlers.js';
import { accepted, at, completed, contract, f, known, run, s, tools } from './kit.js';
import { inboundOf, stateOf, turnOver } from './turn-kit.js';

/*
 * Whatever people, programs and third parties send, and whenever: each has its answer, and leaves the run
 * whole. Handlers and deciders as in the service; what the schema of a message refuses never comes here.
 */
const deadline = at + 1000;
const text = { type: 'string' };
const amount = { type: 'object', properties: { n: { type: 'number' }, memo: { type: 'string' } }, required: ['n'] };
const guarded = ToolContract.parse({ ...contract('refund'), input: amount, material: ['n'], approval: { approvers: ['treasurer'], fourEyes: true } });
const book: ContractBook = { tool: ({ name, version }) => (name === 'refund' && version === '1' ? guarded : name === 'refund' && version === '2' ? { ...guarded, version: '2' } : undefined), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };
const runs = new RunHandlers(book);
const waits = new WaitHandlers(runs, book);

const waitFor = (wait: Wait, step = '1'): RunEvent => WaitStarted({ step: s(step), wait, since: at, deadline, onDeadline: { action: 'expire' }, fence: f(1) });
const finished = RunFinished({ ending: completed, effects: [], steps: { fresh: 0, replayed: 0 }, fence: f(1) });
const cancelled = [RunCancelRequested({ by: { name: 'kate', roles: ['operator'] }, reason: 'no', scope: 'run', manner: 'graceful', command: 'c', at }), RunFinished({ ending: { status: 'cancelled', reason: 'no', by: 'kate' }, effects: [], steps: { fresh: 0, replayed: 0 } })];

interface Sending {
  readonly to?: string;
  readonly from?: string;
  readonly now?: number;
}
type Sent = Sending & ({ readonly signal: string; readonly name?: string; readonly payload?: Json } | { readonly token: string; readonly step?: string; readonly payload?: Json } | { readonly decide: 'approve' | 'reject'; readonly by: Operator; readonly command?: string; readonly step?: string; readonly digest?: string; readonly expiresAt?: number });

/** Sends one after the other, and says what became of each: the reason of its refusal, or `taken`, `kept`, `nothing new`, `dead letter: …`. */
function send(events: readonly RunEvent[], ...inputs: readonly Sent[]) {
  const states = new Map<string, Run>([[run, stateOf(...events)]]);
  const answers = inputs.map((input) => {
    const { to = run, from, now = at } = input;
    const { turn, recorded, parked, ignored } = turnOver(states, null, now);
    if ('signal' in input) waits.signal(inboundOf('SignalRun', to, SignalRun({ signal: input.signal, name: input.name ?? 'paid', payload: input.payload ?? 'cash' }).data, from), turn);
    else if ('token' in input) waits.callback(inboundOf('DeliverCallback', to, DeliverCallback({ step: s(input.step ?? '1'), token: input.token, payload: input.payload ?? 'scanned' }).data, from), turn);
    else {
      const { decide, by, command = `${decide} by ${by.name}`, step = '1', digest, expiresAt } = input;
      waits.approve(inboundOf('DecideApproval', to, DecideApproval({ command, by, step: s(step), decision: decide, ...(digest === undefined ? {} : { digest }), ...(expiresAt === undefined ? {} : { expiresAt }) }).data, from), turn);
    }
    const refusal = recorded.find((event) => event.type === 'InputRefused');
    if (refusal?.type === 'InputRefused') return refusal.data.reason;
    if (parked.length > 0) return `dead letter: ${parked.join(', ')}`;
    if (recorded.some(({ type }) => type === 'WaitEnded')) return 'taken';
    return recorded.some(({ type }) => type === 'SignalReceived') ? 'kept' : ignored.length > 0 ? 'nothing new' : 'nothing';
  });
  return { answers, state: states.get(run) };
}

/** A run is whole: as it was, or moved by what it waited for, and never in quarantine. */
const whole = (state: Run | undefined, open: number): void => {
  if (state === undefined) throw new Error('the run is gone');
  expect([phaseOf(known(state)) === 'quarantined', openWaits(known(state)).length]).toEqual([false, open]);
};

describe('a signal', () => {
  const signalWait = waitFor({ kind: 'signal', name: 'paid', schema: text });
  test.each<[string, RunEvent[], Sent[], string[], number]>([
    ['in time', [accepted(), signalWait], [{ signal: 'a' }], ['taken'], 0],
    ['before its wait', [accepted()], [{ signal: 'a' }], ['kept'], 0],
    ['under another name', [accepted(), signalWait], [{ signal: 'a', name: 'other' }], ['kept'], 1],
    ['twice', [accepted(), signalWait], [{ signal: 'a' }, { signal: 'a' }], ['taken', 'nothing new'], 0],
    ['twice, before its wait', [accepted()], [{ signal: 'a' }, { signal: 'a' }], ['kept', 'nothing new'], 0],
    ['a second one for the same wait', [accepted(), signalWait], [{ signal: 'a' }, { signal: 'b' }], ['taken', 'kept'], 0],
    ['late, after its deadline', [accepted(), signalWait], [{ signal: 'a', now: deadline }], ['taken'], 0],
    ['that does not fit, then one that does', [accepted(), signalWait], [{ signal: 'a', payload: 5 }, { signal: 'b' }], ['payload_invalid', 'taken'], 0],
    ['after the end', [accepted(), finished], [{ signal: 'a' }], ['run_ended'], 0],
    ['after the cancel', [accepted(), signalWait, ...cancelled], [{ signal: 'a' }, { signal: 'a' }], ['run_ended', 'nothing new'], 1],
    ['for another run', [accepted(), signalWait], [{ signal: 'a', to: 'run-2' }], ['dead letter: run_unknown'], 1],
    ['of a foreign tenant', [accepted(), signalWait], [{ signal: 'a', from: 'other' }], ['dead letter: run_unknown'], 1],
  ])('%s', (_, events, inputs, answers, open) => {
    const sent = send(events, ...inputs);
    expect(sent.answers).toEqual(answers);
    whole(sent.state, open);
  });

  test('that came too late for its wait is kept for the next of that name', () => {
    const { state } = send([accepted(), signalWait], { signal: 'a', now: deadline });
    const after = known(state ?? stateOf());
    const [wait] = after.steps.values();
    expect(wait).toMatchObject({ end: { status: 'expired' } });
    expect(after.signals).toMatchObject([{ signal: 'a' }]);
  });
});

describe('a callback', () => {
  const token = 'a'.repeat(32);
  const forged = 'b'.repeat(32);
  const callbackWait = waitFor({ kind: 'callback', tokenHash: digestOfText(token), schema: text });
  const another = waitFor({ kind: 'callback', tokenHash: digestOfText(forged), schema: text }, '2');
  test.each<[string, RunEvent[], Sent[], string[], number]>([
    ['in time', [accepted(), callbackWait], [{ token }], ['taken'], 0],
    ['before its wait', [accepted()], [{ token }], ['wait_unknown'], 0],
    ['twice', [accepted(), callbackWait], [{ token }, { token }], ['taken', 'wait_over'], 0],
    ['with a used token and another payload', [accepted(), callbackWait], [{ token }, { token, payload: 'lost' }], ['taken', 'wait_over'], 0],
    ['with a forged token', [accepted(), callbackWait], [{ token: forged }, { token }], ['token_wrong', 'taken'], 0],
    ['with the token of another wait', [accepted(), callbackWait, another], [{ token: forged }], ['token_wrong'], 2],
    ['with an expired token', [accepted(), callbackWait], [{ token, now: deadline }], ['wait_over'], 0],
    ['that does not fit, then one that does', [accepted(), callbackWait], [{ token, payload: 5 }, { token }], ['payload_invalid', 'taken'], 0],
    ['for a step that waits for something else', [accepted(), waitFor({ kind: 'signal', name: 'paid' })], [{ token }], ['wait_unknown'], 1],
    ['after the end', [accepted(), callbackWait, finished], [{ token }], ['wait_over'], 1],
    ['after the cancel', [accepted(), callbackWait, ...cancelled], [{ token }], ['wait_over'], 1],
    ['for another run', [accepted(), callbackWait], [{ token, to: 'run-2' }], ['dead letter: run_unknown'], 1],
    ['of a foreign tenant', [accepted(), callbackWait], [{ token, from: 'other' }], ['dead letter: run_unknown'], 1],
  ])('%s', (_, events, inputs, answers, open) => {
    const sent = send(events, ...inputs);
    expect(sent.answers).toEqual(answers);
    whole(sent.state, open);
    expect(JSON.stringify([...known(sent.state ?? stateOf()).inputs])).not.toContain(token);
  });
});

describe('an approval', () => {
  const args: Json = { n: 1, memo: 'as asked' };
  const digest = digestOf(material(guarded, args));
  const approvalWait = waitFor({ kind: 'approval', what: 'refund', scope: { tool: tools.refund, digest, args }, approvers: ['treasurer'], fourEyes: true });
  const open = [accepted({ principal: 'joe' }), approvalWait];
  const kate: Operator = { name: 'kate', roles: ['treasurer'] };
  const joe: Operator = { name: 'joe', roles: ['treasurer'] };
  test.each<[string, RunEvent[], Sent[], string[], number]>([
    ['given', open, [{ decide: 'approve', by: kate }], ['taken'], 0],
    ['refused', open, [{ decide: 'reject', by: kate }], ['taken'], 0],
    ['given twice by one command', open, [{ decide: 'approve', by: kate }, { decide: 'approve', by: kate }], ['taken', 'nothing new'], 0],
    ['given a second time', open, [{ decide: 'approve', by: kate }, { decide: 'approve', by: { ...kate, name: 'ann' } }], ['taken', 'already_decided'], 0],
    ['given, then refused', open, [{ decide: 'approve', by: kate }, { decide: 'reject', by: kate }], ['taken', 'already_decided'], 0],
    ['refused, then given', open, [{ decide: 'reject', by: kate }, { decide: 'approve', by: kate }], ['taken', 'already_decided'], 0],
    ['by another role', open, [{ decide: 'approve', by: { name: 'eve', roles: ['intern'] } }], ['role_missing'], 1],
    ['by whoever asked', open, [{ decide: 'approve', by: joe }], ['four_eyes'], 1],
    ['by whoever asked, though admin', open, [{ decide: 'approve', by: { ...joe, roles: ['admin'] } }], ['four_eyes'], 1],
    ['for something else than what was shown', open, [{ decide: 'approve', by: kate, digest: digestOf({ n: 2 }) }], ['other_scope'], 1],
    ['before it is asked for', [accepted()], [{ decide: 'approve', by: kate }], ['wait_unknown'], 0],
    ['after its deadline', open, [{ decide: 'approve', by: kate, now: deadline }], ['wait_over'], 0],
    ['after the end', [...open, finished], [{ decide: 'approve', by: kate }], ['run_ended'], 1],
    ['after the cancel', [...open, ...cancelled], [{ decide: 'approve', by: kate }], ['run_ended'], 1],
    ['for another run', open, [{ decide: 'approve', by: kate, to: 'run-2' }], ['dead letter: run_unknown'], 1],
    ['of a foreign tenant', open, [{ decide: 'approve', by: kate, from: 'other' }], ['dead letter: run_unknown'], 1],
  ])('%s', (_, events, inputs, answers, waiting) => {
    const sent = send(events, ...inputs);
    expect(sent.answers).toEqual(answers);
    whole(sent.state, waiting);
  });

  /** What a call that names the approval comes to: the reason of its refusal, or `taken`. */
  function calls(state: Run | undefined, ...wishes: readonly { readonly step: string; readonly args: Json; readonly version?: string; readonly target?: string; readonly approval?: string; readonly now?: number }[]): string[] {
    const states = new Map<string, Run>([[run, state ?? stateOf()]]);
    return wishes.map(({ step, args: asked, version = '1', target, approval = '1', now = at }) => {
      const inbound = inboundOf('CallTool', run, CallTool({ step: s(step), tool: { name: 'refund', version }, args: asked, fence: f(1), ...(target === undefined ? {} : { target }), ...(approval === '' ? {} : { approval: s(approval) }) }).data);
      const { turn, recorded } = turnOver(states, inbound.record, now);
      runs.call(inbound, turn);
      const [event] = recorded;
      return event?.type === 'IntentRejected' ? event.data.reason : event?.type === 'EffectRequested' ? 'taken' : 'nothing';
    });
  }
  const given = (over: Partial<{ expiresAt: number }> = {}): Run | undefined => send(open, { decide: 'approve', by: kate, ...over }).state;

  test.each<[string, Run | undefined, Parameters<typeof calls>[1][], string[]]>([
    ['for exactly what was shown, once', given(), [{ step: '2', args }, { step: '3', args }], ['taken', 'approval_invalid']],
    ['where only what is not material differs', given(), [{ step: '2', args: { n: 1, memo: 'in other words' } }], ['taken']],
    ['with another argument afterwards', given(), [{ step: '2', args: { n: 1000 } }, { step: '3', args }], ['approval_invalid', 'taken']],
    ['for another version of the tool', given(), [{ step: '2', args, version: '2' }], ['approval_invalid']],
    ['for another target', given(), [{ step: '2', args, target: 'order-8' }], ['approval_invalid']],
    ['after it has expired', given({ expiresAt: at + 5 }), [{ step: '2', args, now: at + 6 }], ['approval_invalid']],
    ['before it was decided', stateOf(...open), [{ step: '2', args }], ['approval_invalid']],
    ['after a no', send(open, { decide: 'reject', by: kate }).state, [{ step: '2', args }], ['approval_invalid']],
    ['without naming it', given(), [{ step: '2', args, approval: '' }], ['approval_required']],
  ])('allows a call %s', (_, state, wishes, answers) => expect(calls(state, ...wishes)).toEqual(answers));
});
