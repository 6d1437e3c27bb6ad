import { describe, expect, test } from '@jest/globals';
import { fold } from '@holdfast/kernel';
import { CLOCK_SKEW_MS, FailureClass, Pool, type EffectClass, type Outcome, type Verdict } from '@holdfast/protocol';
import fc from 'fast-check';
import { ownKey, type Claim } from '../src/domain/claim.js';
import type { EffectCommand } from '../src/domain/commands.js';
import { effectDecider } from '../src/domain/decide.js';
import { isOpen, type EffectEvent, type RunEffects } from '../src/domain/effect.js';
import { openGate, type Gate } from '../src/domain/health.js';
import { alive, applied, closedGate, digest, due, hostLost, key, notApplied, now, otherDigest, owner, pool, report, request, sameKeyAgain, sending, step, tool, under, verdict } from './kit.js';

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

const gates = fc.constantFrom<Gate>(openGate, openGate, closedGate);
const SETTLE_DELAY_MS = 1000;
const verdicts = (effect: EffectClass): fc.Arbitrary<EffectCommand> =>
  fc
    .record({
      attempt: fc.integer({ min: 1, max: 4 }),
      found: fc.constantFrom<Verdict>(applied, { status: 'applied', result: { value: 1 } }, notApplied, notApplied, sameKeyAgain, { status: 'ended', outcome: 'succeeded' }),
      readAt: fc.constantFrom(null, now, now + CLOCK_SKEW_MS + SETTLE_DELAY_MS, now + 50_000),
      sealing: fc.boolean(),
      forced: fc.constantFrom(false, false, true),
      by: fc.constantFrom('probe' as const, 'person' as const, 'policy' as const),
    })
    .map(({ attempt, found, ...over }) => under({ settleDelayMs: SETTLE_DELAY_MS }, verdict(attempt, found, effect, over)));

const commands = (effect: EffectClass): fc.Arbitrary<EffectCommand> =>
  fc.oneof(
    { weight: 2, arbitrary: gates.map((gate) => request(effect, { gate })) },
    { weight: 1, arbitrary: claims.map((claim) => request(effect, { claim })) },
    { weight: 3, arbitrary: verdicts(effect) },
    { weight: 1, arbitrary: fc.tuple(fc.integer({ min: 1, max: 3 }), fc.constantFrom(now, now + 200, now + 2000)).map(([attempt, at]): EffectCommand => ({ ...alive(attempt, at, 300), ...sending(effect, at, { heartbeatMs: 300 }) })) },
    { weight: 6, arbitrary: fc.tuple(fc.integer({ min: 1, max: 4 }), outcomes).map(([attempt, outcome]) => report(attempt, outcome, effect)) },
    {
      weight: 1,
      arbitrary: fc.tuple(fc.integer({ min: 1, max: 3 }), outcomes).map(([attempt, outcome]): EffectCommand => ({ ...report(attempt, outcome, effect), local: { tool, effect, key, digest, args: 1 } })),
    },
    { weight: 2, arbitrary: fc.tuple(fc.constantFrom(6, 7), fc.constantFrom(pool, Pool.parse('mail'))).map(([taken, of]) => hostLost(taken, effect, of)) },
    { weight: 3, arbitrary: fc.tuple(fc.constantFrom(now, now + 60, now + 100_000, now + 1_000_000), claims, gates, fc.constantFrom({}, { heartbeatMs: 300 })).map(([at, claim, gate, over]) => under(over, due(at, effect, claim, gate))) },
  );

const histories = fc.constantFrom<EffectClass>('pure', 'idempotent', 'irreversible').chain((effect) => fc.tuple(fc.constant(effect), fc.array(commands(effect), { maxLength: 25 })));

const provesIt = ({ sealing, forced, readAt }: Extract<EffectCommand, { type: 'verdict' }>, notAfter: number | null): boolean =>
  sealing || forced || (readAt !== null && notAfter !== null && readAt >= notAfter + CLOCK_SKEW_MS + SETTLE_DELAY_MS);

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
  test('an irreversible effect is sent again only after evidence that nothing was applied: its own failure, or a verdict that proves it', () => {
    fc.assert(
      fc.property(histories, ([effect, all]) => {
        if (effect !== 'irreversible') return;
        let sent = 0;
        let evidence = false;
        play(all, (command, before, after) => {
          const [was, is] = [before.get(step), after.get(step)];
          const sentNow = is?.status === 'dispatched' && (was?.status !== 'dispatched' || was.attempt !== is.attempt);
          if (was?.status === 'dispatched' || was?.status === 'unknown') {
            const scheduled = is?.status === 'retry_scheduled';
            if (scheduled && command.type === 'report') evidence = command.outcome.status === 'failed' && command.outcome.failure.notApplied === true && command.attempt === was.attempt;
            if (scheduled && command.type === 'verdict') evidence = was.status === 'unknown' && command.attempt === was.attempt && provesIt(command, was.notAfter);
          }
          if (!sentNow) return;
          if (sent > 0) expect(evidence).toBe(true);
          sent += 1;
          evidence = false;
        });
      }),
      { numRuns: 2000 },
    );
  });

  test('what may have been applied is never called failed: neither by waiting, nor since its attempts are spent', () => {
    fc.assert(
      fc.property(histories, ([effect, all]) => {
        if (effect !== 'idempotent') return;
        play(all, (command, before, after) => {
          if (after.get(step)?.status !== 'failed' || before.get(step)?.status === 'failed' || command.type !== 'due') return;
          const was = before.get(step);
          const failure = was?.status === 'retry_scheduled' ? was.failure : was?.status === 'held' ? was.before?.failure : undefined;
          // A failure that says nothing of the kind may only have been one that leaves no doubt.
          if (failure !== undefined && failure.notApplied !== true) expect(['concurrency_conflict', 'expired']).toContain(failure.class);
          expect(was?.status).not.toBe('dispatched');
        });
      }),
      { numRuns: 1000 },
    );
  });

  test('a contradiction or a second effect is raised once, and moves nothing', () => {
    holds((events) => {
      const raised = events.filter(({ type }) => type === 'VerdictContradicted' || type === 'DuplicateEffectDetected').map((event) => JSON.stringify(event));
      expect(new Set(raised).size).toBe(raised.length);
    });
  });

  test('attempts rise one by one and stay within the budget', () => {
    holds((events) => {
      const attempts = events.flatMap((event) => (event.type === 'EffectDispatched' ? [event.data.attempt] : []));
      expect(attempts).toEqual(attempts.map((_, i) => (attempts[0] ?? 1) + i));
      // The same key again, when nobody could tell, is not a retry of the contract's.
      const beyond = events.filter((event) => event.type === 'EffectRetryScheduled' && event.data.because === 'it was looked up').length;
      expect(attempts.length).toBeLessThanOrEqual(3 + beyond);
    });
  });

  test('an effect has at most one end, and nothing is sent after it', () => {
    holds((events) => {
      const ends = ['EffectSucceeded', 'EffectRejected', 'EffectFailed', 'EffectConflicted'];
      const first = events.findIndex(({ type }) => ends.includes(type));
      if (first < 0) return;
      const after = events.slice(first + 1).map(({ type }) => type);
      expect(after.filter((type) => type !== 'LateResultRecorded' && type !== 'DuplicateEffectDetected' && type !== 'VerdictContradicted')).toEqual([]);
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
          if (command.type === 'request' || command.type === 'report' || (command.type === 'verdict' && after.get(step)?.status !== 'unknown')) expect(effectDecider.decide(command, after)).toMatchObject({ kind: 'ignore' });
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
