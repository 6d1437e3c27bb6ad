import { describe, expect, it } from '@jest/globals';
import { ApprovalDecided, laneStream, LaneTaken, RunFinished, RunForked, RunId, WaitEnded, VALUE_BYTES_MAX, WaitStarted, type CopySteps, type MessageOf, type StartFork, type Step } from '@holdfast/protocol';
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
const fork = (from?: string, over: Partial<Command<'fork'>> = {}): Command<'fork'> => ({ type: 'fork', at, asked: { command: 'c1', by: kate, run: other, ...(from === undefined ? {} : { from: s(from) }) }, bytesOf: () => 100, ...over });
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
    ['beyond what the run has done', history, '5', 'the run has steps up to 3: fork it from one of 1 to 4'],
    ['of a run that has done nothing, beyond its beginning', [accepted()], '2', 'the run has no steps: fork it from step 1'],
    ['inside a group', history, '3.1', 'name the step of the group'],
    ['of a loop that is its client’s own', [accepted({ agent: null, lease: undefined })], '1', 'client'],
  ] as const)('%s is refused', (_, events, from, message) => {
    expect(given(...events).when(fork(from))).toEqual(refused(message));
  });

  it('is refused to who may not, and where a step is too large for a message', () => {
    expect(given(...history).when(fork('3', { asked: { command: 'c1', by: { name: 'eve', roles: [] }, run: other, from: s('3') } }))).toMatchObject({ events: [{ data: { reason: 'role_missing' } }] });
    expect(given(...history).when(fork('3', { bytesOf: (step) => (step.kind === 'call' && step.call.step === '2' ? 250_000 : 1) }))).toEqual(refused('step 2 has more than'));
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

type Page = MessageOf<typeof CopySteps>['data'];
/** A step with a large result. */
const large = (step: number, bytes = 60_000) => note(String(step), 'think', 1, 'x'.repeat(bytes));
const largeSteps = (n: number) => Array.from({ length: n }, (_, i) => large(i + 1));

/** A desk with an origin and what its fork comes to. */
function forked(events: readonly RunEvent[], from: string) {
  const lane = stateOf(LaneTaken({ pool, lane: 3, worker: 'w1' as never, agents: [agent], taken: {}, offset: 10 }));
  const states = new Map<string, Run>([[run as string, stateOf(...events)], [laneStream(pool, 3), lane]]);
  const { turn, sent, recorded } = turnOver(states);
  waits.fork(inboundOf('ForkRun', run, { command: 'c1', by: kate, run: other, from: s(from) }), turn);
  const told = sent.find(({ type }) => type === 'StartFork')?.data as Parameters<typeof StartFork>[0] | undefined;
  const pages = sent.flatMap(({ type, data }) => (type === 'CopySteps' ? [data as Page] : []));
  if (told === undefined) return { states, sent, recorded, turn, told, pages };
  sent.length = 0;
  recorded.length = 0;
  handlers.startFork(inboundOf('StartFork', other, told), turn);
  return { states, sent, recorded, turn, told, pages };
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

  it('has a history of any size, page by page, each once and in order, and is given to a worker with the last', () => {
    const { states, sent, recorded, turn, told, pages } = forked(played([accepted()], ...largeSteps(10)), '11');
    expect([told?.more, pages.map(({ more }) => more)]).toEqual([pages.length, [...pages.keys()].reverse()]);
    for (const message of [told, ...pages]) expect(Buffer.byteLength(JSON.stringify(message))).toBeLessThan(VALUE_BYTES_MAX);
    expect([recorded.map(({ type }) => type), sent]).toEqual([['RunAccepted', 'StepsCopied'], []]);
    const [first, second, third, ...rest] = pages;
    if (first === undefined || second === undefined || third === undefined) throw new Error('too few pages');
    const give = (of: readonly Page[], as: string = tenant): void => {
      for (const page of of) handlers.copySteps(inboundOf('CopySteps', other, page, as), turn);
    };
    // Not out of order, not of another fork, not from another tenant, and not before all is there.
    give([second, { ...first, origin: { ...first.origin, from: s('9') } }, { ...first, more: first.more + 1 }]);
    give([first], 'another');
    handlers.due(other, turn);
    expect(recorded).toHaveLength(2);
    expect(known(states.get(other) ?? { status: 'absent' })).toMatchObject({ lease: null, origin: { more: pages.length } });
    give([first, first, second, first, third, ...rest, ...pages]);
    expect(recorded.map(({ type }) => type)).toEqual(['RunAccepted', ...Array.from({ length: pages.length + 1 }, () => 'StepsCopied'), 'LeaseGranted']);
    const { steps, origin } = known(states.get(other) ?? { status: 'absent' });
    expect([[...steps.keys()], origin?.copied.size, origin?.more]).toEqual([largeSteps(10).map((_, i) => String(i + 1)), 10, 0]);
    expect(sent.flatMap(({ type, data }) => (type === 'RunGranted' ? (data as { steps: unknown[] }).steps : []))).toHaveLength(10);
  });

  it('whose input is as large as a message has its steps behind it', () => {
    const { told, pages } = forked(played([accepted({ input: 'x'.repeat(200_000) })], large(1, 100_000)), '2');
    expect([told?.steps, told?.more, pages.map(({ steps, more }) => [steps.length, more])]).toEqual([[], 1, [[1, 0]]]);
  });

  it('takes no intent while it is being copied, and no page once it has ended', () => {
    const { states, told, pages, turn, recorded } = forked(played([accepted()], ...largeSteps(6)), '7');
    expect(told?.more).toBeGreaterThan(0);
    handlers.recordStep(inboundOf('RecordStep', other, note('7', 'n', null).data), turn);
    expect(recorded.at(-1)).toMatchObject({ type: 'IntentRejected', data: { reason: 'run_queued', message: expect.stringContaining('still being copied') } });
    states.set(other, { ...known(states.get(other) ?? { status: 'absent' }), status: 'ended', ending: completed } as Run);
    const before = recorded.length;
    for (const page of pages) handlers.copySteps(inboundOf('CopySteps', other, page), turn);
    expect(recorded).toHaveLength(before);
  });

  it('may have another input', () => {
    const decision = given(...history).when(fork('3', { asked: { command: 'c1', by: kate, run: other, from: s('3'), input: { order: 8 } } }));
    expect(decision).toMatchObject({ events: [{ data: { input: { value: { order: 8 } } } }] });
  });

  it('whatever the step up to the one after the last, has exactly those before it, and asks the ledger for none', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), (from) => {
        const { states, recorded, told } = forked(history, String(from));
        const before = [...known(states.get(run) ?? { status: 'absent' }).steps.keys()].filter((step) => isBefore(step, String(from) as Step));
        expect(told?.steps).toHaveLength(before.length);
        expect([...known(states.get(other) ?? { status: 'absent' }).steps.keys()]).toEqual(before);
        expect(recorded.some(({ type }) => type === 'EffectRequested')).toBe(false);
      }),
    );
  });
});
