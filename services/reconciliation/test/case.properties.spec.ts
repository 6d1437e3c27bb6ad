import { describe, expect, test } from '@jest/globals';
import { fold } from '@holdfast/kernel';
import { UnknownCause, type EffectClass, type ProbeAnswer } from '@holdfast/protocol';
import fc from 'fast-check';
import { dueAt, type Case, type CaseEvent, type RunCases } from '../src/domain/case.js';
import type { CaseCommand } from '../src/domain/commands.js';
import { caseDecider } from '../src/domain/decide.js';
import { answered, APPLIED, applied, assign, contract, due, ended, looking, NOT_APPLIED, notApplied, now, open, pending, READING_FROM, resolve, step, stillUnknown, type Over } from './kit.js';

/** Contracts that a tool may have; null: no worker declares it any more. */
const contracts: readonly (Over | null)[] = [
  {},
  { probe: { sealing: true }, settleDelayMs: null },
  { settleDelayMs: null },
  { probe: null },
  { ageing: { remindAfterMs: 500, escalateAfterMs: 3000, verdictRole: 'treasurer' }, targetRemembersKeysForMs: 20_000 },
];

/** A command, and how long after the one before it comes. */
interface Timed {
  readonly after: number;
  readonly make: (at: number, of: Case | undefined) => CaseCommand;
}

const answers = fc.constantFrom<ProbeAnswer>(applied, notApplied, notApplied, pending, stillUnknown);
const times = fc.constantFrom(0, 1, 500, 1500, 9000, 60_000);

function commands(effect: EffectClass, over: Over | null): fc.Arbitrary<Timed> {
  const with_ = (at: number) => (over === null ? { ...looking(at, effect), contract: null } : looking(at, effect, over));
  const timed = <T>(arbitrary: fc.Arbitrary<T>, make: (value: T, at: number, of: Case | undefined) => CaseCommand): fc.Arbitrary<Timed> => fc.tuple(times, arbitrary).map(([after, value]) => ({ after, make: (at, of) => make(value, at, of) }));
  const roles = fc.constantFrom<string[]>(['operator'], ['treasurer'], ['admin'], []);
  return fc.oneof(
    { weight: 3, arbitrary: timed(fc.record({ attempt: fc.integer({ min: 1, max: 3 }), of: fc.integer({ min: 1, max: 6 }), cause: fc.constantFrom(...UnknownCause.options) }), (about, at) => ({ ...open({ effect, at, ...about }), ...with_(at) })) },
    { weight: 6, arbitrary: timed(fc.constant(null), (_, at) => ({ ...due(at, effect), ...with_(at) })) },
    // As time goes by: what is due, when it is due.
    { weight: 6, arbitrary: timed(fc.constant(null), (_, at, of) => { const when = Math.max(at, of === undefined ? at : (dueAt(of) ?? at)); return { ...due(when, effect), ...with_(when) }; }) },
    { weight: 5, arbitrary: timed(fc.tuple(answers, fc.integer({ min: 1, max: 6 }), fc.constantFrom(0, 0, 0, 1, -1)), ([answer, probe, off], at, of) => ({ ...answered(probe, answer, at, { effect, attempt: (of?.attempt ?? 1) + off }), ...with_(at) })) },
    { weight: 1, arbitrary: timed(fc.constantFrom('succeeded' as const, 'rejected' as const, 'failed' as const), (outcome, at) => ({ ...ended(outcome, at), ...with_(at) })) },
    {
      weight: 2,
      arbitrary: timed(fc.record({ verdict: fc.constantFrom(APPLIED, NOT_APPLIED), by: roles, force: fc.boolean(), attempt: fc.integer({ min: 1, max: 3 }), command: fc.constantFrom('a', 'b', 'c', 'd'), early: fc.boolean() }), ({ verdict, by, early, ...asked }, at) => ({
        ...resolve(verdict, { ...asked, by: { name: 'ann', roles: by }, ...(early ? { readAt: now } : {}) }),
        ...with_(at),
      })),
    },
    { weight: 1, arbitrary: timed(fc.record({ by: roles, attempt: fc.integer({ min: 1, max: 3 }), command: fc.constantFrom('e', 'f') }), ({ by, ...asked }, at) => ({ ...assign({ ...asked, by: { name: 'ann', roles: by } }), ...with_(at) })) },
  );
}

const histories = fc
  .tuple(fc.constantFrom<EffectClass>('idempotent', 'irreversible'), fc.constantFrom(...contracts, null))
  .chain(([effect, over]) => fc.record({ effect: fc.constant(effect), over: fc.constant(over), all: fc.array(commands(effect, over), { maxLength: 40 }) }));
type History = typeof histories extends fc.Arbitrary<infer H> ? H : never;

interface Played {
  readonly events: readonly CaseEvent[];
  readonly states: readonly RunCases[];
  readonly commands: readonly CaseCommand[];
}

function freeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  if (value instanceof Map || value instanceof Set) {
    const refuse = (): never => {
      throw new Error('a fold changed the state it was given');
    };
    Object.assign(value, { set: refuse, add: refuse, delete: refuse });
  }
  for (const member of value instanceof Map ? value.values() : Object.values(value)) freeze(member);
  return Object.freeze(value);
}

function play({ all }: History, look: (command: CaseCommand, before: RunCases, after: RunCases, events: readonly CaseEvent[]) => void = () => undefined): Played {
  let state = freeze(caseDecider.initial);
  let at = now;
  const events: CaseEvent[] = [];
  const states = [state];
  const made: CaseCommand[] = [];
  for (const { after, make } of all) {
    at += after;
    const command = freeze(make(at, state.cases.get(step)));
    at = Math.max(at, command.at);
    const before = state;
    const decision = caseDecider.decide(command, before);
    const recorded = decision.kind === 'record' ? decision.events : [];
    for (const event of recorded) state = freeze(caseDecider.evolve(state, freeze(event)));
    events.push(...recorded);
    states.push(state);
    made.push(command);
    look(command, before, state, recorded);
  }
  return { events, states, commands: made };
}

const holds = (property: (history: History) => void): void => fc.assert(fc.property(histories, property), { numRuns: 1000 });

describe('whatever happens', () => {
  test('a case is settled once; a second time only where a person overrules a probe’s proof, and that is marked', () => {
    holds((history) => {
      let before: CaseEvent | undefined;
      for (const event of play(history).events) {
        if (event.type === 'CaseOpened') before = undefined;
        if (event.type !== 'CaseSettled') continue;
        if (before?.type === 'CaseSettled') {
          expect(before.data.by).toBe('probe');
          expect(event.data).toMatchObject({ by: 'person', forced: true });
          expect(event.data.verdict.status).not.toBe(before.data.verdict.status);
        }
        before = event;
      }
    });
  });

  test('an open case has a time at which it is looked at next, or was brought to a person', () => {
    holds((history) => {
      play(history, (_, __, after) => {
        const of = after.cases.get(step);
        if (of?.status !== 'open' || dueAt(of) !== null) return;
        expect(of.escalated.size).toBeGreaterThan(0);
      });
    });
  });

  test('what was due is dealt with: it is not due again at once, and never at full rate', () => {
    holds((history) => {
      play(history, (command, before, after) => {
        const [was, is] = [before.cases.get(step), after.cases.get(step)];
        if (command.type !== 'due' || was === undefined || is?.status !== 'open') return;
        const next = dueAt(is);
        if (next !== null && next <= command.at) throw new Error(`due at ${command.at}, and still at ${next}`);
      });
    });
  });

  test('a probe settles "not applied" only where its reading was issued when that was final, or sealed', () => {
    holds((history) => {
      play(history, (command, before, _, events) => {
        for (const event of events) {
          if (event.type !== 'CaseSettled' || event.data.verdict.status !== 'not_applied' || event.data.by !== 'probe') continue;
          const of = before.cases.get(step);
          if (event.data.sealing) expect(history.over?.probe?.sealing).toBe(true);
          else expect([of?.readingFrom !== null, event.data.readAt]).toEqual([true, expect.any(Number)]);
          if (!event.data.sealing) expect(event.data.readAt).toBeGreaterThanOrEqual(of?.readingFrom ?? Infinity);
          expect(command.type === 'answered' && of?.probes.get(command.probe)).toBe(event.data.readAt);
        }
      });
    });
  });

  test('a person’s "not applied" on an irreversible effect is as late, or marked forced', () => {
    holds((history) => {
      if (history.effect !== 'irreversible') return;
      play(history, (_, before, __, events) => {
        for (const event of events) {
          if (event.type !== 'CaseSettled' || event.data.by !== 'person' || event.data.verdict.status !== 'not_applied' || event.data.forced) continue;
          expect(event.data.readAt).toBeGreaterThanOrEqual(before.cases.get(step)?.readingFrom ?? Infinity);
        }
      });
    });
  });

  test('the same key is never sent again to a target that may fire once, or may have forgotten it', () => {
    holds((history) => {
      play(history, (command, before, _, events) => {
        if (!events.some((event) => event.type === 'CaseSettled' && event.data.verdict.status === 'same_key_again')) return;
        const of = before.cases.get(step);
        expect(of?.effect).toBe('idempotent');
        expect(of?.cause).not.toBe('partial_effect');
        if (of?.keyKnownUntil) expect(command.at).toBeLessThanOrEqual(of.keyKnownUntil);
      });
    });
  });

  test('an answer settles only the attempt that it names, and only where a probe of it was sent', () => {
    holds((history) => {
      play(history, (command, before, _, events) => {
        if (command.type !== 'answered' || events.length === 0) return;
        const of = before.cases.get(step);
        expect(command.attempt).toBe(of?.attempt);
        expect(of?.probes.has(command.probe)).toBe(true);
        expect(events.every(({ data }) => data.attempt === command.attempt)).toBe(true);
      });
    });
  });

  test('one probe at a time, each with a number of its own as long as the case is about its attempt', () => {
    holds((history) => {
      play(history, (_, before, __, events) => {
        const of = before.cases.get(step);
        for (const event of events) {
          if (event.type !== 'ProbeSent') continue;
          expect(of).toMatchObject({ status: 'open', outstanding: null });
          expect(of?.probes.has(event.data.probe)).toBe(false);
        }
      });
    });
  });

  test('commands, answers and unknowns read again change nothing', () => {
    holds((history) => {
      const { commands: made, states } = play(history);
      const end = states.at(-1) ?? caseDecider.initial;
      for (const command of made) {
        if (command.type !== 'resolve' && command.type !== 'assign') continue;
        expect(caseDecider.decide(command, end)).toEqual({ kind: 'ignore', because: 'command_answered' });
      }
      play(history, (command, _, after) => {
        if (command.type === 'open' || command.type === 'answered' || command.type === 'ended') expect(caseDecider.decide(command, after)).toMatchObject({ kind: 'ignore' });
      });
    });
  });

  test('unknowns read again from the beginning, in their order, open nothing', () => {
    holds((history) => {
      const { commands: made, states } = play(history);
      const end = states.at(-1) ?? caseDecider.initial;
      for (const command of made) if (command.type === 'open') expect(caseDecider.decide(command, end)).toEqual({ kind: 'ignore', because: 'opened_before' });
    });
  });

  test('the fold of the events is the state reached, and changes no state it was given', () => {
    holds((history) => {
      const { events, states } = play(history);
      expect(fold(caseDecider.evolve, caseDecider.initial, events)).toEqual(states.at(-1));
    });
  });

  test('nothing closes by growing old', () => {
    holds((history) => {
      const { states } = play(history);
      const of = states.at(-1)?.cases.get(step);
      if (of?.status !== 'open' || of.effect === 'idempotent') return;
      let state = states.at(-1) ?? caseDecider.initial;
      let at = READING_FROM + 1e6;
      for (let i = 0; i < 30; i += 1) {
        const decision = caseDecider.decide({ ...due(at), contract: history.over === null ? null : contract('irreversible', history.over) }, state);
        for (const event of decision.kind === 'record' ? decision.events : []) state = caseDecider.evolve(state, event);
        at += 1e6;
      }
      expect(state.cases.get(step)?.status).toBe('open');
    });
  });
});
