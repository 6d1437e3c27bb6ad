import { describe, expect, it } from '@jest/globals';
import { laneStream, LaneTaken, type Message, type MessageOf, type StartRun } from '@holdfast/protocol';
import fc from 'fast-check';
import { gateKey, GateRow, type Concurrent } from '../src/domain/admission.js';
import { absent, evolveAt, phaseOf, type Run, type RunEvent } from '../src/domain/run.js';
import { Gates } from '../src/gates.js';
import { RunHandlers } from '../src/handlers.js';
import { DEFAULT_SETTINGS, readSettings, type Settings } from '../src/settings.js';
import { accepted, agent, asked, at, block, call, cancelOf, finish, given, input, known, played, pool, s, tenant } from './kit.js';
import { book, inboundOf, stateOf, turnOver } from './turn-kit.js';

type Start = Partial<MessageOf<typeof StartRun>['data']>;
const kate = { name: 'kate', roles: ['operator'] };
const chat: Start = { concurrencyKey: 'chat-7' };
const keyGate = gateKey(['key', tenant, 'chat-7']);
const tenantGate = gateKey(['tenant', tenant]);
const agentGate = gateKey(['agent', agent.name]);

/** A lane with rows that span lanes, and a clock. */
function desk(limits: Partial<Settings['limits']> = {}) {
  const handlers = new RunHandlers(book, undefined, { ...DEFAULT_SETTINGS, limits: { ...DEFAULT_SETTINGS.limits, ...limits } });
  const states = new Map<string, Run>([[laneStream(pool, 3), stateOf(LaneTaken({ pool, lane: 3, worker: 'w1' as never, agents: [agent], taken: {}, offset: 10 }))]]);
  const rows = new Map<string, string>();
  const over = turnOver(states);
  const sent: { topic: string; stream: string; message: Message }[] = [];
  const clock = { now: at };
  const written: { stream: string; event: RunEvent; at: number }[] = [];
  const turn = {
    ...over.turn,
    get now() { return clock.now; },
    send: (topic: string, stream: string, _tenant: string, message: Message) => void sent.push({ topic, stream, message }),
    record: (stream: string, _tenant: string, event: RunEvent) => {
      over.recorded.push(event);
      written.push({ stream, event, at: clock.now });
      states.set(stream, evolveAt(states.get(stream) ?? absent, event, clock.now));
    },
    shared: (key: string) => rows.get(key) ?? null,
    putShared: (key: string, data: string) => void rows.set(key, data),
  };
  const phase = (run: string): string => {
    const state = states.get(run);
    return state === undefined || state.status === 'absent' ? 'absent' : phaseOf(known(state));
  };
  return {
    states, rows, sent, clock, phase, turn, handlers, written,
    recorded: over.recorded,
    row: (key: string) => GateRow.parse(JSON.parse(rows.get(key) ?? '')),
    start: (run: string, more: Start = {}) => handlers.start(inboundOf('StartRun', run, { agent, pool, input, ...more }), turn),
    end: (run: string) => handlers.apply(run, tenant, turn, finish({ status: 'completed', output: { value: 1 } }, known(states.get(run) ?? { status: 'absent' }).lease?.fence ?? null)),
    /** Delivers what runs have told runs. */
    deliver: () => {
      for (const { stream, message } of sent.splice(0)) if (message.type === 'AdmitRun') handlers.admit(inboundOf('AdmitRun', stream, message.data as { gate: string }), turn);
    },
  };
}

describe('a second start in one conversation', () => {
  it('waits for the end of the first by default, and is let in then', () => {
    const { start, end, deliver, phase, recorded, sent } = desk();
    start('run-1', chat);
    start('run-2', chat);
    start('run-2', chat);
    expect([phase('run-1'), phase('run-2')]).toEqual(['running', 'queued']);
    end('run-1');
    expect(sent.filter(({ message }) => message.type === 'AdmitRun')).toMatchObject([{ topic: 'agent.intents', stream: 'run-2' }]);
    deliver();
    expect(phase('run-2')).toBe('running');
    expect(recorded.map(({ type }) => type)).toEqual(['RunAccepted', 'RunAccepted', 'RunQueued', 'RunFinished', 'RunAdmitted', 'LeaseGranted']);
  });

  it('with reject is refused: an event that names who goes on and when to ask again; later it may start', () => {
    const { start, end, phase, recorded } = desk();
    start('run-1', chat);
    start('run-2', { ...chat, onConcurrent: 'reject' });
    expect([phase('run-2'), recorded.at(-1)]).toMatchObject(['absent', { type: 'StartRefused', data: { reason: 'concurrent_run', holder: 'run-1', retryAt: at + 10_000 } }]);
    end('run-1');
    start('run-2', { ...chat, onConcurrent: 'reject' });
    expect(phase('run-2')).toBe('running');
  });

  it.each(['interrupt', 'rollback'] as const)('with %s cancels the first, and goes before all that wait', (onConcurrent) => {
    const { start, end, deliver, phase, sent, row } = desk();
    for (const run of ['run-1', 'run-2']) start(run, chat);
    sent.length = 0;
    start('run-3', { ...chat, onConcurrent });
    expect(sent.map(({ topic, stream, message }) => [topic, stream, message.type, (message.data as { compensate?: true }).compensate])).toEqual([['operator.commands', 'run-1', 'CancelRun', onConcurrent === 'rollback' ? true : undefined]]);
    expect(row(keyGate).queue.map(({ run }) => run)).toEqual(['run-3', 'run-2']);
    end('run-1');
    deliver();
    expect([phase('run-3'), phase('run-2')]).toEqual(['running', 'queued']);
  });

  it('in another conversation, of another tenant, or in none, is none of its business', () => {
    const { start, phase, rows } = desk();
    start('run-1', chat);
    start('run-2', { concurrencyKey: 'chat-8' });
    start('run-3');
    expect(['run-1', 'run-2', 'run-3'].map(phase)).toEqual(['running', 'running', 'running']);
    expect([...rows.keys()]).toEqual([keyGate, gateKey(['key', tenant, 'chat-8'])]);
  });
});

/** What the first run has in flight, and what becomes of it when the second interrupts it; enqueue and reject leave it alone. */
describe.each([
  ['nothing', [accepted()], 'cancelled'],
  ['an effect under way', [accepted(), asked('1', 'refund')], 'cancelling'],
  ['an effect of unknown outcome', played([accepted(), asked('1', 'refund')], block('1')), 'cancelled'],
  ['an end behind it', played([accepted()], finish()), 'completed'],
] as const)('interrupting a run with %s', (_, events: readonly RunEvent[], phase) => {
  it.each([false, true])(`leaves it ${phase} (rollback: %s)`, (rollback) => {
    const after = played(events, cancelOf(rollback));
    expect(phaseOf(known(given(...after).state()))).toBe(phase);
    expect(after.some(({ type }) => type === 'CompensationRequested')).toBe(rollback && phase !== 'completed');
  });
});

describe('limits', () => {
  it('on the open runs of a tenant and of an agent are passed in one order; who finds no room waits', () => {
    const { start, end, deliver, phase, row } = desk({ tenants: { '*': { openMax: 2 } }, agents: { [agent.name]: { openMax: 1 } } });
    for (const run of ['run-1', 'run-2', 'run-3']) start(run);
    expect(['run-1', 'run-2', 'run-3'].map(phase)).toEqual(['running', 'queued', 'queued']);
    // The second holds its place with the tenant, and waits for the agent; the third has neither.
    expect([row(tenantGate).open, row(tenantGate).queue.length, row(agentGate).queue.length]).toEqual([2, 1, 1]);
    end('run-1');
    deliver();
    expect(['run-2', 'run-3'].map(phase)).toEqual(['running', 'queued']);
    end('run-2');
    deliver();
    expect([phase('run-3'), row(tenantGate).open, row(agentGate).open]).toEqual(['running', 1, 1]);
  });

  it.each([
    [0, ['D']],
    [1, ['D', 'E']],
  ])('are not got round by a run that waited for its conversation and then finds no room, and a queue of %i full: it waits', (queueMax, more) => {
    const { start, end, deliver, phase, row } = desk({ tenants: { '*': { openMax: 2, queueMax } } });
    const phases = (): string[] => ['B', 'C', ...more].map(phase);
    start('A', chat);
    start('B', { concurrencyKey: 'chat-8' });
    start('C', chat);
    end('A');
    for (const run of more) start(run);
    deliver(); // C has its conversation now; the others have what room and queue there was.
    expect(phases()).toEqual(['running', 'queued', 'running', 'queued'].slice(0, phases().length));
    expect(row(tenantGate)).toMatchObject({ open: 2, queue: [...more.slice(1), 'C'].map((run) => ({ run })) });
    for (const run of ['B', 'D']) {
      end(run);
      deliver();
    }
    expect(phases()).toEqual(['completed', 'running', 'completed', 'running'].slice(0, phases().length));
    expect(row(tenantGate)).toMatchObject({ open: more.length, queue: [] });
  });

  it('on the rate refuse with the time from which there is room', () => {
    const { start, clock, phase, recorded } = desk({ tenants: { [tenant]: { startsPerMinute: 2 } } });
    for (const run of ['run-1', 'run-2', 'run-3']) start(run);
    expect([phase('run-3'), recorded.at(-1)]).toMatchObject(['absent', { type: 'StartRefused', data: { reason: 'rate_limited', retryAt: at + 30_000 } }]);
    clock.now += 30_000;
    start('run-3');
    expect(phase('run-3')).toBe('running');
  });

  it('let who has the higher priority in first, and refuse who may not wait or finds the queue full', () => {
    const { start, recorded, row } = desk({ tenants: { '*': { openMax: 1, queueMax: 3 } } });
    start('run-1');
    start('a');
    start('b', { priority: 5 });
    start('c', { priority: 5 });
    expect(row(tenantGate).queue.map(({ run }) => run)).toEqual(['b', 'c', 'a']);
    start('d');
    start('e', { queueMs: 0 });
    expect(recorded.slice(-2)).toMatchObject([{ data: { reason: 'queue_full' } }, { data: { reason: 'limit_reached' } }]);
  });

  it('end a run that waits longer than it may; its place goes to the next', () => {
    const { start, end, handlers, turn, clock, phase, deliver, row } = desk({ tenants: { '*': { openMax: 1 } } });
    start('run-1');
    start('a', { queueMs: 1000 });
    start('b');
    clock.now += 1000;
    handlers.due('a', turn);
    expect([phase('a'), row(tenantGate).queue.map(({ run }) => run)]).toEqual(['expired', ['b']]);
    end('run-1');
    deliver();
    expect(phase('b')).toBe('running');
  });

  it('give a place on that was handed to a run which ended meanwhile', () => {
    const { start, end, handlers, turn, clock, phase, deliver, row } = desk({ tenants: { '*': { openMax: 1 } } });
    start('run-1');
    start('a', { queueMs: 1000 });
    start('b');
    end('run-1');
    clock.now += 1000;
    handlers.due('a', turn);
    deliver();
    expect([phase('a'), phase('b'), row(tenantGate).open]).toEqual(['expired', 'running', 1]);
  });

  it('are not got round by whoever says that a run’s turn has come', () => {
    const { start, handlers, turn, phase, row } = desk({ tenants: { '*': { openMax: 1 } } });
    start('run-1');
    start('a');
    handlers.admit(inboundOf('AdmitRun', 'a', { gate: tenantGate }), turn);
    handlers.admit(inboundOf('AdmitRun', 'run-1', { gate: tenantGate }), turn);
    expect([phase('a'), row(tenantGate).open]).toEqual(['queued', 1]);
  });

  it('hold after a rebuild, from the streams alone; a place whose handing over was lost is handed over again', () => {
    const { start, end, handlers, turn, phase, deliver, rows, states, sent, row } = desk({ tenants: { '*': { openMax: 1 } } });
    for (const run of ['run-1', 'a', 'b']) start(run);
    end('run-1');
    sent.length = 0;
    rows.clear();
    for (const run of ['run-1', 'a', 'b']) {
      for (const { key, data, join } of Gates.words(run, states.get(run) ?? { status: 'absent' })) rows.set(key, rows.has(key) ? (join?.(rows.get(key) ?? '') ?? data) : data);
    }
    expect(row(tenantGate)).toMatchObject({ open: 0, queue: [{ run: 'a' }, { run: 'b' }] });
    for (const run of ['b', 'a']) handlers.reopen(run, turn);
    deliver();
    deliver();
    expect([phase('a'), phase('b'), row(tenantGate).open]).toEqual(['running', 'queued', 1]);
  });

  it('take nothing for a run that waits', () => {
    const { start, states } = desk({ tenants: { '*': { openMax: 1 } } });
    start('run-1');
    start('a');
    const state = known(states.get('a') ?? { status: 'absent' });
    expect([state.lease, state.queued?.gate]).toEqual([null, tenantGate]);
    expect(Gates.words('a', state)).toMatchObject([{ key: tenantGate }]);
  });

  it('are read from the environment, and a wrong word is named', () => {
    expect(readSettings({ HOLDFAST_LIMITS: '{"tenants":{"acme":{"openMax":3}}}' }).limits).toEqual({ tenants: { acme: { openMax: 3 } }, agents: {} });
    expect(() => readSettings({ HOLDFAST_LIMITS: '{"tenants":{"acme":{"open":3}}}' })).toThrow(/HOLDFAST_LIMITS: tenants\.acme/);
    expect(readSettings({ HOLDFAST_LIMITS: '', HOLDFAST_STUCK_AFTER_MS: '' })).toEqual(readSettings({}));
    expect(() => readSettings({ HOLDFAST_LIMITS: 'lots' })).toThrow('HOLDFAST_LIMITS');
  });
});

describe('a budget of a tenant', () => {
  const used = (run: string, step: string, tokensIn: number) => inboundOf('RecordStep', run, { step: s(step), kind: 'model', name: 'decide', result: { value: 1 }, usage: { tokensIn }, fence: 1 } as never);

  it('is one for all its runs and a day: nearing it and reaching it is said, then nothing new is taken, and the next day it is', () => {
    const { start, handlers, turn, recorded, clock } = desk({ tenants: { [tenant]: { budget: { tokensPerDay: 100 } } } });
    start('run-1');
    start('run-2');
    recorded.length = 0;
    handlers.recordStep(used('run-1', '1', 80), turn);
    handlers.recordStep(used('run-2', '1', 30), turn);
    handlers.recordStep(used('run-1', '2', 1), turn);
    // What is recorded already is a duplicate, not over the budget.
    handlers.recordStep(used('run-1', '1', 80), turn);
    expect(recorded.map(({ type, data }) => [type, 'used' in data ? [data.used, data.scope] : 'reason' in data ? data.reason : ''])).toEqual([
      ['StepRecorded', ''], ['BudgetNeared', [80, 'tenant']], ['StepRecorded', ''], ['BudgetNeared', [110, 'tenant']], ['IntentRejected', 'budget_exhausted'],
    ]);
    clock.now += DAY_MS;
    handlers.recordStep(used('run-2', '2', 1), turn);
    expect(recorded.at(-1)).toMatchObject({ type: 'StepRecorded' });
  });

  const DAY_MS = 24 * 60 * 60 * 1000;
  const says = (recorded: readonly RunEvent[]): unknown[] => recorded.flatMap<unknown>((event) => (event.type === 'BudgetNeared' ? [[event.data.budget, event.data.used, event.data.reached, event.data.scope]] : event.type === 'IntentRejected' ? [event.data.reason] : []));

  it('of steps counts each once, over all runs', () => {
    const { start, handlers, turn, recorded, clock } = desk({ tenants: { [tenant]: { budget: { stepsPerDay: 5 } } } });
    start('run-1');
    start('run-2');
    for (const [run, step] of [['run-1', '1'], ['run-1', '1'], ['run-1', '2'], ['run-2', '1'], ['run-2', '2'], ['run-2', '3'], ['run-1', '3']] as const) handlers.recordStep(used(run, step, 0), turn);
    expect(says(recorded)).toEqual([['steps', 4, false, 'tenant'], ['steps', 5, true, 'tenant'], 'budget_exhausted']);
    // The run keeps what it has, and ends as it likes.
    handlers.finish(inboundOf('FinishRun', 'run-1', { ending: { status: 'completed', output: { value: 1 } }, fence: 1 } as never), turn);
    expect(recorded.at(-1)).toMatchObject({ type: 'RunFinished' });
    clock.now += DAY_MS;
    handlers.recordStep(used('run-2', '4', 0), turn);
    expect(recorded.at(-1)).toMatchObject({ type: 'StepRecorded' });
  });

  it('of attempts counts those that the ledger sent, whatever came of them', () => {
    const { start, handlers, turn, recorded, states } = desk({ tenants: { [tenant]: { budget: { attemptsPerDay: 5 } } } });
    start('run-1');
    states.set('run-1', played([accepted({ lease: known(states.get('run-1') ?? absent).lease ?? undefined })], call('1', 'refund', { fence: 1 })).reduce<Run>((run, event) => evolveAt(run, event, at), absent));
    handlers.failed(inboundOf('EffectFailed', 'run-1', { step: s('1'), attempt: 4, failure: { class: 'transient', message: 'it is down', notApplied: true }, evidence: { kind: 'ledger' } } as never), turn);
    handlers.recordStep(used('run-1', '2', 0), turn);
    expect(says(recorded)).toEqual([]);
    handlers.apply('run-1', tenant, turn, call('3', 'refund', { fence: 1 }));
    handlers.apply('run-1', tenant, turn, call('4', 'refund', { fence: 1 }));
    handlers.recordStep(used('run-1', '5', 0), turn);
    expect(says(recorded)).toEqual([['attempts', 4, false, 'tenant'], ['attempts', 5, true, 'tenant'], 'budget_exhausted']);
  });

  it('is made again from the streams of its runs, for this day alone', () => {
    const { start, handlers, turn, rows, clock, written } = desk({ tenants: { [tenant]: { budget: { tokensPerDay: 1000, wallTimePerDayMs: 1_000_000_000 } } } });
    for (const run of ['run-1', 'run-2']) start(run);
    handlers.recordStep(used('run-1', '1', 70), turn);
    clock.now += DAY_MS;
    for (const [run, step, tokens] of [['run-1', '2', 80], ['run-2', '1', 30], ['run-2', '2', 5]] as const) {
      clock.now += 10;
      handlers.recordStep(used(run, step, tokens), turn);
    }
    /** As a rebuild does it: each stream's events in order. */
    const again = (of: RunHandlers): Map<string, string> => {
      const made = new Map<string, string>();
      const states = new Map<string, Run>();
      for (const { stream, event, at: then } of written) {
        const before = states.get(stream) ?? absent;
        const after = evolveAt(before, event, then);
        states.set(stream, after);
        for (const { key, data, join } of of.budgets.words(before, event, after, then, clock.now)) {
          const known = made.get(key);
          made.set(key, known === undefined ? data : (join?.(known) ?? data));
        }
      }
      return made;
    };
    const [yesterday, today] = [...rows.keys()].filter((key) => key.startsWith('budget:'));
    expect([yesterday === today, again(handlers)]).toEqual([false, new Map([[today, rows.get(today ?? '')]])]);
    expect(JSON.parse(again(handlers).get(today ?? '') ?? '')).toMatchObject({ steps: 3, tokens: 115 });
    expect(again(desk().handlers)).toEqual(new Map());
  });

  it('of wall time counts how long workers hold its runs, not how long they wait', () => {
    const { start, handlers, turn, recorded, clock } = desk({ tenants: { [tenant]: { budget: { wallTimePerDayMs: 100 } } } });
    start('run-1');
    start('run-2');
    clock.now += 30;
    handlers.recordStep(used('run-1', '1', 0), turn);
    clock.now += 20;
    handlers.recordStep(used('run-2', '1', 0), turn); // 30 and 50.
    expect(says(recorded)).toEqual([['wall_time', 80, false, 'tenant']]);
    handlers.apply('run-1', tenant, turn, { type: 'pause', at, asked: { command: 'p', by: kate, reason: 'mine' } }); // 20 more.
    expect(says(recorded)).toEqual([['wall_time', 80, false, 'tenant'], ['wall_time', 100, true, 'tenant']]);
    handlers.recordStep(used('run-2', '2', 0), turn);
    expect(says(recorded).at(-1)).toBe('budget_exhausted');
    clock.now += DAY_MS;
    handlers.apply('run-1', tenant, turn, { type: 'unpause', at, asked: { command: 'u', by: kate } });
    expect(says(recorded)).toHaveLength(3);
  });
});

it('whatever starts and ends: no gate has more open runs than it lets in, rows say what streams say, and all are let in at last', () => {
  const word = fc.oneof(
    fc.record({ run: fc.nat(9), key: fc.constantFrom(undefined, 'x', 'y'), mode: fc.constantFrom<Concurrent>('enqueue', 'reject', 'interrupt'), priority: fc.nat(2) }),
    /** One of those that run. */
    fc.record({ end: fc.nat(2) }),
    fc.constant('deliver' as const),
  );
  fc.assert(
    fc.property(fc.array(word, { maxLength: 40, size: 'max' }), fc.constantFrom(undefined, 0, 1), fc.constantFrom(undefined, 0, 1), (words, ofTenant, ofAgent) => {
      const limit = (openMax: number, queueMax: number | undefined) => ({ '*': { openMax, ...(queueMax === undefined ? {} : { queueMax }) } });
      const made = desk({ tenants: limit(3, ofTenant), agents: limit(2, ofAgent) });
      const runs = Array.from({ length: 10 }, (_, n) => `r${n}`);
      const open = (): string[] => runs.filter((run) => made.phase(run) === 'running');
      const check = (): void => {
        expect(open().length).toBeLessThanOrEqual(2);
        for (const run of open()) expect(known(made.states.get(run) ?? absent).gates).toEqual(expect.arrayContaining([tenantGate, agentGate]));
        const sums = new Map<string, { open: number; queue: string[] }>();
        for (const run of runs) for (const { key, data } of Gates.words(run, made.states.get(run) ?? { status: 'absent' })) {
          const row = GateRow.parse(JSON.parse(data));
          const sum = sums.get(key) ?? { open: 0, queue: [] };
          sums.set(key, { open: sum.open + row.open, queue: [...sum.queue, ...row.queue.map((entry) => entry.run)] });
        }
        // A place that was handed over and not taken yet is in the row, and still a wait in its run.
        for (const [key, sum] of sums) expect(made.row(key).open + made.row(key).queue.length).toBe(sum.open + sum.queue.length);
      };
      for (const each of words) {
        if (each === 'deliver') made.deliver();
        else if ('end' in each) open().slice(each.end, each.end + 1).forEach(made.end);
        else made.start(`r${each.run}`, { ...(each.key === undefined ? {} : { concurrencyKey: each.key }), onConcurrent: each.mode, priority: each.priority });
        check();
      }
      for (let left = 0; left < 40; left += 1) {
        made.deliver();
        for (const run of open()) made.end(run);
      }
      expect(runs.filter((run) => !['absent', 'completed'].includes(made.phase(run)))).toEqual([]);
      for (const key of made.rows.keys()) expect(made.row(key)).toMatchObject({ open: 0, queue: [], holder: null });
    }),
  );
});
