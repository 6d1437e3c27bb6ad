import { isoTime } from './ids.js';

/**
 * The envelope: CloudEvents 1.0, Kafka binding, binary mode. Attributes travel as headers
 * `ce_<name>`, data as JSON in the value, so that a reader can skip by header without parsing.
 */
export interface Envelope {
  readonly id: string;
  readonly type: string;
  readonly source: string;
  /** The run, or a lane's own stream. Equals the record's key. */
  readonly subject: string;
  /** Epoch milliseconds. */
  readonly time: number;
  readonly tenant: string;
  /** The following are set by services only. */
  readonly lane?: number;
  /** Number of the journal row. Rises within (source, lane). */
  readonly seq?: number;
  /** `seq` of the row before on the same topic and lane, 0 for the first: a gap shows. */
  readonly prev?: number;
  /** Version of the stream after this event, from 1. */
  readonly version?: number;
  /** Head of the stream's hash chain after this event. */
  readonly hash?: string;
  readonly traceparent?: string;
}

/** Null where somebody wrote a header without a value. */
export type HeaderValue = string | Uint8Array | readonly (string | Uint8Array)[] | null | undefined;

export function encodeHeaders(envelope: Envelope): Record<string, string> {
  const headers: Record<string, string> = {
    ce_specversion: '1.0',
    ce_id: envelope.id,
    ce_type: envelope.type,
    ce_source: envelope.source,
    ce_subject: envelope.subject,
    ce_time: isoTime(envelope.time),
    ce_tenant: envelope.tenant,
    'content-type': 'application/json',
  };
  if (envelope.lane !== undefined) headers['ce_lane'] = String(envelope.lane);
  if (envelope.seq !== undefined) headers['ce_seq'] = String(envelope.seq);
  if (envelope.prev !== undefined) headers['ce_prevseq'] = String(envelope.prev);
  if (envelope.version !== undefined) headers['ce_streamversion'] = String(envelope.version);
  if (envelope.hash !== undefined) headers['ce_hash'] = envelope.hash;
  if (envelope.traceparent !== undefined) headers['traceparent'] = envelope.traceparent;
  return headers;
}

const text = new TextDecoder();
/** A header as text; the first where a name was given several. */
export const headerText = (value: HeaderValue): string | undefined => {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'string') return value;
  if (value instanceof Uint8Array) return text.decode(value);
  return headerText((value as readonly (string | Uint8Array)[])[0]);
};

const counter = (value: HeaderValue): number | undefined => {
  const digits = headerText(value);
  if (digits === undefined || !/^\d{1,16}$/.test(digits)) return undefined;
  const number = Number(digits);
  return Number.isSafeInteger(number) ? number : undefined;
};

/**
 * Reads the attributes of a record. Outsiders need only `ce_type`; the rest has defaults
 * (`subject` the key, `source` "unknown", `tenant` "default"). Returns undefined without a type.
 */
export function decodeHeaders(headers: Readonly<Record<string, HeaderValue>>, key: string | null, recordTime: number): Envelope | undefined {
  const type = headerText(headers['ce_type']);
  if (type === undefined || type === '') return undefined;
  const parsed = Date.parse(headerText(headers['ce_time']) ?? '');
  const lane = counter(headers['ce_lane']);
  const seq = counter(headers['ce_seq']);
  const prev = counter(headers['ce_prevseq']);
  const version = counter(headers['ce_streamversion']);
  const hash = headerText(headers['ce_hash']);
  const traceparent = headerText(headers['traceparent']);
  return {
    id: headerText(headers['ce_id']) ?? '',
    type,
    source: headerText(headers['ce_source']) ?? 'unknown',
    subject: headerText(headers['ce_subject']) ?? key ?? '',
    time: Number.isNaN(parsed) ? recordTime : parsed,
    tenant: headerText(headers['ce_tenant']) ?? 'default',
    ...(lane === undefined ? {} : { lane }),
    ...(seq === undefined ? {} : { seq }),
    ...(prev === undefined ? {} : { prev }),
    ...(version === undefined ? {} : { version }),
    ...(hash === undefined ? {} : { hash }),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

/** `ce_source` of a service: its name and the incarnation of its journal, so that numbers given out again are not taken for old ones. */
export const serviceSource = (service: string, incarnation: string): string => `holdfast/${service}/${incarnation}`;
