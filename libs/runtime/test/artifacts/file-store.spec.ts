import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileArtifactStore, openArtifactStore } from '../../src/artifacts/index.js';
import { artifactStoreContract, bytes, HOUR_MS, run } from './contract.js';

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'artifacts-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

async function files(): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
}

async function pass(ms: number): Promise<void> {
  for (const file of await files()) {
    const at = ((await stat(file)).mtimeMs - ms) / 1000;
    await utimes(file, at, at);
  }
}

describe('artifacts as files', () => {
  artifactStoreContract({ store: () => fileArtifactStore(dir), another: () => fileArtifactStore(dir), kept: files, tamper: writeFile, pass });

  test('the sweep takes what a crash left half-written, and counts it not', async () => {
    await fileArtifactStore(dir).put(bytes, { mediaType: 'text/plain', scope: run });
    const [file = ''] = await files();
    await writeFile(path.join(path.dirname(file), '.writing-x'), 'half');
    await pass(2 * HOUR_MS);
    expect(await fileArtifactStore(dir).sweep({ olderThanMs: HOUR_MS })).toEqual({ removed: 1, bytes: bytes.byteLength });
    expect(await files()).toEqual([]);
  });

  test('a folder is opened by its name', async () => {
    const store = await openArtifactStore(dir);
    const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
    expect(await fileArtifactStore(dir).get(ref, run)).toHaveLength(bytes.byteLength);
  });
});

test.each(['http://bucket/prefix', 's3://', 's3:///prefix', 's3://UP_per/x', 's3://bucket/a b', 's3://bucket/ä', 'gs://bucket'])('%s is no place for artifacts', async (place) => {
  await expect(openArtifactStore(place)).rejects.toThrow(/name a folder, or s3:\/\/bucket\/prefix/);
});
