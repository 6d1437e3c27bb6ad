import { createHash } from 'node:crypto';
import type { DataSource } from 'typeorm';
import { canonicalJson, type Json } from '@holdfast/protocol';
import type { Principal } from '../domain/access.js';
import { rowsOf } from '../store/database.js';
import { Problem } from './problem.js';

/** For how long a request is its gateway's before its repetition takes over: put off for as long as it is being answered, so that it ends soon where that gateway died. Milliseconds. */
const LOCK_MS = 10_000;
/** How long an answer is kept. Milliseconds. */
export const KEPT_MS = 24 * 60 * 60 * 1000;

export interface KeptAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const hash = (...parts: readonly string[]): string => createHash('sha256').update(JSON.stringify(parts)).digest('hex');

/**
 * `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): by tenant, asker and key, for a day.
 * Same request: the same answer. Another one: 422. One that is being answered: 409. What a gateway
 * was doing when it died is done again, under the same command, which the owning service knows.
 */
export class Idempotency {
  constructor(
    private readonly database: DataSource,
    private readonly now: () => number,
  ) {}

  /** The key that a header carries; null without one. A quoted string, as the draft has it, or the bare text. @throws Problem */
  static keyIn(header: string | undefined): string | null {
    if (header === undefined) return null;
    const key = /^"(.*)"$/.exec(header.trim())?.[1] ?? header.trim();
    if (!/^[\x21-\x7e]{1,200}$/.test(key)) throw new Problem('invalid-request', 'Idempotency-Key has 1 to 200 visible ASCII characters');
    return key;
  }

  /** Name of the command that such a request is, the same for each repetition. */
  static command({ tenant, id }: Principal, key: string): string {
    return `i-${hash('command', tenant, id, key).slice(0, 40)}`;
  }

  static fingerprint(method: string, address: string, body: Json): string {
    return hash(method, address, canonicalJson(body));
  }

  /** The kept answer, or null: then the request is ours to answer. @throws Problem */
  async begin({ tenant, id }: Principal, key: string, request: string): Promise<KeptAnswer | null> {
    const now = this.now();
    const claimed = await rowsOf(
      this.database,
      `insert into idempotency as i (tenant, asker, key, request, locked_to, expires_at) values ($1, $2, $3, $4, $5, $6)
       on conflict (tenant, asker, key) do update set request = excluded.request, locked_to = excluded.locked_to, expires_at = excluded.expires_at, status = null, headers = null, body = null
         where i.expires_at <= $7 or (i.status is null and i.locked_to <= $7 and i.request = excluded.request)
       returning key`,
      [tenant, id, key, request, now + LOCK_MS, now + KEPT_MS, now],
    );
    if (claimed.length > 0) return null;
    const [row] = await rowsOf<{ request: string; status: number | null; headers: string | null; body: string | null }>(
      this.database,
      'select request, status, headers, body from idempotency where tenant = $1 and asker = $2 and key = $3',
      [tenant, id, key],
    );
    if (row !== undefined && row.request !== request) throw new Problem('idempotency-key-reused', 'this Idempotency-Key was used for another request; choose a new one');
    if (row === undefined || row.status === null) throw new Problem('idempotency-in-progress', 'a request with this Idempotency-Key is being answered; try again', { headers: { 'retry-after': '1' } });
    return { status: row.status, headers: JSON.parse(row.headers ?? '{}') as Record<string, string>, body: row.body ?? '' };
  }

  /** While we answer a request, its repetitions wait; until what is returned is called. */
  hold({ tenant, id }: Principal, key: string): () => void {
    // Where it can't be put off a repetition may begin, under the same command.
    const putOff = (): void => void this.database.query('update idempotency set locked_to = $4 where tenant = $1 and asker = $2 and key = $3 and status is null', [tenant, id, key, this.now() + LOCK_MS]).catch(() => undefined);
    const timer = setInterval(putOff, LOCK_MS / 4);
    return () => clearInterval(timer);
  }

  async keep({ tenant, id }: Principal, key: string, { status, headers, body }: KeptAnswer): Promise<void> {
    await this.database.query('update idempotency set status = $4, headers = $5, body = $6 where tenant = $1 and asker = $2 and key = $3', [tenant, id, key, status, JSON.stringify(headers), body]);
  }

  /** The request came to nothing: its repetition begins anew. */
  async drop({ tenant, id }: Principal, key: string): Promise<void> {
    await this.database.query('delete from idempotency where tenant = $1 and asker = $2 and key = $3 and status is null', [tenant, id, key]);
  }

  async sweep(): Promise<void> {
    await this.database.query('delete from idempotency where expires_at <= $1', [this.now()]);
  }
}
