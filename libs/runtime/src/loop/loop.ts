import { serviceSource, type Message } from '@holdfast/protocol';
import { crashPoint, inHand } from '../crash-point.js';
import type { Assignment, LaneGroup, LogRecord } from '../ports.js';
import { JournalReplaced, type LaneWrite, type LockedStore } from '../store/types.js';
import { pause } from '../system.js';
import { collect } from './collect.js';
import { insist, RETRY_FIRST_MS, RETRY_MOST_MS } from './insist.js';
import { sleeps, type Lane } from './lane.js';
import { apart } from './apart.js';
import { Publisher } from './publisher.js';
import { Pace } from './pace.js';
import type { LoopHealth, LoopOptions } from './options.js';
import { isReadingAlone, ReadOn } from './read-on.js';
import { Rest } from './rest.js';
import { factsOf } from './turn-facts.js';
import type { Cached } from './streams.js';
import { blameOf, JournalBehind, mend, message } from './faults.js';
import { laneFrom } from './lane-from.js';
import { Telling } from './telling.js';
import { decideTurn, type Decided, type LaneWork } from './turn.js';
import { Inspector } from './inbound.js';

export type { LoopHealth, LoopOptions };

/** Arrived and not yet taken; beyond it fetching is held back. */
const INBOX_MAX = 16_000;
/** How long a stopping instance waits for its last rows to be published. */
const FLUSH_MS = 5000;
const QUIET_CLOSINGS_MAX = 500;
/** At this pace timers are taken whose time was missed: below what an instance can do, so that new work goes on beside them. */
const OVERDUE_PER_SECOND = 200;

/**
 * The loop of one instance: take everything that has arrived on its lanes and every timer now due,
 * load the states concerned, decide, write journal and progress in one transaction, publish, go on.
 */
export class Loop<State, Event extends Message> {
  readonly counts = new Map<string, number>();
  readonly #options: LoopOptions<State, Event>;
  readonly #inspector: Inspector<State, Event>;
  readonly #lanes = new Map<number, Lane<State>>();
  #group: LaneGroup | null = null;
  #publisher: Publisher | null = null;
  #stopping = false;
  #running: Promise<void> | null = null;
  #wake: () => void = () => undefined;
  #waiting = 0;
  #roomWaiters: (() => void)[] = [];
  #busySince: number | null = null;
  /** Assignments are worked off one after the other, the newest last. */
  #assigning: Promise<void> = Promise.resolve();
  #assignments = 0;
  /** Lanes of the newest assignment. */
  #assignedLanes: readonly number[] = [];
  readonly #telling: Telling;
  #heardAt: number;
  /** Furthest `nextSeq` that this instance has seen of each lane: a database that has less went back in time. */
  readonly #furthest = new Map<number, number>();
  readonly #pace: Pace;
  readonly #rest = new Rest();
  #turns = 0;
  readonly #readOn: ReadOn;

  constructor(options: LoopOptions<State, Event>) {
    this.#options = options;
    this.#heardAt = options.clock.now();
    this.#readOn = new ReadOn(this.#heardAt);
    this.#inspector = new Inspector(options.service, options.laneOf);
    this.#telling = new Telling(options.clock, (end) => this.count('progress told', end));
    this.#pace = new Pace(options.overduePerSecond ?? OVERDUE_PER_SECOND);
  }

  async start(): Promise<void> {
    const { service, store, writer, clock, onAlarm } = this.#options;
    const source = serviceSource(service.name, await store.incarnation());
    this.#publisher = new Publisher({
      service: service.name,
      source,
      writer,
      clock,
      onPublished: (lane, seq) => {
        const held = this.#lanes.get(lane);
        if (held !== undefined && seq > held.published) held.published = seq;
      },
      onTrouble: (error) => onAlarm('publish', { error: error.message }),
      repair: this.#options.repair,
    });
    this.#group = this.#options.join({
      onAssigned: (assignment) => this.#assigned(assignment),
      onRevoked: () => this.#telling.hold(null), // Every write is conditional on the epoch; what is decided may still be written.
      onRecords: (records) => this.#arrived(records),
      onTrouble: (error) => this.#options.onAlarm('group', { error: error.message }),
      onCrash: (error) => this.#options.onFatal(error),
    });
    this.#running = this.#run();
    this.#running.catch((error: unknown) => this.#options.onFatal(error instanceof Error ? error : new Error(String(error))));
    await this.#group.start();
  }

  /** Stops fetching and leaves the group, ends the turn in hand, publishes what is committed. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#assignments += 1;
    // No turn comes any more that would let a held-back delivery go, and leaving the group waits for it.
    this.#makeRoom();
    await this.#group?.stop();
    this.#wake();
    await this.#running;
    await this.#publisher?.flush(FLUSH_MS);
    await this.#writeQuietly();
    this.#publisher?.close();
  }

  health(): LoopHealth {
    const now = this.#options.clock.now();
    const since = this.#publisher?.waitingSince() ?? null;
    const lanes = [...this.#lanes.values()];
    return {
      lanes: lanes.length,
      halted: lanes.flatMap(({ id, halted }) => (halted === null ? [] : [{ lane: id, reason: halted }])),
      shelved: lanes.flatMap(({ shelf }) => shelf.streams()),
      unpublishedMs: since === null ? 0 : now - since,
      stuckMs: this.#busySince === null ? 0 : now - this.#busySince,
      waiting: this.#waiting,
      silentMs: this.#silentMs(now),
      unpublishedRows: this.#publisher?.waiting() ?? 0,
      openStreams: lanes.reduce((sum, { agenda }) => sum + agenda.openCount(), 0),
    };
  }

  /** How far each lane has been decided, by topic. Halted lanes stand where they stand. */
  reached(): ReadonlyMap<number, Readonly<Record<string, number>>> {
    return new Map([...this.#lanes.values()].map(({ id, progress }) => [id, progress.offsets]));
  }

  /** Since when the oldest row that is not published stands in the journal, epoch milliseconds; null when there is none. */
  unpublishedSince(): number | null {
    return this.#publisher?.oldestRowAt() ?? null;
  }

  #silentMs(now: number): number {
    const age = this.#group?.heartbeatAgeMs() ?? null;
    if (age !== null) this.#heardAt = Math.max(this.#heardAt, now - age);
    return Math.max(0, now - this.#heardAt);
  }

  /** A stream's state as it stands in this instance's memory; undefined when it isn't held. */
  peek(stream: string): Cached<State> | undefined {
    return [...this.#lanes.values()].find((lane) => !lane.gone && lane.stream(stream) !== undefined)?.stream(stream);
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      this.#silentMs(this.#options.clock.now());
      this.#telling.tell(this.#group, [...this.#lanes.values()].filter(({ id }) => this.#assignedLanes.includes(id)));
      const works = this.#collect();
      if (works.length === 0) {
        this.#busySince = null;
        if ((await this.#idle()) === 'quiet') await this.#writeQuietly();
        continue;
      }
      const { clock } = this.#options;
      const began = clock.now();
      this.#busySince = began;
      const decided = await this.#turn(works);
      this.#pace.turned(clock.now(), Math.max(0, clock.now() - began));
      const restMs = this.#rest.after(works.reduce((sum, { records }) => sum + records.length, 0), decided);
      if (restMs > 0) await pause(clock, restMs);
      if (this.#readOn.dueAt(false) <= clock.now()) await this.#writeQuietly();
    }
  }

  /** Waits for something to do; `quiet` when marks have waited long enough for a write of their own. */
  #idle(): Promise<'work' | 'quiet'> {
    const { clock } = this.#options;
    const now = clock.now();
    const unwritten = [...this.#lanes.values()].some((lane) => !lane.gone && (lane.published !== lane.progress.published || lane.agenda.hasClosing()));
    const quietAt = this.#readOn.dueAt(unwritten);
    let overdue = 0;
    let alarmAt = Infinity;
    for (const lane of this.#lanes.values()) {
      if (lane.halted !== null || !lane.caughtUp()) continue;
      overdue += lane.agenda.overdue(now);
      alarmAt = Math.min(alarmAt, lane.agenda.nextAt() ?? Infinity);
    }
    if (overdue > 0) alarmAt = Math.min(alarmAt, this.#pace.readyAt(overdue, now));
    return new Promise((resolve) => {
      const at = Math.min(quietAt, alarmAt, now + 1000);
      const cancel = clock.after(Math.max(0, at - now), () => resolve(quietAt <= clock.now() ? 'quiet' : 'work'));
      this.#wake = () => {
        cancel();
        resolve('work');
      };
    });
  }

  #collect(): LaneWork<State>[] {
    this.#turns += 1;
    const lanes = [...this.#lanes.values()].filter(({ halted, gone }) => halted === null && !gone);
    const works = collect(lanes, this.#pace, this.#options.clock.now(), this.#turns);
    this.#waiting -= works.reduce((sum, { records }) => sum + records.length, 0);
    if (this.#waiting < INBOX_MAX) this.#makeRoom();
    return works;
  }

  #makeRoom(): void {
    for (const release of this.#roomWaiters.splice(0)) release();
  }

  /** Returns whether it came to anything. */
  async #turn(works: readonly LaneWork<State>[]): Promise<boolean> {
    try {
      return await this.#once(works);
    } catch (error) {
      if (blameOf(error) === null) throw error;
      const next = apart(works, error, this.#options.service.inbound);
      if (next.kind === 'stop') this.#halt(next.work.lane, next.reason);
      else for (const part of next.turns) await this.#further(part);
      return true;
    }
  }

  async #further(part: readonly LaneWork<State>[]): Promise<void> {
    if (this.#stopping) return;
    // It goes on, if in small steps.
    this.#busySince = this.#options.clock.now();
    await this.#turn(part.filter(({ lane }) => lane.halted === null && !lane.gone));
  }

  async #once(works: readonly LaneWork<State>[]): Promise<boolean> {
    const { service, store, clock, random, observer } = this.#options;
    const startedAt = clock.now();
    let locked: LockedStore | null = null;
    const turn = await this.#insist('load', () =>
      decideTurn(
        {
          service,
          inspector: this.#inspector,
          clock,
          random,
          load: (streams) => store.loadStreams(service.ownTopic, streams),
          lock: async (keys) => {
            await locked?.rollback();
            locked = null;
            locked = await store.lock(keys);
            return locked.rows;
          },
          observer,
          halt: (lane, reason) => this.#halt(lane, reason),
        },
        works,
      ).catch(async (error: unknown) => {
        await (locked as LockedStore | null)?.rollback().catch(() => undefined);
        locked = null;
        throw error;
      }),
    );
    if (turn === null || turn.length === 0) {
      await (locked as LockedStore | null)?.rollback();
      return true;
    }
    const decidedAt = clock.now();
    const writes = turn.map(({ write }) => write);
    // A turn that decided nothing is no boundary worth dying at.
    const decided = writes.some(({ rows }) => rows.length > 0);
    const about = (): string[] => writes.flatMap(({ rows }) => rows.flatMap(({ stream, type, data }) => inHand(stream, type, data)));
    if (decided) crashPoint(`${service.name}.before-commit`, about);
    const isNothing = locked === null && turn.every(({ lane, write, halted }) => halted === null && isReadingAlone(write, lane));
    // Such marks go with the lane's next row, or wait as others do: much of what a service reads is another's.
    const held = isNothing ? new Set(turn.map(({ lane }) => lane.id)) : await this.#write(turn, writes, locked);
    const committedAt = clock.now();
    if (decided) crashPoint(`${service.name}.after-commit`, about);
    for (const { lane, write, apply, halted, counted } of turn) {
      if (!held.has(lane.id)) {
        this.#lost(lane);
        continue;
      }
      this.#furthest.set(lane.id, write.progress.nextSeq);
      for (const { what, because, by } of counted) this.count(what, because, by);
      // Given up while this was written: rows before these were dropped, and whoever takes the lane publishes all of them from the journal.
      if (lane.gone) continue;
      apply();
      if (isNothing) this.#readOn.note(lane.id, committedAt);
      this.#publisher?.enqueue(write.rows);
      if (halted !== null) this.#halt(lane, halted);
      lane.trim((state, id) => {
        const agenda = service.agenda(state, id);
        return agenda.open && !sleeps(agenda);
      });
    }
    for (const { lane, failed } of turn) if (held.has(lane.id)) for (const { stream, error, ...each } of failed) this.#options.onAlarm('timer failed', { lane: lane.id, run: stream, error: `${error.name}: ${error.message}`, stack: error.stack, ...each });
    for (const { lane } of works) for (const { stream, reason } of lane.shelf.takeNews()) this.#options.onAlarm('run shelved', { lane: lane.id, run: stream, reason });
    observer?.onTurn(factsOf({ startedAt, decidedAt, committedAt }, works, turn, held));
    return !isNothing;
  }

  /** @throws what {@link blameOf} blames on somebody */
  async #write(turn: readonly Decided<State>[], writes: readonly LaneWrite[], locked: LockedStore | null): Promise<ReadonlySet<number>> {
    try {
      const held = locked === null ? await this.#insist('commit', () => this.#options.store.append(writes)) : await locked.commit(writes);
      return this.#readOn.written(held ?? new Set(), this.#options.clock.now());
    } catch (error) {
      if (locked !== null) this.#options.onAlarm('database', { error: message(error) });
      // The locks are gone, and with them what was decided under them: the lanes are read anew.
      if (blameOf(error) === null) return new Set();
      for (const { discard } of turn) discard();
      throw error;
    }
  }

  #insist<T>(during: string, work: () => Promise<T>): Promise<T | null> {
    return insist(work, this.#options.clock, { isStopping: () => this.#stopping, onError: (error) => this.#options.onAlarm('database', { during, error: message(error) }) });
  }

  /** Writes how far publishing has come and which streams are at rest, for lanes that have nothing else to write. */
  async #writeQuietly(): Promise<void> {
    const now = this.#options.clock.now();
    const quiet = [...this.#lanes.values()].filter(({ gone }) => !gone).map((lane) => ({ lane, agenda: lane.agenda.takeClosed(now, QUIET_CLOSINGS_MAX) }));
    const news = quiet.filter(({ lane, agenda }) => this.#readOn.has(lane.id) || lane.published !== lane.progress.published || agenda.length > 0);
    this.#readOn.wait(now);
    if (news.length === 0) return;
    const lanes = news.map(({ lane }) => lane);
    const writes = news.map(({ lane, agenda }) => ({
      progress: { ...lane.progress, published: lane.published },
      expectedNextSeq: lane.progress.nextSeq,
      rows: [],
      agenda,
      shared: [],
    }));
    try {
      const held = this.#readOn.written(await this.#options.store.append(writes), now);
      for (const [index, lane] of lanes.entries()) {
        const write = writes[index];
        if (write === undefined || !held.has(lane.id)) this.#lost(lane);
        else {
          lane.progress = write.progress;
          lane.agenda.written(write.agenda);
        }
      }
    } catch (error) {
      this.#options.onAlarm('database', { during: 'mark', error: message(error) });
    }
  }

  #arrived(records: readonly LogRecord[]): Promise<void> {
    const first = records[0];
    const lane = first === undefined ? undefined : this.#lanes.get(first.lane);
    if (this.#stopping || first === undefined || lane === undefined || !lane.isOpen || lane.gone || lane.halted !== null) return Promise.resolve();
    for (const record of records) {
      const expected = lane.arriving.get(record.topic) ?? 0;
      if (record.offset < expected) continue;
      if (record.offset > expected) {
        this.#halt(lane, `offsets ${expected} to ${record.offset - 1} of ${record.topic}/${lane.id} are gone: ${mend(this.#options.service.name)}`);
        return Promise.resolve();
      }
      lane.arriving.set(record.topic, record.offset + 1);
      lane.inbox.push(record);
      this.#waiting += 1;
    }
    this.#wake();
    // Fetched again once a turn has taken these: one fetch then brings all that arrived meanwhile.
    return new Promise((resolve) => this.#roomWaiters.push(resolve));
  }

  #assigned(assignment: Assignment): void {
    this.#assignments += 1;
    this.#assignedLanes = assignment.lanes;
    this.#telling.hold(assignment.membership);
    const number = this.#assignments;
    this.#assigning = this.#assigning.then(() => this.#take(assignment, number)).catch((error: unknown) => this.#options.onFatal(error instanceof Error ? error : new Error(String(error))));
  }

  async #take(assignment: Assignment, number: number): Promise<void> {
    const dropped = [...this.#lanes.values()].filter(({ id, gone }) => gone || !assignment.lanes.includes(id) || !assignment.retained.includes(id));
    for (const lane of dropped) this.#forget(lane);
    const kept = [...this.#lanes.values()];
    this.#open(kept);
    await this.#takeRetrying(
      assignment.lanes.filter((id) => !this.#lanes.has(id)),
      number,
    );
  }

  /** Takes lanes over; keeps trying while the assignment stands. */
  async #takeRetrying(wanted: readonly number[], number: number): Promise<void> {
    let retryMs = RETRY_FIRST_MS;
    while (wanted.length > 0 && number === this.#assignments && !this.#stopping) {
      try {
        this.#open(await this.#takeOver(wanted));
        return;
      } catch (error) {
        if (error instanceof JournalReplaced || error instanceof JournalBehind) return this.#options.onFatal(error);
        this.#options.onAlarm('take-over', { lanes: wanted, error: message(error) });
        await pause(this.#options.clock, retryMs);
        retryMs = Math.min(retryMs * 2, RETRY_MOST_MS);
      }
    }
  }

  async #takeOver(lanes: readonly number[]): Promise<Lane<State>[]> {
    const { service, store } = this.#options;
    const progress = await store.takeLanes(lanes);
    const ends = new Map<string, Map<number, { first: number; next: number }>>();
    for (const { name } of service.inbound) ends.set(name, (await this.#group?.offsets(name)) ?? new Map<number, never>());
    const taken: Lane<State>[] = [];
    for (const mine of progress) {
      const furthest = this.#furthest.get(mine.lane) ?? 0;
      if (mine.nextSeq < furthest) throw new JournalBehind(service.name, mine.lane, mine.nextSeq, furthest);
      const { lane, missing } = laneFrom<State>(service.name, mine, ends);
      // What was committed and not known to be published goes out first, in order, before anything new.
      await this.#publisher?.enqueueRest((after) => store.rowsAfter(lane.id, after, 1000), lane.published);
      lane.load(await store.openStreams(lane.id), await store.shelved(lane.id), this.#options.clock.now());
      this.#lanes.set(lane.id, lane);
      if (missing !== null) this.#halt(lane, missing);
      taken.push(lane);
    }
    return taken;
  }

  #open(lanes: readonly Lane<State>[]): void {
    for (const lane of lanes) {
      if (lane.halted !== null) continue;
      lane.isOpen = true;
      this.#group?.open(this.#options.service.inbound.map(({ name }) => ({ topic: name, lane: lane.id, offset: lane.arriving.get(name) ?? 0 })));
    }
    this.#wake();
  }

  #halt(lane: Lane<State>, reason: string): void {
    if (lane.halted !== null) return;
    lane.halted = reason;
    this.#waiting -= lane.inbox.length;
    lane.inbox = [];
    this.#options.onAlarm('lane halted', { lane: lane.id, reason });
  }

  /** Another instance has taken the lane: its part is void. If the newest assignment still gives it to us, start over. */
  #lost(lane: Lane<State>): void {
    this.count('lane lost', 'epoch');
    this.#forget(lane);
    const number = this.#assignments;
    // Asked when its turn comes: an assignment that gives the lane to another may stand before it.
    this.#assigning = this.#assigning.then(() => this.#takeRetrying([lane.id].filter((id) => this.#assignedLanes.includes(id) && !this.#lanes.has(id)), number));
  }

  #forget(lane: Lane<State>): void {
    if (lane.gone) return;
    lane.gone = true;
    this.#readOn.forget(lane.id);
    this.#waiting -= lane.inbox.length;
    lane.inbox = [];
    if (this.#lanes.get(lane.id) === lane) this.#lanes.delete(lane.id);
    this.#publisher?.drop(new Set([lane.id]));
  }

  count(what: string, because: string, by = 1): void {
    const name = `${what}: ${because}`;
    this.counts.set(name, (this.counts.get(name) ?? 0) + by);
  }
}
