import TinyQueue from 'tinyqueue';
import type { AgendaEntry } from '../store/types.js';

/** How long a stream that came to rest may still stand as open in the database, milliseconds. */
const CLOSE_AFTER_MS = 1000;

interface Alarm {
  readonly at: number;
  readonly stream: string;
}

interface Entry {
  /** As the database has it; null when it has none. */
  stored: Omit<AgendaEntry, 'stream'> | null;
  now: Omit<AgendaEntry, 'stream'>;
  /** A look asked for from outside the state; kept until it has been taken. */
  wakeAt: number | null;
  /** Time of the one alarm that counts; older ones in the queue are stale. */
  alarmAt: number | null;
}

/**
 * Which streams of a lane are open and when each needs attention next. Writes are saved where they
 * can be derived: a stored time that is too early only costs a look, and a stream that comes to
 * rest is written as closed a little later, since most open again at once.
 */
export class Agenda {
  readonly #entries = new Map<string, Entry>();
  readonly #alarms = new TinyQueue<Alarm>([], (a, b) => a.at - b.at);
  /** Streams at rest that the database still has as open, with the time since when. */
  readonly #closing = new Map<string, number>();

  load(entry: AgendaEntry): void {
    const { stream, ...value } = entry;
    this.#entries.set(stream, { stored: value, now: value, wakeAt: null, alarmAt: null });
    if (value.dueAt !== null) this.wake(stream, value.dueAt);
  }

  /** Takes note of a stream's agenda after its state changed; returns what must be written with it. */
  update(stream: string, value: Omit<AgendaEntry, 'stream'>, now: number): AgendaEntry | null {
    let entry = this.#entries.get(stream);
    if (entry === undefined) {
      if (!value.open) return null;
      entry = { stored: null, now: value, wakeAt: null, alarmAt: null };
      this.#entries.set(stream, entry);
    }
    entry.now = value;
    if (!value.open) {
      entry.alarmAt = null;
      entry.wakeAt = null;
      if (entry.stored?.open === true) this.#closing.set(stream, this.#closing.get(stream) ?? now);
      else this.#entries.delete(stream);
      return null;
    }
    this.#closing.delete(stream);
    const at = Math.min(value.dueAt ?? Infinity, entry.wakeAt ?? Infinity);
    if (at === Infinity) entry.alarmAt = null;
    else this.#setAlarm(entry, stream, at);
    return this.#needsWriting(entry) ? { stream, ...value } : null;
  }

  /** Streams that have been at rest for a while and may now be written as closed. */
  takeClosed(now: number, limit: number): AgendaEntry[] {
    const closed: AgendaEntry[] = [];
    for (const [stream, since] of this.#closing) {
      if (closed.length >= limit || since > now - CLOSE_AFTER_MS) break;
      closed.push({ stream, open: false, dueAt: null, tag: this.#entries.get(stream)?.now.tag ?? null });
    }
    return closed;
  }

  /** How many streams are not at rest. */
  openCount(): number {
    return this.#entries.size - this.#closing.size;
  }

  /** Whether the database still has a stream as open that is at rest. */
  hasClosing(): boolean {
    return this.#closing.size > 0;
  }

  /** The entries are in the database now. */
  written(entries: readonly AgendaEntry[]): void {
    for (const { stream, ...value } of entries) {
      const entry = this.#entries.get(stream);
      if (entry === undefined) continue;
      entry.stored = value;
      if (value.open) continue;
      this.#closing.delete(stream);
      if (!entry.now.open) this.#entries.delete(stream);
    }
  }

  /** Sets an earlier alarm; returns what must be written so that it outlives this process. */
  wake(stream: string, at: number): AgendaEntry | null {
    const entry = this.#entries.get(stream);
    if (entry === undefined || !entry.now.open) return null;
    entry.wakeAt = Math.min(at, entry.wakeAt ?? Infinity);
    if (entry.alarmAt === null || at < entry.alarmAt) this.#setAlarm(entry, stream, at);
    const stored = entry.stored?.dueAt ?? null;
    // It may take the place of an entry that is not written yet: the earliest time counts.
    return stored !== null && stored <= at ? null : { stream, open: true, dueAt: Math.min(entry.wakeAt, entry.now.dueAt ?? Infinity), tag: entry.now.tag };
  }

  /** Streams whose time has come, each once. */
  takeDue(now: number, limit: number): string[] {
    const due: string[] = [];
    while (due.length < limit) {
      const alarm = this.#alarms.peek();
      if (alarm === undefined || alarm.at > now) break;
      this.#alarms.pop();
      const entry = this.#entries.get(alarm.stream);
      if (entry === undefined || entry.alarmAt !== alarm.at) continue;
      entry.alarmAt = null;
      entry.wakeAt = null;
      due.push(alarm.stream);
    }
    return due;
  }

  /** When the next alarm goes off, epoch milliseconds. */
  nextAt(): number | null {
    return this.#alarms.peek()?.at ?? null;
  }

  open(tag?: string): string[] {
    const streams: string[] = [];
    for (const [stream, { now }] of this.#entries) if (now.open && (tag === undefined || now.tag === tag)) streams.push(stream);
    return streams;
  }

  #setAlarm(entry: Entry, stream: string, at: number): void {
    if (entry.alarmAt === at) return;
    entry.alarmAt = at;
    this.#alarms.push({ at, stream });
  }

  #needsWriting({ stored, now }: Entry): boolean {
    if (stored === null || !stored.open || stored.tag !== now.tag) return true;
    return now.dueAt !== null && (stored.dueAt === null || now.dueAt < stored.dueAt);
  }
}
