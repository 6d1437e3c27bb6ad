import { databaseUrl } from '@holdfast/deploy';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, open, rm, stat } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import type { Ground } from './ground.js';
import { loadOf, underLoad, type Case, type Disturbed } from './load.js';
import { notRun, type Row } from './table.js';

const run = promisify(execFile);
const LONG_MS = 60_000;
const SHORT_MS = 5_000;
const CUTS = 5;
const CUT_EVERY_MS = 300;
const REFUSED = /too many clients|remaining connection slots/;
/** A write that was cut short names no error of the file system. */
const FULL = /No space left on device|could not extend file/;
/** What each call carries, so that the ledger's journal soon needs room. */
const PAD_BYTES = 12 * 1024;
const TABLESPACE_BYTES = 24 * 1024 * 1024;
/** Less than those runs write. */
const ROOM_BYTES = 512 * 1024;

/** An outage lasts as long as it lasts: what is waited for here is time itself. */
const lasting = (ms: number): Promise<void> => pause(ms);

/** How often services complained so. */
async function complaints(ground: Ground, pattern: RegExp): Promise<number> {
  const logs = await Promise.all(ground.stack.stack.services.map((service) => ground.stack.log(service)));
  return logs.flat().filter(({ error }) => pattern.test(String(error))).length;
}

const broker: Case[] = [
  {
    name: 'broker stopped and started',
    run: (ground, name) =>
      underLoad(ground, name, loadOf('broker-stop'), async () => {
        await ground.stack.stack.kafka?.stop();
        await ground.stack.stack.kafka?.start();
        return { since: Date.now() };
      }),
  },
  {
    name: 'broker killed',
    run: (ground, name) =>
      underLoad(ground, name, loadOf('broker-kill'), async () => {
        await ground.stack.stack.kafka?.kill();
        await ground.stack.stack.kafka?.start();
        return { since: Date.now() };
      }),
  },
  {
    name: 'broker gone for a while',
    run: (ground, name, short) =>
      underLoad(ground, `${name} (${(short ? SHORT_MS : LONG_MS) / 1000} s)`, loadOf('broker-gone'), async () => {
        await ground.stack.stack.kafka?.kill();
        await lasting(short ? SHORT_MS : LONG_MS);
        await ground.stack.stack.kafka?.start();
        return { since: Date.now() };
      }),
  },
];

const database: Case[] = [
  {
    name: 'PostgreSQL stopped and started',
    run: (ground, name) =>
      underLoad(ground, name, loadOf('pg-stop'), async () => {
        await ground.stack.stack.postgres?.stop();
        await ground.stack.stack.postgres?.start();
        return { since: Date.now() };
      }),
  },
  {
    name: 'PostgreSQL killed',
    run: (ground, name) =>
      underLoad(ground, name, loadOf('pg-kill'), async () => {
        await ground.stack.stack.postgres?.kill();
        await ground.stack.stack.postgres?.start();
        return { since: Date.now() };
      }),
  },
  {
    name: 'database connections cut, again and again',
    run: (ground, name) =>
      underLoad(ground, name, loadOf('pg-cut'), async () => {
        for (let cut = 0; cut < CUTS; cut += 1) {
          await ground.stack.pool('postgres').query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast-%'`);
          await lasting(CUT_EVERY_MS);
        }
        return { since: Date.now() };
      }),
  },
  {
    name: 'connection pool exhausted',
    run: exhausted,
  },
  { name: 'disk full under the ledger’s database', run: diskFull },
];

/** Takes every connection that the server gives, cuts the services' own, takes those too, and lets runs begin then. */
async function exhausted(ground: Ground, name: string): Promise<Row> {
  const taken: pg.Client[] = [];
  const takeOne = async (): Promise<boolean> => {
    const one = new pg.Client({ connectionString: databaseUrl(ground.stack.stack.databaseUrl, 'postgres') });
    one.on('error', () => undefined);
    try {
      await one.connect();
      taken.push(one);
      return true;
    } catch {
      return false;
    }
  };
  const giveBack = (): Promise<unknown> => Promise.all(taken.splice(0).map((one) => one.end()));
  const before = await complaints(ground, REFUSED);
  const held = await ground.stack.pool('postgres').connect();
  try {
    while (await takeOne());
    await held.query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast-%'`);
    while (await takeOne());
    const disturb = async (): Promise<{ since: number }> => {
      await ground.until('a service is refused a connection', async () => (await complaints(ground, REFUSED)) > before);
      await giveBack();
      return { since: Date.now() };
    };
    return await underLoad(ground, name, loadOf('pg-pool'), disturb, { share: 0 });
  } finally {
    held.release();
    await giveBack();
  }
}

/** The ledger's database on a small file system of its own, which is filled but for the room of some runs. */
async function diskFull(ground: Ground, name: string): Promise<Row> {
  const { postgres, dir } = ground.stack.stack;
  if (postgres === undefined) return notRun(name, 'the database server is not ours');
  const place = await mkdtemp(path.join(os.tmpdir(), 'hf-full-'));
  const { uid, gid } = await stat(path.join(dir, 'postgres', 'data'));
  try {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${TABLESPACE_BYTES},uid=${uid},gid=${gid},mode=0700`, 'tmpfs', place]);
  } catch (error) {
    await rm(place, { recursive: true });
    return notRun(name, `a small file system can't be mounted here: ${String((error as { stderr?: string }).stderr ?? error).trim()}`);
  }
  const admin = ground.stack.pool('postgres');
  const ledger = ground.stack.service('ledger');
  const move = async (to: string): Promise<void> => {
    await ledger.stop();
    await admin.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'holdfast_ledger'`);
    await admin.query(`alter database holdfast_ledger set tablespace ${to}`);
    await ledger.start();
  };
  try {
    await admin.query(`create tablespace tiny location '${place}'`);
    await move('tiny');
    const before = await complaints(ground, FULL);
    // Before the runs begin, and with room for some of them: how far they have come when it is full is not a matter of moments.
    await fill(path.join(place, 'filler'), ROOM_BYTES);
    const disturb = async (): Promise<Disturbed> => {
      await ground.until('the ledger meets the full disk', async () => (await complaints(ground, FULL)) > before);
      await rm(path.join(place, 'filler'));
      return { since: Date.now(), manualActs: 1 };
    };
    return await underLoad(ground, name, loadOf('disk-full', { pad: randomBytes(PAD_BYTES).toString('hex') }, 60), disturb, { share: 0 });
  } finally {
    await rm(path.join(place, 'filler'), { force: true });
    await move('pg_default');
    await admin.query('drop tablespace tiny');
    await run('umount', [place]);
    await rm(place, { recursive: true });
  }
}

async function fill(file: string, roomBytes: number): Promise<void> {
  const handle = await open(file, 'w');
  try {
    for (const bytes of [64 * 1024, 4096]) {
      const chunk = Buffer.alloc(bytes);
      for (;;) {
        const full = await handle.write(chunk).then(({ bytesWritten }) => bytesWritten < bytes, (error: unknown) => {
          if ((error as { code?: string }).code === 'ENOSPC') return true;
          throw error;
        });
        if (full) break;
      }
    }
    await handle.truncate(Math.max(0, (await handle.stat()).size - roomBytes));
  } finally {
    await handle.close();
  }
}

export const OUTAGES: readonly Case[] = [...broker, ...database];
