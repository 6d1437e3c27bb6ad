import type { DataSource, QueryRunner } from 'typeorm';
import type { PoolClient } from 'pg';
import { fromShelf, toShelf } from './shelf-text.js';
import { JournalReplaced, type AgendaEntry, type JournalRow, type LaneWrite, type LockedStore, type Progress, type Shelved, type Store, type StreamHead } from './types.js';

export const COLUMNS = 'lane, seq, topic, prev, stream, type, version, time, tenant, hash, trace, data';

/* Only for the journal that this process has opened: one that was rebuilt meanwhile has another name. */
const TAKE = `
  insert into progress (lane, epoch) select lane, 1 from unnest($1::int[]) as wanted(lane)
  where exists (select from incarnation where id = $2 and not rebuilding)
  on conflict (lane) do update set epoch = progress.epoch + 1
  returning *`;

/*
 * One round trip. `held` locks the progress rows whose epoch and next seq are still ours; all the
 * rest joins with it, so a lane that was lost loses its part and no other. After a commit whose
 * answer was lost, next_seq differs on the second try, and the lane is read anew.
 */
const append = (besides: string): string => `
  with held as (
    select p.lane from progress p
    join unnest($1::int[], $2::bigint[], $3::bigint[]) as mine(lane, epoch, next_seq)
      on p.lane = mine.lane and p.epoch = mine.epoch and p.next_seq = mine.next_seq
    for update of p
  ), moved as (
    update progress p
    set offsets = u.offsets, seen = u.seen, parked = u.parked, last = u.last, next_seq = u.next_seq, published = u.published
    from unnest($1::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[])
      as u(lane, offsets, seen, parked, last, next_seq, published)
    join held on held.lane = u.lane
    where p.lane = u.lane
  ), written as (
    insert into journal (${COLUMNS})
    select r.lane, r.seq, r.topic, r.prev, r.stream, r.type, r.version, r.time, r.tenant, r.hash, r.trace, r.data
    from unnest($10::int[], $11::bigint[], $12::text[], $13::bigint[], $14::text[], $15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::text[], $21::text[])
      as r(${COLUMNS})
    join held on held.lane = r.lane
  ), noted as (
    insert into agenda (stream, lane, open, due_at, tag)
    select a.stream, a.lane, a.open, a.due_at, a.tag
    from unnest($22::text[], $23::int[], $24::boolean[], $25::bigint[], $26::text[]) as a(stream, lane, open, due_at, tag)
    join held on held.lane = a.lane
    on conflict (stream) do update set open = excluded.open, due_at = excluded.due_at, tag = excluded.tag
  ), spanned as (
    update shared s set data = w.data
    from unnest($27::text[], $28::int[], $29::text[]) as w(key, lane, data)
    join held on held.lane = w.lane
    where s.key = w.key
  )${besides}
  select lane from held`;

const APPEND = append('');
/* Hardly ever anything of a shelf changes: most transactions are spared it. */
const APPEND_WITH_SHELF = append(`, kept as (
    insert into shelf (lane, id, stream, record)
    select k.lane, k.id, k.stream, k.record
    from unnest($30::int[], $31::bigint[], $32::text[], $33::text[]) as k(lane, id, stream, record)
    join held on held.lane = k.lane
  ), taken as (
    delete from shelf s
    using unnest($34::int[], $35::bigint[]) as t(lane, id)
    join held on held.lane = t.lane
    where s.lane = t.lane and s.id = t.id
  )`);

const LACKS = `
  select h.n::int as n from unnest($2::text[], $3::bigint[], $4::text[]) with ordinality as h(stream, version, hash, n)
  left join journal j on j.stream = h.stream and j.version = h.version and j.topic = $1
  where j.hash is distinct from h.hash`;

const LOCK = `select key, data from shared where key = any($1::text[]) order by key for update`;
const ENSURE = `insert into shared (key) select unnest($1::text[]) on conflict do nothing`;

/** A service's journal in PostgreSQL, reached through TypeORM's data source. */
export class PgStore implements Store {
  readonly #source: DataSource;
  #incarnation: string | null = null;

  constructor(source: DataSource) {
    this.#source = source;
  }

  async incarnation(): Promise<string> {
    if (this.#incarnation !== null) return this.#incarnation;
    const rows = await this.#source.query<{ id: string }[]>('select id from incarnation');
    const id = rows[0]?.id;
    if (id === undefined) throw new Error('the table incarnation is empty: this database was not set up by `holdfast migrate`');
    this.#incarnation = id;
    return id;
  }

  async rebuilding(): Promise<boolean> {
    const rows = await this.#source.query<{ rebuilding: boolean }[]>('select rebuilding from incarnation');
    return rows[0]?.rebuilding === true;
  }

  async lacks(topic: string, heads: readonly StreamHead[]): Promise<StreamHead[]> {
    const rows = await this.#query<{ n: number }>('lacks', LACKS, [topic, heads.map(({ stream }) => stream), heads.map(({ version }) => version), heads.map(({ hash }) => hash)]);
    return rows.flatMap(({ n }) => heads[n - 1] ?? []);
  }

  async takeLanes(lanes: readonly number[]): Promise<Progress[]> {
    // Ordered, so that two instances that take lanes at once can't wait for each other.
    const rows = await this.#query<RawProgress>('take', TAKE, [[...lanes].sort((a, b) => a - b), await this.incarnation()]);
    if (rows.length < lanes.length) throw new JournalReplaced();
    return rows.map(toProgress);
  }

  nextSeqs(): Promise<{ lane: number; nextSeq: number }[]> {
    return this.#query('next-seqs', 'select lane, next_seq as "nextSeq" from progress', []);
  }

  rowsAfter(lane: number, seq: number, limit: number): Promise<JournalRow[]> {
    return this.#query('rows-after', `select ${COLUMNS} from journal where lane = $1 and seq > $2 order by seq limit $3`, [lane, seq, limit]);
  }

  openStreams(lane: number): Promise<AgendaEntry[]> {
    return this.#query('open-streams', `select stream, open, due_at as "dueAt", tag from agenda where lane = $1 and open`, [lane]);
  }

  async shelved(lane: number): Promise<Shelved[]> {
    const rows = await this.#query<{ id: number; stream: string; record: string }>('shelved', 'select id, stream, record from shelf where lane = $1 order by id', [lane]);
    return rows.map(({ record, ...row }) => ({ ...row, record: fromShelf(record) }));
  }

  async loadStreams(topic: string, streams: readonly string[]): Promise<Map<string, JournalRow[]>> {
    const rows = await this.#query<JournalRow>(
      'load-streams',
      `select ${COLUMNS} from journal where stream = any($1::text[]) and version is not null and topic = $2 order by stream, version`,
      [streams, topic],
    );
    const result = new Map<string, JournalRow[]>();
    for (const row of rows) {
      const stream = result.get(row.stream);
      if (stream === undefined) result.set(row.stream, [row]);
      else stream.push(row);
    }
    return result;
  }

  async append(writes: readonly LaneWrite[]): Promise<ReadonlySet<number>> {
    const { name, text, values } = appending(writes);
    return lanesOf(await this.#query(name, text, values));
  }

  async lock(keys: readonly string[]): Promise<LockedStore> {
    const runner = this.#source.createQueryRunner();
    const sorted = [...new Set(keys)].sort();
    try {
      const client = (await runner.connect()) as PoolClient;
      await client.query('begin');
      const locked = new LockedPgStore(runner, client);
      try {
        await client.query(ENSURE, [sorted]);
        const found = await client.query<{ key: string; data: string | null }>(LOCK, [sorted]);
        for (const { key, data } of found.rows) locked.rows.set(key, data);
        return locked;
      } catch (error) {
        await client.query('rollback').catch(() => undefined);
        throw error;
      }
    } catch (error) {
      await runner.release();
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#source.destroy();
  }

  async #query<Row>(name: string, text: string, values: unknown[]): Promise<Row[]> {
    const runner = this.#source.createQueryRunner();
    try {
      // TypeORM's own query has no prepared statements; the driver's client has.
      const client = (await runner.connect()) as PoolClient;
      const { rows } = await client.query<Row & Record<string, unknown>>({ name, text, values });
      return rows;
    } finally {
      await runner.release();
    }
  }
}

class LockedPgStore implements LockedStore {
  readonly rows = new Map<string, string | null>();
  readonly #runner: QueryRunner;
  readonly #client: PoolClient;

  constructor(runner: QueryRunner, client: PoolClient) {
    this.#runner = runner;
    this.#client = client;
  }

  async commit(writes: readonly LaneWrite[]): Promise<ReadonlySet<number>> {
    try {
      const { text, values } = appending(writes);
      const { rows } = await this.#client.query<{ lane: number }>(text, values);
      const whole = rows.length === writes.length;
      await this.#client.query(whole ? 'commit' : 'rollback');
      return whole ? lanesOf(rows) : new Set();
    } catch (error) {
      await this.#client.query('rollback').catch(() => undefined);
      throw error;
    } finally {
      await this.#runner.release();
    }
  }

  async rollback(): Promise<void> {
    try {
      // A broken connection has no transaction left to end; the pool drops it on release.
      await this.#client.query('rollback').catch(() => undefined);
    } finally {
      await this.#runner.release();
    }
  }
}

const lanesOf = (rows: readonly { lane: number }[]): ReadonlySet<number> => new Set(rows.map(({ lane }) => lane));

function appending(writes: readonly LaneWrite[]): { readonly name: string; readonly text: string; readonly values: unknown[] } {
  const values = parameters(writes);
  if (writes.every(({ shelf }) => shelf === undefined)) return { name: 'append', text: APPEND, values };
  const put = writes.flatMap(({ progress: { lane }, shelf }) => (shelf?.put ?? []).map((one) => ({ lane, ...one })));
  const taken = writes.flatMap(({ progress: { lane }, shelf }) => (shelf?.taken ?? []).map((id) => ({ lane, id })));
  values.push(
    put.map(({ lane }) => lane),
    put.map(({ id }) => id),
    put.map(({ stream }) => stream),
    put.map(({ record }) => toShelf(record)),
    taken.map(({ lane }) => lane),
    taken.map(({ id }) => id),
  );
  return { name: 'append-with-shelf', text: APPEND_WITH_SHELF, values };
}

function parameters(writes: readonly LaneWrite[]): unknown[] {
  const p = writes.map(({ progress }) => progress);
  const rows = writes.flatMap((write) => write.rows);
  const agenda = writes.flatMap((write) => write.agenda.map((entry) => ({ ...entry, lane: write.progress.lane })));
  // Of two lanes that write one row the later has the last word: an update takes any one of them.
  const shared = [...new Map(writes.flatMap((write) => write.shared.map((entry) => [entry.key, { ...entry, lane: write.progress.lane }]))).values()];
  return [
    p.map(({ lane }) => lane),
    p.map(({ epoch }) => epoch),
    writes.map(({ expectedNextSeq }) => expectedNextSeq),
    p.map(({ offsets }) => JSON.stringify(offsets)),
    p.map(({ seen }) => JSON.stringify(seen)),
    p.map(({ parked }) => JSON.stringify(parked)),
    p.map(({ last }) => JSON.stringify(last)),
    p.map(({ nextSeq }) => nextSeq),
    p.map(({ published }) => published),
    rows.map(({ lane }) => lane),
    rows.map(({ seq }) => seq),
    rows.map(({ topic }) => topic),
    rows.map(({ prev }) => prev),
    rows.map(({ stream }) => stream),
    rows.map(({ type }) => type),
    rows.map(({ version }) => version),
    rows.map(({ time }) => time),
    rows.map(({ tenant }) => tenant),
    rows.map(({ hash }) => hash),
    rows.map(({ trace }) => trace),
    rows.map(({ data }) => data),
    agenda.map(({ stream }) => stream),
    agenda.map(({ lane }) => lane),
    agenda.map(({ open }) => open),
    agenda.map(({ dueAt }) => dueAt),
    agenda.map(({ tag }) => tag),
    shared.map(({ key }) => key),
    shared.map(({ lane }) => lane),
    shared.map(({ data }) => data),
  ];
}

export interface RawProgress {
  readonly lane: number;
  readonly epoch: number;
  readonly offsets: string;
  readonly seen: string;
  readonly parked: string;
  readonly last: string;
  readonly next_seq: number;
  readonly published: number;
}

const counters = (text: string): Record<string, number> => JSON.parse(text) as Record<string, number>;

export const toProgress = (raw: RawProgress): Progress => ({
  lane: raw.lane,
  epoch: raw.epoch,
  offsets: counters(raw.offsets),
  seen: counters(raw.seen),
  parked: counters(raw.parked),
  last: counters(raw.last),
  nextSeq: raw.next_seq,
  published: raw.published,
});
