import { expect, test } from '@jest/globals';
import { chainHash } from '../src/loop/chain.js';
import type { LogRecord } from '../src/ports.js';
import type { Shelved } from '../src/store/types.js';
import { LANE, progress, until, WISHES, wish } from './kit.js';
import { loopOn, OTHER } from './loop-kit.js';

test('what was fetched for an earlier holding of a lane does not look like a gap to the next one', async () => {
  let takes = 0;
  let opened = 0;
  const noop = (): void => undefined;
  let letOpen: () => void = noop;
  const { loop, alarms, appended, arrive, assign } = loopOn({
    store: {
      takeLanes: (lanes) => {
        takes += 1;
        return Promise.resolve(lanes.map((lane) => progress({ lane, epoch: takes })));
      },
      // The second taking waits here for its other lane: the first one is known and not open yet.
      openStreams: (lane) => (takes < 2 || lane === LANE ? Promise.resolve([]) : new Promise((resolve) => (letOpen = () => resolve([])))),
    },
    group: { open: (positions) => void (opened += positions.some(({ lane }) => lane === LANE) ? 1 : 0) },
  });
  await loop.start();
  assign(1);
  await until(() => opened === 1, 'the lane is open');
  assign(2);
  await until(() => letOpen !== noop, 'the lane is taken anew');
  void arrive(wish(1, 'b', { does: 'open' })); // The consumer goes on from where the first holding was.
  letOpen();
  await until(() => opened === 2, 'the lane is open again');
  void arrive(wish(0, 'a', { does: 'open' }), wish(1, 'b', { does: 'open' }));
  await until(() => appended.some(({ progress: { offsets } }) => offsets[WISHES] === 2), 'both are decided');
  expect(alarms).toEqual([]);
});

test('a lane that is lost just before an assignment gives it to another is not taken back', async () => {
  const taken: number[][] = [];
  const opened: number[] = [];
  let letTake: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (letTake = resolve));
  const { loop, arrive, assign } = loopOn({
    store: {
      takeLanes: (lanes) => {
        taken.push([...lanes]);
        return Promise.resolve(lanes.map((lane) => progress({ lane })));
      },
      append: () => Promise.resolve(new Set()),
    },
    group: {
      open: (positions) => void opened.push(...positions.map(({ lane }) => lane)),
      offsets: async () => {
        if (taken.length === 2) await held;
        return new Map([LANE, OTHER].map((lane) => [lane, { first: 0, next: 2 }]));
      },
    },
  });
  await loop.start();
  assign(1, [LANE]);
  await until(() => opened.includes(LANE), 'the first lane is open');
  assign(2, [LANE, OTHER], [LANE]);
  await until(() => taken.length === 2, 'the second lane is being taken');
  assign(3, [OTHER], [OTHER]); // Worked off once the second lane is taken.
  void arrive(wish(0, 'a', { does: 'open' })); // Its commit finds that somebody else has the first one.
  await until(() => loop.counts.has('lane lost: epoch'), 'the first lane is lost');
  letTake();
  await until(() => opened.includes(OTHER), 'the second lane is open');
  for (let turn = 0; turn < 10; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
  expect(taken).toEqual([[LANE], [OTHER]]);
});

test('of a lane just taken only what something besides its own time may want is looked at', async () => {
  const loaded: string[] = [];
  let now = 100;
  let opened = false;
  const { loop, arrive, assign } = loopOn({
    store: {
      openStreams: () => Promise.resolve([
        { stream: 'asleep', open: true, dueAt: 1_000_000, tag: null },
        { stream: 'wanted', open: true, dueAt: 1_000_000, tag: 'pool' },
        { stream: 'timeless', open: true, dueAt: null, tag: null },
        { stream: 'due', open: true, dueAt: 0, tag: null },
      ]),
      loadStreams: (_, streams) => {
        loaded.push(...streams);
        return Promise.resolve(new Map());
      },
    },
    group: { offsets: () => Promise.resolve(new Map()), open: () => void (opened = true) },
    now: () => now,
  });
  await loop.start();
  assign(1, [LANE]);
  await until(() => opened, 'the lane is open');
  now = 10_000;
  void arrive(wish(0, 'asked', { does: 'open' })); // The loop comes round.
  await until(() => loaded.includes('asked') && loaded.includes('wanted'), 'they are looked at');
  for (let turn = 0; turn < 10; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
  expect([...new Set(loaded)].sort()).toEqual(['asked', 'due', 'timeless', 'wanted']);
});

test('after an outage missed timers are taken at a pace, a portion at once, while what comes in is decided at once', async () => {
  const loaded: string[] = [];
  let now = 100_000;
  let opened = false;
  const { loop, appended, arrive, assign } = loopOn({
    store: {
      openStreams: (lane) => Promise.resolve(Array.from({ length: 500 }, (_, i) => ({ stream: `m${lane}/${i}`, open: true, dueAt: 10 + i, tag: null }))),
      loadStreams: (_, streams) => {
        loaded.push(...streams);
        return Promise.resolve(new Map());
      },
    },
    group: { offsets: () => Promise.resolve(new Map()), open: () => void (opened = true) },
    now: () => now,
  });
  const missed = (): string[] => loaded.filter((stream) => stream.startsWith('m'));
  await loop.start();
  assign(1);
  await until(() => opened && missed().length > 0, 'the first are looked at');
  for (let offset = 0; offset < 20; offset += 1) {
    void arrive(wish(offset, `fresh${offset}`, { does: 'open' }));
    await until(() => appended.some(({ progress: { offsets } }) => offsets[WISHES] === offset + 1), 'what came in is decided');
  }
  expect(missed()).toHaveLength(10); // However often the loop came round meanwhile.
  now += 100;
  void arrive(wish(20, 'fresh20', { does: 'open' }));
  await until(() => missed().length > 10, 'more are looked at');
  // Both lanes have their part.
  expect(new Set(missed().map((stream) => stream.split('/')[0])).size).toBe(2);
  expect(missed().length).toBeLessThanOrEqual(30);
});

test('a lane with a backlog leaves another lane its share of each turn', async () => {
  const BACKLOG = 10_000;
  const taken: { lane: number; offset: number }[][] = [];
  let opened = 0;
  let commit: () => void = () => undefined;
  const { loop, arrive, assign } = loopOn({
    store: {
      append: (writes) => {
        taken.push(writes.map(({ progress: { lane, offsets } }) => ({ lane, offset: offsets[WISHES] ?? 0 })));
        return new Promise((resolve) => (commit = () => resolve(new Set(writes.map(({ progress: { lane } }) => lane)))));
      },
    },
    group: { offsets: () => Promise.resolve(new Map()), open: () => void (opened += 1) },
  });
  await loop.start();
  assign(1);
  await until(() => opened > 0, 'the lanes are open');
  const backlog = Array.from({ length: BACKLOG }, (_, offset) => wish(offset, 'old', { does: 'add' }));
  void arrive(...backlog.slice(0, 1));
  await until(() => taken.length === 1, 'a turn is under way');
  void arrive(...backlog.slice(1));
  void arrive(wish(0, 'fresh', { does: 'add' }, { lane: OTHER }));
  commit();
  await until(() => taken.length === 2, 'the next turn is under way');
  const [first, second] = [taken[1]?.find(({ lane }) => lane === LANE), taken[1]?.find(({ lane }) => lane === OTHER)];
  expect(second).toEqual({ lane: OTHER, offset: 1 });
  expect(first?.offset).toBeLessThan(BACKLOG);
});

test('how far a lane has read goes with its next row, or by itself after a while; an answer that stands is written at once', async () => {
  let now = 1;
  let opened = 0;
  const { loop, appended, arrive, assign } = loopOn({ group: { offsets: () => Promise.resolve(new Map()), open: () => void (opened += 1) }, now: () => now });
  const ignored = (offset: number): LogRecord => wish(offset, 'a', {}, { type: 'Ignored' });
  const read = (offset: number): Promise<void> => until(() => loop.reached().get(LANE)?.[WISHES] === offset, `offset ${offset} is read`);
  const written = (): unknown => appended.splice(0).map(({ progress: { offsets, parked }, rows }) => ({ upTo: offsets[WISHES], answered: parked[WISHES] ?? 0, rows: rows.length }));
  await loop.start();
  assign(1, [LANE]);
  await until(() => opened > 0, 'the lane is open');
  void arrive(ignored(0));
  await read(1);
  expect(written()).toEqual([]);
  now += 500;
  void arrive(ignored(1));
  await until(() => appended.length > 0, 'it is written by itself');
  expect(written()).toEqual([{ upTo: 2, answered: 0, rows: 0 }]);
  void arrive(ignored(2));
  await read(3);
  void arrive(wish(3, 'a', { does: 'refuse' }));
  await read(4);
  expect(written()).toEqual([{ upTo: 4, answered: 4, rows: 0 }]);
  void arrive(ignored(4));
  await read(5);
  void arrive(wish(5, 'a', { does: 'open' }));
  await read(6);
  expect(written()).toEqual([{ upTo: 6, answered: 4, rows: 1 }]);
});

test('how far a lane has read is tried again only after a while when the database does not take it', async () => {
  let now = 1;
  let opened = 0;
  let tries = 0;
  const { loop, alarms, arrive, assign } = loopOn({
    store: {
      append: () => {
        tries += 1;
        return Promise.reject(new Error('gone'));
      },
    },
    group: { offsets: () => Promise.resolve(new Map()), open: () => void (opened += 1) },
    now: () => now,
  });
  await loop.start();
  assign(1, [LANE]);
  await until(() => opened > 0, 'the lane is open');
  void arrive(wish(0, 'a', {}, { type: 'Ignored' }));
  await until(() => loop.reached().get(LANE)?.[WISHES] === 1, 'it is read');
  now += 500;
  void arrive(wish(1, 'a', {}, { type: 'Ignored' }));
  await until(() => alarms.length > 0, 'the database does not take it');
  void arrive(wish(2, 'a', {}, { type: 'Ignored' }));
  await until(() => loop.reached().get(LANE)?.[WISHES] === 3, 'it reads on');
  expect(tries).toBe(1);
});

const OPENED = { lane: LANE, seq: 1, topic: 'counter.events', prev: 0, stream: 's', type: 'Opened', version: 1, time: 1, tenant: 'acme', trace: null, data: '{"tag":"t"}' };

test('a run that only a newer version can read is set on the shelf with an alarm; it says so as long as it rests, and is tried again where the lane is taken', async () => {
  const painted = { ...OPENED, type: 'Painted' };
  let journal = [{ ...painted, hash: chainHash('', painted) }];
  let shelf: readonly Shelved[] = [];
  let opened = 0;
  const { loop, alarms, appended, arrive, assign } = loopOn({
    store: {
      takeLanes: (lanes) => Promise.resolve(lanes.map((lane) => appended.filter((write) => write.progress.lane === lane).at(-1)?.progress ?? progress({ lane }))),
      loadStreams: (_topic, streams) => Promise.resolve(new Map(streams.map((stream) => [stream, stream === 's' ? journal : []]))),
      shelved: (lane) => Promise.resolve(lane === LANE ? shelf : []),
    },
    group: { open: () => void (opened += 1) },
  });
  await loop.start();
  assign(1);
  await until(() => opened > 0, 'the lanes are open');
  void arrive(wish(0, 's', { does: 'add' }), wish(1, 'fine', { does: 'open' }));
  await until(() => appended.some(({ rows }) => rows.length > 0), 'the other run goes on');
  const reason = expect.stringMatching(/stream s: this version can’t take in its Painted/);
  expect(alarms).toEqual([expect.stringMatching(/^run shelved \{"lane":2,"run":"s","reason":".*Painted/)]);
  expect(loop.health()).toMatchObject({ halted: [], shelved: [{ stream: 's', reason, messages: 1 }] });

  shelf = appended.flatMap((write) => write.shelf?.put ?? []);
  journal = [{ ...OPENED, hash: chainHash('', OPENED) }];
  assign(2, []);
  assign(3);
  await until(() => appended.some(({ rows }) => rows.some(({ stream }) => stream === 's')), 'it goes on');
  expect(appended.at(-1)).toMatchObject({ rows: [{ stream: 's', type: 'Added', version: 2 }], shelf: { put: [], taken: [1] }, progress: { offsets: { [WISHES]: 2 } } });
  await until(() => loop.health().shelved.length === 0, 'nothing rests any more');
});

test('a row that was altered in a stream stops its lane with the reason and drops nothing; other lanes go on', async () => {
  const damaged = { ...OPENED, data: '{"tag":"u"}', hash: chainHash('', OPENED) };
  let opened = 0;
  const { loop, alarms, appended, arrive, assign } = loopOn({
    store: { loadStreams: (_topic, streams) => Promise.resolve(new Map(streams.map((stream) => [stream, stream === 's' ? [damaged] : []]))) },
    group: { offsets: () => Promise.resolve(new Map()), open: () => void (opened += 1) },
  });
  await loop.start();
  assign(1);
  await until(() => opened > 0, 'the lanes are open');
  void arrive(wish(0, 's', { does: 'add' }));
  void arrive(wish(0, 'fine', { does: 'open' }, { lane: OTHER }));
  await until(() => alarms.length > 0 && appended.some(({ progress: { lane } }) => lane === OTHER), 'one lane stops, the other goes on');
  expect(loop.health().halted).toEqual([{ lane: LANE, reason: expect.stringMatching(/altered outside Holdfast/) }]);
  expect(appended.filter(({ progress: { lane } }) => lane === LANE)).toEqual([]);
});

test('what is committed while its lane is given up is left to whoever takes the lane: rows before it may have been dropped', async () => {
  const commits: (() => void)[] = [];
  let opened = 0;
  const { loop, published, arrive, assign } = loopOn({
    store: { append: (writes) => new Promise((resolve) => commits.push(() => resolve(new Set(writes.map(({ progress: { lane } }) => lane))))) },
    group: { open: () => void (opened += 1) },
  });
  await loop.start();
  assign(1, [LANE]);
  await until(() => opened === 1, 'the lane is open');
  void arrive(wish(0, 'a', { does: 'open' }));
  await until(() => commits.length === 1, 'the turn commits');
  assign(2, [OTHER]);
  await until(() => opened === 2, 'the lane is given up');
  commits[0]?.();
  for (let turn = 0; turn < 10; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
  expect(published).toEqual([]);
});

test.each(['during the last turn', 'after it'] as const)('a delivery that comes %s holds the stop back no longer than that turn', async (when) => {
  let opened = false;
  let commit: (() => void) | undefined;
  let fetched: () => void = () => undefined;
  const lastFetch = new Promise<void>((resolve) => (fetched = resolve));
  const deliveries: Promise<void>[] = [];
  const { loop, arrive, assign } = loopOn({
    store: { append: () => (commit === undefined ? new Promise((resolve) => (commit = () => resolve(new Set([LANE])))) : Promise.resolve(new Set([LANE]))) },
    group: {
      open: () => void (opened = true),
      // As a consumer does: it leaves its group when the last fetch is answered and its handlers are done.
      stop: async () => {
        await lastFetch;
        await Promise.all(deliveries);
      },
    },
  });
  const deliver = (offset: number): void => void deliveries.push(arrive(wish(offset, 'a', { does: offset === 0 ? 'open' : 'add' })));
  await loop.start();
  assign(1);
  await until(() => opened, 'the lane is open');
  deliver(0);
  await until(() => commit !== undefined, 'the turn commits');
  if (when === 'during the last turn') deliver(1);
  let ended = false;
  void loop.stop().then(() => (ended = true));
  commit?.();
  for (let turn = 0; turn < 10; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
  if (when === 'after it') deliver(1);
  fetched();
  await until(() => ended, 'the loop stops');
});
