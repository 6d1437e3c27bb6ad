import { createHash } from 'node:crypto';
import type { DataSource } from 'typeorm';
import { canonicalJson, type Json } from '@holdfast/protocol';
import type { Principal } from '../domain/access.js';
import { rowsOf } from '../store/database.js';
import { Problem } from './problem.js';

/** By one clock, the database's, whichever gateway asks. Epoch milliseconds, the same all through a statement. */
const NOW = `(extract(epoch from statement_timestamp()) * 1000)::bigint`;
/** For how long a request is its gateway's before its repetition takes over: put off for as long as it is being answered, so that it ends soon where that gateway died. Milliseconds. */
const LOCK_MS = 10_000;
/** How long an answer is kept. Milliseconds. */
export const KEPT_MS = 24 * 60 * 60 * 1000;

export interface KeptAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A request that is ours to answer. Another may have taken it over since: then nothing of ours is kept. */
export interface Claim {
  readonly tenant: string;
  readonly asker: string;
  readonly key: string;
  /** When its answer is forgotten, epoch milliseconds: no two claims of one key have the same. */
  readonly expiresAt: number;
}

const OURS = 'tenant = $1 and asker = $2 and key = $3 and expires_at = $4 and status is null';
const rowOf = ({ tenant, asker, key, expiresAt }: Claim): readonly unknown[] => [tenant, asker, key, expiresAt];

const hash = (...parts: readonly string[]): string => createHash('sha256').update(JSON.stringify(parts)).digest('hex');

/**
 * `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): by tenant, asker and key, for a day.
 * Same request: the same answer. Another one: 422. One that is being answered: 409. What a gateway
 * was doing when it died is done again, under the same command: whoever carries it out knows it by that.
 */
export class Idempotency {
  constructor(private readonly database: DataSource) {}

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

  /** The kept answer, or a claim: then the request is ours to answer. @throws Problem */
  async begin({ tenant, id: asker }: Principal, key: string, request: string): Promise<{ readonly kept: KeptAnswer } | { readonly claim: Claim }> {
    const [claimed] = await rowsOf<{ expires_at: number }>(
      this.database,
      `insert into idempotency as i (tenant, asker, key, request, locked_to, expires_at) values ($1, $2, $3, $4, ${NOW} + $5, ${NOW} + $6)
       on conflict (tenant, asker, key) do update set request = excluded.request, locked_to = excluded.locked_to, expires_at = excluded.expires_at, status = null, headers = null, body = null
         where i.expires_at <= ${NOW} or (i.status is null and i.locked_to <= ${NOW} and i.request = excluded.request)
       returning expires_at`,
      [tenant, asker, key, request, LOCK_MS, KEPT_MS],
    );
    if (claimed !== undefined) return { claim: { tenant, asker, key, expiresAt: claimed.expires_at } };
    const [row] = await rowsOf<{ request: string; status: number | null; headers: string | null; body: string | null }>(
      this.database,
      'select request, status, headers, body from idempotency where tenant = $1 and asker = $2 and key = $3',
      [tenant, asker, key],
    );
    if (row !== undefined && row.request !== request) throw new Problem('idempotency-key-reused', 'this Idempotency-Key was used for another request; choose a new one');
    if (row === undefined || row.status === null) throw new Problem('idempotency-in-progress', 'a request with this Idempotency-Key is being answered; try again', { headers: { 'retry-after': '1' } });
    return { kept: { status: row.status, headers: JSON.parse(row.headers ?? '{}') as Record<string, string>, body: row.body ?? '' } };
  }

  /** While we answer a request, its repetitions wait; until what is returned is called. */
  hold(claim: Claim): () => void {
    // Where it can't be put off a repetition may begin, under the same command.
    const putOff = (): void => void this.database.query(`update idempotency set locked_to = ${NOW} + $5 where ${OURS}`, [...rowOf(claim), LOCK_MS]).catch(() => undefined);
    const timer = setInterval(putOff, LOCK_MS / 4);
    return () => clearInterval(timer);
  }

  async keep(claim: Claim, { status, headers, body }: KeptAnswer): Promise<void> {
    await this.database.query(`update idempotency set status = $5, headers = $6, body = $7 where ${OURS}`, [...rowOf(claim), status, JSON.stringify(headers), body]);
  }

  /** The request came to nothing: its repetition begins anew. */
  async drop(claim: Claim): Promise<void> {
    await this.database.query(`delete from idempotency where ${OURS}`, [...rowOf(claim)]);
  }

  async sweep(): Promise<void> {
    await this.database.query(`delete from idempotency where expires_at <= ${NOW}`);
  }
}
