import { describe, expect, test } from '@jest/globals';
import type { FailureClass, Outcome, UnknownCause } from '@holdfast/protocol';
import fc from 'fast-check';
import { ended, gateOf, isCalm, newHealth, openGate, started, targetSays, type TargetSays, type ToolHealth } from '../src/domain/health.js';
import { failed, now, rejected, succeeded } from './kit.js';

const TOOL = 'refund@1';
const breaker = { failures: 3, initialMs: 1000, maxMs: 3000 };
/** Jitter of 0: half the pause. */
const end = (health: ToolHealth, says: TargetSays, at = now, { attempt = 'r/1/1', jitter = 0, retryAfterMs = 0, limits = { breaker } as Parameters<typeof ended>[1] } = {}): ToolHealth => ended(health, limits, attempt, says, at, jitter, retryAfterMs);
const failing = (times: number, at = now, health = newHealth({})): ToolHealth => Array.from({ length: times }).reduce<ToolHealth>((each) => end(each, 'failing', at), health);
const gate = (health: ToolHealth, at = now) => gateOf(health, TOOL, at);

describe('what an end says about the target', () => {
  const unknown = (cause: UnknownCause): Outcome => ({ status: 'unknown', cause, message: '?' });
  test.each<[Outcome, TargetSays]>([
    [succeeded, 'well'],
    [rejected, 'well'],
    [unknown('accepted'), 'well'],
    [unknown('deadline'), 'failing'],
    [unknown('may_have_applied'), 'failing'],
    [unknown('host_lost'), 'neither'],
    [unknown('heartbeat_lost'), 'neither'],
    [failed('transient'), 'failing'],
    [failed('overloaded'), 'overloaded'],
    [{ status: 'failed', failure: { class: 'transient', message: 'm' }, evidence: { kind: 'ledger' } }, 'neither'],
  ])('%j: %s', (outcome, says) => {
    expect(targetSays(outcome)).toBe(says);
  });

  test.each<FailureClass>(['invalid_request', 'permission_denied', 'policy_denied', 'expired', 'cancelled', 'invalid_output'])('%s is no fault of the target’s being down', (of) => {
    expect(targetSays(failed(of))).toBe('neither');
  });
});

describe('a circuit', () => {
  test('opens after that many failures in a row, not before', () => {
    expect(gate(failing(2))).toEqual(openGate);
    expect(failing(2)).toMatchObject({ failures: 2, openedAt: null });
    expect(failing(3)).toMatchObject({ failures: 3, openedAt: now, trials: 1, quietUntil: now + 500 });
    expect(gate(failing(3))).toMatchObject({ open: false, because: 'circuit_open', lookAgainAt: now + 500, message: expect.stringContaining('after 3 failures in a row') });
  });

  test('five, and a second, where the contract says nothing', () => {
    const after = (times: number) => Array.from({ length: times }).reduce<ToolHealth>((each) => ended(each, {}, 'a', 'failing', now, 1), newHealth({}));
    expect(gate(after(4))).toEqual(openGate);
    expect(after(5)).toMatchObject({ openedAt: now, quietUntil: now + 1000 });
  });

  test('one success between failures begins the count anew', () => {
    expect(gate(end(end(failing(2), 'well'), 'failing'))).toEqual(openGate);
    expect(end(failing(2), 'well')).toMatchObject({ failures: 0 });
  });

  test('what says nothing about the target leaves the count', () => {
    expect(end(failing(2), 'neither')).toMatchObject({ failures: 2, openedAt: null });
  });

  test('lets one trial through at a time', () => {
    const open = failing(3);
    expect(gate(open, now + 499)).toMatchObject({ open: false });
    expect(gate(open, now + 500)).toEqual(openGate);
    const trial = started(open, 'r/2/1', now + 5000);
    expect(gate(trial, now + 500)).toMatchObject({ open: false, because: 'circuit_open', lookAgainAt: now + 700, message: expect.stringContaining('a trial is under way') });
    // Nobody reported its end.
    expect(gate(trial, now + 5000)).toEqual(openGate);
  });

  test('waits longer after each trial that fails, up to a bound', () => {
    let open = failing(3);
    const pauses: number[] = [];
    for (let i = 0; i < 4; i += 1) {
      const at = open.quietUntil;
      open = end(started(open, 'trial', at + 100), 'failing', at, { attempt: 'trial', jitter: 1 });
      pauses.push(open.quietUntil - at);
    }
    expect(pauses).toEqual([2000, 3000, 3000, 3000]);
    expect(open).toMatchObject({ openedAt: now, trials: 5 });
  });

  test('what was under way when it opened lengthens no pause', () => {
    const open = failing(3);
    expect(end(open, 'failing', now + 100)).toEqual({ ...open, failures: 4 });
  });

  test('closes with the first trial that succeeds', () => {
    const open = started(failing(3), 'trial', now + 9000);
    const closed = end(open, 'well', now + 600, { attempt: 'trial' });
    expect(closed).toEqual(newHealth({}));
    expect(isCalm(closed, now + 600)).toBe(true);
  });

  test('stays open, and its pause grows, also where each trial is told that the target is overloaded', () => {
    const open = failing(3);
    const trial = started(open, 'trial', open.quietUntil + 100);
    expect(gate(end(trial, 'overloaded', open.quietUntil, { attempt: 'trial' }), open.quietUntil)).toMatchObject({ open: false, because: 'circuit_open', lookAgainAt: open.quietUntil + 1000 });
  });

  test('a trial that says nothing about the target makes room for the next', () => {
    const open = failing(3);
    const trial = started(open, 'trial', now + 9000);
    expect(gate(end(trial, 'neither', now + 600, { attempt: 'trial' }), now + 600)).toEqual(openGate);
  });
});

describe('Retry-After', () => {
  test('is a quiet for all, though the circuit is closed', () => {
    const asked = end(newHealth({}), 'overloaded', now, { retryAfterMs: 4000 });
    expect(gate(asked, now + 3999)).toMatchObject({ open: false, lookAgainAt: now + 4000, message: expect.stringContaining('asked to be left alone until') });
    expect(gate(asked, now + 4000)).toEqual(openGate);
    expect(gate(end(newHealth({}), 'failing', now, { retryAfterMs: 4000 }), now + 3999)).toMatchObject({ open: false });
  });

  test('a shorter one takes nothing back, and a success that was under way neither', () => {
    const asked = end(end(newHealth({}), 'failing', now, { retryAfterMs: 4000 }), 'overloaded', now, { retryAfterMs: 10 });
    expect(gate(asked, now + 3999)).toMatchObject({ open: false });
    const well = end(end(newHealth({}), 'failing', now, { retryAfterMs: 4000 }), 'well', now + 5);
    expect(gate(well, now + 3999)).toMatchObject({ open: false });
    expect(isCalm(well, now + 3999)).toBe(false);
    expect(isCalm(well, now + 4000)).toBe(true);
  });

  test('is longer than the pause before a trial, and heard from whoever was under way', () => {
    expect(end(failing(2), 'failing', now, { retryAfterMs: 60_000 })).toMatchObject({ openedAt: now, quietUntil: now + 60_000 });
    expect(end(failing(3), 'failing', now + 100, { retryAfterMs: 60_000 })).toMatchObject({ quietUntil: now + 60_100 });
  });
});

describe('a limit', () => {
  const limits = { concurrencyMax: 4, breaker };
  const busy = (health: ToolHealth, count: number, from = 0): ToolHealth => Array.from({ length: count }).reduce<ToolHealth>((each, _, i) => started(each, `r/${from + i}/1`, now + 1000), health);

  test('declared: that many at once, and a place is free as soon as one ends, or its time is over', () => {
    const full = busy(newHealth(limits), 4);
    expect(gate(busy(newHealth(limits), 3))).toEqual(openGate);
    expect(gate(full)).toEqual({ open: false, because: 'no_free_place', message: 'all 4 places of refund@1 are taken', lookAgainAt: now + 200 });
    expect(gate(end(full, 'well', now, { attempt: 'r/0/1', limits }))).toEqual(openGate);
    expect(gate(full, now + 1000)).toEqual(openGate);
  });

  test('overloaded halves it, never below one', () => {
    const half = end(newHealth(limits), 'overloaded', now, { limits });
    expect(half.limit).toBe(2);
    expect([1, 2, 3].reduce<ToolHealth>((each) => end(each, 'overloaded', now, { limits }), half).limit).toBe(1);
  });

  test('grows by one for as many successes as it has places, never beyond what is declared', () => {
    const two = { ...newHealth(limits), limit: 2 };
    const grown = (health: ToolHealth, times: number): ToolHealth => Array.from({ length: times }).reduce<ToolHealth>((each) => end(each, 'well', now, { limits }), health);
    expect(Math.floor(grown(two, 1).limit ?? 0)).toBe(2);
    expect(Math.floor(grown(two, 3).limit ?? 0)).toBe(3);
    expect(grown(two, 100).limit).toBe(4);
  });

  test('undeclared: none until the target says that it is overloaded, and none again once it has done well for long', () => {
    const first = end(newHealth({}), 'overloaded');
    expect(first.limit).toBe(16);
    expect(end(first, 'overloaded').limit).toBe(8);
    let health = first;
    let successes = 0;
    while (health.limit !== null && successes < 100_000) {
      health = end(health, 'well');
      successes += 1;
    }
    expect(health.limit).toBeNull();
    expect(successes).toBeGreaterThan(1000);
    expect(isCalm(health, now)).toBe(true);
  });

  test('what is under way is counted only where there is something to count for', () => {
    expect(started(newHealth({}), 'a', now + 1)).toEqual(newHealth({}));
    expect(started(failing(3), 'a', now + 1).busy).toEqual({ a: now + 1 });
  });
});

test('whatever ends how, the row stays small and whole: within limits, no attempt kept beyond its time', () => {
  const step = fc.record({ says: fc.constantFrom<TargetSays>('well', 'failing', 'overloaded', 'neither'), after: fc.integer({ min: 0, max: 2000 }), retryAfterMs: fc.constantFrom(0, 500), attempt: fc.constantFrom('a', 'b', 'c') });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.constantFrom(undefined, 5), (steps, concurrencyMax) => {
      const limits = { breaker, ...(concurrencyMax === undefined ? {} : { concurrencyMax }) };
      let health = newHealth(limits);
      let at = now;
      for (const { says, after, retryAfterMs, attempt } of steps) {
        at += after;
        if (gateOf(health, TOOL, at).open) health = started(health, attempt, at + 1500);
        health = ended(health, limits, attempt, says, at, 0.5, retryAfterMs);
        expect(health.busy).not.toHaveProperty(attempt);
        expect(Object.values(health.busy).every((until) => until > at)).toBe(true);
        if (health.limit !== null) expect(health.limit).toBeGreaterThanOrEqual(1);
        if (concurrencyMax !== undefined) expect(health.limit).toBeLessThanOrEqual(concurrencyMax);
        expect(health.openedAt === null ? health.trials : 0).toBe(0);
        // However long it is left alone, somebody is let through again.
        expect(gateOf(health, TOOL, at + 10_000)).toEqual(openGate);
      }
    }),
  );
});
