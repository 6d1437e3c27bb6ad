import type { AgendaEntry, JournalRow, LaneWrite, LockedStore, Progress, Shelved, Store } from '@holdfast/runtime';
import type { Core } from './core.js';
import { Digests } from './digests.js';
import { SimFailure, type SimProcess } from './process.js';

const LOCK_TIMEOUT_MS = 5000;
const IDLE_IN_TRANSACTION_MS = 10_000;

interface Transaction {
  readonly keys: readonly string[];
  open: boolean;
}

/** A service's PostgreSQL: what is committed stays, a transaction is conditional on its lanes' epochs, rows lock. */
export class SimDatabase {
  readonly journal = new Map<number, JournalRow[]>();
  readonly progress = new Map<number, Progress>();
  readonly shared = new Map<string, string | null>();
  readonly agenda = new Map<string, AgendaEntry & { lane: number }>();
  readonly shelf = new Map<string, Shelved & { lane: number }>();
  readonly #streams = new Map<string, JournalRow[]>();
  readonly #digests = new Digests();
  readonly #locks = new Map<string, { holder: Transaction; waiting: (() => void)[] }>();
  /** Told of each transaction that is committed. */
  onCommit: (rows: readonly JournalRow[]) => void = () => undefined;
  /** Told when an instance takes lanes. */
  onTake: (lanes: readonly number[]) => void = () => undefined;

  constructor(
    readonly core: Core,
    readonly name: string,
  ) {}

  /** What it holds, in words. */
  standing(): string {
    const journal = [...this.journal].map(([lane, rows]) => [lane, this.#digests.upTo(String(lane), rows)]);
    const locks = [...this.#locks].map(([key, { holder, waiting }]) => [key, holder.keys, holder.open, waiting.length]);
    return JSON.stringify([this.name, journal, [...this.progress.values()], [...this.shared], [...this.agenda], [...this.shelf], locks]);
  }

  take(lanes: readonly number[]): Progress[] {
    this.onTake(lanes);
    return lanes.map((lane) => {
      const before = this.progress.get(lane) ?? { lane, epoch: 0, offsets: {}, seen: {}, parked: {}, last: {}, nextSeq: 1, published: 0 };
      const progress = { ...before, epoch: before.epoch + 1 };
      this.progress.set(lane, progress);
      return progress;
    });
  }

  rows(lane: number): JournalRow[] {
    let rows = this.journal.get(lane);
    if (rows === undefined) this.journal.set(lane, (rows = []));
    return rows;
  }

  stream(topic: string, stream: string): JournalRow[] {
    return this.#streams.get(`${topic}|${stream}`) ?? [];
  }

  streams(): IterableIterator<[string, JournalRow[]]> {
    return this.#streams.entries();
  }

  /** Each lane's part on condition that its epoch and next seq are as expected; `whole`: all parts or none. */
  append(writes: readonly LaneWrite[], whole: boolean): ReadonlySet<number> {
    const held = writes.filter(({ progress, expectedNextSeq }) => {
      const now = this.progress.get(progress.lane);
      return now?.epoch === progress.epoch && now.nextSeq === expectedNextSeq;
    });
    if (whole && held.length < writes.length) return new Set();
    for (const { rows } of held) for (const row of rows) this.#checkUnique(row);
    for (const write of held) this.#write(write);
    this.onCommit(held.flatMap(({ rows }) => rows));
    return new Set(held.map(({ progress }) => progress.lane));
  }

  #checkUnique(row: JournalRow): void {
    if (this.rows(row.lane).length >= row.seq) throw new SimFailure(`duplicate key: journal ${row.lane}/${row.seq}`, '23505');
    if (row.version !== null && this.stream(row.topic, row.stream).length >= row.version) throw new SimFailure(`duplicate key: stream ${row.stream} version ${row.version}`, '23505');
  }

  #write({ progress, rows, agenda, shared, shelf }: LaneWrite): void {
    this.progress.set(progress.lane, progress);
    const journal = this.rows(progress.lane);
    for (const row of rows) {
      journal.push(row);
      this.core.trace(this.name, () => `commits ${row.lane}/${row.seq} ${row.type} ${row.stream}${row.version === null ? '' : ` v${row.version}`}`);
      if (row.version === null) continue;
      const key = `${row.topic}|${row.stream}`;
      const stream = this.#streams.get(key);
      if (stream === undefined) this.#streams.set(key, [row]);
      else stream.push(row);
    }
    for (const entry of agenda) this.agenda.set(entry.stream, { ...entry, lane: progress.lane });
    for (const { key, data } of shared) this.shared.set(key, data);
    for (const one of shelf?.put ?? []) this.shelf.set(`${progress.lane}/${one.id}`, { ...one, lane: progress.lane });
    for (const id of shelf?.taken ?? []) this.shelf.delete(`${progress.lane}/${id}`);
  }

  /** Locks rows in key order; a transaction that stays idle is ended. */
  async lock(keys: readonly string[]): Promise<Transaction> {
    const transaction: Transaction = { keys: [...new Set(keys)].sort(), open: true };
    const { scheduler } = this.core;
    for (const key of transaction.keys) {
      while (this.#locks.has(key) && transaction.open) await this.#turn(key, transaction);
      if (!transaction.open) throw new SimFailure('canceling statement due to lock timeout', '55P03');
      this.#locks.set(key, { holder: transaction, waiting: [] });
    }
    scheduler.at(scheduler.now + IDLE_IN_TRANSACTION_MS, null, () => this.end(transaction), { timer: true, name: `${this.name} waits for who locked ${transaction.keys.join()}` });
    return transaction;
  }

  #turn(key: string, transaction: Transaction): Promise<void> {
    const { scheduler } = this.core;
    return new Promise((resolve) => {
      const lock = this.#locks.get(key);
      lock?.waiting.push(resolve);
      scheduler.at(scheduler.now + LOCK_TIMEOUT_MS, null, () => {
        if (lock?.waiting.includes(resolve) !== true) return;
        lock.waiting.splice(lock.waiting.indexOf(resolve), 1);
        this.end(transaction);
        resolve();
      }, { timer: true, name: `${this.name} lets ${transaction.keys.join()} wait for ${key}` });
    });
  }

  end(transaction: Transaction): void {
    transaction.open = false;
    for (const key of transaction.keys) {
      const lock = this.#locks.get(key);
      if (lock?.holder !== transaction) continue;
      this.#locks.delete(key);
      for (const wake of lock.waiting.splice(0)) wake();
    }
  }
}

const textsOf = (writes: readonly LaneWrite[]): string[] => writes.flatMap(({ rows }) => rows.map(({ data }) => data));

/** A process's connection to its database. */
export class SimStore implements Store {
  constructor(
    private readonly process: SimProcess,
    private readonly database: SimDatabase,
  ) {}

  incarnation(): Promise<string> {
    return Promise.resolve('1');
  }

  takeLanes(lanes: readonly number[]): Promise<Progress[]> {
    return this.#ask('store.take', () => this.database.take(lanes));
  }

  nextSeqs(): Promise<{ lane: number; nextSeq: number }[]> {
    return this.#ask('store.read', () => [...this.database.progress.values()].map(({ lane, nextSeq }) => ({ lane, nextSeq })));
  }

  rowsAfter(lane: number, seq: number, limit: number): Promise<JournalRow[]> {
    return this.#ask('store.read', () => this.database.rows(lane).slice(seq, seq + limit));
  }

  openStreams(lane: number): Promise<AgendaEntry[]> {
    return this.#ask('store.read', () => [...this.database.agenda.values()].filter((entry) => entry.open && entry.lane === lane).map(({ stream, open, dueAt, tag }) => ({ stream, open, dueAt, tag })));
  }

  shelved(lane: number): Promise<Shelved[]> {
    return this.#ask('store.read', () => [...this.database.shelf.values()].filter((one) => one.lane === lane));
  }

  loadStreams(topic: string, streams: readonly string[]): Promise<Map<string, JournalRow[]>> {
    return this.#ask('store.read', () => new Map(streams.flatMap((stream) => (this.database.stream(topic, stream).length === 0 ? [] : [[stream, this.database.stream(topic, stream).slice()]]))));
  }

  append(writes: readonly LaneWrite[]): Promise<ReadonlySet<number>> {
    return this.#ask('store.commit', () => this.database.append(writes, false), () => textsOf(writes));
  }

  async lock(keys: readonly string[]): Promise<LockedStore> {
    const { database, process } = this;
    const transaction = await this.#ask('store.lock', async () => {
      const got = await database.lock(keys);
      // The server notices a dead client when its connection breaks.
      if (!process.alive) database.end(got);
      else process.onDeath(() => database.end(got));
      return got;
    });
    return {
      rows: new Map(keys.map((key) => [key, database.shared.get(key) ?? null])),
      commit: (writes) =>
        this.#ask(
          'store.commit',
          () => {
            if (!transaction.open) throw new SimFailure('terminating connection due to idle-in-transaction timeout', '25P03');
            const held = database.append(writes, true);
            database.end(transaction);
            return held;
          },
          () => textsOf(writes),
        ).catch((error: unknown) => {
          // A connection that broke takes its transaction with it.
          database.end(transaction);
          throw error;
        }),
      rollback: () => {
        database.end(transaction);
        return Promise.resolve();
      },
    };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #ask<T>(site: 'store.take' | 'store.read' | 'store.lock' | 'store.commit', apply: () => T | Promise<T>, texts?: () => Iterable<string>): Promise<T> {
    return this.process.ask({ site, server: `store.${this.database.name}`, reads: site === 'store.read', apply, ...(texts === undefined ? {} : { texts }) });
  }
}
