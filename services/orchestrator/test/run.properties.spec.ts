import { describe, expect, test } from '@jest/globals';
import { fold } from '@holdfast/kernel';
import type { Outcome, Settled } from '@holdfast/protocol';
import fc from 'fast-check';
import type { RunCommand } from '../src/domain/commands.js';
import type { RunDecision } from '../src/domain/commands.js';
import { runDecider } from '../src/domain/decide.js';
import { openSteps, unknownSteps, type Run, type RunEvent } from '../src/domain/run.js';
import { agent, at, block, call, completed, ended, eventsOf, failure, finish, grant, group, holder, host, note, partially, reports, s, settle, start, succeeded, tried } from './kit.js';

/** Freezes a state with all that hangs on it; maps and sets throw when they are written to. */
function frozen<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  const refuse = (): never => {
    throw new Error('a fold changed the state it was given');
  };
  if (value instanceof Map || value instanceof Set) Object.assign(value, { set: refuse, add: refuse, delete: refuse, clear: refuse });
  if (value instanceof Map) for (const member of value.values()) frozen(member);
  else for (const member of Object.values(value)) frozen(member);
  return Object.freeze(value);
}

const STEPS = ['1', '2', '3', '4', '4.1', '4.2'] as const;
const steps = fc.constantFrom(...STEPS);
const fences = fc.constantFrom<number | null>(1, 1, 1, 2, 2, 3, null);
const ends = fc.constantFrom<Outcome>(
  succeeded,
  { status: 'rejected', reason: 'no', evidence: host },
  { status: 'failed', failure: failure(), evidence: host },
  { status: 'unknown', cause: 'deadline', message: '?' },
);
const settled = fc.tuple(steps, ends, fc.integer({ min: 1, max: 2 })).map(([step, outcome, attempt]) => ended(step, outcome, attempt));
const settles = fc.array(settled, { maxLength: 2 });
const progress = fc.record({ fence: fences, settles }, { requiredKeys: ['fence'] });
const groups = fc.constantFrom<Parameters<typeof group>>(
  ['4', [['4.1', 'lookup'], ['4.2', 'reserve']]],
  ['4', [['4.1', 'reserve'], ['4.1', 'reserve']]],
  ['4', [['4.2', 'reserve'], ['4', 'lookup']]],
  ['3', [['4.1', 'reserve'], ['4.2', 'lookup']]],
  ['4.1', [['4', 'reserve']]],
);
/** A worker reports what ended before the step that it now asks for, never that step. */
const earlier = (step: string, more: Settled[] | undefined): Settled[] => (more ?? []).filter((report) => report.step !== step);

const withSettles = <C extends RunCommand>(command: C, more: Settled[] | undefined): C => (more === undefined || more.length === 0 ? command : { ...command, data: { ...(command as { data: object }).data, settles: more } });

const commands: fc.Arbitrary<RunCommand> = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom(start(), start({ holder: null }), start({ input: { order: 8 } }), start({ data: { agent, input: { order: 7 }, budgets: { stepsMax: 2 } } })) },
  {
    weight: 8,
    arbitrary: fc
      .tuple(steps, fc.constantFrom('lookup' as const, 'reserve' as const, 'refund' as const), fc.constantFrom({ n: 1 }, { n: 2 }), progress, fc.constantFrom('local' as const, 'granted' as const), fc.constantFrom('refuse' as const, 'adopt' as const))
      .map(([step, tool, args, of, fire, onConflict]) => call(step, tool, { args, ...of, settles: earlier(step, of.settles), fire, onConflict })),
  },
  { weight: 2, arbitrary: fc.tuple(groups, fences).map(([[step, members], fence]) => group(step, members, fence)) },
  { weight: 2, arbitrary: fc.tuple(steps, fc.constantFrom('think', 'other'), fences, settles).map(([step, name, fence, more]) => withSettles(note(step, name, fence), earlier(step, more))) },
  { weight: 2, arbitrary: fc.tuple(steps, fc.integer({ min: 1, max: 6 }), fences).map(([step, attempt, fence]) => tried(step, attempt, 'transient', fence)) },
  { weight: 4, arbitrary: fc.tuple(fc.array(settled, { maxLength: 3 }), fences, fc.option(fc.array(steps.map(s), { maxLength: 3 }), { nil: undefined })).map(([more, fence, observed]) => reports(more, fence, observed)) },
  { weight: 3, arbitrary: fc.tuple(fc.constantFrom(completed, partially), fences, settles).map(([ending, fence, more]) => finish(ending, fence, more)) },
  { weight: 3, arbitrary: fc.tuple(fc.constantFrom('w1', 'w2'), fc.integer({ min: 9, max: 14 }), fc.boolean()).map(([worker, offset, hosts]) => grant(holder(worker, offset, hosts ? [agent] : []))) },
  { weight: 3, arbitrary: steps.map((step) => settle(step)) },
  { weight: 2, arbitrary: steps.map(block) },
  { weight: 1, arbitrary: fc.constant<RunCommand>({ type: 'poison', at, message: 'boom' }) },
  { weight: 1, arbitrary: fc.constant<RunCommand>({ type: 'unreadable', at, intent: 'CallTool', reason: 'invalid', message: 'm', token: 't' }) },
);
const histories = fc.array(commands, { maxLength: 30 }).map((rest) => [start(), ...rest]);

interface Played {
  readonly events: readonly RunEvent[];
  readonly state: Run;
}

/** Plays commands as the shell does: what is refused is an event too, and nothing is written about a run that never was. */
function play(all: readonly RunCommand[], look: (command: RunCommand, decision: RunDecision, before: Run, after: Run) => void = () => undefined): Played {
  const events: RunEvent[] = [];
  let state: Run = runDecider.initial;
  for (const command of all) {
    const before = state;
    const decision = runDecider.decide(frozen(command), before);
    for (const event of eventsOf(decision)) {
      if (state.status === 'absent' && event.type !== 'RunAccepted') continue;
      events.push(frozen(event));
      state = frozen(runDecider.evolve(state, event));
    }
    look(command, decision, before, state);
  }
  return { events, state };
}

const holds = (look: (command: RunCommand, decision: RunDecision, before: Run, after: Run) => void): void =>
  fc.assert(
    fc.property(histories, (all) => {
      play(all, look);
    }),
  );

const fenceOf = (run: Run): number => ('lease' in run ? (run.lease?.fence ?? 0) : 0);

describe('whatever happens', () => {
  test('no run completes while one of its calls is open or its outcome unknown', () => {
    holds((_, decision, before, after) => {
      if (before.status === 'ended' || after.status !== 'ended' || after.ending.status !== 'completed') return;
      expect(decision.kind).toBe('record');
      expect(openSteps(after)).toEqual([]);
      expect(unknownSteps(after)).toEqual([]);
    });
  });

  test('the fence rises by one or stays', () => {
    holds((_, __, before, after) => expect([fenceOf(before), fenceOf(before) + 1]).toContain(fenceOf(after)));
  });

  test('an intent changes an open run only under its fence', () => {
    holds((command, decision, before) => {
      if (decision.kind !== 'record' || !['call', 'group', 'record', 'try', 'finish'].includes(command.type)) return;
      // A duplicate's results are evidence, whoever brings them.
      if (decision.events.every(({ type }) => type === 'StepsReported')) return;
      expect(before.status).toBe('open');
      const fence = 'data' in command && 'fence' in command.data ? command.data.fence : undefined;
      if (fenceOf(before) > 0) expect(fence).toBe(fenceOf(before));
    });
  });

  test('a command repeated at once changes nothing', () => {
    holds((command, _, __, after) => {
      if (after.status === 'absent') return;
      expect(runDecider.decide(command, after)).toMatchObject({ kind: 'ignore' });
    });
  });

  test('a known end never changes', () => {
    holds((_, __, before, after) => {
      if (!('steps' in before) || !('steps' in after)) return;
      for (const [step, state] of before.steps) {
        if (state.kind === 'call' && state.outcome !== null && state.outcome.status !== 'unknown') expect(after.steps.get(step)).toMatchObject({ outcome: state.outcome });
        if (state.kind === 'record') expect(after.steps.get(step)).toEqual(state);
      }
    });
  });

  test('a step keeps the key and the arguments it was first recorded with', () => {
    holds((_, __, before, after) => {
      if (!('steps' in before) || !('steps' in after)) return;
      for (const [step, state] of before.steps) if (state.kind === 'call') expect(after.steps.get(step)).toMatchObject({ call: { key: state.call.key, digest: state.call.digest } });
    });
  });

  test('a group’s own step is held by nothing else', () => {
    holds((_, __, ___, after) => {
      if (!('groups' in after)) return;
      for (const step of after.groups) expect(after.steps.has(step)).toBe(false);
    });
  });

  test('a run that has ended stays as it ended', () => {
    holds((_, __, before, after) => {
      if (before.status === 'ended') expect(after).toMatchObject({ status: 'ended', ending: before.ending });
    });
  });

  test('the fold of the events is the state reached, and changes no state it was given', () => {
    fc.assert(
      fc.property(histories, (all) => {
        const { events, state } = play(all);
        expect(fold(runDecider.evolve, runDecider.initial, events)).toEqual(state);
        // As the journal keeps them.
        const read = JSON.parse(JSON.stringify(events)) as RunEvent[];
        expect(fold(runDecider.evolve, runDecider.initial, read)).toEqual(state);
      }),
    );
  });
});
