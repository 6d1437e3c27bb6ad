import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { createDatabase, databaseUrl } from '@holdfast/deploy';
import { exactTypes, openDatabase, PgStore, type JournalRow, type LaneWrite, type Progress } from '@holdfast/runtime';
import fc from 'fast-check';
import pg from 'pg';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';

const LIMIT_MS = proof(60_000, 300_000);
jest.setTimeout(LIMIT_MS);

const LANES = [0, 1, 2, 3];
const WRITERS = proof(10, 50);
const WRITES_EACH = proof(10, 20);
const DATABASE = 'late_commits';

let server: string;
let admin: pg.Pool;
let reader: PgStore;
const stores: PgStore[] = [];

/** An instance of its own, with its own connections. */
async function instance(): Promise<PgStore> {
  const store = new PgStore(await openDatabase({ url: databaseUrl(server, DATABASE), applicationName: 'late', poolSize: 2 }));
  stores.push(store);
  return store;
}

beforeAll(async () => {
  server = process.env['HOLDFAST_TEST_DATABASE_URL'] ?? '';
  await createDatabase(server, DATABASE);
  reader = await instance();
  admin = new pg.Pool({ connectionString: databaseUrl(server, DATABASE), max: 4, types: exactTypes });
}, LIMIT_MS);

afterAll(async () => {
  await Promise.all(stores.map((store) => store.close()));
  await admin?.end();
}, LIMIT_MS);

const rowOf = (lane: number, seq: number, by: string): JournalRow => ({ lane, seq, topic: 'run.events', prev: seq - 1, stream: `${by}-${lane}-${seq}`, version: 1, type: 'T', time: 1, tenant: 'default', hash: 'h', trace: null, data: '{}' });
const writeOf = (at: Progress, by: string, stream = `${by}-${at.lane}-${at.nextSeq}`): LaneWrite => ({
  progress: { ...at, nextSeq: at.nextSeq + 1 },
  expectedNextSeq: at.nextSeq,
  rows: [rowOf(at.lane, at.nextSeq, by)],
  agenda: [{ stream, open: true, dueAt: null, tag: null }],
  shared: [],
});
async function take(store: PgStore, lane: number): Promise<Progress> {
  const [progress] = await store.takeLanes([lane]);
  if (progress === undefined) throw new Error(`lane ${lane} was not taken`);
  return progress;
}

/** What publishing does: each lane from where it has come to, in order. */
class Relay {
  readonly read = new Map<number, JournalRow[]>(LANES.map((lane) => [lane, []]));

  async poll(): Promise<void> {
    for (const [lane, rows] of this.read) rows.push(...(await reader.rowsAfter(lane, rows.at(-1)?.seq ?? 0, 1000)));
  }

  seqs(lane: number): number[] {
    return (this.read.get(lane) ?? []).map(({ seq }) => seq);
  }
}

test('a row that is committed long after a later one of another lane is read like any other: the place to read on from is each lane’s own', async () => {
  const [slow, quick] = [await instance(), await instance()];
  const [mine, theirs] = [await take(slow, 0), await take(quick, 1)];
  const relay = new Relay();
  // The first transaction has inserted its row and can't end: somebody holds a row of the agenda that it has to write.
  await admin.query(`insert into agenda (stream, lane, open) values ('held', 0, false)`);
  const holder = await admin.connect();
  await holder.query(`begin`);
  await holder.query(`select from agenda where stream = 'held' for update`);
  const late = slow.append([writeOf(mine, 'slow', 'held')]);
  await eventually('the first transaction is open', async () => (await admin.query(`select from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'`, [DATABASE])).rowCount === 1);

  expect(await quick.append([writeOf(theirs, 'quick')])).toEqual(new Set([1]));
  await relay.poll();
  expect([relay.seqs(0), relay.seqs(1)]).toEqual([[], [1]]);
  await holder.query('commit');
  holder.release();
  expect(await late).toEqual(new Set([0]));
  await relay.poll();
  expect([relay.seqs(0), relay.seqs(1)]).toEqual([[1], [1]]);
});

test('on one lane nobody commits a later row while an earlier one is open: who comes meanwhile waits, and then has lost', async () => {
  const [slow, quick] = [await instance(), await instance()];
  const mine = await take(slow, 2);
  await admin.query(`insert into agenda (stream, lane, open) values ('held-2', 2, false)`);
  const holder = await admin.connect();
  await holder.query(`begin`);
  await holder.query(`select from agenda where stream = 'held-2' for update`);
  const late = slow.append([writeOf(mine, 'slow', 'held-2')]);
  const waiting = (n: number) => eventually(`${n} transactions wait`, async () => (await admin.query(`select from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'`, [DATABASE])).rowCount === n);
  await waiting(1);
  // The same instance once more, and another that takes the lane.
  const twice = slow.append([writeOf(mine, 'twice')]);
  await waiting(2);
  const taken = take(quick, 2);
  await waiting(3);
  await holder.query('commit');
  holder.release();
  expect([await late, await twice]).toEqual([new Set([2]), new Set()]);
  const theirs = await taken;
  expect(theirs.nextSeq).toBe(2);
  expect(await quick.append([writeOf(theirs, 'quick')])).toEqual(new Set([2]));
  const relay = new Relay();
  await relay.poll();
  expect((relay.read.get(2) ?? []).map(({ seq, stream }) => [seq, stream])).toEqual([[1, 'slow-2-1'], [2, 'quick-2-2']]);
});

test('many writers on few lanes, with take-overs, rollbacks and transactions held open: a reader that polls all the while has read every committed row, in order and without a gap', async () => {
  const relay = new Relay();
  let writing = true;
  const polling = (async () => {
    while (writing) await relay.poll();
  })();
  const committed = new Map<string, number>();
  const script = fc.sample(fc.record({ lane: fc.constantFrom(...LANES), does: fc.constantFrom('append', 'append', 'append', 'roll back', 'under a lock'), by: fc.nat({ max: WRITERS - 1 }) }), { numRuns: WRITERS * WRITES_EACH, seed: 41 });
  const pool = await Promise.all(Array.from({ length: Math.min(WRITERS, 10) }, instance));
  const write = async (by: number): Promise<void> => {
    const store = pool[by % pool.length] ?? reader;
    for (const { lane, does } of script.filter((one) => one.by === by)) {
      const at = await take(store, lane);
      const own = writeOf(at, `w${by}`);
      let held: ReadonlySet<number> = new Set();
      if (does === 'append') held = await store.append([own]);
      else {
        const locked = await store.lock([`key-${by % 3}`]);
        if (does === 'roll back') await locked.rollback();
        else held = await locked.commit([own]);
      }
      if (held.has(lane)) committed.set(`${lane}/${at.nextSeq}`, by);
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, (_, by) => write(by)));
  writing = false;
  await polling;
  await relay.poll();
  expect(committed.size).toBeGreaterThan(WRITERS);
  for (const lane of LANES) {
    expect(relay.seqs(lane)).toEqual(relay.seqs(lane).map((_, i) => i + 1));
    const { rows } = await admin.query<{ seq: number }>('select seq from journal where lane = $1 order by seq', [lane]);
    expect(relay.seqs(lane)).toEqual(rows.map(({ seq }) => seq));
  }
  const read = [...relay.read.values()].flat().map(({ lane, seq }) => `${lane}/${seq}`);
  expect([...committed.keys()].filter((row) => !read.includes(row))).toEqual([]);
});
