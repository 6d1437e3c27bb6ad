import { createHash } from 'node:crypto';
import { decodeHeaders, isoTime, parseJson } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import type { DataSource } from 'typeorm';
import { placeOf } from '../domain/position.js';
import { rowsOf } from '../store/database.js';
import { movePosition } from '../store/positions.js';
import type { LaneSink } from '../views/lane-reader.js';

const POSITIONS = 'webhook_position';

interface Hook {
  readonly id: string;
  readonly tenant: string;
  readonly types: string[];
  readonly createdAt: number;
}

/** Puts events that somebody wants to hear of into the table of deliveries: each once, whoever reads them. */
export class WebhookFeed implements LaneSink {
  constructor(
    private readonly database: DataSource,
    private readonly now: () => number,
    private readonly onNews: () => void,
  ) {}

  async positions(lanes: readonly number[]): Promise<Map<string, number>> {
    const rows = await rowsOf<{ topic: string; lane: number; next: number }>(this.database, 'select topic, lane, next from webhook_position where lane = any($1)', [lanes]);
    return new Map(rows.map(({ topic, lane, next }) => [placeOf(topic, lane), next]));
  }

  async take(records: readonly LogRecord[], from: number): Promise<boolean> {
    const [first] = records;
    const last = records.at(-1);
    if (first === undefined || last === undefined) return true;
    let wanted = 0;
    const taken = await this.database.transaction(async (tx) => {
      if (!(await movePosition(tx, POSITIONS, first.topic, first.lane, from, last.offset + 1))) return false;
      const hooks = await rowsOf<Hook>(tx, 'select id, tenant, types, created_at as "createdAt" from webhook where removed_at is null');
      for (const record of hooks.length === 0 ? [] : records) {
        for (const { hook, id, type, body } of deliveriesOf(record, hooks)) {
          wanted += 1;
          await tx.query(
            `insert into delivery (id, webhook, event, type, body, state, next_at, created_at) values ($1, $2, $3, $4, $5, 'pending', $6, $6) on conflict do nothing`,
            [`${hook}.${id}`, hook, id, type, body, this.now()],
          );
        }
      }
      return true;
    });
    if (wanted > 0) this.onNews();
    return taken;
  }

  pass({ topic, lane, offset }: LogRecord, from: number): Promise<boolean> {
    return this.database.transaction((tx) => movePosition(tx, POSITIONS, topic, lane, from, offset + 1));
  }
}

/** An event is told once, however often its service published it: its id follows from where it stands in its stream. */
function deliveriesOf(record: LogRecord, hooks: readonly Hook[]): { hook: string; id: string; type: string; body: string }[] {
  const envelope = decodeHeaders(record.headers, record.key, record.time);
  if (envelope?.version === undefined || envelope.subject.startsWith('~')) return [];
  const { type, subject, tenant, time, version } = envelope;
  const wanting = hooks.filter((hook) => hook.tenant === tenant && hook.createdAt <= time && hook.types.includes(type));
  const parsed = wanting.length === 0 ? undefined : parseJson(record.value ?? '');
  if (parsed?.ok !== true) return [];
  const id = createHash('sha256').update(JSON.stringify([record.topic, subject, version])).digest('hex').slice(0, 32);
  const body = JSON.stringify({ type, timestamp: isoTime(time), data: { topic: record.topic, run: subject, version, event: parsed.value } });
  return wanting.map((hook) => ({ hook: hook.id, id, type, body }));
}
