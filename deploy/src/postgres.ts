import { execFile } from 'node:child_process';
import { access, chown, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import getPort from 'get-port';
import pg from 'pg';
import { didNotStart, notReachable, StackError } from './errors.js';
import { retryOnTakenPort } from './free-ports.js';
import { postgresBinaries, type Binaries } from './postgres-binaries.js';
import { firstClosedFolder, POSTGRES_USER, postgresOwner, type Owner } from './postgres-owner.js';
import { requireDataDir, requireFreePort } from './preflight.js';
import { childrenOf, isRunning } from './process-table.js';
import { ServerProcess, stopLeftOver, type Exit } from './server-process.js';

const run = promisify(execFile);

export const POSTGRES_PORT_SETTING = 'HOLDFAST_POSTGRES_PORT';
/** User and password of the superuser. No secret: it listens on the loopback address alone, for development. */
const LOGIN = 'holdfast';

const READY_LIMIT_MS = 60_000;
/** How long one look whether it is up may take. */
const LOOK_MS = 2000;
/** How long a server that is up may take to let one in: on a busy machine it forks slowly. */
const CONNECT_MS = 15_000;
/** What the slower of two concurrent `create database` gets, depending on how close they were. */
const DUPLICATE_DATABASE = '42P04';
const UNIQUE_VIOLATION = '23505';

export type PostgresOptions = Readonly<{
  /** Holds logs and data; made when missing. */
  dir: string;
  /** A free port when left out. */
  port?: number | undefined;
  /** false: commits survive killed processes, not a power cut; for tests. */
  durable?: boolean | undefined;
  log?: ((line: string) => void) | undefined;
}>;

export interface PostgresServer {
  readonly dir: string;
  readonly port: number;
  readonly pid: number;
  /** Of the present process: a new promise after each start. */
  readonly exited: Promise<Exit>;
  /** With a database, a URL to it; without, the server's. */
  url(database?: string): string;
  /** Does nothing when it is there already. */
  createDatabase(name: string): Promise<void>;
  /** In order: open connections are ended, what is committed is checkpointed. */
  stop(): Promise<void>;
  /** SIGKILL to the server and its backends, as in a crash. */
  kill(): Promise<void>;
  /** Again, on the same folder and port, after stop or kill. */
  start(): Promise<void>;
}

/** A real server, once it answers a query. */
export async function startPostgres(options: PostgresOptions): Promise<PostgresServer> {
  const dir = path.resolve(options.dir);
  const { owner, binaries } = await initialisePostgres(options);

  return retryOnTakenPort(options.port === undefined, async () => {
    const port = options.port ?? (await getPort({ host: '127.0.0.1' }));
    const launch = async (): Promise<ServerProcess> => {
      await requireFreePort('PostgreSQL', port, POSTGRES_PORT_SETTING);
      return launchServer({ binaries, dir, port, owner, durable: options.durable ?? true });
    };
    return new LocalPostgres(dir, port, launch, await launch());
  });
}

/** Makes the data folder of a server that is started later, where it is not there yet. */
export async function initialisePostgres(options: Omit<PostgresOptions, 'port'>): Promise<Readonly<{ owner: Owner | undefined; binaries: Binaries }>> {
  const dir = path.resolve(options.dir);
  await requireDataDir(dir);
  const owner = await postgresOwner(options.log ?? (() => undefined));
  if (owner !== undefined) {
    const closed = await firstClosedFolder(dir, owner);
    if (closed !== undefined) throw notReachable(POSTGRES_USER, closed);
  }
  const binaries = await postgresBinaries(dir, owner);
  await stopLeftOver(identity(dir));
  await initialiseOnce(binaries, dir, owner, options.durable ?? true);
  return { owner, binaries };
}

/** Idempotent, on any server: two callers at once are fine too. */
export async function createDatabase(serverUrl: string, name: string): Promise<void> {
  await withClient(databaseUrl(serverUrl, 'postgres'), async (client) => {
    const found = await client.query('select 1 from pg_database where datname = $1', [name]);
    if (found.rowCount === 1) return;
    await client.query(`create database ${client.escapeIdentifier(name)}`).catch((error: unknown) => {
      const code = error instanceof pg.DatabaseError ? error.code : undefined;
      if (code !== DUPLICATE_DATABASE && code !== UNIQUE_VIOLATION) throw error;
    });
  });
}

export function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${encodeURIComponent(database)}`;
  return url.href;
}

class LocalPostgres implements PostgresServer {
  constructor(
    readonly dir: string,
    readonly port: number,
    private readonly launch: () => Promise<ServerProcess>,
    private server: ServerProcess,
  ) {}

  get pid(): number {
    return this.server.pid;
  }

  get exited(): Promise<Exit> {
    return this.server.exited;
  }

  url(database?: string): string {
    const server = serverUrl(this.port);
    return database === undefined ? server : databaseUrl(server, database);
  }

  createDatabase(name: string): Promise<void> {
    return createDatabase(this.url(), name);
  }

  stop(): Promise<void> {
    return this.server.stop();
  }

  async kill(): Promise<void> {
    // Each backend leads a session of its own, so the group of the server doesn't hold them.
    const backends = await childrenOf(this.server.pid);
    await this.server.kill();
    for (const backend of backends) if (await isRunning(backend)) killIfThere(backend);
  }

  async start(): Promise<void> {
    await stopLeftOver(identity(this.dir));
    this.server = await this.launch();
  }
}

type Launch = Readonly<{ binaries: Binaries; dir: string; port: number; owner: Owner | undefined; durable: boolean }>;

async function launchServer(launch: Launch): Promise<ServerProcess> {
  const deadline = Date.now() + READY_LIMIT_MS;
  for (;;) {
    const server = await ServerProcess.start({
      ...identity(launch.dir),
      command: launch.binaries.postgres,
      args: ['-D', dataOf(launch.dir), '-p', String(launch.port), ...settings(launch.durable).flatMap(([key, value]) => ['-c', `${key}=${value}`])],
      logFile: path.join(launch.dir, 'postgres.log'),
      owner: launch.owner,
    });
    try {
      await server.untilReady(() => withClient(databaseUrl(serverUrl(launch.port), 'postgres'), (client) => client.query('select 1'), LOOK_MS), READY_LIMIT_MS);
      return server;
    } catch (error) {
      // Backends of a killed server notice within moments that it is gone, and hold its memory until then.
      const heldByFormer = error instanceof StackError && error.message.includes('shared memory block');
      if (!heldByFormer || Date.now() > deadline) throw error;
    }
  }
}

const settings = (durable: boolean): [string, string | number][] => [
  ['listen_addresses', '127.0.0.1'],
  ['unix_socket_directories', ''],
  ['max_connections', 200],
  ['shared_buffers', '128MB'],
  ['synchronous_commit', 'on'],
  ['fsync', durable ? 'on' : 'off'],
  ['full_page_writes', durable ? 'on' : 'off'],
  ['log_timezone', 'UTC'],
  ['timezone', 'UTC'],
];

const dataOf = (dir: string): string => path.join(dir, 'data');

const serverUrl = (port: number): string => `postgres://${LOGIN}:${LOGIN}@127.0.0.1:${port}`;

const identity = (dir: string) =>
  // SIGINT is its fast shutdown: SIGTERM would wait for clients to leave.
  ({ what: 'PostgreSQL', dir, pidFile: path.join(dir, 'postgres.pid'), marker: `-D ${dataOf(dir)} `, stopSignal: 'SIGINT' }) as const;

async function initialiseOnce({ initdb }: Binaries, dir: string, owner: Owner | undefined, durable: boolean): Promise<void> {
  const data = dataOf(dir);
  // No file of initdb's own says that it came to its end; a folder that it was killed in is made anew.
  const done = path.join(dir, 'initialised');
  const initialised = await access(done).then(
    () => true,
    () => false,
  );
  if (initialised) return;
  await rm(data, { recursive: true, force: true });
  await mkdir(data, { mode: 0o700 });
  if (owner !== undefined) await chown(data, owner.uid, owner.gid);
  const passwordFile = path.join(dir, 'password');
  await writeFile(passwordFile, `${LOGIN}\n`);
  try {
    await run(
      initdb,
      [
        ...['-D', data, '-U', LOGIN, `--pwfile=${passwordFile}`, '--auth=scram-sha-256', '--encoding=UTF8'],
        // The built-in collation sorts alike on every machine, whatever locales it has.
        ...['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-instructions'],
        ...(durable ? [] : ['--no-sync']),
      ],
      { cwd: dir, ...owner },
    );
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw didNotStart('PostgreSQL', `its data folder ${data} could not be made`, data, `${stdout}\n${stderr}`.trim() || String(error));
  } finally {
    await rm(passwordFile, { force: true });
  }
  await writeFile(done, '');
}

export async function withClient<T>(connectionString: string, work: (client: pg.Client) => Promise<T>, connectMs = CONNECT_MS): Promise<T> {
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: connectMs });
  // A server that goes down while we ask ends the connection: the pending query says so itself.
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await work(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It followed its server by itself.
  }
}
