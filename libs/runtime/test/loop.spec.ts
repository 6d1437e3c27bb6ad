import { expect, test } from '@jest/globals';
import { Loop } from '../src/loop/loop.js';
import type { LaneGroup, LaneGroupHandlers, LogRecord } from '../src/ports.js';
import type { LaneWrite, Store } from '../src/store/types.js';
import { counter, LANE, progress, WISHES, wish } from './kit.js';

async function until(fact: () => boolean, what: string): Promise<void> {
  for (let turn = 0; turn < 2000; turn += 1) {
    if (fact()) return;
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  throw new Error(`never came: ${what}`);
}

const OTHER = LANE + 1;

test('what was fetched for an earlier holding of a lane does not look like a gap to the next one', async () => {
  let takes = 0;
  let opened = 0;
  const noop = (): void => undefined;
  let letOpen: () => void = noop;
  let handlers: LaneGroupHandlers | undefined;
  const alarms: string[] = [];
  const appended: LaneWrite[] = [];
  const store: Store = {
    incarnation: () => Promise.resolve('1'),
    takeLanes: (lanes) => {
      takes += 1;
      return Promise.resolve(lanes.map((lane) => progress({ lane, epoch: takes })));
    },
    nextSeqs: () => Promise.resolve([]),
    rowsAfter: () => Promise.resolve([]),
    // The second taking waits here for its other lane: the first one is known and not open yet.
    openStreams: (lane) => (takes < 2 || lane === LANE ? Promise.resolve([]) : new Promise((resolve) => (letOpen = () => resolve([])))),
    loadStreams: () => Promise.resolve(new Map()),
    append: (writes) => {
      appended.push(...writes);
      return Promise.resolve(new Set(writes.map(({ progress: { lane } }) => lane)));
    },
    lock: () => Promise.reject(new Error('no locks here')),
    close: () => Promise.resolve(),
  };
  const group: LaneGroup = {
    sessionTimeoutMs: 1000,
    start: () => Promise.resolve(),
    stop: () => Promise.resolve(),
    rejoin: () => Promise.resolve(),
    open: (positions) => void (opened += positions.some(({ lane }) => lane === LANE) ? 1 : 0),
    committed: () => Promise.resolve(new Map()),
    offsets: () => Promise.resolve(new Map([LANE, OTHER].map((lane) => [lane, { first: 0, next: 2 }]))),
    commit: () => Promise.resolve('accepted'),
    lastHeartbeatSentAt: () => null,
  };
  const loop = new Loop({
    service: counter(),
    store,
    writer: { publish: () => Promise.resolve(), close: () => Promise.resolve() },
    clock: { now: () => 1, after: () => () => undefined, soon: () => undefined },
    random: { next: () => 0, uuid: () => 'u' },
    laneOf: () => LANE,
    join: (given) => {
      handlers = given;
      return group;
    },
    repair: () => Promise.resolve(),
    onAlarm: (what, detail) => void alarms.push(`${what} ${JSON.stringify(detail)}`),
    onFatal: (error) => void alarms.push(error.message),
  });
  const arrive = (...records: LogRecord[]): void => void handlers?.onRecords(records, { memberId: 'm', generation: 1 });
  await loop.start();
  const assign = (generation: number): void => handlers?.onAssigned({ membership: { memberId: 'm', generation }, lanes: [LANE, OTHER], retained: [] });
  assign(1);
  await until(() => opened === 1, 'the lane is open');
  assign(2);
  await until(() => letOpen !== noop, 'the lane is taken anew');
  arrive(wish(1, 'b', { does: 'open' })); // The consumer goes on from where the first holding was.
  letOpen();
  await until(() => opened === 2, 'the lane is open again');
  arrive(wish(0, 'a', { does: 'open' }), wish(1, 'b', { does: 'open' }));
  await until(() => appended.some(({ progress: { offsets } }) => offsets[WISHES] === 2), 'both are decided');
  expect(alarms).toEqual([]);
});
