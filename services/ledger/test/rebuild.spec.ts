import { describe, expect, it, test } from '@jest/globals';
import { digestOf, EffectFailed, EffectJoined, EffectRetryScheduled, EffectSucceeded, FireEffect, LaneTaken, Pool, RunId, WorkerId, type Message } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { sentBefore } from '../src/domain/decide.js';
import { evolve, noEffects, type Effect, type EffectEvent, type RunEffects } from '../src/domain/effect.js';
import { claimWord, EffectHandlers } from '../src/handlers.js';
import { ledger } from '../src/routes.js';
import { digest, dispatched, failure, fresh, host, key, now, owner, pool, QUEUE_MS, receipt, step, TIMEOUT_MS, tool } from './kit.js';

const run = RunId.parse('run-1');
const task = (attempt: number, over: Partial<ReturnType<typeof FireEffect>['data']> = {}) =>
  FireEffect({ ...fresh, tool, effect: 'irreversible', attempt, fence: 2, args: { amount: 5 }, notAfter: now + QUEUE_MS, timeoutMs: TIMEOUT_MS, digest, keyScope: 'target', ...over }).data;
const after = (...events: EffectEvent[]): RunEffects => events.reduce(evolve, noEffects);
const effectAfter = (...events: EffectEvent[]): Effect | undefined => after(...events).get(step);
const succeeded = (over: Partial<ReturnType<typeof EffectSucceeded>['data']> = {}): EffectEvent => EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt, ...over });
const retry: EffectEvent = EffectRetryScheduled({ ...fresh, attempt: 1, failure: failure('transient', true), because: 'x', retryAt: now });

describe('a task whose event is lost', () => {
  it('is recorded as sent, with all that the event would have said', () => {
    expect(sentBefore(task(1), undefined, pool, 12)).toEqual({
      type: 'EffectDispatched',
      data: expect.objectContaining({ step, key, attempt: 1, digest, keyScope: 'target', pool, args: { amount: 5 }, notAfter: now + QUEUE_MS, taskSeq: 12 }),
    });
  });

  it('of a retry adds its attempt to the effect', () => {
    expect(sentBefore(task(2), effectAfter(dispatched(), retry), pool, 12)?.data).toMatchObject({ attempt: 2 });
  });

  it.each([
    ['its event is there', effectAfter(dispatched())],
    ['a later attempt is', effectAfter(dispatched(), retry, dispatched(2))],
    ['the effect has an end', effectAfter(dispatched(), succeeded())],
  ])('is nothing new when %s', (_, effect) => {
    expect(sentBefore(task(1), effect, pool, 12)).toBeNull();
    if (effect?.status === 'succeeded') expect(sentBefore(task(2), effect, pool, 12)).toBeNull();
  });

  it('of a version that did not name digest and scope is held to what it carries', () => {
    const event = sentBefore(task(1, { digest: undefined, keyScope: undefined }), undefined, pool, 12);
    expect(event?.data).toMatchObject({ digest: digestOf({ amount: 5 }), keyScope: 'run' });
  });
});

describe('what an effect has in the row of its key', () => {
  const scoped = dispatched(1, 'irreversible', { keyScope: 'target' });
  const joined: EffectEvent = EffectJoined({ ...fresh, tool, digest, owner });
  const failed: EffectEvent = EffectFailed({ ...fresh, attempt: 1, failure: failure('invalid_request'), evidence: host, because: 'x' });
  const word = (...events: EffectEvent[]) => {
    const effect = effectAfter(...events);
    return effect === undefined ? undefined : claimWord(run, effect);
  };

  test('a key of one run has none', () => expect(word(dispatched())).toBeNull());
  test('who waits for another, or got its outcome, has no word', () => {
    expect(word(joined)).toBeNull();
    expect(word(joined, succeeded({ replayed: owner }))).toBeNull();
  });
  test('a success is stronger than a claim, and a claim than an end without effect', () => {
    expect(word(scoped, succeeded())).toEqual({ rank: 2, row: { status: 'succeeded', run, step, digest, result: { value: 1 }, evidence: receipt } });
    expect(word(scoped)).toEqual({ rank: 1, row: { status: 'claimed', run, step, digest } });
    expect(word(scoped, retry)).toEqual({ rank: 1, row: { status: 'claimed', run, step, digest } });
    expect(word(scoped, failed)).toEqual({ rank: 0, row: { status: 'free' } });
  });
});

describe('a lane that changed hands', () => {
  const book: ContractBook = { tool: () => undefined, agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };

  /** What the ledger records when a host had taken tasks up to these numbers. */
  function ended(taken: Record<string, number>): string[] {
    let effects = after(dispatched());
    const recorded: string[] = [];
    const turn: Turn<RunEffects, EffectEvent> = {
      lane: 0, now, random: () => 0, inHand: null,
      state: () => effects,
      tenantOf: () => 'default',
      record: (_stream, _tenant, event) => {
        recorded.push(event.type);
        effects = evolve(effects, event);
      },
      send: (_topic, _stream, _tenant, _message: Message) => undefined,
      seqAhead: () => 1,
      open: () => [run],
      wake: () => undefined, shared: () => null, putShared: () => undefined, park: () => undefined, answered: () => undefined, count: () => undefined,
    };
    const { data } = LaneTaken({ pool, lane: 0, worker: WorkerId.parse('w'), agents: [], taken, offset: 1 });
    const inbound: Inbound<typeof data> = {
      data,
      envelope: { id: 'x', type: 'LaneTaken', source: 'o', subject: '~lane', time: now, tenant: 'default' },
      record: { topic: 'run.events', lane: 0, offset: 1, key: '~lane', headers: {}, value: '{}', time: now },
    };
    new EffectHandlers(book, 'holdfast/ledger/second').laneTaken(inbound, turn);
    return recorded;
  }

  it('ends the attempts that its former host had taken, also those sent in an earlier life of the journal', () => {
    expect(ended({ 'holdfast/ledger/first': 7 })).toEqual(['EffectOutcomeUnknown']);
    expect(ended({ 'holdfast/ledger/first': 3, 'holdfast/ledger/second': 9 })).toEqual(['EffectOutcomeUnknown']);
  });

  it('leaves those that reach the new host by themselves', () => {
    expect(ended({ 'holdfast/ledger/first': 6 })).toEqual([]);
    expect(ended({ 'holdfast/reconciliation/first': 99 })).toEqual([]);
    expect(ended({})).toEqual([]);
  });
});

test('a rebuild reads back the tasks of every pool', () => {
  const [sent] = ledger(new EffectHandlers({ tool: () => undefined, agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() }, 'x')).rebuild?.sent ?? [];
  expect([`tool.tasks.${Pool.parse('default')}`, 'tool.tasks.gpu', 'run.tasks.default', 'tool.results'].map((topic) => sent?.topic(topic))).toEqual([true, true, false, false]);
});
