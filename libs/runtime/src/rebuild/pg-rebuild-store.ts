import type { DataSource, QueryRunner } from 'typeorm';
import { COLUMNS, PgStore, toProgress, type RawProgress } from '../store/pg-store.js';
import type { AgendaEntry, JournalRow, Progress, SharedWrite } from '../store/types.js';
import { RebuildProblem, type Head, type RebuildStore } from './ports.js';

/** Of the session that rebuilds: a second one is refused. */
const LOCK = 4712;

/** A rebuild's side of a service's database. `close` ends the session that holds its lock. */
export class PgRebuildStore extends PgStore implements RebuildStore {
  readonly #source: DataSource;
  #session: QueryRunner | null = null;
  #epochs = new Map<number, number>();

  constructor(source: DataSource) {
    super(source);
    this.#source = source;
  }

  async begin(lanes: readonly number[]): Promise<Progress[]> {
    this.#session = this.#source.createQueryRunner();
    const [lock] = (await this.#session.query('select pg_try_advisory_lock($1) as held', [LOCK])) as { held: boolean }[];
    if (lock?.held !== true) throw new RebuildProblem('another rebuild of this database is under way: wait for its end');
    return this.#source.transaction(async (manager) => {
      await manager.query('update incarnation set rebuilding = true');
      const rows = await manager.query<RawProgress[]>(
        `insert into progress (lane, epoch) select lane, 1 from unnest($1::int[]) as wanted(lane)
         on conflict (lane) do update set epoch = progress.epoch + 1 returning *`,
        [lanes],
      );
      const progress = rows.map(toProgress);
      this.#epochs = new Map(progress.map(({ lane, epoch }) => [lane, epoch]));
      return progress;
    });
  }

  async published(lane: number, seq: number): Promise<void> {
    await this.#mine(lane, 'published = $3', [seq]);
  }

  async heads(topic: string, lane: number): Promise<Map<string, Head>> {
    const rows = await this.#source.query<(Head & { stream: string })[]>(
      `select distinct on (stream) stream, version, hash from journal where topic = $1 and lane = $2 and version is not null order by stream, version desc`,
      [topic, lane],
    );
    return new Map(rows.map(({ stream, version, hash }) => [stream, { version, hash }]));
  }

  async addRows(lane: number, rows: readonly JournalRow[]): Promise<void> {
    const last = rows.at(-1);
    if (last === undefined) return;
    const column = <Key extends keyof JournalRow>(name: Key): JournalRow[Key][] => rows.map((row) => row[name]);
    await this.#source.transaction(async (manager) => {
      // Rows and mark in one transaction, so that a rebuild that is cut here goes on here.
      await this.#mine(lane, 'next_seq = $3, published = $4', [last.seq + 1, last.seq], manager);
      await manager.query(
        `insert into journal (${COLUMNS}) select * from unnest($1::int[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[])`,
        [column('lane'), column('seq'), column('topic'), column('prev'), column('stream'), column('type'), column('version'), column('time'), column('tenant'), column('hash'), column('trace'), column('data')],
      );
    });
  }

  async differing(topic: string, heads: ReadonlyMap<string, Head>): Promise<string[]> {
    const entries = [...heads];
    const rows = await this.#source.query<{ stream: string }[]>(
      `select h.stream from unnest($2::text[], $3::bigint[], $4::text[]) as h(stream, version, hash)
       left join journal j on j.stream = h.stream and j.version = h.version and j.topic = $1
       where j.hash is distinct from h.hash limit 10`,
      [topic, entries.map(([stream]) => stream), entries.map(([, { version }]) => version), entries.map(([, { hash }]) => hash)],
    );
    return rows.map(({ stream }) => stream);
  }

  async streamsAfter(topic: string, stream: string, limit: number): Promise<string[]> {
    const rows = await this.#source.query<{ stream: string }[]>(
      `select distinct stream from journal where topic = $1 and version is not null and stream > $2 order by stream limit $3`,
      [topic, stream, limit],
    );
    return rows.map((row) => row.stream);
  }

  async clearViews(): Promise<void> {
    await this.#source.query('truncate agenda, shared');
  }

  async addViews(agenda: readonly (AgendaEntry & { readonly lane: number })[], shared: readonly SharedWrite[]): Promise<void> {
    if (agenda.length > 0) {
      await this.#source.query(
        `insert into agenda (stream, lane, open, due_at, tag) select * from unnest($1::text[], $2::int[], $3::boolean[], $4::bigint[], $5::text[])
         on conflict (stream) do update set open = excluded.open, due_at = excluded.due_at, tag = excluded.tag`,
        [agenda.map(({ stream }) => stream), agenda.map(({ lane }) => lane), agenda.map(({ open }) => open), agenda.map(({ dueAt }) => dueAt), agenda.map(({ tag }) => tag)],
      );
    }
    if (shared.length > 0) {
      await this.#source.query(
        `insert into shared (key, data) select * from unnest($1::text[], $2::text[]) on conflict (key) do update set data = excluded.data`,
        [shared.map(({ key }) => key), shared.map(({ data }) => data)],
      );
    }
  }

  async setPositions(lanes: readonly Progress[]): Promise<void> {
    await this.#source.transaction(async (manager) => {
      for (const { lane, offsets, seen, parked, last, nextSeq, published } of lanes) {
        await this.#mine(lane, 'offsets = $3, seen = $4, parked = $5, last = $6, next_seq = $7, published = $8', [JSON.stringify(offsets), JSON.stringify(seen), JSON.stringify(parked), JSON.stringify(last), nextSeq, published], manager);
      }
    });
  }

  async finish(incarnation: string): Promise<void> {
    await this.#source.query('update incarnation set id = $1, rebuilding = false', [incarnation]);
  }

  override async close(): Promise<void> {
    await this.#session?.release();
    await super.close();
  }

  async #mine(lane: number, set: string, values: readonly unknown[], by: { query<T>(text: string, values: unknown[]): Promise<T> } = this.#source): Promise<void> {
    const [rows] = await by.query<[{ lane: number }[], number]>(`update progress set ${set} where lane = $1 and epoch = $2 returning lane`, [lane, this.#epochs.get(lane), ...values]);
    if (rows.length !== 1) throw new RebuildProblem(`lane ${lane} was taken by somebody else meanwhile: stop every instance of the service, then begin again`);
  }
}
