import { describe, expect, it } from '@jest/globals';
import { ApprovalDecided, ResumePoint, Revalidation, RunReleased, SignalReceived, WaitEnded, WaitStarted, type AgentContract, type Lease } from '@holdfast/protocol';
import type { Holder } from '../src/domain/commands.js';
import { phaseOf, type RunEvent } from '../src/domain/run.js';
import { accepted, agent, asked, at, f, given, grant, holder, known, note, played, s } from './kit.js';
import { unchanged } from './unchanged.js';

type Resume = NonNullable<AgentContract['resume']>;
const kate = { name: 'kate', roles: ['operator', 't'] };
const first = { fence: f(1), worker: holder('w1', 10).worker, taken: 10 };
const facts = (value: string): Lease['facts'] => Object.fromEntries(ResumePoint.options.map((point) => [point, value])) as Lease['facts'];
const declares = (resume: Resume, undeclared: Holder['undeclared'] = []): Holder => ({ ...holder('w2', 20), agents: [{ ...agent, resume }], undeclared });
const word = (value: string, onChange: 'go_on' | 'ask' = 'go_on') => ({ value, onChange });
/** A run that waits, let go, with more that happened to it. */
const waiting = (over: Parameters<typeof accepted>[0] = {}, ...more: RunEvent[]): RunEvent[] => [
  accepted({ lease: first, ...over }),
  WaitStarted({ step: s('1'), wait: { kind: 'sleep', until: at }, since: at, onDeadline: { action: 'expire' }, fence: f(1) }),
  RunReleased({ waits: [s('1')], fence: f(1) }),
  ...more,
  WaitEnded({ step: s('1'), end: { status: 'satisfied', value: { value: null }, by: 'clock' }, at }),
];
const revalidated = (events: readonly RunEvent[], by: Holder = holder('w2', 20)): unknown => {
  const decision = given(...events).when(grant(by));
  if (decision.kind !== 'record' || decision.events[0].type !== 'RunResumed') throw new Error(`it was not resumed: ${JSON.stringify(decision)}`);
  return decision.events[0].data.revalidated;
};
const plain = { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none', ...unchanged };
const scope = { tool: { name: 'refund', version: '1' }, digest: 'a'.repeat(64) as never, args: {} };
const approval = (expiresAt?: number): RunEvent[] => [
  WaitStarted({ step: s('2'), wait: { kind: 'approval', what: 'refund', scope, approvers: ['t'], fourEyes: false }, since: at, deadline: at + 9, onDeadline: { action: 'expire' }, fence: f(1) }),
  ApprovalDecided({ step: s('2'), decision: 'approved', by: kate, command: 'a', at, ...(expiresAt === undefined ? {} : { expiresAt }) }),
  WaitEnded({ step: s('2'), end: { status: 'satisfied', value: { value: null }, by: 'kate' }, at }),
];

describe('a resume says of each point what became of it while the run waited', () => {
  it('names every point there is', () => {
    expect(Object.keys(revalidated(waiting()) as object).sort()).toEqual(Object.keys(Revalidation.shape).sort());
    expect(revalidated(waiting())).toEqual(plain);
  });

  it.each<[string, RunEvent[], Holder | undefined, object]>([
    ['agentVersion', waiting(), { ...holder('w2', 20), agents: [{ name: agent.name, version: '2', compatibleWith: ['1'] }] }, { agentVersion: 'compatible' }],
    ['deadline', waiting({ deadline: at + 1 }), undefined, { deadline: 'open' }],
    ['budgets', waiting({ budgets: { stepsMax: 1 } }), undefined, { budgets: 'spent' }],
    ['budgets, near', played(waiting({ budgets: { stepsMax: 5 } }), ...['2', '3', '4'].map((step) => note(step, 'think', null))), undefined, { budgets: 'near' }],
    ['tools', waiting({}, asked('3', 'refund')), undefined, { tools: 'declared' }],
    ['tools that are gone', waiting({}, asked('3', 'refund')), declares({}, [{ name: 'refund', version: '1' }]), { tools: 'missing' }],
    ['approvals', waiting({}, ...approval(at + 1)), undefined, { approvals: 'valid' }],
    ['approvals that expired', waiting({}, ...approval(at - 1)), undefined, { approvals: 'expired' }],
    ['input', waiting({}, SignalReceived({ signal: 'x', name: 'correction', payload: 1, at })), undefined, { input: 'newer' }],
    ['principal', waiting({ principal: 'joe' }), undefined, { principal: 'named' }],
  ])('%s', (_, events, by, changed) => {
    expect(revalidated(events, by)).toEqual({ ...plain, ...changed });
  });

  it.each(ResumePoint.options)('%s: changed, the same, or not declared', (point) => {
    const before = waiting({ lease: { ...first, facts: facts('1') } });
    const others = Object.fromEntries(ResumePoint.options.map((each) => [each, word('1')])) as Resume;
    expect(revalidated(before, declares(others))).toMatchObject({ [point]: 'same' });
    expect(revalidated(before, declares({ ...others, [point]: word('2') }))).toEqual({ ...plain, ...Object.fromEntries(ResumePoint.options.map((each) => [each, each === point ? 'changed' : 'same'])) });
    expect(revalidated(waiting(), declares({ [point]: word('1') }))).toMatchObject({ [point]: 'changed' });
  });
});

describe.each(ResumePoint.options)('a change of %s that needs a person', (point) => {
  const before = waiting({ lease: { ...first, facts: { [point]: '1' } } });
  const now = declares({ [point]: word('2', 'ask') });

  it('takes the run out of the way, with both named; released, it goes on so', () => {
    const asks = given(...before).when(grant(now));
    expect(asks).toMatchObject({ events: [{ type: 'RunQuarantined', data: { reason: 'revalidation_failed', message: expect.stringContaining(`${point} is 2, and was 1`), facts: { [point]: '2' } } }] });
    const released = played(before, grant(now), { type: 'unquarantine', at, asked: { command: 'r', by: kate, reason: 'it may' } });
    expect(phaseOf(known(given(...released).state()))).not.toBe('quarantined');
    expect(given(...released).when(grant(now))).toMatchObject({ events: [{ type: 'RunResumed', data: { revalidated: { [point]: 'same' } } }] });
  });

  it('is none where nothing changed', () => {
    expect(given(...before).when(grant(declares({ [point]: word('1', 'ask') })))).toMatchObject({ events: [{ type: 'RunResumed' }] });
  });
});
