import { describe, expect, test } from '@jest/globals';
import { ignore, record } from '@holdfast/kernel';
import {
  digestOf,
  digestOfText,
  EffectSettled,
  InputRefused,
  RunCancelRequested,
  RunFinished,
  RunId,
  RunReleased,
  SignalReceived,
  ToolContract,
  WaitAbandoned,
  WaitEnded,
  WaitEscalated,
  WaitReminded,
  WaitStarted,
  type OnDeadline,
  type Operator,
  type Step,
  type Wait,
} from '@holdfast/protocol';
import type { Command } from '../src/domain/commands.js';
import { phaseOf, type RunEvent } from '../src/domain/run.js';
import { DEFAULT_WAIT_MS, dueAt } from '../src/domain/waiting.js';
import { accepted, agent, asked, at, call, completed, contract, f, finish, given, grant, holder, identity, known, note, played, s, settle, succeeded, tools } from './kit.js';

const deadline = at + 1000;
const expire: OnDeadline = { action: 'expire' };
const signalWait: Wait = { kind: 'signal', name: 'paid' };
const waiting = (step = '1', wait: Wait = signalWait, over: { deadline?: number; onDeadline?: OnDeadline } = {}): RunEvent =>
  WaitStarted({ step: s(step), wait, since: at, onDeadline: over.onDeadline ?? expire, ...(wait.kind === 'sleep' ? {} : { deadline: over.deadline ?? deadline }), fence: f(1) });
const start = (step: string, wait: Wait, over: Partial<Command<'wait'>> & { deadline?: number } = {}): Command<'wait'> => {
  const { deadline: until, ...rest } = over;
  return { type: 'wait', at, data: { step: s(step), wait, fence: f(1), ...(until === undefined ? {} : { deadline: until }) }, scopeProblem: null, fitting: new Set(), ...rest };
};
const signal = (id: string, over: Partial<Command<'signal'>> = {}): Command<'signal'> => ({ type: 'signal', at, data: { signal: id, name: 'paid', payload: 5 }, problems: new Map(), ...over });
const kept = (id: string): RunEvent => SignalReceived({ signal: id, name: 'paid', payload: 5, at });
const satisfied = (step: string, by: string, value: unknown = 5, when = at): RunEvent => WaitEnded({ step: s(step), end: { status: 'satisfied', value: { value: value as never }, by }, at: when });
const expired = (step = '1', last = deadline, when = deadline): RunEvent => WaitEnded({ step: s(step), end: { status: 'expired', deadline: last }, at: when });
const due = (when: number): Command<'due'> => ({ type: 'due', at: when });
const kate: Operator = { name: 'kate', roles: ['treasurer', 'operator'] };
const refusedInput = (reason: string) => expect.objectContaining({ kind: 'record', events: expect.arrayContaining([expect.objectContaining({ type: 'InputRefused', data: expect.objectContaining({ reason }) })]) });

describe('a wait', () => {
  test('is a step with a deadline: its own, or one that holds for all', () => {
    expect(given(accepted()).when(start('1', signalWait, { deadline }))).toEqual(record(waiting()));
    expect(given(accepted()).when(start('1', signalWait))).toEqual(record(WaitStarted({ step: s('1'), wait: signalWait, since: at, deadline: at + DEFAULT_WAIT_MS, onDeadline: expire, fence: f(1) })));
  });

  test('asked for again is a duplicate, and a conflict when it is another', () => {
    expect(given(accepted(), waiting()).when(start('1', signalWait, { deadline }))).toEqual(ignore('duplicate'));
    expect(given(accepted(), waiting()).when(start('1', { kind: 'signal', name: 'other' }))).toMatchObject({ kind: 'refuse', because: { reason: 'operation_conflict' } });
    expect(given(accepted(), asked('1', 'refund')).when(start('1', signalWait))).toMatchObject({ kind: 'refuse', because: { reason: 'operation_conflict' } });
  });

  test('of a former holder changes nothing', () => {
    expect(given(accepted()).when(start('1', signalWait, { data: { step: s('1'), wait: signalWait, fence: f(9) } }))).toMatchObject({ kind: 'refuse', because: { reason: 'stale_fence' } });
  });

  test('for a time that has passed is over at once; another wakes by its time', () => {
    expect(given(accepted()).when(start('1', { kind: 'sleep', until: at }))).toEqual(record(waiting('1', { kind: 'sleep', until: at }), satisfied('1', 'clock', null)));
    const asleep = given(accepted(), waiting('1', { kind: 'sleep', until: at + 500 }));
    expect(dueAt(known(asleep.state()))).toBe(at + 500);
    expect(asleep.when(due(at + 499))).toEqual(ignore('not_due'));
    expect(asleep.when(due(at + 500))).toEqual(record(satisfied('1', 'clock', null, at + 500)));
  });

  test('that nobody awaits any more takes nothing', () => {
    const events = [accepted(), waiting(), WaitAbandoned({ step: s('1'), fence: f(1) })];
    expect(given(...events).when(signal('x'))).toEqual(record(kept('x')));
    expect(dueAt(known(given(...events).state()))).toBeNull();
  });
});

describe('a signal', () => {
  test('before its wait is kept, and taken in the order in which signals came, each once', () => {
    const events = [accepted(), kept('a'), kept('b')];
    expect(given(...events).when(start('1', signalWait, { deadline, fitting: new Set(['a', 'b']) }))).toEqual(record(waiting(), satisfied('1', 'a')));
    const next = given(...events, waiting(), satisfied('1', 'a'));
    expect(next.when(start('2', signalWait, { deadline, fitting: new Set(['b']) }))).toEqual(record(waiting('2'), satisfied('2', 'b')));
  });

  test('goes to the wait of its name that was asked for first', () => {
    expect(given(accepted(), waiting('1', { kind: 'signal', name: 'other' }), waiting('2'), waiting('3')).when(signal('x'))).toEqual(record(kept('x'), satisfied('2', 'x')));
  });

  test('sent twice is one', () => {
    expect(given(accepted(), kept('a')).when(signal('a'))).toEqual(ignore('duplicate'));
    expect(given(accepted(), kept('a'), waiting(), satisfied('1', 'a')).when(signal('a'))).toEqual(ignore('duplicate'));
  });

  test('that fits no wait, or comes after the end, is kept with the reason, once', () => {
    const unfit = given(accepted(), waiting()).when(signal('a', { problems: new Map([[s('1'), 'value: must be string']]) }));
    expect(unfit).toEqual(refusedInput('payload_invalid'));
    const over = [accepted(), RunFinished({ ending: completed, effects: [], steps: { fresh: 0, replayed: 0 }, fence: f(1) })];
    const late = given(...over).when(signal('a'));
    expect(late).toEqual(refusedInput('run_ended'));
    expect(given(...over, ...(late.kind === 'record' ? late.events : [])).when(signal('a'))).toEqual(ignore('duplicate'));
  });
});

describe('a deadline competes with what comes in, in the stream', () => {
  test.each([
    ['a millisecond before', deadline - 1, ['SignalReceived', 'WaitEnded']],
    ['in the very millisecond', deadline, ['WaitEnded', 'SignalReceived']],
    ['while no timer ran', deadline + 3_600_000, ['WaitEnded', 'SignalReceived']],
  ])('a signal %s', (_, when, types) => {
    const decision = given(accepted(), waiting()).when(signal('x', { at: when }));
    expect(decision.kind === 'record' ? decision.events.map(({ type }) => type) : []).toEqual(types);
    if (when >= deadline) expect(decision).toMatchObject({ events: [{ data: { end: { status: 'expired' } } }, {}] });
  });

  test('expire', () => expect(given(accepted(), waiting()).when(due(deadline))).toEqual(record(expired())));

  test('remind: so often, then it expires', () => {
    const onDeadline: OnDeadline = { action: 'remind', everyMs: 100, times: 2 };
    const events = [accepted(), waiting('1', signalWait, { onDeadline })];
    const first = WaitReminded({ step: s('1'), to: null, times: 1, nextAt: deadline + 100 });
    expect(given(...events).when(due(deadline))).toEqual(record(first));
    const second = WaitReminded({ step: s('1'), to: null, times: 2, nextAt: deadline + 200 });
    expect(given(...events, first).when(due(deadline + 100))).toEqual(record(second));
    expect(given(...events, first, second).when(due(deadline + 200))).toEqual(record(expired('1', deadline + 200, deadline + 200)));
  });

  test('escalate: others are asked, who have their own time', () => {
    const events = [accepted(), waiting('1', signalWait, { onDeadline: { action: 'escalate', to: 'the board', graceMs: 300 } })];
    const brought = WaitEscalated({ step: s('1'), to: 'the board', expiresAt: deadline + 300 });
    expect(given(...events).when(due(deadline))).toEqual(record(brought));
    expect(given(...events, brought).when(signal('x', { at: deadline + 299 }))).toMatchObject({ kind: 'record', events: [{ type: 'SignalReceived' }, { type: 'WaitEnded' }] });
    expect(given(...events, brought).when(due(deadline + 300))).toEqual(record(expired('1', deadline + 300, deadline + 300)));
  });

  test.each([
    [{ action: 'compensate' }, ['WaitEnded', 'CompensationRequested', 'RunFinished'], 'failed'],
    [{ action: 'complete_partially', because: 'nobody paid' }, ['WaitEnded', 'RunFinished'], 'completed_partially'],
  ] as const)('%j ends the run', (onDeadline, types, status) => {
    const decision = given(accepted(), waiting('1', signalWait, { onDeadline })).when(due(deadline));
    expect(decision.kind === 'record' ? decision.events.map(({ type }) => type) : []).toEqual(types);
    expect(phaseOf(known(given(...played([accepted(), waiting('1', signalWait, { onDeadline })], due(deadline))).state()))).toBe(status);
  });

  test('of the whole run ends it, whatever it waits for', () => {
    const events = [accepted({ deadline: at + 50 }), waiting()];
    expect(dueAt(known(given(...events).state()))).toBe(at + 50);
    expect(given(...events).when(due(at + 50))).toMatchObject({ kind: 'record', events: [{ type: 'RunFinished', data: { ending: { status: 'expired', deadline: at + 50 } } }] });
  });

  test('of its wall time stops it with its progress kept', () => {
    const events = [accepted({ at, budgets: { wallTimeMaxMs: 70 } }), waiting()];
    expect(given(...events).when(due(at + 70))).toMatchObject({ kind: 'record', events: [{ type: 'BudgetNeared', data: { budget: 'wall_time', reached: true } }, { type: 'RunFinished' }] });
    expect(dueAt(known(given(...events).state()))).toBe(at + 56);
    const near = given(...events).when(due(at + 56));
    expect(near).toMatchObject({ kind: 'record', events: [{ type: 'BudgetNeared', data: { budget: 'wall_time', used: 56, max: 70, reached: false } }] });
    const after = given(...events, ...(near.kind === 'record' ? near.events : []));
    expect([dueAt(known(after.state())), after.when(due(at + 57))]).toEqual([at + 70, ignore('not_due')]);
  });
});

describe('a run that only waits', () => {
  const released = [accepted(), waiting(), RunReleased({ waits: [s('1')], fence: f(1) })];
  const letGo = (waits: string[] = ['1'], fence = 1): Command<'let_go'> => ({ type: 'let_go', at, data: { waits: waits.map(s), fence: f(fence) } });

  test('is let go, and held by nobody', () => {
    expect(given(accepted(), waiting()).when(letGo())).toEqual(record(RunReleased({ waits: [s('1')], fence: f(1) })));
    expect(phaseOf(known(given(...released).state()))).toBe('waiting');
    expect(given(...released).when(grant(holder('w2', 20)))).toEqual(ignore('held_back'));
  });

  test('is not let go when something has moved meanwhile', () => {
    expect(given(accepted(), waiting(), kept('x'), satisfied('1', 'x')).when(letGo())).toEqual(ignore('moved_on'));
  });

  test('takes nothing from whoever held it last', () => {
    expect(given(...released).when(note('2', 'think'))).toMatchObject({ kind: 'refuse', because: { reason: 'stale_fence' } });
  });

  test('is handed on with the next fence once a wait has ended', () => {
    expect(given(...released, kept('x'), satisfied('1', 'x')).when(grant(holder('w1', 10)))).toMatchObject({ kind: 'record', events: [{ type: 'RunResumed', data: { lease: { fence: 2 }, because: 'let_go_before', replayed: expect.any(Number) } }] });
  });
});

describe('a callback', () => {
  const token = 'secret-token';
  const wait: Wait = { kind: 'callback', tokenHash: digestOfText(token) };
  const deliver = (of: string, over: Partial<Command<'callback'>> = {}): Command<'callback'> => ({ type: 'callback', at, data: { step: s('1'), token: '', payload: { ok: true } }, id: `c:${of}`, tokenHash: digestOfText(of), problem: null, ...over });
  const events = [accepted(), waiting('1', wait)];

  test('is taken once', () => {
    const first = given(...events).when(deliver(token));
    expect(first).toEqual(record(satisfied('1', 'callback', { ok: true })));
    expect(given(...events, ...(first.kind === 'record' ? first.events : [])).when(deliver(token, { id: 'c:again' }))).toEqual(refusedInput('wait_over'));
  });

  test.each([
    ['a forged token', deliver('other'), 'token_wrong'],
    ['an expired one', deliver(token, { at: deadline }), 'wait_over'],
    ['a payload that does not fit', deliver(token, { problem: 'must be string' }), 'payload_invalid'],
    ['a step that waits for none', deliver(token, { data: { step: s('7'), token: '', payload: 1 } }), 'wait_unknown'],
  ])('%s is refused with the reason', (_, command, reason) => expect(given(...events).when(command)).toEqual(refusedInput(reason)));

  test('holds no token', () => expect(JSON.stringify(events)).not.toContain(token));
});

describe('an approval', () => {
  const args = { n: 1 };
  const scope = { tool: tools.refund, digest: digestOf(args), args };
  const wait: Wait = { kind: 'approval', what: 'refund order 7', scope, approvers: ['treasurer'], fourEyes: true };
  const events = [accepted({ principal: 'joe' }), waiting('1', wait)];
  const decide = (decision: 'approve' | 'reject', by: Operator = kate, over: Partial<Command<'approve'>['asked']> = {}, when = at): Command<'approve'> => ({ type: 'approve', at: when, asked: { command: `${decision}-${by.name}`, by, step: s('1'), decision, ...over } });
  const guarded = { contract: ToolContract.parse({ ...contract('refund'), approval: { approvers: ['treasurer'], fourEyes: true } }) };
  const approved = played(events, decide('approve'));
  const allowed = (over: object = {}, step: Step = s('1'), argsNow: object = args): Command<'call'> => {
    const made = call('2', 'refund', { args: argsNow as never, identity: guarded });
    return { ...made, ...over, data: { ...made.data, approval: step } };
  };

  test('is needed by a tool that asks for one', () => {
    expect(given(accepted()).when(call('2', 'refund', { identity: guarded }))).toMatchObject({ kind: 'refuse', because: { reason: 'approval_required' } });
  });

  test('allows exactly what was shown, once, and goes with the call', () => {
    const decision = given(...approved).when(allowed());
    expect(decision).toMatchObject({ kind: 'record', events: [{ type: 'EffectRequested', data: { call: { approval: { step: '1', by: 'kate', digest: digestOf(args) } } } }] });
    const after = given(...approved, ...(decision.kind === 'record' ? decision.events : []));
    const again = allowed();
    expect(after.when({ ...again, data: { ...again.data, step: s('3') }, identity: identity(s('3'), 'refund', args, guarded) })).toMatchObject({ kind: 'refuse', because: { reason: 'approval_invalid' } });
  });

  test.each([
    ['other arguments', allowed({}, s('1'), { n: 1000 }), approved],
    ['an expired one', allowed({ at: at + 10 }), played(events, decide('approve', kate, { expiresAt: at + 5 }))],
    ['one that nobody decided', allowed(), events],
    ['one that was rejected', allowed(), played(events, decide('reject'))],
    ['a step that is none', allowed({}, s('9')), approved],
  ])('does not allow %s', (_, command, history) => expect(given(...history).when(command)).toMatchObject({ kind: 'refuse', because: { reason: 'approval_invalid' } }));

  test('rejected, tells the agent why', () => {
    expect(given(...events).when(decide('reject', kate, { feedback: 'too much' }))).toMatchObject({ kind: 'record', events: [{ type: 'ApprovalDecided' }, { type: 'WaitEnded', data: { end: { status: 'rejected', feedback: 'too much', by: 'kate' } } }] });
  });

  test.each([
    ['of another role', decide('approve', { name: 'kate', roles: ['viewer'] }), 'role_missing'],
    ['by whoever asked', decide('approve', { name: 'joe', roles: ['treasurer'] }), 'four_eyes'],
    ['about something else', decide('approve', kate, { digest: 'other' }), 'other_scope'],
    ['at the deadline', decide('approve', kate, {}, deadline), 'wait_over'],
    ['at a step that asks for none', decide('approve', kate, { step: s('5') }), 'wait_unknown'],
  ])('a decision %s is refused', (_, command, reason) => expect(given(...events).when(command)).toEqual(refusedInput(reason)));

  test('is decided once: the same decision again is no news, another is refused', () => {
    expect(given(...approved).when(decide('approve'))).toEqual(ignore('duplicate'));
    expect(given(...approved).when(decide('reject'))).toEqual(refusedInput('already_decided'));
  });

  test('that ran out is expired, not rejected', () => {
    expect(played(events, due(deadline)).at(-1)).toEqual(expired());
  });
});

describe('a child', () => {
  const wait: Wait = { kind: 'child', run: RunId.parse('run-1/1'), agent, input: 1 };
  const ended = (ending: Command<'child'>['data']['ending']): Command<'child'> => ({ type: 'child', at, data: { step: s('1'), child: RunId.parse('run-1/1'), ending } });
  test('that completes gives its output; any other end is a failure', () => {
    expect(given(accepted(), waiting('1', wait)).when(ended(completed))).toEqual(record(satisfied('1', 'run run-1/1', 'done')));
    expect(given(accepted(), waiting('1', wait)).when(ended({ status: 'cancelled', reason: 'no', by: 'kate' }))).toMatchObject({ events: [{ data: { end: { status: 'failed', failure: { class: 'cancelled' } } } }] });
  });
});

describe('cancelling', () => {
  const cancel = (manner: 'graceful' | 'immediate' = 'graceful', over: Partial<Command<'cancel'>['asked']> = {}): Command<'cancel'> => ({ type: 'cancel', at, asked: { command: `cancel-${manner}`, by: kate, reason: 'wrong order', scope: 'run', manner, ...over } });
  const types = (events: readonly RunEvent[]): string[] => events.map(({ type }) => type);

  test.each([
    ['queued', [accepted({ lease: undefined })]],
    ['between steps', [accepted(), asked('1', 'refund'), EffectSettled({ step: s('1'), attempt: 1, outcome: succeeded })]],
    ['waiting', [accepted(), waiting()]],
    ['let go', [accepted(), waiting(), RunReleased({ waits: [s('1')], fence: f(1) })]],
    ['on an unknown', played([accepted(), asked('1', 'refund')], { type: 'block', at, step: s('1'), attempt: 1, cause: 'deadline', message: '?' })],
  ] as const)('while %s ends the run at once, and it never runs again', (_, events) => {
    const after = played([...events], cancel());
    expect(types(after).slice(-2)).toEqual(['RunCancelRequested', 'RunFinished']);
    expect(phaseOf(known(given(...after).state()))).toBe('cancelled');
    expect(given(...after).when(call('9', 'refund'))).toMatchObject({ kind: 'refuse', because: { reason: 'run_ended' } });
    expect(given(...after).when(grant(holder('w9', 90)))).toEqual(ignore('run_over'));
  });

  test('while an effect is in flight waits for its end, takes nothing new, and lists what stands', () => {
    const during = played([accepted(), asked('1', 'refund')], cancel());
    expect(types(during).at(-1)).toBe('RunCancelRequested');
    expect(phaseOf(known(given(...during).state()))).toBe('cancelling');
    expect(given(...during).when(call('2', 'refund'))).toMatchObject({ kind: 'refuse', because: { reason: 'run_cancelled' } });
    expect(given(...during).when(finish())).toMatchObject({ kind: 'refuse', because: { reason: 'run_cancelled' } });
    const after = played(during, settle('1'));
    expect(after.at(-1)).toMatchObject({ type: 'RunFinished', data: { ending: { status: 'cancelled', reason: 'wrong order', by: 'kate' }, effects: [{ step: '1', outcome: 'succeeded' }] } });
  });

  test.each<[string, Wait, Command<'signal'> | Command<'callback'> | Command<'child'> | Command<'approve'>, unknown]>([
    ['a signal', signalWait, signal('late'), refusedInput('wait_over')],
    ['a callback', { kind: 'callback', tokenHash: digestOfText('t') }, { type: 'callback', at, data: { step: s('1'), token: '', payload: 1 }, id: 'c:late', tokenHash: digestOfText('t'), problem: null }, refusedInput('wait_over')],
    ['an approval', { kind: 'approval', what: 'refund', scope: { tool: tools.refund, digest: digestOf({}), args: {} }, approvers: ['treasurer'], fourEyes: false }, { type: 'approve', at, asked: { command: 'late', by: kate, step: s('1'), decision: 'approve' } }, refusedInput('wait_over')],
    ['the end of a child', { kind: 'child', run: RunId.parse('run-1/1'), agent, input: 1 }, { type: 'child', at, data: { step: s('1'), child: RunId.parse('run-1/1'), ending: completed } }, ignore('already_settled')],
  ])('while an effect is in flight ends no wait any more: %s that comes then moves nothing', (_, wait, input, answer) => {
    const during = played([accepted(), asked('2', 'refund'), waiting('1', wait)], cancel());
    expect(phaseOf(known(given(...during).state()))).toBe('cancelling');
    const decision = given(...during).when(input);
    expect(decision).toEqual(answer);
    expect(decision.kind === 'record' ? decision.events.map(({ type }) => type) : []).not.toContain('WaitEnded');
  });

  test('at once lists what is in flight as unknown, and keeps its late end', () => {
    const after = played([accepted(), asked('1', 'refund')], cancel('immediate'));
    expect(after.at(-1)).toMatchObject({ type: 'RunFinished', data: { effects: [{ outcome: 'unknown' }] } });
    expect(given(...after).when(settle('1'))).toMatchObject({ kind: 'record', events: [{ type: 'EffectSettled' }] });
  });

  test('is refused to who may not, after the end, and a second time', () => {
    expect(given(accepted()).when(cancel('graceful', { by: { name: 'eve', roles: [] } }))).toEqual(refusedInput('role_missing'));
    expect(given(accepted(), RunFinished({ ending: completed, effects: [], steps: { fresh: 0, replayed: 0 }, fence: f(1) })).when(cancel())).toEqual(refusedInput('run_ended'));
    const during = [accepted(), asked('1', 'refund'), RunCancelRequested({ by: kate, reason: 'x', scope: 'run', manner: 'graceful', command: 'c1', at })];
    expect(given(...during).when(cancel())).toEqual(refusedInput('not_possible'));
    expect(given(...during).when(cancel('immediate'))).toMatchObject({ kind: 'record', events: [{ type: 'RunCancelRequested' }, { type: 'RunFinished' }] });
    expect(given(...during).when(cancel('graceful', { command: 'c1' }))).toEqual(ignore('duplicate'));
  });
});

describe('pausing and letting go', () => {
  const pause: Command<'pause'> = { type: 'pause', at, asked: { command: 'p', by: kate, reason: 'look first' } };
  const unpause: Command<'unpause'> = { type: 'unpause', at, asked: { command: 'u', by: kate } };
  test('holds a run still: no intent, no grant; what is in flight is recorded', () => {
    const still = played([accepted(), asked('1', 'refund')], pause);
    expect(phaseOf(known(given(...still).state()))).toBe('paused');
    expect(given(...still).when(call('2', 'refund'))).toMatchObject({ kind: 'refuse', because: { reason: 'run_paused' } });
    expect(given(...still).when(grant(holder('w2', 20)))).toEqual(ignore('held_back'));
    const settled = played(still, settle('1'));
    expect(settled.at(-1)?.type).toBe('EffectSettled');
    expect(given(...played(settled, unpause)).when(grant(holder('w1', 10)))).toMatchObject({ kind: 'record', events: [{ type: 'RunResumed', data: { lease: { fence: 2 } } }] });
  });
  test('is refused where there is nothing to hold or let go', () => {
    expect(given(accepted()).when(unpause)).toEqual(refusedInput('not_possible'));
    expect(given(...played([accepted()], pause)).when({ ...pause, asked: { ...pause.asked, command: 'p2' } })).toEqual(refusedInput('not_possible'));
    expect(InputRefused({ input: 'x', id: 'x', reason: 'run_ended', message: 'x' }).type).toBe('InputRefused');
  });
  test('lets a quarantined run go on under a new fence', () => {
    const shut = played([accepted()], { type: 'poison', at, message: 'boom' });
    const open = played(shut, { type: 'unquarantine', at, asked: { command: 'q', by: kate, reason: 'fixed' } });
    expect(given(...open).when(grant(holder('w1', 10)))).toMatchObject({ kind: 'record', events: [{ type: 'RunResumed', data: { lease: { fence: 2 } } }] });
  });
});

describe('budgets', () => {
  const model = (tokens: number, step: string): Command<'record'> => ({ type: 'record', at, data: { step: s(step), kind: 'model', name: 'ask', result: { value: 1 }, usage: { tokensIn: tokens, tokensOut: 0 }, fence: f(1) } });
  test('of tokens: nearing one is an event, reaching it stops, each said once', () => {
    const events = played([accepted({ budgets: { tokensMax: 100 } })], model(70, '1'), model(15, '2'), model(5, '3'), model(20, '4'), model(1, '5'));
    expect(events.filter(({ type }) => type === 'BudgetNeared').map(({ data }) => data)).toEqual([
      { budget: 'tokens', used: 85, max: 100, reached: false },
      { budget: 'tokens', used: 110, max: 100, reached: true },
    ]);
    expect(events.at(-1)).toMatchObject({ type: 'IntentRejected', data: { reason: 'budget_exhausted' } });
  });
});
