import { beforeEach, describe, expect, test } from '@jest/globals';
import { decodeHeaders } from '@holdfast/protocol';
import type { LoopHealth } from '../src/loop/index.js';
import { Publisher } from '../src/loop/publisher.js';
import { unreadyBecause } from '../src/nest/health.js';
import type { Outgoing } from '../src/ports.js';
import type { JournalRow } from '../src/store/types.js';

interface Produce {
  readonly rows: string[];
  readonly succeed: () => void;
  readonly fail: () => void;
}

const row = (lane: number, seq: number): JournalRow => ({ lane, seq, topic: 'run.events', prev: seq - 1, stream: `s${seq}`, type: 'T', version: 1, time: 0, tenant: 'acme', hash: 'h', trace: null, data: '{}' });
const nameOf = ({ headers, key }: Outgoing): string => {
  const envelope = decodeHeaders(headers, key, 0);
  return `${envelope?.lane ?? '?'}/${envelope?.seq ?? '?'}`;
};

/** A broker whose every answer the test gives, and a clock that the test moves. */
let produces: Produce[];
let inFlight: number;
let mostInFlight: number;
let published: Map<number, number>;
let troubles: string[];
let now: number;
let timers: { at: number; call: () => void }[];
let publisher: Publisher;

beforeEach(() => {
  [produces, inFlight, mostInFlight, published, troubles, now, timers] = [[], 0, 0, new Map(), [], 1000, []];
  publisher = new Publisher({
    service: 'ledger',
    source: 'holdfast/ledger/1',
    writer: {
      publish: (records) => {
        inFlight += 1;
        mostInFlight = Math.max(mostInFlight, inFlight);
        return new Promise<void>((resolve, reject) => {
          const end = (settle: () => void) => () => {
            inFlight -= 1;
            settle();
          };
          produces.push({ rows: records.map(nameOf), succeed: end(resolve), fail: end(() => reject(new Error('the broker did not answer'))) });
        });
      },
      close: () => Promise.resolve(),
    },
    clock: {
      now: () => now,
      soon: () => undefined,
      after: (delayMs, call) => {
        const timer = { at: now + delayMs, call };
        timers.push(timer);
        return () => {
          timers = timers.filter((other) => other !== timer);
        };
      },
    },
    onPublished: (lane, seq) => published.set(lane, seq),
    onTrouble: ({ message }) => troubles.push(message),
    repair: () => Promise.resolve(),
  });
});

/** Lets everything that needs no answer happen. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
async function pass(ms: number): Promise<void> {
  now += ms;
  for (const timer of timers.filter(({ at }) => at <= now)) {
    timers = timers.filter((other) => other !== timer);
    timer.call();
  }
  await settle();
}
const health = (): string | null => {
  const since = publisher.waitingSince();
  const all: LoopHealth = { lanes: 4, halted: [], shelved: [], unpublishedMs: since === null ? 0 : now - since, stuckMs: 0, waiting: 0, silentMs: 0, unpublishedRows: publisher.waiting(), openStreams: 0 };
  return unreadyBecause(all, { databaseSilentMs: 0, lagStuckMs: 0 }, 10_000);
};

describe('a send that hangs', () => {
  test('is the only one in flight, however long it takes and whatever is decided meanwhile', async () => {
    publisher.enqueue([row(0, 1), row(1, 1)]);
    for (let seq = 2; seq < 50; seq += 1) {
      await pass(60_000);
      publisher.enqueue([row(0, seq)]);
    }
    expect(produces.map(({ rows }) => rows)).toEqual([['0/1', '1/1']]);
    produces[0]?.succeed();
    await settle();
    expect(produces.map(({ rows }) => rows.length)).toEqual([2, 48]);
    expect(mostInFlight).toBe(1);
  });

  test('shows: the instance is not ready until it has ended', async () => {
    publisher.enqueue([row(0, 1)]);
    await pass(9000);
    expect(health()).toBeNull();
    publisher.enqueue([row(0, 2)]);
    await pass(2000);
    expect(health()).toMatch(/oldest unpublished row has waited 11000 ms/);
    produces[0]?.succeed();
    await settle();
    produces[1]?.succeed();
    await settle();
    expect(health()).toBeNull();
    expect(published).toEqual(new Map([[0, 2]]));
  });

  test('and fails in the end is repeated after a pause, in the same order and before anything later', async () => {
    publisher.enqueue([row(0, 1), row(0, 2)]);
    publisher.enqueue([row(0, 3)]);
    await pass(30_000);
    produces[0]?.fail();
    await settle();
    expect(troubles).toEqual(['the broker did not answer']);
    expect(published).toEqual(new Map());
    expect(health()).toMatch(/unpublished/);
    await pass(100);
    expect(produces.map(({ rows }) => rows)).toEqual([['0/1', '0/2'], ['0/1', '0/2', '0/3']]);
    produces[1]?.succeed();
    await settle();
    expect([health(), published.get(0), mostInFlight]).toEqual([null, 3, 1]);
  });

  test('for lanes that another instance has taken meanwhile is nobody’s wait any more', async () => {
    publisher.enqueue([row(0, 1)]);
    await pass(20_000);
    publisher.drop(new Set([0]));
    expect(health()).toBeNull();
    produces[0]?.fail();
    await settle();
    await pass(5000);
    expect(produces).toHaveLength(1);
    await pass(60_000);
    expect(health()).toBeNull();
  });

  test('leaves what was decided for other lanes waiting, and then published', async () => {
    publisher.enqueue([row(0, 1), row(1, 1)]);
    await settle();
    publisher.drop(new Set([0]));
    produces[0]?.fail();
    await settle();
    await pass(20_000);
    expect(produces.map(({ rows }) => rows)).toEqual([['0/1', '1/1'], ['1/1']]);
    expect(health()).toMatch(/unpublished/);
    produces[1]?.succeed();
    await settle();
    expect(health()).toBeNull();
  });
});

test('a flush waits for what is under way, and no longer than it was told', async () => {
  publisher.enqueue([row(0, 1)]);
  let flushed = false;
  void publisher.flush(5000).then(() => (flushed = true));
  await pass(4999);
  expect(flushed).toBe(false);
  await pass(1);
  expect(flushed).toBe(true);
});
