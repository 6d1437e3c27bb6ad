import { decodeHeaders, parseJson, type Json, type Message } from '@holdfast/protocol';
import { chainHash } from '../loop/chain.js';
import type { Service } from '../loop/service.js';
import type { LogRecord } from '../ports.js';
import type { JournalRow } from '../store/types.js';
import { RebuildProblem, type Head, type RebuildLog, type RebuildStore } from './ports.js';

const ROWS_PER_WRITE = 1000;
const NOTHING: Head = { version: 0, hash: '' };

/** What one lane of the service's own topic came to. */
export interface FoldedLane {
  readonly lane: number;
  /** Highest number that any of the service's rows on the topics has, in any incarnation. */
  topSeq: number;
  nextSeq: number;
  /** Next offset that has no answer yet for certain, by outsiders' topic. */
  readonly answered: Map<string, number>;
  added: number;
  known: number;
  /** Records that no service wrote. */
  foreign: number;
  /** Streams of which the database holds more than the topic. */
  ahead: { readonly stream: string; readonly version: number }[];
}

interface Folding extends FoldedLane {
  readonly stored: ReadonlyMap<string, Head>;
  readonly published: Map<string, Head>;
  pending: JournalRow[];
}

export const ownSource = (service: string): string => `holdfast/${service}/`;

/** Takes the service's own topic into its journal: rows that it does not hold yet, in lane order, each checked against its stream's chain. */
export async function foldOwnTopic<State, Event extends Message>(
  service: Service<State, Event>,
  store: RebuildStore,
  log: RebuildLog,
  nextSeqs: ReadonlyMap<number, number>,
  onRecords: (count: number) => void,
): Promise<Map<number, FoldedLane>> {
  const lanes = new Map<number, Folding>();
  for (const [lane, nextSeq] of nextSeqs) {
    lanes.set(lane, { lane, nextSeq, topSeq: nextSeq - 1, answered: new Map(), added: 0, known: 0, foreign: 0, ahead: [], stored: await store.heads(service.ownTopic, lane), published: new Map(), pending: [] });
  }
  const write = async (folding: Folding): Promise<void> => {
    if (folding.pending.length === 0) return;
    const rows = folding.pending;
    folding.pending = [];
    await store.addRows(folding.lane, rows);
    folding.added += rows.length;
  };
  await log.read(service.ownTopic, async (records) => {
    for (const record of records) {
      const folding = lanes.get(record.lane);
      if (folding === undefined) throw new RebuildProblem(`${service.ownTopic} has a lane ${record.lane} and this service ${nextSeqs.size}: set HOLDFAST_PARTITIONS to the topic's number of partitions`);
      take(service, folding, record);
      if (folding.pending.length >= ROWS_PER_WRITE) await write(folding);
    }
    onRecords(records.length);
  });
  for (const folding of lanes.values()) {
    await write(folding);
    await compareHeads(service.ownTopic, folding, store);
  }
  return lanes;
}

function take<State, Event extends Message>(service: Service<State, Event>, folding: Folding, record: LogRecord): void {
  const envelope = decodeHeaders(record.headers, record.key, record.time);
  if (envelope?.seq === undefined || envelope.version === undefined || envelope.hash === undefined || !envelope.source.startsWith(ownSource(service.name))) {
    folding.foreign += 1;
    return;
  }
  const { subject: stream, version, hash, seq, type, time, tenant } = envelope;
  const data = record.value ?? '';
  folding.topSeq = Math.max(folding.topSeq, seq);
  const before = folding.published.get(stream) ?? NOTHING;
  if (version < before.version || (version === before.version && hash === before.hash)) return; // Published again after a crash.
  if (version !== before.version + 1 || chainHash(before.hash, { stream, version, type, time, tenant, data }) !== hash) {
    throw new RebuildProblem(
      `${record.topic}/${record.lane} offset ${record.offset}: version ${version} of stream ${stream} does not chain to version ${before.version}, so nobody can say what was decided; look with \`holdfast audit verify\`, and restore the topic or the database`,
    );
  }
  folding.published.set(stream, { version, hash });
  note(service, folding, type, data);
  const stored = folding.stored.get(stream) ?? NOTHING;
  if (version <= stored.version) {
    folding.known += 1;
    return;
  }
  const row = Math.max(seq, folding.nextSeq);
  folding.nextSeq = row + 1;
  folding.pending.push({ lane: record.lane, seq: row, topic: record.topic, prev: envelope.prev ?? 0, stream, type, version, time, tenant, hash, trace: envelope.traceparent ?? null, data });
}

function note<State, Event extends Message>(service: Service<State, Event>, folding: FoldedLane, type: string, data: string): void {
  const answers = service.rebuild?.answers?.[type];
  const parsed = answers === undefined ? undefined : parseJson(data);
  const answered = parsed?.ok === true ? answers?.(parsed.value) : null;
  if (answered !== null && answered !== undefined) noteAnswer(folding, answered);
}

export function noteAnswer({ answered }: FoldedLane, { topic, offset }: { readonly topic: string; readonly offset: number }): void {
  answered.set(topic, Math.max(answered.get(topic) ?? 0, offset + 1));
}

/** A journal that holds something else than what was published is nobody's to mend by guessing. */
async function compareHeads(topic: string, folding: Folding, store: RebuildStore): Promise<void> {
  const [stream] = await store.differing(topic, folding.published);
  if (stream !== undefined) {
    throw new RebuildProblem(`stream ${stream} on lane ${folding.lane}: the database and ${topic} hold different events under one version; drop the database (its truth is on the topic) and rebuild it whole`);
  }
  for (const [name, { version }] of folding.stored) {
    const published = folding.published.get(name)?.version ?? 0;
    if (published < version) folding.ahead.push({ stream: name, version: published });
  }
}

/** Dead letters are answers too. */
export function answeredByLetter(data: Json): { readonly topic: string; readonly offset: number } | null {
  if (data === null || typeof data !== 'object' || Array.isArray(data)) return null;
  const { topic, offset } = data as { readonly topic?: Json; readonly offset?: Json };
  return typeof topic === 'string' && typeof offset === 'number' ? { topic, offset } : null;
}
