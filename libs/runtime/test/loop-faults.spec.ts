import { expect, test } from '@jest/globals';
import { chainHash } from '../src/loop/chain.js';
import type { LogRecord } from '../src/ports.js';
import type { AgendaEntry, JournalRow, LaneWrite, LockedStore, Progress, Store } from '../src/store/types.js';
import { counter, LANE, NEWS, news, progress, until, WISHES, wish, type Counter } from './kit.js';
import { loopOn, OTHER } from './loop-kit.js';

const laneOf = (key: string): number => (key.startsWith('other') ? OTHER : LANE);
const failure = (code: string): Error => Object.assign(new Error(`SQLSTATE ${code}`), { code });
const offsetsAt = (offset: number): Promise<Map<number, { first: number; next: number }>> => Promise.resolve(new Map([LANE, OTHER].map((lane) => [lane, { first: 0, next: offset }])));

/** A database that takes everything but what a test says, and says why not. */
function database(refuses: (write: LaneWrite) => string | null, open: readonly AgendaEntry[] = []) {
  const rows: JournalRow[] = [];
  const stored = new Map<number, Progress>();
  let takes = 0;
  const write = (writes: readonly LaneWrite[]): Promise<ReadonlySet<number>> => {
    const code = writes.map(refuses).find((each) => each !== null);
    if (code !== undefined && code !== null) return Promise.reject(failure(code));
    for (const { progress: after, rows: more } of writes) {
      stored.set(after.lane, after);
      rows.push(...more);
    }
    return Promise.resolve(new Set(writes.map(({ progress: { lane } }) => lane)));
  };
  const store: Partial<Store> = {
    takeLanes: (lanes) => {
      takes += 1;
      // Taken again and again it would never come to rest: the test ends instead.
      return takes > 20 ? new Promise(() => undefined) : Promise.resolve(lanes.map((lane) => ({ ...(stored.get(lane) ?? progress({ lane })), epoch: takes })));
    },
    append: write,
    lock: (keys): Promise<LockedStore> => Promise.resolve({ rows: new Map(keys.map((key) => [key, null])), commit: write, rollback: () => Promise.resolve() }),
    openStreams: (lane) => Promise.resolve(lane === LANE ? [...open] : []),
  };
  return {
    store,
    rows,
    takes: () => takes,
    /** Of one lane, in words. */
    said: (lane: number) => rows.filter((row) => row.lane === lane).map(({ stream, type, data }) => `${stream} ${type} ${type === 'DeadLetter' ? String((JSON.parse(data) as { reason: string }).reason) : data}`),
    read: (lane: number, topic = WISHES) => stored.get(lane)?.offsets[topic] ?? 0,
  };
}

/** Both lanes are open, and these have come in one delivery each. */
async function begun(db: ReturnType<typeof database>, more: Parameters<typeof loopOn>[0], deliveries: readonly (readonly LogRecord[])[]) {
  let opened = 0;
  const all = loopOn({ laneOf, ...more, store: { ...db.store, ...more.store }, group: { offsets: () => offsetsAt(0), open: () => void (opened += 1), ...more.group } });
  await all.loop.start();
  all.assign(1);
  await until(() => opened > 1, 'the lanes are open');
  for (const records of deliveries) void all.arrive(...records);
  return all;
}

const adds = (write: LaneWrite, n: number): boolean => write.rows.some(({ type, data }) => type === 'Added' && data === `{"n":${n}}`);
const add = (offset: number, stream: string, n: number): LogRecord => wish(offset, stream, { does: 'add', n }, { lane: laneOf(stream) });

test.each(['22021', '54000'])('an outsider’s message that leads to what the database never takes (%s) is parked; what came before and after it is decided, in order, and other lanes go on', async (code) => {
  const db = database((write) => (adds(write, 13) ? code : null));
  const { loop } = await begun(db, {}, [[add(0, 'a', 1), add(1, 'b', 2), add(2, 'a', 13), add(3, 'a', 3), add(4, 'b', 13), add(5, 'b', 4)], [add(0, 'other', 5), add(1, 'other', 6)]]);
  await until(() => db.read(LANE) === 6 && db.read(OTHER) === 2, 'all is decided');
  expect(db.said(LANE)).toEqual(['a Added {"n":1}', 'b Added {"n":2}', 'a DeadLetter not_storable', 'a Added {"n":3}', 'b DeadLetter not_storable', 'b Added {"n":4}']);
  expect(db.said(OTHER)).toEqual(['other Added {"n":5}', 'other Added {"n":6}']);
  expect(db.rows.filter(({ lane }) => lane === LANE).map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6]);
  expect(loop.health().halted).toEqual([]);
  expect(loop.counts.get('parked: not_storable')).toBe(2);
  expect(db.takes()).toBe(1);
});

test('so it is where the message needs a row that spans lanes', async () => {
  const db = database(({ shared }) => (shared.some(({ data }) => data.endsWith('bad;')) ? '22021' : null));
  const share = (offset: number, stream: string): LogRecord => wish(offset, stream, { does: 'share' }, { lane: laneOf(stream) });
  const { loop } = await begun(db, {}, [[share(0, 'bad'), add(1, 'bad', 1)], [share(0, 'other')]]);
  await until(() => db.read(LANE) === 2 && db.read(OTHER) === 1, 'all is decided');
  expect(db.said(LANE)).toEqual(['bad DeadLetter not_storable', 'bad Added {"n":1}']);
  expect(loop.health().halted).toEqual([]);
  expect(db.takes()).toBe(1);
});

test('so it is where what the message needs can’t even be asked for', async () => {
  const db = database(() => null);
  const loadStreams: Store['loadStreams'] = (_topic, streams) => (streams.includes('bad') ? Promise.reject(failure('22021')) : Promise.resolve(new Map()));
  const { loop } = await begun(db, { store: { loadStreams } }, [[add(0, 'a', 1), wish(1, 'a', { does: 'look', at: 'bad' }), add(2, 'a', 2)]]);
  await until(() => db.read(LANE) === 3, 'all is decided');
  expect(db.said(LANE)).toEqual(['a Added {"n":1}', 'a DeadLetter not_storable', 'a Added {"n":2}']);
  expect(loop.health().halted).toEqual([]);
});

test('what was decided and could not be written has left no trace: a run that it would have closed is open', async () => {
  const db = database(({ rows }) => (rows.some(({ type }) => type === 'Closed') ? '22021' : null), [{ stream: 's', open: true, dueAt: null, tag: 't' }]);
  const opened = { lane: LANE, seq: 1, topic: 'counter.events', prev: 0, stream: 's', type: 'Opened', version: 1, time: 1, tenant: 'acme', trace: null, data: '{"tag":"t"}' };
  const journal = { ...opened, hash: chainHash('', opened) };
  const loadStreams: Store['loadStreams'] = (_topic, streams) => Promise.resolve(new Map(streams.map((stream) => [stream, stream === 's' ? [journal] : []])));
  const { arrive } = await begun(db, { store: { loadStreams } }, [[wish(0, 's', { does: 'close' })]]);
  await until(() => db.read(LANE) === 1, 'the first is decided');
  void arrive(wish(1, 'a', { does: 'list' }));
  await until(() => db.read(LANE) === 2, 'the second is decided');
  expect(db.said(LANE).filter((said) => !said.includes('due'))).toEqual(['s DeadLetter not_storable', 'a Said {"what":"s"}']);
});

const halted = (what: RegExp): unknown => [{ lane: LANE, reason: expect.stringMatching(what) }];

test('a service’s message that leads to what the database never takes stops its lane alone, right before it, and says which it is', async () => {
  const db = database((write) => (adds(write, 13) ? '22021' : null));
  const bring = (offset: number, n: number): LogRecord => news(offset, offset + 1, offset, { data: { n } });
  const { loop, alarms, arrive } = await begun(db, {}, [[bring(0, 1), bring(1, 13), bring(2, 2)], [add(0, 'other', 5)]]);
  await until(() => loop.health().halted.length > 0 && db.read(OTHER) === 1, 'one lane stops, the other goes on');
  expect(loop.health().halted).toEqual(halted(/^what the message on news\/2 at offset 1 leads to can’t be written.*SQLSTATE 22021/));
  expect(alarms.filter((alarm) => alarm.startsWith('lane halted'))).toHaveLength(1);
  expect(db.said(LANE)).toEqual(['s1 Added {"n":1}']);
  expect(db.read(LANE, NEWS)).toBe(1);
  void arrive(add(1, 'other', 6));
  await until(() => db.read(OTHER) === 2, 'the other lane goes on');
  expect(db.takes()).toBe(1);
});

test('so does a timer', async () => {
  const db = database(({ rows }) => (rows.some(({ stream, type }) => stream === 'late' && type === 'Said') ? '22021' : null), [
    { stream: 'late', open: true, dueAt: 1, tag: 't' },
    { stream: 'fine', open: true, dueAt: 1, tag: 't' },
  ]);
  const { loop } = await begun(db, { now: () => 10 }, [[add(0, 'other', 5)]]);
  await until(() => loop.health().halted.length > 0 && db.read(OTHER) === 1, 'one lane stops, the other goes on');
  expect(loop.health().halted).toEqual(halted(/^what the look at late leads to can’t be written/));
  expect(db.takes()).toBe(1);
});

test.each(['23505', '42P01', '21000'])('what no message is to blame for (%s) parks none: each lane that meets it stops', async (code) => {
  const db = database(({ rows, progress: { lane } }) => (lane === LANE && rows.length > 0 ? code : null));
  const { loop } = await begun(db, {}, [[add(0, 'a', 1), add(1, 'a', 2)], [add(0, 'other', 5)]]);
  await until(() => loop.health().halted.length > 0 && db.read(OTHER) === 1, 'one lane stops, the other goes on');
  expect(loop.health().halted).toEqual(halted(new RegExp(`wishes/2 at offset 0 .*SQLSTATE ${code}`)));
  expect(db.said(LANE)).toEqual([]);
  expect(db.takes()).toBe(1);
});

test('a timer whose handler throws is told with its run and why, once for each look; the lane goes on', async () => {
  const db = database(() => null, [{ stream: 's', open: true, dueAt: 1, tag: 't' }]);
  const opened = wish(0, 's', { does: 'open' });
  let looks = 0;
  const service = {
    ...counter(),
    agenda: ({ tag }: Counter, stream: string) => ({ open: stream === 's' || tag !== null, dueAt: stream === 's' ? 1 : null, tag }),
    onDue: () => {
      looks += 1;
      throw new TypeError('no such state');
    },
    onPoison: () => undefined,
  };
  const { loop, alarms } = await begun(db, { service }, [[opened], [add(0, 'other', 5)]]);
  await until(() => db.said(OTHER).length > 0 && loop.counts.size > 0, 'the other lane goes on');
  expect(alarms).toEqual([expect.stringMatching(/^timer failed \{"lane":2,"run":"s","error":"TypeError: no such state","stack":".*","tries":1,"againMs":1000\}$/)]);
  expect([looks, loop.counts.get('poison: TypeError')]).toEqual([1, 1]);
  await loop.stop();
});
