import { describe, expect, it } from '@jest/globals';
import { ignore } from '@holdfast/kernel';
import { brakeStream, laneStream, LaneTaken, RunPaused, type BrakeTarget, type Tenant } from '@holdfast/protocol';
import fc from 'fast-check';
import { noBrakes, onRun, type Brakes } from '../src/domain/brakes.js';
import { phaseOf, type Run, type RunEvent } from '../src/domain/run.js';
import { WaitHandlers } from '../src/wait-handlers.js';
import { accepted, agent, asked, at, call, completed, finish, given, grant, holder, input, known, note, played, pool, s, settle, tenant, tools } from './kit.js';
import { book, handlers, inboundOf, stateOf, turnOver } from './turn-kit.js';

const kate = { name: 'kate', roles: ['operator'] };
const all: Record<string, BrakeTarget> = {
  tenant: { kind: 'tenant', name: tenant },
  agent: { kind: 'agent', name: agent.name },
  version: { kind: 'agent', ...agent },
  tool: { kind: 'tool', name: 'refund' },
};
const waits = new WaitHandlers(handlers, book);
const stream = brakeStream(3);
const set = (target: BrakeTarget, command = 'c1') => inboundOf('SetBrake', stream, { command, by: kate, target, reason: 'look first' });
const release = (target: BrakeTarget, command = 'c2') => inboundOf('ReleaseBrake', stream, { command, by: kate, target });
const start = (run: string) => inboundOf('StartRun', run, { agent, pool, input });
const lane = stateOf(LaneTaken({ pool, lane: 3, worker: 'w1' as never, agents: [agent], taken: {}, offset: 10 }));
const world = (...runs: [string, Run][]) => new Map<string, Run>([[laneStream(pool, 3), lane], ...runs]);
const phase = (run: Run | undefined): string => phaseOf(known(run ?? { status: 'absent' }));

describe.each(['tenant', 'agent', 'version'])('a brake on a %s', (of) => {
  const target = all[of] as BrakeTarget;

  it('holds a run that goes on: its worker drops it, and nothing more is taken for it until it is let go', () => {
    const states = world(['run-1', stateOf(accepted())]);
    const { turn, sent, recorded } = turnOver(states);
    waits.setBrake(set(target), turn);
    handlers.recordStep(inboundOf('RecordStep', 'run-1', { step: s('1'), kind: 'step', name: 'think', result: { value: 1 }, fence: 1 as never }), turn);
    expect(recorded.map(({ type }) => type)).toEqual(['BrakeSet', 'RunPaused', 'IntentRejected']);
    expect(sent.map(({ type }) => type)).toEqual(['RunDropped']);
    expect(phase(states.get('run-1'))).toBe('paused');
    handlers.due('run-1', turn);
    expect(recorded).toHaveLength(3);
    waits.releaseBrake(release(target), turn);
    handlers.due('run-1', turn);
    expect(recorded.slice(3).map(({ type }) => type)).toEqual(['BrakeReleased', 'RunUnpaused', 'RunResumed']);
  });

  it('holds a run that is started meanwhile before any worker has it', () => {
    const states = world();
    const { turn, sent, recorded } = turnOver(states);
    waits.setBrake(set(target), turn);
    handlers.start(start('run-2'), turn);
    expect([recorded.map(({ type }) => type), sent]).toEqual([['BrakeSet', 'RunAccepted', 'RunPaused'], []]);
    waits.releaseBrake(release(target), turn);
    handlers.due('run-2', turn);
    expect(recorded.slice(3).map(({ type }) => type)).toEqual(['BrakeReleased', 'RunUnpaused', 'LeaseGranted']);
  });
});

describe('a brake', () => {
  it('wakes what it is about, at once', () => {
    const { turn } = turnOver(world(['run-1', stateOf(accepted())]));
    const woken: string[] = [];
    const watched = { ...turn, open: () => ['run-1', stream], wake: (run: string) => void woken.push(run) };
    waits.setBrake(set(all['tenant'] as BrakeTarget), watched);
    waits.setBrake(set(all['tenant'] as BrakeTarget), watched);
    expect(woken).toEqual(['run-1']);
  });

  it('set twice, let go twice, or by someone who may not, is refused with the reason; read again it is nothing', () => {
    const { turn, recorded } = turnOver(world());
    const target = all['tool'] as BrakeTarget;
    waits.setBrake(inboundOf('SetBrake', stream, { command: 'c0', by: { name: 'eve', roles: ['clerk'] }, target, reason: 'no' }), turn);
    for (const id of ['c1', 'c1', 'c3']) waits.setBrake(set(target, id), turn);
    for (const id of ['c4', 'c4', 'c5']) waits.releaseBrake(release(target, id), turn);
    expect(recorded.map(({ type, data }) => ('reason' in data && type === 'InputRefused' ? data.reason : type))).toEqual(['role_missing', 'BrakeSet', 'not_possible', 'BrakeReleased', 'not_possible']);
  });

  it('on a tool marks what is asked for meanwhile, and tells the worker', () => {
    const states = world(['run-1', stateOf(accepted())]);
    const { turn, sent } = turnOver(states);
    const watched = { ...turn, open: () => [laneStream(pool, 3)] };
    waits.setBrake(set(all['tool'] as BrakeTarget), watched);
    waits.releaseBrake(release(all['tool'] as BrakeTarget), watched);
    expect(sent).toEqual([['refund'], []].map((names) => ({ type: 'ToolsHeld', data: { worker: 'w1', tools: names.map((name) => ({ name })) } })));
    const brake = { target: all['tool'] as BrakeTarget, by: kate, reason: 'look first', command: 'c1' };
    expect(given(accepted()).when({ ...call('1', 'refund'), brake })).toMatchObject({ events: [{ type: 'EffectRequested', data: { held: { brake: 'tool:refund', by: 'kate', reason: 'look first' } } }] });
    expect(given(accepted()).when({ ...call('1', 'reserve', { fire: 'local' }), brake })).toMatchObject({ events: [{ type: 'EffectRequested', data: expect.not.objectContaining({ held: expect.anything() }) }] });
  });

  it('leaves another’s word alone: a run is let go when nothing holds it any more', () => {
    const pause = { type: 'pause', at, asked: { command: 'p', by: kate, reason: 'mine' } } as const;
    const brakes: Brakes = { ...noBrakes, set: new Map([['tenant:acme', { target: all['tenant'] as BrakeTarget, by: kate, reason: 'r', command: 'c1' }]]) };
    const both = played([accepted()], pause, { type: 'brake', at, brakes });
    const one = played(both, { type: 'brake', at, brakes: noBrakes });
    expect(one.at(-1)).toMatchObject({ type: 'RunUnpaused', data: { brake: 'tenant:acme' } });
    expect(given(...one).when(grant(holder('w2', 20)))).toEqual(ignore('held_back'));
    expect(given(...one, ...played([], { type: 'unpause', at, asked: { command: 'u', by: kate } })).when(grant(holder('w2', 20)))).toEqual(ignore('held_back'));
    expect(given(...played(one, { type: 'unpause', at, asked: { command: 'u', by: kate } })).when(grant(holder('w2', 20)))).toMatchObject({ events: [{ type: 'RunResumed' }] });
  });

  it('is about whom it names, and no other', () => {
    const state = given(accepted()).state();
    const on = (target: BrakeTarget): number => onRun({ ...noBrakes, set: new Map([['x', { target, by: kate, reason: 'r', command: 'c' }]]) }, known(state)).length;
    expect([all['tenant'], all['agent'], all['version'], all['tool'], { kind: 'agent', name: agent.name, version: '9' }, { kind: 'tenant', name: 'else' as Tenant }].map((target) => on(target as BrakeTarget))).toEqual([1, 1, 1, 0, 0, 0]);
  });

  it('lets what is in flight end, and records it', () => {
    const paused = [accepted(), asked('1', 'refund'), RunPaused({ by: kate, reason: 'r', command: 'c', at, brake: 'tenant:acme' })];
    expect(given(...paused).when(settle('1'))).toMatchObject({ events: [{ type: 'EffectSettled' }] });
    expect(given(...paused).when(finish(completed))).toMatchObject({ kind: 'refuse', because: { reason: 'run_paused' } });
  });
});

it('whatever brakes come and go, a run is held exactly while one that is on it is set, and then nothing is taken for it', () => {
  const targets = [all['tenant'], all['agent'], all['version'], { kind: 'tenant', name: 'else' }, all['tool']] as BrakeTarget[];
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(targets.length - 1), fc.boolean())), (words) => {
      const states = world(['run-1', stateOf(accepted())]);
      const { turn, recorded } = turnOver(states);
      words.forEach(([i, on], n) => {
        const target = targets[i] as BrakeTarget;
        if (on) waits.setBrake(set(target, `c${n}`), turn);
        else waits.releaseBrake(release(target, `c${n}`), turn);
        handlers.due('run-1', turn);
        const brakes = states.get(stream);
        const run = known(states.get('run-1') ?? { status: 'absent' });
        const holds = brakes?.status === 'brakes' && onRun(brakes, run).length > 0;
        expect(phase(run)).toBe(holds ? 'paused' : 'running');
        expect(given(...recorded.filter((event: RunEvent) => event.type !== 'BrakeSet' && event.type !== 'BrakeReleased'), accepted()).state().status).toBe('open');
        if (holds) expect(given(accepted(), ...recorded.filter(({ type, data }) => (type === 'RunPaused' || type === 'RunUnpaused' || type === 'RunResumed') && data !== null)).when(note('1', 'think', run.lastFence)).kind).toBe('refuse');
      });
    }),
  );
  expect(tools).toBeDefined();
});
