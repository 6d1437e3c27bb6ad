import { DeadLetter, headerText, topics, type Message } from '@holdfast/protocol';
import type { LogRecord, Random } from '../ports.js';
import type { AgendaEntry, JournalRow, LaneWrite, Progress, SharedWrite } from '../store/types.js';
import { chainHash } from './chain.js';
import type { Lane } from './lane.js';
import type { Marks } from './inbound.js';
import type { Service, Turn } from './service.js';
import type { LoopObserver, Marked } from './observer.js';
import type { ShelfDraft } from './shelf.js';
import type { Cached } from './streams.js';
import type { FailedTimersDraft } from './timers.js';

/** A handler asked for something that the turn had not fetched: fetch it and begin the turn anew. */
export class Missing extends Error {
  override readonly name = 'Missing';
  readonly what: 'stream' | 'lock';
  readonly id: string;
  constructor(what: 'stream' | 'lock', id: string) {
    super(`${what} ${id} was not fetched before the turn`);
    this.what = what;
    this.id = id;
  }
}

export interface DraftContext<State, Event extends Message> {
  readonly service: Service<State, Event>;
  readonly random: Random;
  readonly now: number;
  /** Locked rows as they stand within this turn: what one lane puts, the next one finds. */
  readonly locked: Map<string, string | null>;
  readonly observer: LoopObserver | undefined;
}

/** Something that was counted while a lane was decided. */
export interface Counted {
  readonly what: string;
  readonly because: string;
  readonly by: number;
}

const LOOK_AGAIN_MS = 100;
/** A traceparent as anyone may send it: what is not printable is not passed on. */
const TRACE = /^[\x20-\x7e]{1,100}$/;

interface Mark {
  readonly rows: number;
  readonly last: Record<string, number>;
  readonly undo: number;
  readonly shared: number;
  readonly counted: number;
  readonly marks: number;
}

/** When a stream is looked at that is not to be before `retryAt`. Whatever was to be looked at has not been: also what only a wake asked for. */
const backedOff = ({ open, dueAt }: Omit<AgendaEntry, 'stream'>, retryAt: number | null): number | null => (open && retryAt !== null ? Math.max(dueAt ?? retryAt, retryAt) : dueAt);

/**
 * What one turn decides for one lane, before it is written. Nothing of the lane changes until the
 * transaction has been committed, so a draft can be thrown away whole, or back to a mark.
 */
export class Draft<State, Event extends Message> implements Turn<State, Event>, Marks {
  readonly lane: number;
  readonly now: number;
  readonly seen: Record<string, number>;
  readonly parked: Record<string, number>;
  readonly #of: Lane<State>;
  readonly #context: DraftContext<State, Event>;
  readonly #offsets: Record<string, number>;
  readonly #rows: JournalRow[] = [];
  readonly #streams = new Map<string, Cached<State>>();
  readonly #undo: (() => void)[] = [];
  readonly #shared: SharedWrite[] = [];
  readonly #wakes: { stream: string; at: number }[] = [];
  /** Counted when it is committed: a draft that is thrown away has counted nothing. */
  readonly counted: Counted[] = [];
  readonly marks: Marked[] = [];
  readonly shelf: ShelfDraft;
  readonly timers: FailedTimersDraft;
  #last: Record<string, number>;
  #record: LogRecord | null = null;
  /** The one open stream that the message in hand is about, where the lane's others have heard it already. */
  #only: string | null = null;

  constructor(lane: Lane<State>, context: DraftContext<State, Event>) {
    this.lane = lane.id;
    this.now = context.now;
    this.#of = lane;
    this.#context = context;
    this.#offsets = { ...lane.progress.offsets };
    this.seen = { ...lane.progress.seen };
    this.parked = { ...lane.progress.parked };
    this.#last = { ...lane.progress.last };
    this.shelf = lane.shelf.draft();
    this.timers = lane.timers.draft(context.now);
  }

  /** The record being handled; its offset counts as read. */
  at(record: LogRecord): void {
    this.#record = record;
    this.#only = null;
    this.#offsets[record.topic] = record.offset + 1;
  }

  /** A record from the shelf; its offset counts as read already. `only`: of the lane's open streams it is about this one alone. */
  again(record: LogRecord, only: string | null): void {
    this.#record = record;
    this.#only = only;
  }

  /** All records are handled; what follows is nobody's answer. */
  handled(): void {
    this.#record = null;
    this.#only = null;
  }

  get inHand(): LogRecord | null {
    return this.#record;
  }

  mark(): Mark {
    return { rows: this.#rows.length, last: { ...this.#last }, undo: this.#undo.length, shared: this.#shared.length, counted: this.counted.length, marks: this.marks.length };
  }

  backTo(mark: Mark): void {
    this.#rows.length = mark.rows;
    this.#last = mark.last;
    this.#shared.length = mark.shared;
    this.counted.length = mark.counted;
    this.marks.length = mark.marks;
    while (this.#undo.length > mark.undo) this.#undo.pop()?.();
  }

  random(): number {
    return this.#context.random.next();
  }

  state(stream: string): State {
    return this.#cached(stream).state;
  }

  tenantOf(stream: string): string {
    return this.#cached(stream).tenant;
  }

  record(stream: string, tenant: string, event: Event): void {
    const { service } = this.#context;
    const before = this.#cached(stream);
    const version = before.version + 1;
    const data = JSON.stringify(event.data);
    const hash = chainHash(before.hash, { stream, version, type: event.type, time: this.now, tenant, data });
    this.#append(service.ownTopic, stream, tenant, event.type, data, version, hash);
    if (this.#context.observer?.traceparent !== undefined) for (const mark of service.marks?.(event, before.state) ?? []) this.marks.push({ stream, at: this.now, mark });
    const known = this.#streams.get(stream);
    this.#undo.push(() => (known === undefined ? this.#streams.delete(stream) : this.#streams.set(stream, known)));
    this.#streams.set(stream, { version, hash, tenant, state: service.evolve(before.state, event, this.now) });
  }

  send(topic: string, stream: string, tenant: string, message: Message): void {
    this.#append(topic, stream, tenant, message.type, JSON.stringify(message.data), null, null);
  }

  seqAhead(n: number): number {
    return this.#of.progress.nextSeq + this.#rows.length + n;
  }

  open(tag?: string): readonly string[] {
    const { agenda } = this.#context.service;
    const isOpen = (stream: string, state: State): boolean => {
      const value = agenda(state, stream);
      return value.open && (tag === undefined || value.tag === tag);
    };
    // What this very turn opened or closed is not on the lane's agenda yet.
    const found = new Set(this.#of.agenda.open(tag).filter((stream) => !this.#streams.has(stream)));
    for (const [stream, { state }] of this.#streams) if (isOpen(stream, state)) found.add(stream);
    if (this.shelf.isEmpty) return [...found];
    return [...found].filter((stream) => (this.#only === null ? !this.shelf.has(stream) : stream === this.#only));
  }

  wake(stream: string, at: number): void {
    this.#wakes.push({ stream, at });
    this.#undo.push(() => this.#wakes.pop());
  }

  shared(key: string): string | null {
    const data = this.#context.locked.get(key);
    if (data === undefined) throw new Missing('lock', key);
    return data;
  }

  putShared(key: string, data: string): void {
    const { locked } = this.#context;
    const before = locked.get(key);
    this.#undo.push(() => (before === undefined ? locked.delete(key) : locked.set(key, before)));
    locked.set(key, data);
    this.#shared.push({ key, data });
  }

  park(reason: string, message: string): void {
    const record = this.#record;
    if (record === null) return;
    this.answered();
    const type = headerText(record.headers['ce_type']);
    this.send(
      topics.deadLetters,
      // The exact key is in the letter; a NUL can't be stored as a stream's name.
      record.key?.replaceAll('\0', '\ufffd') ?? `~${record.topic}`,
      'default',
      DeadLetter({
        topic: record.topic,
        partition: record.lane,
        offset: record.offset,
        key: record.key?.slice(0, 1000) ?? null,
        type: type?.slice(0, 200) ?? null,
        reason,
        message: message.slice(0, 4000),
        excerpt: record.value?.slice(0, 1000) ?? '',
      }),
    );
  }

  answered(): void {
    const record = this.#record;
    if (record === null) return;
    const { topic, offset } = record;
    const before = this.parked[topic] ?? 0;
    if (offset < before) return;
    this.parked[topic] = offset + 1;
    this.#undo.push(() => (this.parked[topic] = before));
  }

  count(what: string, because: string, by = 1): void {
    this.counted.push({ what, because, by });
  }

  /** Whether writing it would change more than marks. */
  hasRows(): boolean {
    return this.#rows.length > 0 || this.#shared.length > 0;
  }

  /** Brings the agenda up to date and says what is to be written. `due`: streams that were looked at because their time had come. */
  finish(due: ReadonlySet<string>): LaneWrite {
    const { service, now } = this.#context;
    const agenda: AgendaEntry[] = [];
    for (const stream of new Set([...due, ...this.#streams.keys()])) {
      const value = service.agenda(this.state(stream), stream);
      if (!value.open) this.timers.passed(stream);
      const entry = this.#of.agenda.update(stream, { ...value, dueAt: this.#lookAt(stream, value, due.has(stream)) }, now);
      if (entry !== null) agenda.push(entry);
    }
    // Only now: what opened again in this turn must not be written as closed.
    agenda.push(...this.#of.agenda.takeClosed(now, 500));
    for (const { stream, at } of this.#wakes) {
      const entry = this.#of.agenda.wake(stream, at);
      if (entry !== null) agenda.push(entry);
    }
    const { lane, epoch, nextSeq } = this.#of.progress;
    const progress: Progress = {
      lane,
      epoch,
      offsets: this.#offsets,
      seen: this.seen,
      parked: this.parked,
      last: this.#last,
      nextSeq: nextSeq + this.#rows.length,
      published: this.#of.published,
    };
    return { progress, expectedNextSeq: nextSeq, rows: this.#rows, agenda: dedupeByStream(agenda), shared: lastByKey(this.#shared), shelf: this.shelf.write() };
  }

  #lookAt(stream: string, value: Omit<AgendaEntry, 'stream'>, looked: boolean): number | null {
    const retryAt = this.timers.retryAt(stream);
    if (retryAt !== null) return backedOff(value, retryAt);
    // What is still due after its turn waits for something outside: it is looked at again a little later, not at once.
    return value.dueAt !== null && looked ? Math.max(value.dueAt, this.now + LOOK_AGAIN_MS) : value.dueAt;
  }

  /** The transaction is committed: the lane moves on. */
  apply(write: LaneWrite): void {
    this.#of.committed(write.progress, this.#streams);
    this.#of.agenda.written(write.agenda);
    this.shelf.apply();
    this.timers.apply();
  }

  /** It is not written: the agenda follows from the lane's own states again. `due` as `finish` had it. */
  discard(due: ReadonlySet<string>): void {
    const { service, now } = this.#context;
    for (const stream of new Set([...due, ...this.#streams.keys()])) {
      const value = service.agenda(this.#of.stream(stream)?.state ?? service.initial, stream);
      this.#of.agenda.update(stream, { ...value, dueAt: backedOff(value, this.#of.timers.retryAt(stream)) }, now);
    }
  }

  #cached(stream: string): Cached<State> {
    const cached = this.#streams.get(stream) ?? this.#of.stream(stream);
    if (cached === undefined) throw new Missing('stream', stream);
    return cached;
  }

  #append(topic: string, stream: string, tenant: string, type: string, data: string, version: number | null, hash: string | null): void {
    const seq = this.seqAhead(0);
    this.#rows.push({
      lane: this.lane,
      seq,
      topic,
      prev: this.#last[topic] ?? 0,
      stream,
      type,
      version,
      time: this.now,
      tenant,
      hash,
      trace: this.#trace(stream),
      data,
    });
    this.#last[topic] = seq;
  }

  /** Passed on as it came where nobody here keeps traces. */
  #trace(stream: string): string | null {
    const { observer } = this.#context;
    if (observer?.traceparent !== undefined) return observer.traceparent(this.#record, stream);
    const trace = headerText(this.#record?.headers['traceparent']);
    return trace !== undefined && TRACE.test(trace) ? trace : null;
  }
}

/** A multi-row upsert may name each row once: the last word counts. */
function dedupeByStream(entries: readonly AgendaEntry[]): AgendaEntry[] {
  return [...new Map(entries.map((entry) => [entry.stream, entry])).values()];
}

function lastByKey(writes: readonly SharedWrite[]): SharedWrite[] {
  return [...new Map(writes.map((write) => [write.key, write])).values()];
}
