import pg from 'pg';
import type { DataSource, MigrationInterface } from 'typeorm';
import { journalMigrations } from './schema.js';

/** bigint as a number: versions, fences and positions compare as numbers. One past 2^53 is refused, never rounded. */
export function exactBigint(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`bigint ${text} from the database is beyond 2^53`);
  return value;
}

const INT8 = 20;
/** For a pg client or pool: every `bigint` comes back by `exactBigint`. */
export const exactTypes: pg.CustomTypesConfig = {
  getTypeParser: ((id: number, format?: 'text' | 'binary') => (id === INT8 ? exactBigint : pg.types.getTypeParser(id, format))) as typeof pg.types.getTypeParser,
};

/**
 * What a cut connection says while nobody listens, in the moments in which it changes hands between pool and holder,
 * would end the process. Whoever uses it next is told by its query.
 */
class PatientClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    this.on('error', () => undefined);
  }
}

export interface DatabaseOptions {
  /** `postgres://user:password@host:port/database` */
  readonly url: string;
  readonly applicationName: string;
  readonly migrations?: readonly (new () => MigrationInterface)[];
  /** False for a database that holds no journal: of a process without a loop. */
  readonly journal?: boolean;
  readonly poolSize?: number;
  /** Milliseconds, 0 for none; 30,000 when absent. */
  readonly statementTimeoutMs?: number;
}

/**
 * A service's database, with its migrations applied. Limits are set on each connection, so that a
 * frozen instance blocks nobody: a lock is waited for at most 5 s, a transaction left open is
 * ended after 10 s, a statement after 30 s.
 */
export async function openDatabase(options: DatabaseOptions): Promise<DataSource> {
  const source = await connected(options);
  await migrate(source);
  return source;
}

const migrationsFor = ({ journal, migrations = [] }: DatabaseOptions): readonly (new () => MigrationInterface)[] => [...(journal === false ? [] : journalMigrations), ...migrations];

async function connected(options: DatabaseOptions): Promise<DataSource> {
  // Workers and commands, which have no database of ours, do without its half of their start.
  const typeorm = await import('typeorm');
  const source = new typeorm.DataSource({
    type: 'postgres',
    url: options.url,
    migrations: [...migrationsFor(options)],
    migrationsTransactionMode: 'each',
    poolSize: options.poolSize ?? 5,
    // Without a listener a cut idle connection would end the process.
    poolErrorHandler: () => undefined,
    extra: {
      Client: PatientClient,
      types: exactTypes,
      application_name: options.applicationName,
      connectionTimeoutMillis: 10_000,
      options: `-c lock_timeout=5000 -c idle_in_transaction_session_timeout=10000 -c statement_timeout=${options.statementTimeoutMs ?? 30_000} -c synchronous_commit=on`,
    },
  });
  return source.initialize();
}

/** How far a database has come, by the names of migrations. */
export interface MigrationState {
  readonly applied: readonly string[];
  readonly pending: readonly string[];
  /** Applied by a version of the service that this one does not know. */
  readonly foreign: readonly string[];
}

/** Looks, and changes nothing. */
export async function migrationState(options: DatabaseOptions): Promise<MigrationState> {
  const own = migrationsFor(options).map((migration) => new migration().name ?? migration.name);
  const source = await connected(options);
  try {
    const [table] = (await source.query(`select to_regclass('migrations') is not null as there`)) as { there: boolean }[];
    const rows = table?.there === true ? ((await source.query('select name from migrations order by id')) as { name: string }[]) : [];
    const applied = rows.map(({ name }) => name);
    return { applied, pending: own.filter((name) => !applied.includes(name)), foreign: applied.filter((name) => !own.includes(name)) };
  } finally {
    await source.destroy();
  }
}

/** Applies what is missing; two instances that start at once do it one after the other. */
async function migrate(source: DataSource): Promise<void> {
  const runner = source.createQueryRunner();
  try {
    await runner.query('select pg_advisory_lock(4711)');
    try {
      await source.runMigrations();
    } finally {
      await runner.query('select pg_advisory_unlock(4711)');
    }
  } finally {
    await runner.release();
  }
}
