import { decodeHeaders } from '@holdfast/protocol';
import type { LogRecord } from '../ports.js';
import type { StreamHead } from '../store/types.js';

export interface OwnTopic {
  readonly service: string;
  readonly name: string;
  /** The last record of each lane of the service's own topic. */
  last(): Promise<readonly LogRecord[]>;
  /** Records of a stretch of a lane of it: offsets `from` up to, not including, `to`. */
  read(lane: number, from: number, to: number): Promise<readonly LogRecord[]>;
}

export interface Journal {
  rebuilding(): Promise<boolean>;
  lacks(topic: string, heads: readonly StreamHead[]): Promise<readonly StreamHead[]>;
}

const BACK_FIRST = 64;

/**
 * A service decides nothing on a journal that is behind its own topic: it would give numbers out
 * again and do again what is on the record. Returns what is wrong, or null. A row is committed
 * before it is published and a lane's rows are published in order, so a journal in order holds the
 * last event of each lane, in whatever life it was written.
 */
export async function journalBehind(topic: OwnTopic, journal: Journal): Promise<string | null> {
  const mend = `run \`holdfast rebuild ${topic.service}\` (or \`holdfast up --rebuild\`), which makes the journal from the topics`;
  if (await journal.rebuilding()) return `a rebuild of this database was begun and not finished: ${mend}`;
  const heads: StreamHead[] = [];
  for (const record of await topic.last()) {
    const head = await lastEvent(topic, record);
    if (head !== null) heads.push(head);
  }
  if (heads.length === 0) return null;
  const [missing] = await journal.lacks(topic.name, heads);
  return missing === undefined
    ? null
    : `this database does not hold version ${missing.version} of stream ${missing.stream}, which ${topic.service} has published: it is new, or an older copy, and deciding on it would do again what is on the record; ${mend}`;
}

/** Goes back from a lane's end to the last record that a service wrote. */
async function lastEvent(topic: OwnTopic, last: LogRecord): Promise<StreamHead | null> {
  let records: readonly LogRecord[] = [last];
  let from = last.offset;
  for (let back = BACK_FIRST; ; back *= 8) {
    for (const record of [...records].reverse()) {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      if (envelope?.version !== undefined && envelope.hash !== undefined && envelope.seq !== undefined && envelope.source.startsWith(`holdfast/${topic.service}/`)) {
        return { stream: envelope.subject, version: envelope.version, hash: envelope.hash };
      }
    }
    if (from === 0) return null;
    const to = from;
    from = Math.max(0, from - back);
    records = await topic.read(last.lane, from, to);
  }
}
