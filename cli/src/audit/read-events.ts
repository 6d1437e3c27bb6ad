import { decodeHeaders, parseJson, type Envelope, type Json } from '@holdfast/protocol';
import { chainHash, type LogRecord } from '@holdfast/runtime';
import { laneOf, partitionsOf, tail } from '@holdfast/runtime/kafka';

const PROBLEMS_MAX = 5;

/** One event as its topic holds it. */
export interface TopicEvent {
  readonly envelope: Envelope & { readonly version: number; readonly hash: string };
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
  readonly text: string;
  readonly data: Json;
}

/** A stream as read from its topic, and what is wrong with its chain. */
export interface TopicStream {
  readonly stream: string;
  readonly events: TopicEvent[];
  readonly problems: string[];
}

/** Reads every stream of a topic from its beginning; republications are dropped, chains are checked. */
export async function readStreams(brokers: readonly string[], topic: string, only?: string): Promise<Map<string, TopicStream>> {
  const streams = new Map<string, TopicStream>();
  const seen = new Set<string>();
  const lanes = only === undefined ? undefined : [laneOf(only, await partitionsOf(brokers, topic))];
  const reader = await tail({
    brokers,
    topics: [topic],
    from: 'beginning',
    ...(lanes === undefined ? {} : { lanes }),
    onRecord: (record) => {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      if (envelope === undefined || (only !== undefined && envelope.subject !== only)) return;
      const stream = streams.get(envelope.subject) ?? { stream: envelope.subject, events: [], problems: [] };
      streams.set(envelope.subject, stream);
      const id = `${envelope.source}|${envelope.lane ?? ''}|${envelope.seq ?? ''}`;
      if (envelope.seq !== undefined && seen.has(id)) return;
      seen.add(id);
      addTo(stream, envelope, record);
    },
  });
  try {
    await reader.caughtUp;
  } finally {
    await reader.close();
  }
  return streams;
}

function addTo(stream: TopicStream, envelope: Envelope, record: LogRecord): void {
  const at = `${record.topic}/${record.lane} offset ${record.offset}`;
  const { version, hash } = envelope;
  const text = record.value ?? '';
  const parsed = parseJson(text);
  if (!parsed.ok) {
    stream.problems.push(`${at}: ${envelope.type} can't be read: ${parsed.message}`);
    return;
  }
  if (version === undefined || hash === undefined) {
    stream.problems.push(`${at}: ${envelope.type} has no version or no hash: no service wrote it`);
    return;
  }
  const last = stream.events.at(-1)?.envelope;
  const expected = (last?.version ?? 0) + 1;
  // One break makes all that follows look wrong; the first few say where it is.
  if (stream.problems.length >= PROBLEMS_MAX) return;
  const computed = chainHash(last?.hash ?? '', { stream: envelope.subject, version, type: envelope.type, time: envelope.time, tenant: envelope.tenant, data: text });
  if (version !== expected) stream.problems.push(`${at}: version ${version} follows version ${expected - 1}: ${version > expected ? 'events are missing' : 'events are out of order or doubled'}`);
  if (computed !== hash) stream.problems.push(`${at}: ${envelope.type} (version ${version}) doesn't hash to what it says: it, or one before it, was changed`);
  // What doesn't chain is reported, not folded: nobody can say what it means.
  if (version !== expected || computed !== hash) return;
  stream.events.push({ envelope: { ...envelope, version, hash }, topic: record.topic, lane: record.lane, offset: record.offset, text, data: parsed.value });
}
