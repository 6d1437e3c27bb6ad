import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { Cluster } from 'kafkajs';
import { holdFetches } from '../src/kafka/fetch-hold.js';
import { isRefusal, isRetriable, watchCoordinator } from '../src/kafka/coordinator-watch.js';
import { commitEndOf, isDirectSuccessor, laneOf, rounds } from '../src/kafka/index.js';
import type { Membership, Outgoing } from '../src/ports.js';

/** Kafka's default `message.max.bytes`. */
const LIMIT_BYTES = 1024 * 1024;
const at = (lane: number | undefined): { lane?: number } => (lane === undefined ? {} : { lane });
const record = (n: number, value: string, lane: number | undefined = 1, topic = 'run.events'): Outgoing => ({ topic, ...at(lane), key: `run-${n}`, headers: {}, value });
/** Bytes of each partition's part; records without a lane may all meet in one. */
function parts(round: readonly Outgoing[]): number[] {
  const bytes = new Map<string, number>();
  for (const { topic, lane, key, value } of round) {
    const place = `${topic}/${lane ?? 'any'}`;
    bytes.set(place, (bytes.get(place) ?? 0) + Buffer.byteLength(key) + Buffer.byteLength(value));
  }
  return [...bytes.values()];
}

test('whether trouble with the broker may pass is told of errors whose causes lead back to where they began, too', () => {
  const error = Object.assign(new Error('first'), { retriable: true });
  error.cause = new Error('second', { cause: error });
  expect([isRefusal(error), isRetriable(error)]).toEqual([false, false]);
  (error.cause as Error).name = 'KafkaJSSASLAuthenticationError';
  expect(isRefusal(error)).toBe(true);
});

describe('rounds of a produce', () => {
  test('300 events that fit one by one but not together pass, in order', () => {
    const records = Array.from({ length: 300 }, (_, n) => record(n, 'x'.repeat(20_000)));
    const made = rounds(records);
    expect(made.length).toBeGreaterThan(1);
    expect(made.flat()).toEqual(records);
    for (const round of made) expect(Math.max(...parts(round))).toBeLessThan(LIMIT_BYTES);
  });

  test('few and small ones are one round; none are none', () => {
    expect(rounds([record(1, 'x'), record(2, 'y')])).toHaveLength(1);
    expect(rounds([])).toEqual([]);
  });

  test('the limit is each partition’s own', () => {
    const spread = Array.from({ length: 12 }, (_, n) => record(n, 'x'.repeat(200_000), n));
    expect(rounds(spread)).toHaveLength(1);
    expect(rounds(spread.map((one) => ({ ...one, lane: 1 }))).length).toBeGreaterThan(1);
  });

  test('a record too large by itself goes alone: the broker says so about it alone', () => {
    const made = rounds([record(1, 'x'), record(2, 'x'.repeat(2 * LIMIT_BYTES)), record(3, 'y')]);
    expect(made.map((round) => round.length)).toEqual([1, 1, 1]);
  });

  test('whatever is sent: order is kept, and no round holds more for a partition than fits', () => {
    const outgoing = fc.tuple(fc.integer({ min: 0, max: 400_000 }), fc.constantFrom(0, 1, undefined), fc.constantFrom('a', 'b'), fc.constantFrom('x', 'ä', '😀'));
    fc.assert(
      fc.property(fc.array(outgoing, { maxLength: 20 }), (all) => {
        const records = all.map(([bytes, lane, topic, unit], n) => record(n, unit.repeat(bytes / Buffer.byteLength(unit)), lane, topic));
        const made = rounds(records);
        expect(made.flat()).toEqual(records);
        for (const round of made) expect(Math.max(...parts(round))).toBeLessThan(LIMIT_BYTES);
      }),
      { numRuns: 50 },
    );
  });
});

test.each([
  ['run-1', 12, 1],
  ['', 12, 9],
  ['ünïcödé-😀', 12, 10],
])('the partition of key %j is Kafka’s own', (key, partitions, lane) => {
  expect(laneOf(key, partitions)).toBe(lane);
});

describe('the end of a commit', () => {
  const kafka = (type: string): Error => Object.assign(new Error(type), { type });

  test.each([
    [kafka('ILLEGAL_GENERATION'), 'refused'],
    [kafka('UNKNOWN_MEMBER_ID'), 'refused'],
    [kafka('REBALANCE_IN_PROGRESS'), 'refused'],
    [kafka('FENCED_INSTANCE_ID'), 'refused'],
    [kafka('NOT_COORDINATOR_FOR_GROUP'), 'refused'],
    [kafka('OFFSET_METADATA_TOO_LARGE'), 'refused'],
    [kafka('REQUEST_TIMED_OUT'), 'unknown'],
    [kafka('UNKNOWN'), 'unknown'],
    [new Error('Connection closed'), 'unknown'],
    [Object.assign(new Error('Request timed out'), { type: undefined }), 'unknown'],
    [undefined, 'unknown'],
    ['ILLEGAL_GENERATION', 'unknown'],
  ])('%p is %s', (error, end) => {
    expect(commitEndOf(error)).toBe(end);
  });
});

describe('a direct successor', () => {
  const member = (memberId: string, generation: number): Membership => ({ memberId, generation });

  test.each([
    [member('m', 4), member('m', 5), true],
    [member('m', 4), member('m', 6), false],
    [member('m', 4), member('m', 4), false],
    [member('m', 5), member('m', 4), false],
    [member('m', 4), member('n', 5), false],
    [null, member('m', 5), false],
  ])('%j, then %j: %s', (before, after, is) => {
    expect(isDirectSuccessor(before, after)).toBe(is);
  });
});

test('a broker may hold back an empty fetch for so long, and all else is passed on as it came', async () => {
  const asked: unknown[] = [];
  const plain = { nodeId: 7, fetch: (request: unknown) => Promise.resolve(asked.push(request)), produce: (request: unknown) => Promise.resolve(asked.push(request)) };
  const cluster = { findBroker: () => Promise.resolve(plain) } as unknown as Cluster;
  holdFetches(cluster, 250);
  const broker = (await cluster.findBroker({ nodeId: '7' })) as unknown as typeof plain;
  await broker.fetch({ maxWaitTime: 50, minBytes: 1 });
  await broker.produce({ acks: -1 });
  expect([asked, broker.nodeId]).toEqual([[{ maxWaitTime: 250, minBytes: 1 }, { acks: -1 }], 7]);
});

describe('the watch over the group’s coordinator', () => {
  type Call = (request: Record<string, unknown>) => Promise<unknown>;
  const answers = (answer: unknown): Call => () => Promise.resolve(answer);
  const fails = (type: string): Call => () => Promise.reject(Object.assign(new Error(type), { type }));

  async function watch(calls: Record<string, Call>) {
    const told: string[] = [];
    let now = 100;
    const cluster = { findGroupCoordinator: () => Promise.resolve({ nodeId: 7, ...calls }) } as unknown as Cluster;
    watchCoordinator(
      cluster,
      {
        onJoining: () => told.push('joining'),
        onSynced: ({ memberId, generation }) => told.push(`synced ${memberId}/${generation}`),
        onHeartbeatAnswered: ({ memberId, generation }, sentAt) => told.push(`heartbeat ${memberId}/${generation} sent ${sentAt.steady}`),
        onMembershipDoubted: () => told.push('doubted'),
      },
      () => ({ wall: 0, steady: now++ }),
    );
    const broker = (await cluster.findGroupCoordinator({ groupId: 'g' })) as unknown as Record<string, Call> & { nodeId: number };
    return { broker, told };
  }

  test('tells of a join before it is sent, and of a sync only once it is answered', async () => {
    const { broker, told } = await watch({ joinGroup: answers('joined'), syncGroup: answers('synced') });
    const joining = broker['joinGroup']?.({ memberId: 'm' });
    expect(told).toEqual(['joining']);
    expect(await joining).toBe('joined');
    const syncing = broker['syncGroup']?.({ memberId: 'm', generationId: 4 });
    expect(told).toEqual(['joining']);
    expect(await syncing).toBe('synced');
    expect(told).toEqual(['joining', 'synced m/4']);
  });

  test('tells of a heartbeat with the moment it was sent, not answered', async () => {
    const { broker, told } = await watch({ heartbeat: answers('ok') });
    await broker['heartbeat']?.({ memberId: 'm', groupGenerationId: 4 });
    expect(told).toEqual(['heartbeat m/4 sent 100']);
  });

  test.each(['REBALANCE_IN_PROGRESS', 'ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID'])('doubts the membership on %s, and lets the error through', async (type) => {
    const { broker, told } = await watch({ heartbeat: fails(type) });
    await expect(broker['heartbeat']?.({ memberId: 'm', groupGenerationId: 4 })).rejects.toMatchObject({ type });
    expect(told).toEqual(['doubted']);
  });

  test('a heartbeat that got no answer refreshes nothing and doubts nothing', async () => {
    const { broker, told } = await watch({ heartbeat: () => Promise.reject(new Error('Connection closed')) });
    await expect(broker['heartbeat']?.({ memberId: 'm', groupGenerationId: 4 })).rejects.toThrow('Connection closed');
    expect(told).toEqual([]);
  });

  test('a failed sync tells nothing', async () => {
    const { broker, told } = await watch({ syncGroup: fails('REBALANCE_IN_PROGRESS') });
    await expect(broker['syncGroup']?.({ memberId: 'm', generationId: 4 })).rejects.toThrow();
    expect(told).toEqual([]);
  });

  test('leaves all else as it is', async () => {
    const { broker, told } = await watch({ offsetCommit: (request) => Promise.resolve(request) });
    expect(broker.nodeId).toBe(7);
    expect(await broker['offsetCommit']?.({ memberId: 'm' })).toEqual({ memberId: 'm' });
    expect(told).toEqual([]);
  });
});
