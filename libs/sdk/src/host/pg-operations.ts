import type { PoolClient } from 'pg';
import type { Json } from '@holdfast/protocol';
import type { ToolContext } from '../define/tool.js';

type AttemptOf = Pick<ToolContext, 'operationKey' | 'attempt'>;

/** What the user's database remembers of an operation key. */
export interface Operation {
  readonly state: 'applied' | 'void';
  readonly attempt: number;
  /** Recorded result; null for a void. */
  readonly result: Json;
}

const TABLE = `create table if not exists holdfast_operations (
  operation_key text primary key,
  attempt integer not null,
  state text not null check (state in ('applied', 'void')),
  result text,
  at timestamptz not null default now()
)`;

// Two workers that make the table at one moment would collide in PostgreSQL's catalogue.
const ONE_AT_A_TIME = `select pg_advisory_xact_lock(hashtext('holdfast_operations'))`;

const CLAIM = `insert into holdfast_operations as known (operation_key, attempt, state) values ($1, $2, 'applied')
  on conflict (operation_key) do update set attempt = excluded.attempt, state = 'applied', result = null, at = now()
  where known.state = 'void' and known.attempt < excluded.attempt`;
const RECORD = 'update holdfast_operations set result = $2, at = now() where operation_key = $1';
const READ = 'select state, attempt, result from holdfast_operations where operation_key = $1';
// Waits for an open transaction on the key, which a plain read would miss. Where the key is void
// already, the later attempt is voided too.
const SEAL = `insert into holdfast_operations as known (operation_key, attempt, state) values ($1, $2, 'void')
  on conflict (operation_key) do update set attempt = greatest(known.attempt, excluded.attempt), at = now()
  where known.state = 'void'`;

/** Makes the table where it is missing. To be called in a transaction. */
export async function createTable(client: PoolClient): Promise<void> {
  const { rows } = await client.query<{ known: string | null }>(`select to_regclass('holdfast_operations')::text as known`);
  if (rows[0]?.known !== null && rows[0] !== undefined) return; // Whoever may not create tables needn't.
  await client.query(ONE_AT_A_TIME);
  await client.query(TABLE);
}

/**
 * Takes the key for an attempt, together with whatever else its transaction changes. Waits for
 * another open transaction on the key. Returns what stands in the way: the operation is applied,
 * or this attempt is void; undefined when the key is taken.
 */
export async function claim(client: PoolClient, { operationKey, attempt }: AttemptOf): Promise<Operation | undefined> {
  const { rowCount } = await client.query(CLAIM, [operationKey, attempt]);
  return rowCount === 1 ? undefined : read(client, operationKey);
}

/** Notes the result of the operation whose key was claimed in this transaction. */
export async function record(client: PoolClient, { operationKey }: AttemptOf, result: Json): Promise<void> {
  await client.query(RECORD, [operationKey, JSON.stringify(result)]);
}

/** Voids an attempt and all before it, unless the operation is applied: then it is returned. Final once committed. */
export async function seal(client: PoolClient, { operationKey, attempt }: AttemptOf): Promise<Operation | undefined> {
  const { rowCount } = await client.query(SEAL, [operationKey, attempt]);
  return rowCount === 1 ? undefined : read(client, operationKey);
}

async function read(client: PoolClient, operationKey: string): Promise<Operation> {
  const { rows } = await client.query<{ state: Operation['state']; attempt: number; result: string | null }>(READ, [operationKey]);
  const [row] = rows;
  if (row === undefined) throw new Error(`the row of operation ${operationKey} is gone: rows of holdfast_operations must not be deleted while their runs can be asked about`);
  return { state: row.state, attempt: row.attempt, result: JSON.parse(row.result ?? 'null') as Json };
}
