import { chmod, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { firstClosedFolder } from '../src/postgres-owner.js';
import { startPostgres, type PostgresServer } from '../src/postgres.js';
import { isRunning } from '../src/process-table.js';
import { freshFolder, removeFolders } from './folders.js';

const DATABASE = 'holdfast_kept';
const LIMIT_MS = 60_000;

async function query<Row extends pg.QueryResultRow>(server: PostgresServer, database: string, sql: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: server.url(database) });
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

describe('PostgreSQL', () => {
  let one: PostgresServer;
  let other: PostgresServer;

  beforeAll(async () => {
    one = await startPostgres({ dir: await freshFolder() });
    other = await startPostgres({ dir: await freshFolder(), durable: false });
  }, LIMIT_MS);

  afterAll(async () => {
    await Promise.all([one, other].map((server) => server.stop()));
    await removeFolders();
  }, LIMIT_MS);

  test('has each database once, however often and however concurrently it is created', async () => {
    await Promise.all([one.createDatabase(DATABASE), one.createDatabase(DATABASE)]);
    await one.createDatabase(DATABASE);
    await expect(query(one, 'postgres', `select datname from pg_database where datname = '${DATABASE}'`)).resolves.toHaveLength(1);
  });

  test('in two folders is two: a database of one is not in the other', async () => {
    await expect(query(other, 'postgres', `select datname from pg_database where datname = '${DATABASE}'`)).resolves.toEqual([]);
  });

  test('is as durable as it was asked to be', async () => {
    await expect(query(one, 'postgres', 'show fsync')).resolves.toEqual([{ fsync: 'on' }]);
    await expect(query(other, 'postgres', 'show fsync')).resolves.toEqual([{ fsync: 'off' }]);
    await expect(query(one, 'postgres', 'show synchronous_commit')).resolves.toEqual([{ synchronous_commit: 'on' }]);
  });

  test.each([
    ['durable', (): PostgresServer => one],
    ['not durable', (): PostgresServer => other],
  ])('that is %s keeps what it committed over a stop and over a kill, on the same port', async (_, pick) => {
    const server = pick();
    await server.createDatabase(DATABASE);
    await query(server, DATABASE, 'create table kept (what text)');
    await query(server, DATABASE, "insert into kept values ('before the stop')");
    const { pid, port } = server;
    await server.stop();
    expect(await isRunning(pid)).toBe(false);
    await server.start();
    await query(server, DATABASE, "insert into kept values ('before the kill')");
    const bystander = new pg.Client({ connectionString: server.url(DATABASE) });
    // The server's farewell and the closed socket are two errors.
    const cutOff = new Promise((resolve) => bystander.on('error', resolve));
    await bystander.connect();
    await server.kill();
    await expect(cutOff).resolves.toBeInstanceOf(Error);
    await server.start();
    expect(server.port).toBe(port);
    await expect(query(server, DATABASE, 'select what from kept')).resolves.toEqual([{ what: 'before the stop' }, { what: 'before the kill' }]);
  }, LIMIT_MS);

  test('on a port in use says which port and which setting', async () => {
    await expect(startPostgres({ dir: await freshFolder(), port: one.port })).rejects.toThrow(
      `PostgreSQL can't listen on port ${one.port}, which is in use: stop what listens there or set HOLDFAST_POSTGRES_PORT to a free port.`,
    );
  });
});

describe("a folder closed to PostgreSQL's user", () => {
  afterAll(removeFolders);

  test('is found, the outermost first', async () => {
    const outer = await freshFolder();
    const inner = path.join(outer, 'closed', 'data');
    await mkdir(inner, { recursive: true });
    const stranger = { uid: 61_234, gid: 61_234 };
    await expect(firstClosedFolder(inner, stranger)).resolves.toBeUndefined();
    await chmod(path.join(outer, 'closed'), 0o700);
    await expect(firstClosedFolder(inner, stranger)).resolves.toBe(path.join(outer, 'closed'));
    await chmod(outer, 0o700);
    await expect(firstClosedFolder(inner, stranger)).resolves.toBe(outer);
  });
});
