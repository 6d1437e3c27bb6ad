import TinyQueue from 'tinyqueue';
import type { AgendaEntry } from '../store/types.js';

/** How long a stream that came to rest may still stand as open in the database, milliseconds. */
const CLOSE_AFTER_MS = 1000;
/** By how much an alarm must have been missed to count as overdue, milliseconds. */
export const OVERDUE_AFTER_MS = 1000;

interface Alarm {
  readonly at: number;
  readonly stream: string;
}

interface Entry {
  /** As the database has it; null when it has none. */
  stored: Omit<AgendaEntry, 'stream'> | null;
  now: Omit<AgendaEntry, 'stream'>;
  /** When the database said that it is due, as the lane was taken: its own time, or a look that was asked for. Kept until it has been taken. */
  loadedAt: number | null;
  /** A look asked for from outside the state; kept until it has been taken. */
  wakeAt: number | null;
  /** Time of the one alarm that counts; older ones in the queue are stale. */
  alarmAt: number | null;
  /** Stands among those whose time was missed. */
  overdue: boolean;
  /** Was handed out to be written as closed, and nobody has said that it was: the database may have it either way. */
  maybeClosed: boolean;
}

/**
 * Which streams of a lane are open and when each needs attention next. Writes are saved where they
 * can be derived: a stored time that is too early only costs a look, and a stream that comes to
 * rest is written as closed a little later, since most open again at once.
 *
 * A time that was missed by far (an outage) is kept apart, so that many of them can be taken a few at a time
 * while what comes due now is on time. A stream among these can still be woken.
 */
export class Agenda {
  readonly #entries = new Map<string, Entry>();
  readonly #alarms = new TinyQueue<Alarm>([], (a, b) => a.at - b.at);
  /** Streams at rest that the database still has as open, with the time since when. */
  readonly #closing = new Map<string, number>();
  /** Alarms that were missed, the oldest first. Those whose stream is no longer marked so are stale. */
  readonly #overdue = new Fifo();
  /** Looks that were asked for and not taken yet, since there were too many: that is no outage. */
  readonly #late = new Fifo();

  /** Takes an entry of the database. `at`: when it is looked at first, where that is not its own time. */
  load(entry: AgendaEntry, at = entry.dueAt): void {
    const { stream, ...value } = entry;
    const loaded: Entry = { stored: value, now: value, loadedAt: at, wakeAt: null, alarmAt: null, overdue: false, maybeClosed: false };
    this.#entries.set(stream, loaded);
    if (at !== null) this.#setAlarm(loaded, stream, at);
  }

  /** Takes note of a stream's agenda after its state changed; returns what must be written with it. */
  update(stream: string, value: Omit<AgendaEntry, 'stream'>, now: number): AgendaEntry | null {
    let entry = this.#entries.get(stream);
    if (entry === undefined) {
      if (!value.open) return null;
      entry = { stored: null, now: value, loadedAt: null, wakeAt: null, alarmAt: null, overdue: false, maybeClosed: false };
      this.#entries.set(stream, entry);
    }
    entry.now = value;
    if (!value.open) {
      taken(entry, stream);
      if (entry.stored?.open === true) this.#closing.set(stream, this.#closing.get(stream) ?? now);
      else this.#entries.delete(stream);
      return null;
    }
    this.#closing.delete(stream);
    const own = [value.dueAt ?? Infinity, entry.loadedAt ?? Infinity];
    const isMissed = (at: number): boolean => at < now - OVERDUE_AFTER_MS;
    entry.overdue ||= own.some(isMissed) && this.#miss(stream);
    if (!own.some(isMissed)) entry.overdue = false;
    const at = Math.min(...own.filter((time) => !isMissed(time)), entry.wakeAt ?? Infinity);
    if (at === Infinity) entry.alarmAt = null;
    else this.#setAlarm(entry, stream, at);
    return this.#needsWriting(entry) ? { stream, ...value } : null;
  }

  /** Streams that have been at rest for a while and may now be written as closed. */
  takeClosed(now: number, limit: number): AgendaEntry[] {
    const closed: AgendaEntry[] = [];
    for (const [stream, since] of this.#closing) {
      if (closed.length >= limit || since > now - CLOSE_AFTER_MS) break;
      const entry = this.#entries.get(stream);
      if (entry !== undefined) entry.maybeClosed = true;
      closed.push({ stream, open: false, dueAt: null, tag: entry?.now.tag ?? null });
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
      entry.maybeClosed = false;
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
    const stored = this.#needsWriting(entry) ? null : (entry.stored?.dueAt ?? null);
    // It may take the place of an entry that is not written yet: the earliest time counts.
    return stored !== null && stored <= at ? null : { stream, open: true, dueAt: Math.min(entry.wakeAt, entry.now.dueAt ?? Infinity), tag: entry.now.tag };
  }

  /** Streams whose time has come, each once: first those that are on time, then of those whose time was missed the oldest, up to `overdueMax` of them. */
  takeDue(now: number, limit: number, overdueMax = Infinity): string[] {
    const due: string[] = [];
    this.#sortOut(now);
    this.#late.take(() => due.length < limit, (stream) => {
      const entry = this.#entries.get(stream);
      if (entry?.wakeAt !== null && entry !== undefined) due.push(taken(entry, stream));
    });
    for (let alarm = this.#alarms.peek(); due.length < limit && alarm !== undefined && alarm.at <= now; alarm = this.#alarms.peek()) {
      this.#alarms.pop();
      const entry = this.#ringing(alarm);
      if (entry !== undefined) due.push(taken(entry, alarm.stream));
    }
    const most = Math.min(limit, due.length + overdueMax);
    this.#overdue.take(() => due.length < most, (stream) => {
      const entry = this.#entries.get(stream);
      if (entry?.overdue === true) due.push(taken(entry, stream));
    });
    return due;
  }

  /** When the next alarm goes off, epoch milliseconds; those that were missed are not asked. */
  nextAt(): number | null {
    return this.#late.size > 0 ? 0 : (this.#alarms.peek()?.at ?? null);
  }

  /** How many alarms were missed by now and not taken yet; at most a few too many. */
  overdue(now: number): number {
    this.#sortOut(now);
    return this.#overdue.size;
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

  /** Takes what was missed out of the alarms. */
  #sortOut(now: number): void {
    for (let alarm = this.#alarms.peek(); alarm !== undefined && alarm.at < now - OVERDUE_AFTER_MS; alarm = this.#alarms.peek()) {
      this.#alarms.pop();
      const entry = this.#ringing(alarm);
      if (entry === undefined) continue;
      entry.alarmAt = null;
      if (alarm.at === entry.wakeAt) {
        this.#late.add(alarm.stream);
        continue;
      }
      entry.overdue ||= this.#miss(alarm.stream);
      if (entry.wakeAt !== null) this.#setAlarm(entry, alarm.stream, entry.wakeAt);
    }
  }

  /** Sets a stream among those whose time was missed. Another time that it has is kept all the same. */
  #miss(stream: string): true {
    this.#overdue.add(stream);
    return true;
  }

  #ringing({ stream, at }: Alarm): Entry | undefined {
    const entry = this.#entries.get(stream);
    return entry?.alarmAt === at ? entry : undefined;
  }

  #needsWriting({ stored, now, maybeClosed }: Entry): boolean {
    if (stored === null || !stored.open || maybeClosed || stored.tag !== now.tag) return true;
    return now.dueAt !== null && (stored.dueAt === null || now.dueAt < stored.dueAt);
  }
}

/** Whatever it was due for, one look serves. */
function taken(entry: Entry, stream: string): string {
  entry.alarmAt = null;
  entry.loadedAt = null;
  entry.wakeAt = null;
  entry.overdue = false;
  return stream;
}

/** First in, first out, for very many. */
class Fifo {
  #items: string[] = [];
  #from = 0;

  get size(): number {
    return this.#items.length - this.#from;
  }

  add(item: string): void {
    this.#items.push(item);
  }

  take(goesOn: () => boolean, each: (item: string) => void): void {
    for (let item = this.#items[this.#from]; item !== undefined && goesOn(); item = this.#items[this.#from]) {
      this.#from += 1;
      each(item);
    }
    if (this.#from < this.#items.length) return;
    this.#items = [];
    this.#from = 0;
  }
}
