import { encodeHeaders, RunAccepted, RunReleased, serviceSource, Step, topics, WaitStarted, digestOf, type Message } from '@holdfast/protocol';
import { chainHash } from '@holdfast/runtime';
import { createWriter, laneOf } from '@holdfast/runtime/kafka';
import type pg from 'pg';

const RUNS_A_BATCH = 2000;

export interface Sleeper {
  readonly run: string;
  /** Epoch milliseconds. */
  readonly until: number;
}

interface Row {
  readonly lane: number;
  readonly seq: number;
  readonly prev: number;
  readonly stream: string;
  readonly type: string;
  readonly version: number;
  readonly hash: string;
  readonly time: number;
  readonly data: string;
}

/**
 * Writes sleeping runs as the orchestrator would have: journal, agenda and topic, with their seqs and hash
 * chains. Nobody else may hold its lanes meanwhile.
 */
export async function loadSleepers(database: pg.Pool, brokers: readonly string[], partitions: number, sleepers: readonly Sleeper[]): Promise<void> {
  const incarnation = (await database.query<{ id: string }>('select id from incarnation')).rows[0]?.id ?? '';
  const source = serviceSource('orchestrator', incarnation);
  const writer = await createWriter({ brokers, clientId: 'bench-bulk' });
  const lanes = new Map<number, { next: number; last: number }>();
  for (const { lane, next_seq: next, last } of (await database.query<{ lane: number; next_seq: string; last: string }>('select lane, next_seq, last from progress')).rows) {
    lanes.set(lane, { next: Number(next), last: (JSON.parse(last) as Record<string, number>)[topics.runEvents] ?? 0 });
  }
  try {
    for (let from = 0; from < sleepers.length; from += RUNS_A_BATCH) {
      const batch = sleepers.slice(from, from + RUNS_A_BATCH);
      const rows = batch.flatMap((sleeper) => rowsOf(sleeper, laneOf(sleeper.run, partitions), lanes));
      await database.query(
        `insert into journal (lane, seq, topic, prev, stream, type, version, time, tenant, hash, data)
         select u.lane, u.seq, $1, u.prev, u.stream, u.type, u.version, u.time, 'default', u.hash, u.data
         from unnest($2::int[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::text[]) as u(lane, seq, prev, stream, type, version, time, hash, data)`,
        [topics.runEvents, ...(['lane', 'seq', 'prev', 'stream', 'type', 'version', 'time', 'hash', 'data'] as const).map((name) => rows.map((row) => row[name]))],
      );
      await database.query('insert into agenda (stream, lane, open, due_at, tag) select u.stream, u.lane, true, u.due, null from unnest($1::text[], $2::int[], $3::bigint[]) as u(stream, lane, due)', [
        batch.map(({ run }) => run),
        batch.map(({ run }) => laneOf(run, partitions)),
        batch.map(({ until }) => until),
      ]);
      await writer.publish(rows.map(({ lane, seq, prev, stream, type, version, hash, time, data }) => ({
        topic: topics.runEvents,
        lane,
        key: stream,
        value: data,
        headers: encodeHeaders({ id: `${source}/${lane}/${seq}`, type, source, subject: stream, time, tenant: 'default', lane, seq, prev, version, hash }),
      })));
    }
    for (const [lane, { next, last }] of lanes) {
      const { rows } = await database.query<{ last: string }>('select last from progress where lane = $1', [lane]);
      await database.query('update progress set next_seq = $2, published = $3, last = $4 where lane = $1', [lane, next, next - 1, JSON.stringify({ ...(JSON.parse(rows[0]?.last ?? '{}') as object), [topics.runEvents]: last })]);
    }
  } finally {
    await writer.close();
  }
}

/** Accepted, asleep, and let go. */
function rowsOf({ run, until }: Sleeper, lane: number, lanes: Map<number, { next: number; last: number }>): Row[] {
  const now = Date.now();
  const at = lanes.get(lane) ?? { next: 1, last: 0 };
  lanes.set(lane, at);
  const input = { until };
  const step = Step.parse('1');
  const fence = 1 as never;
  const events: Message[] = [
    RunAccepted({ tenant: 'default' as never, agent: { name: 'sleeper', version: '1' }, pool: 'default' as never, input, inputDigest: digestOf(input), at: now, lease: { fence, worker: 'bulk' as never, taken: 0 } }),
    WaitStarted({ step, wait: { kind: 'sleep', until }, since: now, onDeadline: { action: 'expire' }, fence }),
    RunReleased({ waits: [step], fence }),
  ];
  let hash = '';
  return events.map(({ type, data }, i): Row => {
    const text = JSON.stringify(data);
    hash = chainHash(hash, { stream: run, version: i + 1, type, time: now, tenant: 'default', data: text });
    const row = { lane, seq: at.next, prev: at.last, stream: run, type, version: i + 1, hash, time: now, data: text };
    at.last = at.next;
    at.next += 1;
    return row;
  });
}
