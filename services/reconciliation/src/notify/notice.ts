import { CaseEscalated, CaseReminded, decoder, decodeHeaders, isoTime, parseJson, type MessageOf } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';

/** What people are told of a case: once for each event, under an id by which a receiver drops a repetition. */
export interface Notice {
  readonly id: string;
  readonly type: 'case.reminded' | 'case.escalated';
  /** RFC 3339, UTC. */
  readonly timestamp: string;
  readonly data: {
    readonly case: string;
    readonly tenant: string;
    readonly run: string;
    readonly step: string;
    readonly attempt: number;
    readonly to: string | null;
    readonly reason: string;
    readonly message: string;
  };
}

const decode = decoder([CaseReminded, CaseEscalated]);

/** The notice that an event of a case is worth, if any. */
export function noticeOf(record: LogRecord): Notice | null {
  const envelope = decodeHeaders(record.headers, record.key, record.time);
  if (envelope === undefined || (envelope.type !== CaseReminded.type && envelope.type !== CaseEscalated.type)) return null;
  const parsed = parseJson(record.value ?? '');
  const decoded = parsed.ok ? decode(envelope.type, parsed.value) : null;
  if (decoded?.ok !== true) return null;
  const event: MessageOf<typeof CaseReminded> | MessageOf<typeof CaseEscalated> = decoded.message;
  const { step, attempt } = event.data;
  const of = { case: `${envelope.subject}/${step}/${attempt}`, tenant: envelope.tenant, run: envelope.subject, step, attempt };
  const common = { id: envelope.id, timestamp: isoTime(envelope.time) };
  if (event.type === 'CaseEscalated') return { ...common, type: 'case.escalated', data: { ...of, to: event.data.to, reason: event.data.reason, message: event.data.message } };
  const hours = Math.round(event.data.openForMs / 360_000) / 10;
  return { ...common, type: 'case.reminded', data: { ...of, to: event.data.owner, reason: 'reminder', message: `nobody has settled it for ${hours} h: holdfast cases show ${of.case}` } };
}
