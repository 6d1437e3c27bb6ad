import { describe, expect, it } from '@jest/globals';
import { ApprovalDecided, laneStream, LaneTaken, RunFinished, RunForked, RunId, WaitEnded, WaitStarted, type StartFork, type Step } from '@holdfast/protocol';
import fc from 'fast-check';
import type { Command } from '../src/domain/commands.js';
import { isBefore } from '../src/domain/fork.js';
import type { Run, RunEvent } from '../src/domain/run.js';
import { WaitHandlers } from '../src/wait-handlers.js';
import { accepted, agent, asked, at, block, completed, f, failure, finish, given, input, known, note, played, pool, run, s, settle, tenant } from './kit.js';
import { book, handlers, inboundOf, stateOf, turnOver } from './turn-kit.js';


const kate = { name: 'kate', roles: ['operator'] };
const other = RunId.parse('run-1b');
const waits = new WaitHandlers(handlers, book);
const fork = (from?: string, over: Partial<Command<'fork'>> = {}): Command<'fork'> => ({ type: 'fork', at, asked: { command: 'c1', by: kate, run: other, ...(from === undefined ? {} : { from: s(from) }) }, bytesBefore: () => 100, ...over });
const broken: RunEvent = RunFinished({ ending: { status: 'failed', failure: failure('transient') }, effects: [], steps: { fresh: 0, replayed: 0 }, fence: f(1) });
const bad: Command<'settle'>['outcome'] = { status: 'failed', failure: failure('transient'), evidence: { kind: 'ledger' } };
const done = played([accepted()], note('1', 'think')).concat(asked('2', 'refund'), ...played([accepted(), asked('2', 'refund')], settle('2')).slice(2), asked('3', 'reserve'));
const history = played(done, settle('3'));
const refused = (message: string) => expect.objectContaining({ events: [expect.objectContaining({ type: 'InputRefused', data: expect.objectContaining({ reason: 'not_possible', message: expect.stringContaining(message) }) })] });

describe('a fork', () => {
  it('is recorded in its origin, once, and may be of any run of an agent', () => {
    for (const events of [history, [...history, broken], played(history, finish(completed))]) {
      const decision = given(...events).when(fork('3'));
      expect(decision).toMatchObject({ events: [RunForked({ run: other, from: s('3'), by: kate, command: 'c1' })] });
      expect(given(...events, ...(decision.kind === 'record' ? decision.events : [])).when(fork('3'))).toEqual({ kind: 'ignore', because: 'duplicate' });
    }
  });

  it.each([
    ['behind a step without an end', done, '4', 'step 3 before it has no known end'],
    ['behind an unknown', played(done, block('3')), '4', 'step 3 before it has no known end'],
    ['inside a group', history, '3.1', 'name the step of the group'],
    ['of a loop that is its client’s own', [accepted({ agent: null, lease: undefined })], '1', 'client'],
  ] as const)('%s is refused', (_, events, from, message) => {
    expect(given(...events).when(fork(from))).toEqual(refused(message));
  });

  it('is refused to who may not, and where it is too large for a message', () => {
    expect(given(...history).when(fork('3', { asked: { command: 'c1', by: { name: 'eve', roles: [] }, run: other, from: s('3') } }))).toMatchObject({ events: [{ data: { reason: 'role_missing' } }] });
    expect(given(...history).when(fork('3', { bytesBefore: () => 10_000_000 }))).toEqual(refused('earlier step'));
  });

  it('does not take along an approval that was not used', () => {
    const scope = { tool: { name: 'refund', version: '1' }, digest: 'a'.repeat(64) as never, args: {} };
    const approved = [
      accepted(),
      WaitStarted({ step: s('1'), wait: { kind: 'approval', what: 'refund', scope, approvers: ['t'], fourEyes: false }, since: at, deadline: at + 1, onDeadline: { action: 'expire' }, fence: f(1) }),
      ApprovalDecided({ step: s('1'), decision: 'approved', by: kate, command: 'a', at }),
      WaitEnded({ step: s('1'), end: { status: 'satisfied', value: { value: null }, by: 'kate' }, at }),
    ];
    expect(given(...approved).when(fork('2'))).toEqual(refused('the approval at step 1'));
    expect(given(...approved).when(fork('1'))).toMatchObject({ events: [{ type: 'RunForked' }] });
  });
});

describe('a retry', () => {
  const failedAt3 = [...played(done, settle('3', bad)), broken];
  it('goes on at the last step that did not succeed', () => {
    expect(given(...failedAt3).when(fork())).toMatchObject({ events: [{ type: 'RunForked', data: { from: '3' } }] });
    expect(given(...history, broken).when(fork())).toMatchObject({ events: [{ type: 'RunForked', data: { from: '4' } }] });
  });

  it('is of a run that ended otherwise than completed', () => {
    expect(given(...history).when(fork())).toEqual(refused('open'));
    expect(given(...played(history, finish(completed))).when(fork())).toEqual(refused('completed'));
  });

  it('never does again what has happened, or may have', () => {
    const first = played([accepted(), asked('1', 'lookup', { n: 1 }, 'granted'), asked('2', 'refund')], settle('1', bad), settle('2'));
    expect(given(...first, broken).when(fork())).toEqual(refused('step 2 has succeeded'));
    expect(given(...played(done, block('3')), broken).when(fork())).toEqual(refused('step 3 has no known end'));
  });
});

/** A desk with an origin and what its fork comes to. */
function forked(events: readonly RunEvent[], from: string) {
  const lane = stateOf(LaneTaken({ pool, lane: 3, worker: 'w1' as never, agents: [agent], taken: {}, offset: 10 }));
  const states = new Map<string, Run>([[run as string, stateOf(...events)], [laneStream(pool, 3), lane]]);
  const { turn, sent, recorded } = turnOver(states);
  waits.fork(inboundOf('ForkRun', run, { command: 'c1', by: kate, run: other, from: s(from) }), turn);
  const told = sent.find(({ type }) => type === 'StartFork')?.data as Parameters<typeof StartFork>[0] | undefined;
  if (told === undefined) return { states, sent, recorded, turn, told };
  sent.length = 0;
  recorded.length = 0;
  handlers.startFork(inboundOf('StartFork', other, told), turn);
  return { states, sent, recorded, turn, told };
}

describe('the new run', () => {
  it('names its origin, has its steps before that one as replayed, and fires none of them', () => {
    const { states, sent, recorded, turn, told } = forked(history, '3');
    expect(told?.start).toMatchObject({ agent, input });
    expect(recorded.map(({ type }) => type)).toEqual(['RunAccepted', 'StepsCopied', 'LeaseGranted']);
    // Its worker is granted the run with what was copied.
    expect(sent).toMatchObject([{ type: 'RunGranted', data: { fence: 1, steps: [{ kind: 'record', step: '1' }, { kind: 'call', call: { step: '2' }, outcome: { status: 'succeeded' } }] } }]);
    const state = known(states.get(other) ?? { status: 'absent' });
    expect([state.origin?.run, state.origin?.from, [...state.steps.keys()]]).toEqual([run, '3', ['1', '2']]);
    handlers.startFork(inboundOf('StartFork', other, told as never), turn);
    expect(recorded).toHaveLength(3);
    handlers.apply(other, tenant, turn, finish(completed));
    expect(recorded.at(-1)).toMatchObject({ type: 'RunFinished', data: { steps: { fresh: 0, replayed: 2 } } });
  });

  it('may have another input', () => {
    const decision = given(...history).when(fork('3', { asked: { command: 'c1', by: kate, run: other, from: s('3'), input: { order: 8 } } }));
    expect(decision).toMatchObject({ events: [{ data: { input: { value: { order: 8 } } } }] });
  });

  it('whatever the step, has exactly those before it, and asks the ledger for none', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), (from) => {
        const { states, recorded, told } = forked(history, String(from));
        const before = [...known(states.get(run) ?? { status: 'absent' }).steps.keys()].filter((step) => isBefore(step, String(from) as Step));
        expect(told?.steps).toHaveLength(before.length);
        expect([...known(states.get(other) ?? { status: 'absent' }).steps.keys()]).toEqual(before);
        expect(recorded.some(({ type }) => type === 'EffectRequested')).toBe(false);
      }),
    );
  });
});
