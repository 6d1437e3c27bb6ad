import { decodeHeaders } from '@holdfast/protocol';
import type { LogRecord } from '../ports.js';

/**
 * A service decides nothing on a journal that is behind its own topic: it would give numbers out
 * again and do again what is on the record. Returns what is wrong, or null.
 *
 * `last`: the last record of each lane of the service's own topic, read before `nextSeqs`: a row is
 * committed before it is published, so a journal in order always holds it.
 */
export function journalBehind(source: string, last: readonly LogRecord[], nextSeqs: ReadonlyMap<number, number>): string | null {
  for (const record of last) {
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    const known = envelope?.seq !== undefined && envelope.source === source && envelope.seq < (nextSeqs.get(record.lane) ?? 1);
    if (known) continue;
    return `${record.topic}/${record.lane} ends with ${envelope?.source ?? 'an unknown source'} seq ${envelope?.seq ?? '?'}, which this database (${source}) does not hold: it was restored from an older copy, or is new. Restore it to its last state, or start with new topics; deciding on it would do again what is on the record`;
  }
  return null;
}
