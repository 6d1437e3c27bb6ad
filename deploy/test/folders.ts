import { chmod, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';

const made: string[] = [];

/** A fresh folder that PostgreSQL's own user may pass through. Gone after `removeFolders`. */
export async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'holdfast-deploy-'));
  await chmod(folder, 0o711);
  made.push(folder);
  return folder;
}

export async function removeFolders(): Promise<void> {
  await Promise.all(made.splice(0).map((folder) => rm(folder, { recursive: true, force: true })));
}
