import { describe, expect, it } from '@jest/globals';
import { RunId, WaitStarted, type Outcome } from '@holdfast/protocol';
import fc from 'fast-check';
import type { Command } from '../src/domain/commands.js';
import { phaseOf, type RunEvent } from '../src/domain/run.js';
import { LOCAL_ENDS_MAX_MS } from '../src/domain/unheard.js';
import { dueAt } from '../src/domain/waiting.js';
import { HELD_TAG } from '../src/lanes.js';
import { orchestrator } from '../src/routes.js';
import { WaitHandlers } from '../src/wait-handlers.js';
import { accepted, asked, agent, at, block, call, ended, f, given, grant, holder, host, known, played, pool, reports, s, settle, succeeded } from './kit.js';
import { book, handlers } from './turn-kit.js';

const kate = { name: 'kate', roles: ['operator'] };
const cancel: Command<'cancel'> = { type: 'cancel', at, asked: { command: 'c', by: kate, reason: 'wrong order', scope: 'run', manner: 'graceful' } };
const pause: Command<'pause'> = { type: 'pause', at, asked: { command: 'p', by: kate, reason: 'look first' } };
const during = (tool: 'lookup' | 'reserve'): RunEvent[] => played([accepted(), asked('1', tool, { n: 1 }, 'local')], cancel);
const reported = (events: readonly RunEvent[]): unknown => events.flatMap(({ type, data }) => (type === 'StepsReported' ? (data.settles ?? []) : [])).at(-1);
const phase = (events: readonly RunEvent[]): string => phaseOf(known(given(...events).state()));
const local = expect.objectContaining({ last: true, args: { n: 1 } });
const doubt = { status: 'unknown', cause: 'host_lost', message: expect.any(String) };

describe('a local call of a run that is being cancelled', () => {
  it('that its worker never fired goes to the ledger, which tries no more, and the run ends with its word', () => {
    const unfired: Outcome = { status: 'failed', failure: { class: 'cancelled', message: 'not fired', notApplied: true }, evidence: host };
    const told = played(during('reserve'), reports([ended('1', unfired)]));
    expect([reported(told), phase(told)]).toEqual([{ step: '1', attempt: 1, outcome: unfired, local }, 'cancelling']);
    const after = played(told, settle('1', unfired as Command<'settle'>['outcome']));
    expect(after.at(-1)).toMatchObject({ type: 'RunFinished', data: { ending: { status: 'cancelled' }, effects: [{ step: '1', outcome: 'failed' }] } });
  });

  it.each([
    ['reserve', doubt],
    ['lookup', { status: 'failed', failure: expect.objectContaining({ class: 'cancelled', notApplied: true }), evidence: host }],
  ] as const)('of %s whose worker is lost is settled as far as can be known', (tool, outcome) => {
    expect(given(...during(tool)).when(grant(holder('w1', 10)))).toEqual({ kind: 'ignore', because: 'held_back' });
    const lost = played(during(tool), grant(holder('w2', 20)));
    expect(reported(lost)).toEqual({ step: '1', attempt: 1, outcome, local });
    expect(given(...lost).when(grant(holder('w3', 30)))).toEqual({ kind: 'ignore', because: 'held_back' });
    const after = tool === 'reserve' ? played(lost, block('1')) : played(lost, settle('1'));
    expect(phase(after)).toBe('cancelled');
    if (tool === 'reserve') expect(played(after, reports([ended('1')], 1)).at(-1)).toMatchObject({ type: 'StepsReported', data: { settles: [{ outcome: succeeded }] } });
  });

  it('is looked after when its lane changes hands, and only then', () => {
    const { agenda } = orchestrator(handlers, new WaitHandlers(handlers, book));
    expect(agenda(given(...during('reserve')).state(), 'run-1')).toMatchObject({ open: true, tag: pool });
    expect(agenda(given(...played([accepted(), asked('1', 'refund')], cancel)).state(), 'run-1')).toMatchObject({ open: true, tag: HELD_TAG });
  });

  it('that nobody can tell of, since the run was held by nobody, is in doubt at once', () => {
    const paused = played([accepted(), asked('1', 'reserve', { n: 1 }, 'local')], pause, cancel);
    expect(reported(paused)).toMatchObject({ step: '1', outcome: doubt });
    const shut = played([accepted(), asked('1', 'reserve', { n: 1 }, 'local')], { type: 'poison', at, message: 'boom' }, cancel);
    expect(reported(shut)).toMatchObject({ step: '1', outcome: doubt });
    expect(phase(played(shut, block('1')))).toBe('cancelled');
  });

  it('is waited for no longer than so long', () => {
    const events = during('reserve');
    expect(dueAt(known(given(...events).state()))).toBe(at + LOCAL_ENDS_MAX_MS);
    expect(given(...events).when({ type: 'due', at: at + LOCAL_ENDS_MAX_MS - 1 })).toEqual({ kind: 'ignore', because: 'not_due' });
    expect(reported(played(events, { type: 'due', at: at + LOCAL_ENDS_MAX_MS }))).toMatchObject({ step: '1', outcome: doubt });
  });

  it('whatever is in flight and whoever is lost, the run ends', () => {
    const step = fc.record({ tool: fc.constantFrom('lookup' as const, 'reserve' as const, 'refund' as const), outcome: fc.constantFrom('worker' as const, 'lost' as const) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 6 }), fc.boolean(), (steps, held) => {
        const calls = steps.map(({ tool }, i) => call(String(i + 1), tool, { fire: tool === 'refund' ? 'granted' : 'local' }));
        const told = steps.flatMap(({ tool, outcome }, i) => (tool !== 'refund' && outcome === 'worker' ? [reports([ended(String(i + 1))])] : []));
        const words = steps.map(({ tool, outcome }, i) => (tool === 'reserve' && outcome === 'lost' ? block(String(i + 1)) : settle(String(i + 1))));
        const events = played([accepted()], ...calls, ...(held ? [] : [pause]), cancel, ...told, grant(holder('w2', 20)), ...words);
        return phase(events) === 'cancelled';
      }),
    );
  });
});

describe('a child that ran out of time before it had an output', () => {
  it('is no success with nothing in it', () => {
    const child = RunId.parse('run-1/1');
    const waits = WaitStarted({ step: s('1'), wait: { kind: 'child', run: child, agent, input: 5 }, since: at, deadline: at + 1000, onDeadline: { action: 'expire' }, fence: f(1) });
    const over = played([accepted({ deadline: at + 5, onDeadline: { action: 'complete_partially', because: 'the day is over' } })], { type: 'due', at: at + 5 }).at(-1);
    expect(over).toMatchObject({ type: 'RunFinished', data: { ending: { status: 'completed_partially', because: 'the day is over' } } });
    const ending = over?.type === 'RunFinished' ? over.data.ending : undefined;
    if (ending === undefined) throw new Error('the child did not end');
    expect(given(accepted(), waits).when({ type: 'child', at, data: { step: s('1'), child, ending } })).toMatchObject({ events: [{ data: { end: { status: 'failed', failure: { class: 'expired', message: expect.stringContaining('the day is over') } } } }] });
    expect(given(accepted(), waits).when({ type: 'child', at, data: { step: s('1'), child, ending: { status: 'completed_partially', output: { value: 2 }, because: 'half' } } })).toMatchObject({ events: [{ data: { end: { status: 'satisfied', value: { value: 2 } } } }] });
  });
});
