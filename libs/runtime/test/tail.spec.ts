import { expect, test } from '@jest/globals';
import { tail, type Tail } from '../src/kafka/tail.js';
import type { LaneGroup, LaneGroupHandlers, LogRecord } from '../src/ports.js';
import { until } from './kit.js';

const TOPIC = 'news';
const record = (offset: number, topic = TOPIC): LogRecord => ({ topic, lane: 0, offset, key: 'k', headers: {}, value: '{}', time: 0 });

interface Following {
  readonly reader: Tail;
  readonly seen: number[];
  readonly errors: string[];
  readonly opened: number[];
  /** What the broker does when it is next asked for offsets. */
  brokerAnswers(answers: boolean): void;
  assign(generation: number): void;
  crash(): void;
  rejoins(): number;
  deliver(...offsets: number[]): Promise<void>;
  deliverOf(topic: string, ...offsets: number[]): Promise<void>;
}

async function following({ rejoinFails = 0, topics = [TOPIC] } = {}): Promise<Following> {
  let handlers: LaneGroupHandlers | undefined;
  let answers = true;
  let rejoins = 0;
  const [seen, errors, opened]: [number[], string[], number[]] = [[], [], []];
  const group: LaneGroup = {
    sessionTimeoutMs: 1000,
    start: () => Promise.resolve(),
    stop: () => Promise.resolve(),
    rejoin: () => {
      rejoins += 1;
      return rejoins <= rejoinFails ? Promise.reject(new Error('no broker')) : Promise.resolve();
    },
    open: (positions) => void opened.push(...positions.map(({ offset }) => offset)),
    committed: () => Promise.resolve(new Map()),
    offsets: () => (answers ? Promise.resolve(new Map([[0, { first: 0, next: 1 }]])) : Promise.reject(new Error('no broker'))),
    commit: () => Promise.resolve('accepted'),
    heartbeatAgeMs: () => null,
  };
  const reader = await tail({ brokers: [], topics, from: 'beginning', onRecord: ({ offset }) => void seen.push(offset), onError: (error) => void errors.push(error.message) }, (given) => {
    handlers = given.handlers;
    return group;
  });
  const deliverOf = (topic: string, ...offsets: number[]): Promise<void> => handlers?.onRecords(offsets.map((offset) => record(offset, topic)), { memberId: 'm', generation: 1 }) ?? Promise.resolve();
  return {
    reader,
    seen,
    errors,
    opened,
    brokerAnswers: (will) => void (answers = will),
    assign: (generation) => handlers?.onAssigned({ membership: { memberId: 'm', generation }, lanes: [0], retained: [] }),
    crash: () => handlers?.onCrash(new Error('the consumer died')),
    rejoins: () => rejoins,
    deliver: (...offsets) => deliverOf(TOPIC, ...offsets),
    deliverOf,
  };
}

test('says that it could not begin', async () => {
  const { reader, errors, brokerAnswers, assign } = await following();
  brokerAnswers(false);
  assign(1);
  await expect(reader.caughtUp).rejects.toThrow('no broker');
  expect(errors).toEqual(['no broker']);
});

test('reads on where it was, though the broker told no offsets after a rebalance', async () => {
  const { reader, seen, errors, opened, brokerAnswers, assign, deliver } = await following();
  assign(1);
  await until(() => opened.length === 1, 'the lane is open');
  await deliver(0);
  await reader.caughtUp;
  brokerAnswers(false);
  assign(2);
  await until(() => opened.length === 1, 'nothing is opened without offsets');
  brokerAnswers(true);
  await until(() => opened.length === 2, 'the lane is open again');
  await deliver(0, 1);
  expect(opened).toEqual([0, 1]);
  expect(seen).toEqual([0, 1]);
  expect(errors).toEqual([]);
});

test('joins again after its consumer died, as often as it takes', async () => {
  const { opened, errors, assign, crash, rejoins } = await following({ rejoinFails: 1 });
  assign(1);
  await until(() => opened.length === 1, 'the lane is open');
  crash();
  await until(() => rejoins() === 2, 'it has joined again');
  expect(errors).toEqual([]);
});

test('that is closed tries nothing more', async () => {
  const { reader, opened, assign, crash, rejoins } = await following();
  assign(1);
  await until(() => opened.length === 1, 'the lane is open');
  await reader.close();
  crash();
  assign(2);
  expect(rejoins()).toBe(0);
  expect(opened).toHaveLength(1);
});

test('of several topics has caught up once each is read, and keeps their offsets apart', async () => {
  const { reader, seen, opened, assign, deliver, deliverOf } = await following({ topics: [TOPIC, 'weather'] });
  let caughtUp = false;
  void reader.caughtUp.then(() => (caughtUp = true));
  assign(1);
  await until(() => opened.length === 2, 'the lane of each is open');
  await deliver(0, 1);
  expect(caughtUp).toBe(false);
  await deliverOf('weather', 0, 0);
  await reader.caughtUp;
  expect(seen).toEqual([0, 1, 0]);
});
