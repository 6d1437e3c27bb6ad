import { spawn, type ChildProcess } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { startKafka } from '../src/kafka.js';
import { databaseUrl, startPostgres } from '../src/postgres.js';
import { childrenOf, commandLine, isRunning } from '../src/process-table.js';
import { freshFolder, removeFolders } from './folders.js';

const DEV = fileURLToPath(new URL('../dist/dev.js', import.meta.url));
const LIMIT_MS = 90_000;

type Parent = Readonly<{ child: ChildProcess; pid: number; databaseUrl: string }>;

/** A process of its own that starts both servers in `dir`, so that it can be killed; it ends in order when this one does. */
async function startParent(dir: string): Promise<Parent> {
  const child = spawn(process.execPath, [DEV, dir, '--temporary'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const line = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).once('line', resolve);
    child.once('exit', () => reject(new Error('the servers did not start')));
  });
  return { child, pid: Number(child.pid), databaseUrl: (JSON.parse(line) as { databaseUrl: string }).databaseUrl };
}

async function kill({ child }: Parent): Promise<void> {
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await gone;
}

async function split(pids: readonly number[]): Promise<{ servers: number[]; guardians: number[] }> {
  const lines = await Promise.all(pids.map(commandLine));
  const isGuardian = (index: number): boolean => lines[index]?.includes('holdfast-guardian') ?? false;
  return { servers: pids.filter((_, index) => !isGuardian(index)), guardians: pids.filter((_, index) => isGuardian(index)) };
}

async function untilGone(pids: readonly number[]): Promise<void> {
  for (const pid of pids) while (await isRunning(pid)) await pause(50);
}

describe('servers whose parent was killed', () => {
  afterAll(removeFolders);

  test('are ended by their guardians', async () => {
    const parent = await startParent(await freshFolder());
    const { servers, guardians } = await split(await childrenOf(parent.pid));
    expect([servers, guardians].map(({ length }) => length)).toEqual([2, 2]);
    await kill(parent);
    await untilGone([...servers, ...guardians]);
  }, LIMIT_MS);

  test('and whose guardians were killed too are stopped at the next start in their folder, which keeps their data', async () => {
    const dir = await freshFolder();
    const parent = await startParent(dir);
    const before = new pg.Client({ connectionString: databaseUrl(parent.databaseUrl, 'postgres') });
    await before.connect();
    await before.query('create table kept (what text)');
    await before.end();
    const { servers, guardians } = await split(await childrenOf(parent.pid));
    for (const guardian of guardians) process.kill(guardian, 'SIGKILL');
    await kill(parent);
    await expect(Promise.all(servers.map(isRunning))).resolves.toEqual([true, true]);

    const [kafka, postgres] = await Promise.all([startKafka({ dir: path.join(dir, 'kafka') }), startPostgres({ dir: path.join(dir, 'postgres') })]);
    try {
      await expect(Promise.all(servers.map(isRunning))).resolves.toEqual([false, false]);
      const after = new pg.Client({ connectionString: postgres.url('postgres') });
      await after.connect();
      await expect(after.query('select * from kept')).resolves.toMatchObject({ rowCount: 0 });
      await after.end();
    } finally {
      await Promise.all([kafka.stop(), postgres.stop()]);
    }
  }, LIMIT_MS);
});
