import { encodeHeaders, type Message } from '@holdfast/protocol';
import { chainHash } from '../../src/loop/chain.js';
import type { Service } from '../../src/loop/service.js';
import type { LogRecord } from '../../src/ports.js';
import { rebuildJournal, type Head, type RebuildLog, type RebuildReport, type RebuildStore } from '../../src/rebuild/index.js';
import type { AgendaEntry, JournalRow, LaneWrite, Progress } from '../../src/store/types.js';
import { counter, Said, SAID, type Counter, type CounterEvent } from '../kit.js';

export const LANES = 2;
export const NOW = 1_700_000_000_000;
export const SENT = 'said.default';

/** A service whose streams are counters, with all that a rebuild can be told. */
export const service = (): Service<Counter, CounterEvent> => ({
  ...counter(),
  agenda: ({ open, tag }) => ({ open, tag, dueAt: tag === 'timed' ? NOW + 60_000 : null }),
  rebuild: {
    shared: (stream, { n }) => [
      { key: 'most', data: stream, rank: n },
      { key: 'all', data: String(n), rank: 0, join: (before) => String(Number(before) + n) },
    ],
    added: (before, event, after, at, now) => (event.type === 'Added' && at <= now ? [{ key: 'added', data: String(after.n - before.n), rank: 0, join: (row) => String(Number(row) + after.n - before.n) }] : []),
    answers: { Closed: (data) => {
      const { offset } = data as { offset?: number };
      return offset === undefined ? null : { topic: 'wishes', offset };
    } },
    sent: [{ topic: (name) => name === SENT, message: Said, handle: ({ envelope, data }, turn) => {
      if (turn.state(envelope.subject).n < Number((data as { what: string }).what)) turn.record(envelope.subject, 'acme', { type: 'Added', data: { n: 1 } });
    } }],
    // Reads another stream of its lane as well, which nobody has fetched.
    reopen: (stream, turn) => turn.send(SAID, stream, 'acme', Said({ what: turn.state(`${stream}-other`).open ? 'both' : 'reopened' })),
  },
});

/** A topic in memory that services have written to. */
export class Topics {
  readonly records = new Map<string, LogRecord[]>();
  readonly #heads = new Map<string, Head>();
  readonly marks = new Map<string, Map<number, number>>();
  readonly firsts = new Map<string, number>();
  readonly published: { source: string; rows: readonly JournalRow[] }[] = [];

  /** An own event, chained to the one before. */
  event(lane: number, stream: string, message: Message, seq: number, source = 'holdfast/counter/old'): LogRecord {
    const before = this.#heads.get(stream) ?? { version: 0, hash: '' };
    const version = before.version + 1;
    const value = JSON.stringify(message.data);
    const hash = chainHash(before.hash, { stream, version, type: message.type, time: NOW, tenant: 'acme', data: value });
    this.#heads.set(stream, { version, hash });
    return this.add('counter.events', lane, stream, value, encodeHeaders({ id: 'i', type: message.type, source, subject: stream, time: NOW, tenant: 'acme', lane, seq, prev: 0, version, hash }));
  }

  sent(topic: string, lane: number, stream: string, message: Message, seq: number, source = 'holdfast/counter/old'): LogRecord {
    return this.add(topic, lane, stream, JSON.stringify(message.data), encodeHeaders({ id: 'i', type: message.type, source, subject: stream, time: NOW, tenant: 'acme', lane, seq, prev: 0 }));
  }

  add(topic: string, lane: number, key: string, value: string, headers: Record<string, string>): LogRecord {
    const records = this.records.get(topic) ?? [];
    this.records.set(topic, records);
    const record = { topic, lane, offset: records.filter((other) => other.lane === lane).length, key, value, headers, time: NOW };
    records.push(record);
    return record;
  }

  log(): RebuildLog {
    return {
      read: async (topic, onRecords) => {
        for (const record of this.records.get(topic) ?? []) await onRecords([record]);
      },
      topics: () => Promise.resolve([...this.records.keys()]),
      bounds: (topic) =>
        Promise.resolve(new Map(Array.from({ length: LANES }, (_, lane) => [lane, { first: this.firsts.get(topic) ?? 0, next: (this.firsts.get(topic) ?? 0) + (this.records.get(topic) ?? []).filter((record) => record.lane === lane).length }]))),
      committed: () => Promise.resolve(this.marks),
      publish: (rows, source) => {
        this.published.push({ source, rows });
        return Promise.resolve();
      },
    };
  }
}

/** A database in memory, with what a rebuild asks of it. */
export class Database implements RebuildStore {
  rows: JournalRow[] = [];
  progress = new Map<number, Progress>();
  agenda = new Map<string, AgendaEntry & { lane: number }>();
  shared = new Map<string, string>();
  id = 'first';
  rebuilding = false;
  /** Fails after so many writes, as a process that dies. */
  writesLeft = Infinity;

  incarnation = () => Promise.resolve(this.id);
  begin(lanes: readonly number[]): Promise<Progress[]> {
    this.rebuilding = true;
    for (const lane of lanes) {
      const before = this.progress.get(lane) ?? { lane, epoch: 0, offsets: {}, seen: {}, parked: {}, last: {}, nextSeq: 1, published: 0 };
      this.progress.set(lane, { ...before, epoch: before.epoch + 1 });
    }
    return Promise.resolve([...this.progress.values()]);
  }
  rowsAfter(lane: number, seq: number, limit: number): Promise<JournalRow[]> {
    return Promise.resolve(this.rows.filter((row) => row.lane === lane && row.seq > seq).sort((a, b) => a.seq - b.seq).slice(0, limit));
  }
  published(lane: number, seq: number): Promise<void> {
    return this.#change(lane, { published: seq });
  }
  heads(topic: string, lane: number): Promise<Map<string, Head>> {
    const heads = new Map<string, Head>();
    for (const row of this.#own(topic)) if (row.lane === lane && (heads.get(row.stream)?.version ?? 0) < row.version) heads.set(row.stream, { version: row.version, hash: row.hash });
    return Promise.resolve(heads);
  }
  addRows(lane: number, rows: readonly JournalRow[]): Promise<void> {
    this.#write();
    for (const row of rows) if (this.rows.some((other) => other.lane === row.lane && other.seq === row.seq)) throw new Error(`row ${row.lane}/${row.seq} is there twice`);
    this.rows.push(...rows);
    const last = rows.at(-1)?.seq ?? 0;
    return this.#change(lane, { nextSeq: last + 1, published: last });
  }
  differing(topic: string, heads: ReadonlyMap<string, Head>): Promise<string[]> {
    return Promise.resolve([...heads].filter(([stream, { version, hash }]) => this.#own(topic).find((row) => row.stream === stream && row.version === version)?.hash !== hash).map(([stream]) => stream));
  }
  loadStreams(topic: string, streams: readonly string[]): Promise<Map<string, JournalRow[]>> {
    return Promise.resolve(new Map(streams.map((stream) => [stream, this.#own(topic).filter((row) => row.stream === stream).sort((a, b) => a.version - b.version)])));
  }
  streamsAfter(topic: string, stream: string, limit: number): Promise<string[]> {
    return Promise.resolve([...new Set(this.#own(topic).map((row) => row.stream))].sort().filter((name) => name > stream).slice(0, limit));
  }
  clearViews(): Promise<void> {
    this.#write();
    this.agenda.clear();
    this.shared.clear();
    return Promise.resolve();
  }
  addViews(agenda: readonly (AgendaEntry & { lane: number })[], shared: readonly { key: string; data: string }[]): Promise<void> {
    for (const entry of agenda) this.agenda.set(entry.stream, entry);
    for (const { key, data } of shared) this.shared.set(key, data);
    return Promise.resolve();
  }
  async setPositions(all: readonly Progress[]): Promise<void> {
    this.#write();
    for (const progress of all) await this.#change(progress.lane, progress);
  }
  append(writes: readonly LaneWrite[]): Promise<ReadonlySet<number>> {
    this.#write();
    for (const { progress, rows, expectedNextSeq } of writes) {
      if (this.progress.get(progress.lane)?.nextSeq !== expectedNextSeq) return Promise.resolve(new Set());
      this.rows.push(...rows);
      this.progress.set(progress.lane, progress);
    }
    return Promise.resolve(new Set(writes.map(({ progress }) => progress.lane)));
  }
  finish(incarnation: string): Promise<void> {
    this.#write();
    this.id = incarnation;
    this.rebuilding = false;
    return Promise.resolve();
  }

  #own(topic: string): (JournalRow & { version: number; hash: string })[] {
    return this.rows.flatMap((row) => (row.topic === topic && row.version !== null && row.hash !== null ? [{ ...row, version: row.version, hash: row.hash }] : []));
  }
  #change(lane: number, to: Partial<Progress>): Promise<void> {
    const before = this.progress.get(lane);
    if (before !== undefined) this.progress.set(lane, { ...before, ...to });
    return Promise.resolve();
  }
  #write(): void {
    this.writesLeft -= 1;
    if (this.writesLeft < 0) throw new Error('killed');
  }
}

let lives = 0;
export const rebuild = (topics: Topics, database: Database, skipMissing = false, signal?: AbortSignal): Promise<RebuildReport> =>
  rebuildJournal({
    service: service(),
    store: database,
    log: topics.log(),
    clock: { now: () => NOW, after: () => () => undefined, soon: () => undefined },
    random: { next: () => 0.5, uuid: () => `life-${(lives += 1)}` },
    lanes: LANES,
    skipMissing,
    signal,
    onProgress: () => undefined,
  });

/** What the journal says of its own streams, without where it stands. */
export const told = (database: Database): string[] => database.rows.filter(({ version }) => version !== null).map(({ lane, stream, version, type }) => `${lane} ${stream} ${version ?? 0} ${type}`).sort();
