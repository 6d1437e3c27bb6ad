import { decodeHeaders, MESSAGE_DEPTH_MAX, parseJson, Tenant, VALUE_BYTES_MAX, describeIssues, type Envelope, type Message } from '@holdfast/protocol';
import type { LogRecord } from '../ports.js';
import type { Inbound, Route, Service, Unreadable } from './service.js';

export type Inspected<State, Event extends Message> =
  | { readonly kind: 'skip'; readonly because: 'duplicate' | 'not_routed' | 'answered_before' }
  | { readonly kind: 'message'; readonly inbound: Inbound; readonly route: Route<State, Event> }
  | { readonly kind: 'unreadable'; readonly problem: Unreadable }
  /** A service's, for a run, that only a newer version can read. */
  | { readonly kind: 'newer'; readonly stream: string; readonly reason: string }
  /** The lane can't go past this record. */
  | { readonly kind: 'halt'; readonly reason: string };

/** Marks that inspection reads, and moves where a service's row has been seen: kept in the lane's progress. */
export interface Marks {
  readonly seen: Record<string, number>;
  readonly parked: Readonly<Record<string, number>>;
}

/** Of what was kept: no mark says whether it was answered. */
const NO_MARKS: Marks = { seen: {}, parked: {} };

interface TopicTable<State, Event extends Message> {
  readonly writtenBy: 'service' | 'outsider';
  readonly known: ReadonlySet<string>;
  readonly routes: ReadonlyMap<string, Route<State, Event>>;
}

/** Tells what a record is: a message for a handler, one to skip, one to park, one that only a newer version can read, or one that stops the lane. */
export class Inspector<State, Event extends Message> {
  readonly #topics: ReadonlyMap<string, TopicTable<State, Event>>;
  readonly #laneOf: (key: string) => number;

  constructor(service: Service<State, Event>, laneOf: (key: string) => number) {
    this.#laneOf = laneOf;
    this.#topics = new Map(
      service.inbound.map((topic) => [
        topic.name,
        {
          writtenBy: topic.writtenBy,
          known: new Set(topic.types.map(({ type }) => type)),
          routes: new Map(service.routes.filter((route) => route.topic === topic.name).map((route) => [route.type, route])),
        },
      ]),
    );
  }

  /** `again`: it was counted as seen before, and was kept. */
  inspect(record: LogRecord, marks: Marks, again = false): Inspected<State, Event> {
    const table = this.#topics.get(record.topic);
    if (table === undefined) return { kind: 'skip', because: 'not_routed' };
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    return table.writtenBy === 'service' ? this.#fromService(record, envelope, table, marks, again) : this.#fromOutsider(record, envelope, table, again ? NO_MARKS : marks);
  }

  #fromService(record: LogRecord, envelope: Envelope | undefined, table: TopicTable<State, Event>, marks: Marks, again: boolean): Inspected<State, Event> {
    const { topic, lane, offset } = record;
    // Not a service's: services number every row, and have stored it before they send it.
    if (envelope?.seq === undefined || envelope.lane === undefined || envelope.prev === undefined || !isStorable(envelope.subject) || !isStorable(envelope.tenant)) {
      return this.#park(record, envelope, 'not_from_a_service', `a record without ce_seq, ce_lane and ce_prevseq, or with a NUL in its id or tenant, on ${topic}, which only services write`, undefined, again ? NO_MARKS : marks);
    }
    const source = `${topic}|${envelope.source}|${envelope.lane}`;
    const last = marks.seen[source];
    if (last !== undefined && !again) {
      if (envelope.seq <= last) return { kind: 'skip', because: 'duplicate' };
      if (envelope.prev > last) {
        return { kind: 'halt', reason: `gap on ${topic}/${lane} at offset ${offset}: ${envelope.source} says seq ${envelope.prev} came before ${envelope.seq}, last seen is ${last}` };
      }
    }
    const seen = (): void => {
      marks.seen[source] = Math.max(last ?? 0, envelope.seq ?? 0);
    };
    const newer = (reason: string): Inspected<State, Event> => {
      // What is about no run is about the whole lane.
      if (envelope.subject.startsWith('~')) return { kind: 'halt', reason: `${reason}; the lane waits for a newer one` };
      seen();
      return { kind: 'newer', stream: envelope.subject, reason };
    };
    if (!table.known.has(envelope.type)) return newer(`message type "${envelope.type}" on ${topic}/${lane} at offset ${offset} is not known to this version`);
    const route = table.routes.get(envelope.type);
    if (route === undefined) {
      seen();
      return { kind: 'skip', because: 'not_routed' };
    }
    const read = readOwn(record, route);
    if (!read.ok) return newer(`${envelope.type} on ${topic}/${lane} at offset ${offset} can't be read by this version: ${read.message}`);
    seen();
    return { kind: 'message', inbound: { envelope, record, data: read.data }, route };
  }

  #fromOutsider(record: LogRecord, envelope: Envelope | undefined, table: TopicTable<State, Event>, marks: Marks): Inspected<State, Event> {
    // Its answer stands. Decided anew, what was refused then might be taken now, and fire.
    if (record.offset < (marks.parked[record.topic] ?? 0)) return { kind: 'skip', because: 'answered_before' };
    if (envelope === undefined) return this.#park(record, envelope, 'no_type', 'the record has no ce_type header', undefined, marks);
    const problem = problemOf(envelope);
    if (problem !== null) return this.#park(record, envelope, 'invalid_id', problem, undefined, marks);
    // Before anything else is said of it: a lane writes no stream of another's.
    if (envelope.subject !== record.key) {
      return this.#park(record, envelope, 'key_mismatch', `the record's key is ${quote(record.key)}, its ce_subject ${quote(envelope.subject)}; both must be the run id`, undefined, marks);
    }
    if (!this.#isHere(record, envelope)) {
      return this.#park(record, envelope, 'wrong_partition', `key ${quote(record.key)} belongs to partition ${this.#laneOf(envelope.subject)}, not ${record.lane}; use Kafka's default partitioner`, undefined, marks);
    }
    const bytes = record.value === null ? 0 : Buffer.byteLength(record.value);
    if (bytes > VALUE_BYTES_MAX) {
      return this.#park(record, envelope, 'too_large', `${envelope.type} has ${bytes} bytes, the limit is ${VALUE_BYTES_MAX}; store the large value as an artifact and send its reference`, undefined, marks);
    }
    if (!table.known.has(envelope.type)) return this.#park(record, envelope, 'unknown_type', `no message type "${envelope.type}" on ${record.topic}`, undefined, marks);
    const route = table.routes.get(envelope.type);
    if (route === undefined) return { kind: 'skip', because: 'not_routed' };
    const read = readData(record, route);
    if (!read.ok) return this.#park(record, envelope, read.because, read.message, read.data, marks);
    return { kind: 'message', inbound: { envelope, record, data: read.data }, route };
  }

  #isHere({ lane }: LogRecord, { subject }: Envelope): boolean {
    return subject.startsWith('~') || this.#laneOf(subject) === lane;
  }

  #park(record: LogRecord, envelope: Envelope | undefined, reason: string, message: string, data: Unreadable['data'], marks: Marks): Inspected<State, Event> {
    if (record.offset < (marks.parked[record.topic] ?? 0)) return { kind: 'skip', because: 'answered_before' };
    // No stream has a name that can't be stored, none belongs to a tenant that is none, and another lane's is not this one's to write: nobody can be told.
    const about = envelope !== undefined && problemOf(envelope) === null && envelope.subject === record.key && this.#isHere(record, envelope) ? envelope : undefined;
    return { kind: 'unreadable', problem: { record, envelope: about, reason, message, data } };
  }
}

/** PostgreSQL's text holds every character but NUL. */
const isStorable = (text: string): boolean => !text.includes('\0');

/** What keeps an outsider's envelope from every handler: its subject and tenant may go into columns. A run id's other rules depend on what it is for. */
function problemOf({ subject, tenant }: Envelope): string | null {
  if (!isStorable(subject)) return 'the run id holds a NUL';
  const checked = Tenant.safeParse(tenant);
  return checked.success ? null : (checked.error.issues[0]?.message ?? 'the tenant is none');
}

const quote = (text: string | null): string => (text === null ? 'null' : JSON.stringify(text.slice(0, 80)));

type Read = { readonly ok: true; readonly data: unknown } | { readonly ok: false; readonly because: string; readonly message: string; readonly data: Unreadable['data'] };

/** A service's data was checked as I-JSON where it came in; here only its shape is. */
function readOwn<State, Event extends Message>(record: LogRecord, route: Route<State, Event>): Read {
  try {
    const checked = route.message.schema.safeParse(JSON.parse(record.value ?? ''));
    return checked.success ? { ok: true, data: checked.data } : { ok: false, because: 'invalid', message: describeIssues(checked.error), data: undefined };
  } catch (error) {
    return { ok: false, because: 'not_json', message: error instanceof Error ? error.message : String(error), data: undefined };
  }
}

function readData<State, Event extends Message>(record: LogRecord, route: Route<State, Event>): Read {
  if (record.value === null) return { ok: false, because: 'invalid', message: `${route.type} without a value`, data: undefined };
  const parsed = parseJson(record.value, MESSAGE_DEPTH_MAX);
  if (!parsed.ok) return { ok: false, because: parsed.because, message: parsed.message, data: undefined };
  const checked = route.message.schema.safeParse(parsed.value);
  if (!checked.success) return { ok: false, because: 'invalid', message: `${route.type}: ${describeIssues(checked.error)}`, data: parsed.value };
  return { ok: true, data: checked.data };
}
