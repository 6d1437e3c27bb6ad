import { describe, expect, it, test } from '@jest/globals';
import { digestOf, EffectFailed, EffectJoined, EffectRetryScheduled, EffectSucceeded, FireEffect, LaneTaken, Pool, RunId, Step, WorkerId, type EffectDispatched, type Message, type ToolContract } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { sentBefore, type FoundTask } from '../src/domain/decide.js';
import { evolve, noEffects, type Effect, type EffectEvent, type RunEffects } from '../src/domain/effect.js';
import { gateOf, ToolHealth } from '../src/domain/health.js';
import { claimWord, EffectHandlers } from '../src/handlers.js';
import { ledger } from '../src/routes.js';
import { contract, digest, dispatched, failure, fresh, held, host, key, now, owner, pool, QUEUE_MS, receipt, step, TIMEOUT_MS, tool } from './kit.js';

const run = RunId.parse('run-1');
const mended = Step.parse('9');
const task = (attempt: number, over: Partial<ReturnType<typeof FireEffect>['data']> = {}) =>
  FireEffect({ ...fresh, tool, effect: 'irreversible', attempt, fence: 2, args: { amount: 5 }, notAfter: now + QUEUE_MS, timeoutMs: TIMEOUT_MS, digest, keyScope: 'target', ...over }).data;
const SENT_AT = now - 20;
const found = (more: Partial<FoundTask> = {}): FoundTask => ({ pool, taskSeq: 12, sentAt: SENT_AT, contract: contract(), ...more });
const after = (...events: EffectEvent[]): RunEffects => events.reduce(evolve, noEffects);
const effectAfter = (...events: EffectEvent[]): Effect | undefined => after(...events).get(step);
const succeeded = (over: Partial<ReturnType<typeof EffectSucceeded>['data']> = {}): EffectEvent => EffectSucceeded({ ...fresh, attempt: 1, result: { value: 1 }, evidence: receipt, ...over });
const retry: EffectEvent = EffectRetryScheduled({ ...fresh, attempt: 1, failure: failure('transient', true), because: 'x', retryAt: now });

describe('a task whose event is lost', () => {
  it('is recorded as sent, with all that the event would have said', () => {
    expect(sentBefore(task(1), undefined, found())).toEqual({
      type: 'EffectDispatched',
      data: expect.objectContaining({ step, key, attempt: 1, digest, keyScope: 'target', pool, args: { amount: 5 }, notAfter: now + QUEUE_MS, taskSeq: 12 }),
    });
  });

  it('has its time counted from when it was sent, and keeps the run’s budget and what it mends', () => {
    expect(sentBefore(task(1, { attemptsMax: 9, repairs: mended }), undefined, found())?.data).toMatchObject({ since: SENT_AT, attemptsMax: 9, repairs: mended });
    expect(sentBefore(task(2), effectAfter(dispatched(), retry), found())?.data).toMatchObject({ since: now });
    expect(effectAfter(sentBefore(task(1, { attemptsMax: 9, repairs: mended }), undefined, found()) ?? retry)).toMatchObject({ status: 'dispatched', since: SENT_AT, attemptsMax: 9, repairs: mended, args: { amount: 5 } });
  });

  it('of a tool that shows life is waited for no longer than its signs', () => {
    expect(sentBefore(task(1), undefined, found({ contract: contract('irreversible', { heartbeatMs: 300 }) }))?.data).toMatchObject({ aliveUntil: now + QUEUE_MS + 300 });
    expect(sentBefore(task(1), undefined, found())?.data).not.toHaveProperty('aliveUntil');
  });

  it('of an effect that is held, as far as the stream knows, was sent all the same', () => {
    expect(sentBefore(task(1), effectAfter(held()), found())?.data).toMatchObject({ attempt: 1, since: SENT_AT });
    expect(sentBefore(task(1), effectAfter(dispatched(), retry, held(2)), found())).toBeNull();
    expect(sentBefore(task(2), effectAfter(dispatched(), retry, held(2)), found())?.data).toMatchObject({ attempt: 2 });
  });

  it('of a retry adds its attempt to the effect', () => {
    expect(sentBefore(task(2), effectAfter(dispatched(), retry), found())?.data).toMatchObject({ attempt: 2 });
  });

  it.each([
    ['its event is there', effectAfter(dispatched())],
    ['a later attempt is', effectAfter(dispatched(), retry, dispatched(2))],
    ['the effect has an end', effectAfter(dispatched(), succeeded())],
  ])('is nothing new when %s', (_, effect) => {
    expect(sentBefore(task(1), effect, found())).toBeNull();
    if (effect?.status === 'succeeded') expect(sentBefore(task(2), effect, found())).toBeNull();
  });

  it('of a version that did not name digest and scope is held to what it carries', () => {
    const event = sentBefore(task(1, { digest: undefined, keyScope: undefined }), undefined, found());
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
    expect(word(held(1, 'irreversible', { keyScope: 'target' }))).toEqual({ rank: 1, row: { status: 'claimed', run, step, digest } });
    expect(word(scoped, retry)).toEqual({ rank: 1, row: { status: 'claimed', run, step, digest } });
    expect(word(scoped, failed)).toEqual({ rank: 0, row: { status: 'free' } });
  });
});

describe('what attempts under way have in the row of their tool', () => {
  const handlers = (over: Partial<ToolContract>) => new EffectHandlers({ tool: () => contract('irreversible', over), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() }, 'holdfast/ledger/second');
  const rows = (over: Partial<ToolContract>, ...runs: (readonly [string, EffectEvent[]])[]) => {
    let data: string | null = null;
    for (const [id, events] of runs) {
      const effect = effectAfter(...events);
      for (const word of effect === undefined ? [] : handlers(over).shared(id, effect)) data = data === null ? word.data : (word.join?.(data) ?? data);
    }
    return data === null ? null : ToolHealth.parse(JSON.parse(data));
  };
  const { deadline } = (dispatched() as ReturnType<typeof EffectDispatched>).data;

  it('is one place each, so that no more are sent at once than is declared', () => {
    const health = rows({ concurrencyMax: 2 }, ['r1', [dispatched()]], ['r2', [dispatched()]], ['r3', [dispatched(), retry]], ['r4', [held()]]);
    expect(health).toMatchObject({ limit: 2, failures: 0, openedAt: null, busy: { 'r1/1/1': deadline, 'r2/1/1': deadline } });
    expect(health && gateOf(health, 'refund@1', now)).toMatchObject({ open: false, because: 'no_free_place' });
  });

  it('is nothing where places are not counted', () => expect(rows({}, ['r1', [dispatched()]])).toBeNull());
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
