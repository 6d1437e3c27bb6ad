import { describe, expect, test } from '@jest/globals';
import { fold } from '@holdfast/kernel';
import { FailureClass, Pool, type EffectClass, type Outcome } from '@holdfast/protocol';
import fc from 'fast-check';
import { ownKey, type Claim } from '../src/domain/claim.js';
import type { EffectCommand } from '../src/domain/commands.js';
import { effectDecider } from '../src/domain/decide.js';
import { isOpen, type EffectEvent, type RunEffects } from '../src/domain/effect.js';
import { digest, due, hostLost, key, now, otherDigest, owner, pool, report, request, sending, step, tool } from './kit.js';

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

const evidence = fc.constantFrom({ kind: 'host' as const }, { kind: 'receipt' as const, note: 'r' });
const outcomes: fc.Arbitrary<Outcome> = fc.oneof(
  fc.record({ status: fc.constant('succeeded' as const), result: fc.constantFrom({ value: 1 }, { value: 2 }), evidence }),
  fc.record({ status: fc.constant('rejected' as const), reason: fc.constantFrom('no', 'never'), evidence }),
  fc.record({
    status: fc.constant('failed' as const),
    failure: fc.record({ class: fc.constantFrom(...FailureClass.options), message: fc.constantFrom('m', 'n'), notApplied: fc.boolean() }, { requiredKeys: ['class', 'message'] }),
    evidence,
  }),
  fc.record({ status: fc.constant('unknown' as const), cause: fc.constantFrom('deadline' as const, 'may_have_applied' as const), message: fc.constant('?') }),
);

const claims: fc.Arbitrary<Claim> = fc.constantFrom<Claim>(
  ownKey,
  { held: 'by_nobody' },
  { held: 'by_other', owner, digest, outcome: null },
  { held: 'by_other', owner, digest, outcome: { result: { value: 1 }, evidence: { kind: 'host' } } },
  { held: 'by_other', owner, digest: otherDigest, outcome: null },
);

const commands = (effect: EffectClass): fc.Arbitrary<EffectCommand> =>
  fc.oneof(
    { weight: 2, arbitrary: fc.constant(request(effect)) },
    { weight: 1, arbitrary: claims.map((claim) => request(effect, { claim })) },
    { weight: 6, arbitrary: fc.tuple(fc.integer({ min: 1, max: 4 }), outcomes).map(([attempt, outcome]) => report(attempt, outcome, effect)) },
    {
      weight: 1,
      arbitrary: fc.tuple(fc.integer({ min: 1, max: 3 }), outcomes).map(([attempt, outcome]): EffectCommand => ({ ...report(attempt, outcome, effect), local: { tool, effect, key, digest, args: 1 } })),
    },
    { weight: 2, arbitrary: fc.tuple(fc.constantFrom(6, 7), fc.constantFrom(pool, Pool.parse('mail'))).map(([taken, of]) => hostLost(taken, effect, of)) },
    { weight: 3, arbitrary: fc.tuple(fc.constantFrom(now, now + 60, now + 100_000), claims).map(([at, claim]) => due(at, effect, claim)) },
  );

const histories = fc.constantFrom<EffectClass>('pure', 'idempotent', 'irreversible').chain((effect) => fc.tuple(fc.constant(effect), fc.array(commands(effect), { maxLength: 25 })));

interface Told {
  readonly events: readonly EffectEvent[];
  readonly states: readonly RunEffects[];
}

/** Plays commands one after the other; every state is frozen before it is used. */
function play(all: readonly EffectCommand[], look: (command: EffectCommand, before: RunEffects, after: RunEffects) => void = () => undefined): Told {
  const events: EffectEvent[] = [];
  const states: RunEffects[] = [frozen(effectDecider.initial)];
  let state = effectDecider.initial;
  for (const command of all) {
    const before = state;
    const decision = effectDecider.decide(frozen(command), before);
    for (const event of decision.kind === 'record' ? decision.events : []) {
      events.push(frozen(event));
      state = frozen(effectDecider.evolve(state, event));
    }
    states.push(state);
    look(command, before, state);
  }
  return { events, states };
}

const holds = (property: (events: readonly EffectEvent[], effect: EffectClass) => void): void =>
  fc.assert(
    fc.property(histories, ([effect, all]) => property(play(all).events, effect)),
  );

describe('whatever happens', () => {
  test('an irreversible effect is sent again only after a failure known not to have been applied', () => {
    holds((events, effect) => {
      if (effect !== 'irreversible') return;
      let sent = 0;
      let proved = false;
      for (const event of events) {
        if (event.type === 'EffectFailed' || event.type === 'EffectRetryScheduled') proved = event.data.failure.notApplied === true;
        if (event.type !== 'EffectDispatched') continue;
        if (sent > 0) expect(proved).toBe(true);
        sent += 1;
        proved = false;
      }
    });
  });

  test('attempts rise one by one and stay within the budget', () => {
    holds((events) => {
      const attempts = events.flatMap((event) => (event.type === 'EffectDispatched' ? [event.data.attempt] : []));
      expect(attempts).toEqual(attempts.map((_, i) => (attempts[0] ?? 1) + i));
      expect(attempts.length).toBeLessThanOrEqual(3);
    });
  });

  test('an effect has at most one end, and nothing is sent after it', () => {
    holds((events) => {
      const ends = ['EffectSucceeded', 'EffectRejected', 'EffectFailed', 'EffectConflicted'];
      const first = events.findIndex(({ type }) => ends.includes(type));
      if (first < 0) return;
      const after = events.slice(first + 1).map(({ type }) => type);
      expect(after.filter((type) => type !== 'LateResultRecorded' && type !== 'DuplicateEffectDetected')).toEqual([]);
    });
  });

  test('what is joined or conflicted never fires', () => {
    holds((events) => {
      if (events.some(({ type }) => type === 'EffectJoined' || type === 'EffectConflicted')) expect(events.some(({ type }) => type === 'EffectDispatched')).toBe(false);
    });
  });

  test('every effect is kept under the one key it was asked for', () => {
    holds((events) => expect(new Set(events.map((event) => event.data.key)).size).toBeLessThanOrEqual(1));
  });

  test('a request and a report read again at once change nothing', () => {
    fc.assert(
      fc.property(histories, ([, all]) => {
        play(all, (command, _, after) => {
          if (command.type === 'request' || command.type === 'report') expect(effectDecider.decide(command, after)).toMatchObject({ kind: 'ignore' });
        });
      }),
    );
  });

  test('reports told over and over add nothing once each has been kept', () => {
    fc.assert(
      fc.property(histories, ([, all]) => {
        const reports = all.filter((command) => command.type === 'report');
        const end = play([...all, ...reports, ...reports]);
        const twice = play([...all, ...reports, ...reports, ...reports]);
        expect(twice.events).toEqual(end.events);
      }),
    );
  });

  test('the fold of the events is the state reached, again and again, and changes no state it was given', () => {
    fc.assert(
      fc.property(histories, ([, all]) => {
        const { events, states } = play(all);
        const state = fold(effectDecider.evolve, effectDecider.initial, events);
        expect(state).toEqual(states.at(-1));
        expect(fold(effectDecider.evolve, effectDecider.initial, events)).toEqual(state);
      }),
    );
  });

  test('an open effect moves on by itself, or waits for evidence', () => {
    fc.assert(
      fc.property(histories, ([effect, all]) => {
        const state = play(all).states.at(-1)?.get(step);
        if (state === undefined || !isOpen(state) || state.status === 'unknown' || state.status === 'joined') return;
        expect(effectDecider.decide({ ...due(now + 10_000_000, effect), ...sending(effect, now + 10_000_000) }, new Map([[step, state]]))).toMatchObject({ kind: 'record' });
      }),
    );
  });
});
