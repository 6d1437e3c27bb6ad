import { randomUUID } from 'node:crypto';
import { mkdir, open, readFile, readdir, rename, rm, rmdir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { ArtifactRef } from '@holdfast/protocol';
import { intact, missing, permitted, refOf } from './checked.js';
import { sha256 } from './digest.js';
import type { ArtifactScope, ArtifactStore } from './store.js';

const TEMPORARY = '.writing-';
const SWEEPING = '.sweeping-';

const codeOf = (error: unknown): unknown => (typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined);

/**
 * Artifacts as files: one folder for each scope, in it one file for each value, named by its
 * hash. A value is never shared between scopes, so that knowing a hash opens nothing.
 */
export function fileArtifactStore(dir: string, now: () => number = Date.now): ArtifactStore {
  const root = path.resolve(dir);
  const folderOf = (scope: string): string => {
    const name = sha256(scope);
    return path.join(root, name.slice(0, 2), name);
  };
  return {
    async put(bytes: Uint8Array, about: { readonly mediaType: string; readonly scope: ArtifactScope }): Promise<ArtifactRef> {
      const ref = refOf(bytes, about);
      const folder = folderOf(ref.scope);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeDurably(folder, ref.sha256, bytes);
      await syncFolder(path.dirname(folder));
      await syncFolder(root);
      return ref;
    },

    async get(ref: ArtifactRef, scope: ArtifactScope): Promise<Uint8Array> {
      const asked = permitted(ref, scope);
      const content = await readFile(path.join(folderOf(asked.scope), asked.sha256)).catch((error: unknown) => {
        if (codeOf(error) === 'ENOENT') throw missing(asked, error);
        throw error;
      });
      return intact(asked, content);
    },

    async sweep({ olderThanMs }): Promise<{ removed: number; bytes: number }> {
      const before = now() - olderThanMs;
      let removed = 0;
      let bytes = 0;
      for (const shelf of await namesIn(root)) {
        for (const scope of await namesIn(path.join(root, shelf))) {
          const folder = path.join(root, shelf, scope);
          for (const file of await namesIn(folder)) {
            const size = await removeIfOlder(folder, file, before);
            if (size === null) continue;
            removed += 1;
            bytes += size;
          }
          await removeIfEmpty(folder);
        }
        await removeIfEmpty(path.join(root, shelf));
      }
      return { removed, bytes };
    },
  };
}

/** Written beside, forced to disk, renamed: a reader sees all of it or nothing, also after a power cut. */
async function writeDurably(folder: string, name: string, bytes: Uint8Array): Promise<void> {
  const temporary = path.join(folder, `${TEMPORARY}${randomUUID()}`);
  try {
    // The sweep may have taken the empty folder just now.
    const file = await open(temporary, 'wx', 0o600).catch(async (error: unknown) => {
      if (codeOf(error) !== 'ENOENT') throw error;
      await mkdir(folder, { recursive: true, mode: 0o700 });
      return open(temporary, 'wx', 0o600);
    });
    try {
      await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path.join(folder, name));
    await syncFolder(folder);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Makes the names in a folder durable. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return [];
    throw error;
  });
}

/** Size of what was removed, or null. What is stored again at this very moment stays: it is moved aside, looked at once more, and put back. */
async function removeIfOlder(folder: string, name: string, before: number): Promise<number | null> {
  const file = path.join(folder, name);
  const aside = path.join(folder, `${SWEEPING}${randomUUID()}`);
  try {
    if ((await stat(file)).mtimeMs >= before) return null;
    await rename(file, aside);
    const { mtimeMs, size } = await stat(aside);
    if (mtimeMs >= before) {
      await rename(aside, file);
      return null;
    }
    await rm(aside);
    return name.startsWith('.') ? null : size;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null; // Another sweep was first.
    throw error;
  }
}

async function removeIfEmpty(folder: string): Promise<void> {
  await rmdir(folder).catch((error: unknown) => {
    if (codeOf(error) !== 'ENOTEMPTY' && codeOf(error) !== 'EEXIST' && codeOf(error) !== 'ENOENT') throw error;
  });
}
