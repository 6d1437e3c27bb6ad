import { createHash, randomBytes, randomUUID, timingSafeEqual } from 'node:crypto';
import type { DataSource } from 'typeorm';
import type { Principal } from '../domain/access.js';
import { rowsOf, type Queries } from '../store/database.js';

/** A key as lists show it: never its secret. Times in epoch milliseconds. */
export interface KeyView {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly roles: readonly string[];
  readonly tools: readonly string[] | null;
  readonly amountMax: number | null;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly usedAt: number | null;
}

export interface NewKey {
  readonly tenant: string;
  readonly name: string;
  readonly roles: readonly string[];
  readonly tools?: readonly string[] | undefined;
  readonly amountMax?: number | undefined;
  readonly expiresAt?: number | undefined;
}

/** Shown once: only its SHA-256 is kept. */
export interface MadeKey {
  readonly key: string;
  readonly view: KeyView;
}

interface Row {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly secret_hash: string;
  readonly roles: string[];
  readonly tools: string[] | null;
  readonly amount_max: string | null;
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly revoked_at: number | null;
  readonly used_at: number | null;
}

const KEY = /^hf_([0-9a-f]{12})_([A-Za-z0-9_-]{43})$/;
export const KEY_PREFIX = 'hf_';
const USED_EVERY_MS = 60_000;
/** How long the old key goes on after a rotation, unless said otherwise. Milliseconds. */
export const ROTATION_GRACE_MS = 24 * 60 * 60 * 1000;

/** 256 random bits need no slow hash: nobody guesses them. */
const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex');
const same = (a: string, b: string): boolean => timingSafeEqual(Buffer.from(a, 'hex'), Buffer.from(b, 'hex'));

const viewOf = (row: Row): KeyView => ({
  id: row.id,
  tenant: row.tenant,
  name: row.name,
  roles: row.roles,
  tools: row.tools,
  amountMax: row.amount_max === null ? null : Number(row.amount_max),
  createdAt: row.created_at,
  expiresAt: row.expires_at,
  revokedAt: row.revoked_at,
  usedAt: row.used_at,
});

/** The command has made its key already; the secret was shown then, or is lost. */
export class KeyMade extends Error {
  override readonly name = 'KeyMade';
  constructor(readonly id: string) {
    super(`key ${id} was made by the same request, and its secret was on its way once: if it did not arrive, revoke that key and make another`);
  }
}

/** API keys, in the gateway's own database. */
export class Keys {
  constructor(
    private readonly database: DataSource,
    private readonly now: () => number,
  ) {}

  /** `command`: names what asks for it. @throws KeyMade where that has been done */
  create(of: NewKey, command: string = randomUUID()): Promise<MadeKey> {
    return this.#make(this.database, of, command);
  }

  async #make(on: Queries, { tenant, name, roles, tools, amountMax, expiresAt }: NewKey, command: string): Promise<MadeKey> {
    const id = hashOf(command).slice(0, 12);
    const secret = randomBytes(32).toString('base64url');
    const [row] = await rowsOf<Row>(
      on,
      `insert into api_key (id, tenant, name, secret_hash, roles, tools, amount_max, created_at, expires_at) values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (id) do nothing returning *`,
      [id, tenant, name, hashOf(secret), roles, tools ?? null, amountMax ?? null, this.now(), expiresAt ?? null],
    );
    if (row === undefined) throw new KeyMade(id);
    return { key: `${KEY_PREFIX}${id}_${secret}`, view: viewOf(row) };
  }

  /** Keys of a tenant, or of all, newest first. */
  async list(tenant?: string): Promise<KeyView[]> {
    return (await rowsOf<Row>(this.database, `select * from api_key where $1::text is null or tenant = $1 order by created_at desc, id limit 1000`, [tenant ?? null])).map(viewOf);
  }

  /** A new key for the same use; the old one goes on for `graceMs`. Null where there is no such key that works. @throws KeyMade */
  async rotate(id: string, tenant?: string, graceMs = ROTATION_GRACE_MS, command: string = randomUUID()): Promise<MadeKey | null> {
    const old = (await this.list(tenant)).find((key) => key.id === id && key.revokedAt === null);
    if (old === undefined) return null;
    const { tools, amountMax, expiresAt, ...rest } = old;
    // Both or neither: whoever asks again under the same command finds it done.
    return this.database.transaction(async (tx) => {
      const made = await this.#make(tx, { ...rest, tools: tools ?? undefined, amountMax: amountMax ?? undefined, expiresAt: expiresAt ?? undefined }, command);
      await tx.query('update api_key set expires_at = least(coalesce(expires_at, $2), $2) where id = $1', [id, this.now() + graceMs]);
      return made;
    });
  }

  /** From now on it opens nothing. False where there is no such key that works. */
  async revoke(id: string, tenant?: string): Promise<boolean> {
    const rows = await rowsOf(this.database, `with gone as (update api_key set revoked_at = $2 where id = $1 and revoked_at is null and ($3::text is null or tenant = $3) returning id) select id from gone`, [id, this.now(), tenant ?? null]);
    return rows.length > 0;
  }

  /** Whose key it is; null when it opens nothing (any more). */
  async principalOf(key: string): Promise<Principal | null> {
    const [, id, secret] = KEY.exec(key) ?? [];
    if (id === undefined || secret === undefined) return null;
    const [row] = await rowsOf<Row>(this.database, 'select * from api_key where id = $1', [id]);
    const now = this.now();
    if (row === undefined || !same(row.secret_hash, hashOf(secret)) || row.revoked_at !== null || (row.expires_at !== null && row.expires_at <= now)) return null;
    if (row.used_at === null || row.used_at < now - USED_EVERY_MS) await this.database.query('update api_key set used_at = $2 where id = $1', [id, now]);
    const { tenant, name, roles, tools, amountMax } = viewOf(row);
    return { id, name, tenant, roles, tools, amountMax };
  }
}
