import { EventEmitter } from 'node:events';
import { systemClock } from '@holdfast/runtime';
import type { ServiceLog } from '@holdfast/runtime/nest';
import type { DataSource } from 'typeorm';
import { placeOf } from '../domain/position.js';
import { rowsOf } from '../store/database.js';
import { LaneReader } from './lane-reader.js';
import { Projector, VIEW_TOPICS } from './projector.js';
import type { SetApart } from './set-apart.js';
import { addMissing, createViews, schemaOf, SHAPE } from './schema.js';

type State = 'live' | 'building' | 'retired';
interface Generation {
  readonly id: number;
  readonly state: State;
  readonly changedAt: number;
}

/** How often generations are looked at, and how long a retired one is kept for requests that still read it. Milliseconds. */
const LOOK_MS = 500;
const KEEP_RETIRED_MS = 30_000;
/** While a place is waited for, it is looked up this often, besides being told. Milliseconds. */
const WAIT_LOOK_MS = 200;

export interface ViewsOptions {
  readonly brokers: readonly string[];
  readonly sessionTimeoutMs: number;
  readonly apart: SetApart;
  readonly log: ServiceLog;
}

/**
 * The read models: one generation is shown; a new one may be made beside it from the beginning of
 * the topics, and takes its place when it has come as far.
 */
export class Views {
  readonly #readers = new Map<number, LaneReader>();
  readonly #moved = new EventEmitter().setMaxListeners(0);
  #live = 0;
  #cancel: (() => void) | null = null;
  #stopped = false;
  #looking: Promise<void> = Promise.resolve();
  lookedAt = 0;

  constructor(
    readonly database: DataSource,
    private readonly options: ViewsOptions,
  ) {}

  /** Schema of the generation that is shown. */
  get schema(): string {
    return schemaOf(this.#live);
  }

  get generation(): number {
    return this.#live;
  }

  /** Resolves when this instance reads its share of the topics. */
  async start(): Promise<void> {
    let outdated = false;
    await this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(4712)');
      const generations = await rowsOf<{ id: number; state: State; shape: number }>(tx, 'select id, state, shape from generation order by id');
      if (!generations.some(({ state }) => state === 'live')) {
        await tx.query(`insert into generation values (1, 'live', $1, $2)`, [systemClock.now(), SHAPE]);
        await createViews(tx, 1);
      }
      for (const { id, shape } of generations) if (shape < SHAPE) await addMissing(tx, id);
      outdated = generations.some(({ state, shape }) => state === 'live' && shape < SHAPE);
    });
    if (outdated) this.options.log.info({ generation: await this.beginRebuild() }, 'the read models are of an earlier version, and are made anew');
    await this.#look();
    await this.#readers.get(this.#live)?.assigned;
    this.#schedule();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#looking;
    await Promise.all([...this.#readers.values()].map((reader) => reader.stop()));
    this.#moved.emit('moved');
  }

  /** For how long the broker has not answered the reader of what is shown. Milliseconds. */
  silentMs(): number {
    return this.#readers.get(this.#live)?.silentMs(systemClock.now()) ?? 0;
  }

  /** For how long what was read could not be taken in. Milliseconds. */
  standingMs(): number {
    return this.#readers.get(this.#live)?.standingMs(systemClock.now()) ?? 0;
  }

  /** Resolves at the next news, or after a time (milliseconds). */
  news(withinMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const over = (): void => {
        cancel();
        this.#moved.off('moved', over);
        signal?.removeEventListener('abort', over);
        resolve();
      };
      const cancel = systemClock.after(withinMs, over);
      this.#moved.once('moved', over);
      signal?.addEventListener('abort', over);
    });
  }

  /** Resolves when the read models hold what stands at a place; false when they don't in time (milliseconds). */
  async passed(topic: string, lane: number, offset: number, withinMs: number): Promise<boolean> {
    const until = systemClock.now() + withinMs;
    while (!this.#stopped) {
      const [row] = await rowsOf<{ next: number }>(this.database, `select next from ${this.schema}.position where topic = $1 and lane = $2`, [topic, lane]);
      if ((row?.next ?? 0) > offset) return true;
      const left = until - systemClock.now();
      if (left <= 0) return false;
      await this.news(Math.min(left, WAIT_LOOK_MS));
    }
    return false;
  }

  /** Begins a new generation, unless one is being made. Returns which. */
  beginRebuild(): Promise<number> {
    return beginRebuild(this.database);
  }

  async #look(): Promise<void> {
    const generations = await generationsOf(this.database);
    for (const { id, state, changedAt } of generations) {
      if (state === 'live') this.#live = id;
      if (state === 'retired') await this.#retire(id, changedAt);
      else if (!this.#readers.has(id)) this.#read(id);
    }
    const building = generations.find(({ state }) => state === 'building');
    if (building !== undefined && (await this.#asFarAs(this.#live, building.id))) await this.#swap(building.id);
    this.lookedAt = systemClock.now();
  }

  #read(id: number): void {
    const reader = new LaneReader({
      ...this.options,
      groupId: `holdfast.gateway.view.${id}`,
      topics: VIEW_TOPICS,
      sink: new Projector(this.database, id, () => this.#moved.emit('moved')),
    });
    this.#readers.set(id, reader);
    void reader.start();
  }

  async #retire(id: number, since: number): Promise<void> {
    const reader = this.#readers.get(id);
    this.#readers.delete(id);
    await reader?.stop();
    if (systemClock.now() - since < KEEP_RETIRED_MS) return;
    await this.database.transaction(async (tx) => {
      await tx.query(`drop schema if exists ${schemaOf(id)} cascade`);
      await tx.query('delete from generation where id = $1', [id]);
    });
  }

  /** Whether a generation holds all that the one that is shown held a moment ago. */
  async #asFarAs(live: number, building: number): Promise<boolean> {
    const read = async (id: number): Promise<Map<string, number>> => {
      const rows = await rowsOf<{ topic: string; lane: number; next: number }>(this.database, `select topic, lane, next from ${schemaOf(id)}.position`);
      return new Map(rows.map(({ topic, lane, next }) => [placeOf(topic, lane), next]));
    };
    const shown = await read(live);
    const made = await read(building);
    return [...shown].every(([place, next]) => (made.get(place) ?? 0) >= next);
  }

  async #swap(id: number): Promise<void> {
    await this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(4712)');
      const now = systemClock.now();
      await tx.query(`update generation set state = 'retired', changed_at = $2 where state = 'live' and exists (select from generation where id = $1 and state = 'building')`, [id, now]);
      await tx.query(`update generation set state = 'live', changed_at = $2 where id = $1 and state = 'building'`, [id, now]);
    });
    this.options.log.info({ generation: id }, 'the read models were made anew, and are shown from now on');
    this.#live = id;
    this.#moved.emit('moved');
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#cancel = systemClock.after(LOOK_MS, () => {
      this.#looking = this.#look()
        .catch((error: unknown) => this.options.log.warn({ error: error instanceof Error ? error.message : String(error) }, 'generations of the read models could not be looked at'))
        .finally(() => this.#schedule());
    });
  }
}

export async function generationsOf(database: DataSource): Promise<Generation[]> {
  return rowsOf<Generation>(database, `select id, state, changed_at as "changedAt" from generation order by id`);
}

/** Begins a new generation of the read models, unless one is being made. Returns which; any running gateway makes it. */
export function beginRebuild(database: DataSource): Promise<number> {
  return database.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock(4712)');
    const [building] = await rowsOf<{ id: number }>(tx, `select id from generation where state = 'building'`);
    if (building !== undefined) return building.id;
    const [last] = await rowsOf<{ id: number }>(tx, 'select coalesce(max(id), 0) as id from generation');
    const id = (last?.id ?? 0) + 1;
    await tx.query(`insert into generation values ($1, 'building', $2, $3)`, [id, systemClock.now(), SHAPE]);
    await createViews(tx, id);
    return id;
  });
}
