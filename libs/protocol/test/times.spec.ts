import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { DecideApproval, DURATION_MAX_MS, DurationMs, EffectReported, INSTANT_MAX, isoTime, NamedInstant, OnDeadline, RunAccepted, StartRun, StartWait } from '../src/index.js';

const FOREVER = Number.MAX_SAFE_INTEGER;
const LATER_THAN_ANY_DATE = 8_640_000_000_000_001;

describe('an instant that somebody names', () => {
  test('has an ISO form, and so has what is computed from it and the longest reminders', () => {
    expect(isoTime(INSTANT_MAX)).toBe('9999-12-31T23:59:59.999Z');
    const last = INSTANT_MAX + 1000 * DURATION_MAX_MS;
    expect(Date.parse(isoTime(last))).toBe(last);
    expect(OnDeadline.safeParse({ action: 'remind', everyMs: DURATION_MAX_MS, times: 1001 }).success).toBe(false);
  });

  const by = { name: 'ann', roles: ['operator'] };
  test.each<[string, (at: number) => boolean]>([
    ['a run’s deadline', (deadline) => StartRun.schema.safeParse({ agent: null, input: 1, deadline }).success],
    ['a wait’s deadline', (deadline) => StartWait.schema.safeParse({ step: '1', wait: { kind: 'signal', name: 'go' }, deadline }).success],
    ['the end of a sleep', (until) => StartWait.schema.safeParse({ step: '1', wait: { kind: 'sleep', until } }).success],
    ['the end of an approval', (expiresAt) => DecideApproval.schema.safeParse({ command: 'c', by, step: '1', decision: 'approve', expiresAt }).success],
  ])('lies within the year 9999: %s', (_, takes) => {
    expect([0, INSTANT_MAX].map(takes)).toEqual([true, true]);
    expect([INSTANT_MAX + 1, LATER_THAN_ANY_DATE, FOREVER, -1, 0.5].map(takes)).toEqual([false, false, false, false, false]);
  });

  test.each([INSTANT_MAX + 1, FOREVER])('such as %d is refused in words that say what to give', (at) => {
    expect(NamedInstant.safeParse(at).error?.issues[0]?.message).toMatch(/beyond the year 9999/);
  });
});

test('a length of time that somebody names is at most 100 years', () => {
  expect(DurationMs.safeParse(DURATION_MAX_MS).success).toBe(true);
  expect(DurationMs.safeParse(DURATION_MAX_MS + 1).error?.issues[0]?.message).toMatch(/more than 100 years/);
});

test('every instant on record can be shown, and those that a date can hold are shown as they are', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), (at) => {
      const shown = Date.parse(isoTime(at));
      expect(shown).toBe(Math.abs(at) < LATER_THAN_ANY_DATE ? at : Math.sign(at) * (LATER_THAN_ANY_DATE - 1));
    }),
  );
});

test('what was recorded before there were limits is still read', () => {
  expect(RunAccepted.schema.parse({ tenant: 'default', agent: null, pool: 'default', input: 1, inputDigest: 'a'.repeat(64), deadline: FOREVER })).toMatchObject({ deadline: FOREVER });
});

test('the end of an attempt is taken whatever pause its target asked for', () => {
  const report = (retryAfterMs: number) => ({ step: '1', key: 'a'.repeat(64), attempt: 1, worker: 'w', outcome: { status: 'failed', evidence: { kind: 'host' }, failure: { class: 'overloaded', message: 'later', notApplied: true, retryAfterMs } } });
  for (const [asked, taken] of [[5, 5], [DURATION_MAX_MS, DURATION_MAX_MS], [FOREVER, DURATION_MAX_MS], [1e300, DURATION_MAX_MS]] as const) {
    expect(EffectReported.schema.parse(report(asked))).toMatchObject({ outcome: { failure: { retryAfterMs: taken } } });
  }
});
