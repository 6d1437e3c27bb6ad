import { expect, test } from '@jest/globals';
import { EffectRequested, RunId, topics } from '@holdfast/protocol';
import type { Turn } from '@holdfast/runtime';
import type { ClaimRow } from '../src/domain/claim.js';
import { noEffects, type EffectEvent, type RunEffects } from '../src/domain/effect.js';
import { claimKey, EffectHandlers } from '../src/handlers.js';
import { ledger } from '../src/routes.js';
import { contract, digest, host, key, now, owner, step, tool } from './kit.js';

const run = RunId.parse('run-1');
const book = { tool: () => contract('irreversible', { keyScope: 'target' }), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };
const HOUR_MS = 60 * 60 * 1000;

/** A run whose effect has joined another's: looks as the loop takes them, each when the one before asked for it. */
function joined() {
  const service = ledger(new EffectHandlers(book, 'holdfast/ledger/1'));
  const states = new Map<string, RunEffects>();
  const claim: { row: ClaimRow } = { row: { status: 'claimed', ...owner, digest } };
  const recorded: string[] = [];
  const looks: number[] = [];
  let at = now;
  let next: number | null = null;
  const turn: Turn<RunEffects, EffectEvent> = {
    lane: 0, random: () => 0, inHand: null,
    get now() { return at; },
    state: (stream) => states.get(stream) ?? noEffects,
    tenantOf: () => 'default',
    record: (stream, _tenant, event) => {
      recorded.push(event.type);
      states.set(stream, service.evolve(states.get(stream) ?? noEffects, event, at));
    },
    send: () => undefined, seqAhead: () => 1, open: () => [...states.keys()], putShared: () => undefined, park: () => undefined, answered: () => undefined, count: () => undefined,
    wake: (_stream, then) => void (next = Math.min(next ?? Infinity, then)),
    shared: (asked) => (asked === claimKey(key) ? JSON.stringify(claim.row) : null),
  };
  const asks = EffectRequested({ call: { step, tool, effect: 'irreversible', keyScope: 'target', args: { amount: 5 }, key, digest, digestVersion: 1 }, fire: 'granted' });
  const record = { topic: topics.runEvents, lane: 0, offset: 0, key: run, headers: {}, value: '{}', time: now };
  const route = service.routes.find(({ topic, type }) => topic === topics.runEvents && type === asks.type);
  route?.handle({ data: asks.data, envelope: { id: 'x', type: asks.type, source: 'o', subject: run, time: now, tenant: 'default' }, record }, turn);
  const dueAt = (): number | null => {
    const own = service.agenda(turn.state(run), run).dueAt;
    return own === null ? next : Math.min(own, next ?? Infinity);
  };
  const until = (end: number): void => {
    for (let then = dueAt(); then !== null && then <= end && looks.length < 10_000; then = dueAt()) {
      // What is due still is looked at again after a while.
      at = Math.max(then, (looks.at(-1) ?? now) + 100);
      next = null;
      looks.push(at);
      service.onDue(run, turn);
    }
    at = end;
  };
  return { claim, recorded, looks, until };
}

test('an effect that has joined another is looked at soon and often at first, and seldom when its owner is open for long', () => {
  const { looks, recorded, until } = joined();
  until(now + 1000);
  expect(looks).toHaveLength(10);
  until(now + 72 * HOUR_MS);
  expect(looks.length).toBeLessThan(9000);
  expect(recorded).toEqual(['EffectJoined']);
});

test.each([200, 10_000, HOUR_MS])('where its owner ends after %i ms it has that outcome after a tenth of that more, and after 30 seconds at most', (openMs) => {
  const { claim, looks, recorded, until } = joined();
  until(now + openMs);
  claim.row = { status: 'succeeded', ...owner, digest, result: { value: 1 }, evidence: host };
  until(now + 2 * HOUR_MS);
  expect(recorded).toEqual(['EffectJoined', 'EffectSucceeded']);
  expect(looks.at(-1)).toBeLessThanOrEqual(now + openMs + Math.max(100, Math.min(30_000, openMs / 10)));
});
