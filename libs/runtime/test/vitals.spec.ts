import { beforeEach, describe, expect, test } from '@jest/globals';
import { healthOf, unreadyBecause } from '../src/nest/health.js';
import type { LoopHealth } from '../src/loop/loop.js';
import { Vitals } from '../src/telemetry/vitals.js';

const PATIENCE_MS = 10_000;
const well: LoopHealth = { lanes: 2, halted: [], shelved: [], unpublishedMs: 0, stuckMs: 0, waiting: 0, silentMs: 0, unpublishedRows: 0, openStreams: 0 };
const calm = { databaseSilentMs: 0, lagStuckMs: 0 };

let now = 0;
let ends = new Map<number, number>();
let reached = new Map<number, Record<string, number>>();
let answers: 'at once' | 'never' | 'refuses' = 'at once';
let timers: { readonly at: number; readonly call: () => void }[] = [];
const clock = {
  now: () => now,
  after: (ms: number, call: () => void) => {
    const timer = { at: now + ms, call };
    timers.push(timer);
    return () => void (timers = timers.filter((other) => other !== timer));
  },
  soon: (call: () => void) => void setImmediate(call),
};
const vitals = (): Vitals =>
  new Vitals({
    clock,
    ping: () => (answers === 'at once' ? Promise.resolve() : answers === 'refuses' ? Promise.reject(new Error('gone')) : new Promise(() => undefined)),
    topics: ['news'],
    ends: () => (answers === 'never' ? new Promise(() => undefined) : Promise.resolve(ends)),
    reached: () => reached,
  });
async function lookAt(of: Vitals, at: number): Promise<void> {
  now = at;
  const looked = of.look();
  await new Promise((resolve) => setImmediate(resolve));
  for (const { call } of timers.splice(0)) call();
  await looked;
}

beforeEach(() => {
  now = 0;
  answers = 'at once';
  timers = [];
  ends = new Map([[0, 10], [1, 7]]);
  reached = new Map([[0, { news: 10 }], [1, { news: 5 }]]);
});

describe('an instance says that it is not ready', () => {
  test.each<[string, Partial<LoopHealth>, Partial<typeof calm>]>([
    ['the oldest unpublished row', { unpublishedMs: 10_001 }, {}],
    ['the database has not answered', {}, { databaseSilentMs: 10_001 }],
    ['the broker has not counted this instance in', { silentMs: 20_001 }, {}],
    ['the loop has not come round', { stuckMs: 30_001 }, {}],
    ['messages stand on a topic and none was decided', {}, { lagStuckMs: 30_001 }],
    ['lane 3: a gap', { halted: [{ lane: 3, reason: 'a gap' }] }, {}],
  ])('when %s', (words, health, around) => {
    expect(unreadyBecause({ ...well, ...health }, { ...calm, ...around }, PATIENCE_MS)).toContain(words);
    // Only a loop that hangs is helped by a new start.
    expect(healthOf({ ...well, ...health }, { ...calm, ...around }, PATIENCE_MS).dead).toBeNull();
  });

  test('and not before', () => {
    expect(unreadyBecause({ ...well, unpublishedMs: 10_000, silentMs: 20_000, stuckMs: 30_000 }, { databaseSilentMs: 10_000, lagStuckMs: 30_000 }, PATIENCE_MS)).toBeNull();
    expect(healthOf({ ...well, stuckMs: 60_001 }, calm, PATIENCE_MS).dead).toBe('stuck');
  });
});

describe('what is looked at now and then', () => {
  test('a lane that has something to read and decides nothing grows old, until it moves', async () => {
    const of = vitals();
    await lookAt(of, 1000);
    expect(of.lag).toEqual([{ topic: 'news', lane: 0, messages: 0 }, { topic: 'news', lane: 1, messages: 2 }]);
    await lookAt(of, 41_000);
    expect(of.lagStuckMs()).toBe(40_000);
    // More to read is no progress; a step on is, though there is more.
    ends.set(1, 9);
    await lookAt(of, 42_000);
    expect(of.lagStuckMs()).toBe(41_000);
    reached.set(1, { news: 6 });
    await lookAt(of, 43_000);
    expect(of.lagStuckMs()).toBe(0);
    now = 50_000;
    expect(of.lagStuckMs()).toBe(7000);
    reached.set(1, { news: 9 });
    await lookAt(of, 51_000);
    expect(of.lagStuckMs()).toBe(0);
    expect(of.lag[1]).toMatchObject({ messages: 0 });
  });

  test('a lane that was given up is nobody’s lag here', async () => {
    const of = vitals();
    await lookAt(of, 1000);
    reached.delete(1);
    await lookAt(of, 60_000);
    expect(of.lagStuckMs()).toBe(0);
  });

  test.each(['refuses', 'never'] as const)('a database that %s answers is told by how long it has not, and is well when it does', async (how) => {
    const of = vitals();
    await lookAt(of, 1000);
    answers = how;
    await lookAt(of, 12_000);
    expect(of.databaseSilentMs()).toBe(11_000);
    answers = 'at once';
    await lookAt(of, 42_000);
    expect(of.databaseSilentMs()).toBe(0);
  });

  test('a broker that never answers does not make the database look silent', async () => {
    const of = new Vitals({ clock, ping: () => Promise.resolve(), topics: ['news'], ends: () => new Promise(() => undefined), reached: () => reached });
    of.start();
    for (let at = 2000; at <= 40_000; at += 2000) {
      now = at;
      for (const { call } of timers.filter((timer) => timer.at <= at)) call();
      timers = timers.filter((timer) => timer.at > at);
      await new Promise((resolve) => setImmediate(resolve));
      expect(of.databaseSilentMs()).toBe(0);
    }
    of.stop();
  });

  test('one look at a time: what never answers is not asked again and again', async () => {
    let asked = 0;
    const of = new Vitals({ clock, ping: () => (asked += 1, new Promise(() => undefined)), topics: ['a', 'b'], ends: () => (asked += 1, new Promise(() => undefined)), reached: () => reached });
    for (let at = 1; at < 20; at += 1) await lookAt(of, at * 1000);
    expect(asked).toBe(2);
    await lookAt(of, 31_000);
    expect(asked).toBe(4);
  });

  test('what can’t be read of the broker leaves standing what stood', async () => {
    const of = vitals();
    await lookAt(of, 1000);
    answers = 'never';
    await lookAt(of, 61_000);
    expect(of.lagStuckMs()).toBe(60_000);
  });
});
