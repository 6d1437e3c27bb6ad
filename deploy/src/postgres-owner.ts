import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { noPostgresUser } from './errors.js';

const run = promisify(execFile);

export const POSTGRES_USER = 'postgres';

export type Owner = Readonly<{ uid: number; gid: number }>;

/** Who PostgreSQL must run as: itself refuses root, so root lends it a user of its own. */
export async function postgresOwner(log: (line: string) => void): Promise<Owner | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const known = await lookUp();
  if (known !== undefined) return known;
  log(`Creating the system user '${POSTGRES_USER}', since PostgreSQL does not run as root ...`);
  try {
    await run('useradd', ['--system', '--user-group', '--no-create-home', '--shell', '/bin/false', POSTGRES_USER]);
  } catch (cause) {
    // Another start may have created it in the meantime.
    const created = await lookUp();
    if (created === undefined) throw noPostgresUser(cause);
    return created;
  }
  const created = await lookUp();
  if (created === undefined) throw noPostgresUser(undefined);
  return created;
}

async function lookUp(): Promise<Owner | undefined> {
  try {
    const [uid, gid] = await Promise.all(['-u', '-g'].map(async (flag) => Number((await run('id', [flag, POSTGRES_USER])).stdout)));
    return uid === undefined || gid === undefined ? undefined : { uid, gid };
  } catch {
    return undefined;
  }
}

/** The first folder on the way to `target` that `owner` may not enter. */
export async function firstClosedFolder(target: string, owner: Owner): Promise<string | undefined> {
  const way: string[] = [];
  for (let at = path.resolve(target); ; at = path.dirname(at)) {
    way.unshift(at);
    if (at === path.dirname(at)) break;
  }
  for (const folder of way) {
    const { mode, uid, gid } = await stat(folder);
    const bit = uid === owner.uid ? 0o100 : gid === owner.gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return folder;
  }
  return undefined;
}
