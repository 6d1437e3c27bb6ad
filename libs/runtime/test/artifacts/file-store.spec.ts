import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { mkdtemp, readFile, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ArtifactDamaged, ArtifactDenied, ArtifactMissing, fileArtifactStore } from '../../src/artifacts/index.js';

const run = { tenant: 'acme', run: 'order-7' };
const bytes = new TextEncoder().encode('"a large value"');
let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'artifacts-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

async function files(): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
}
async function onlyFile(): Promise<string> {
  const [file, ...others] = await files();
  expect(others).toEqual([]);
  return file ?? 'none';
}

test('gives back what was stored, under the hash of its bytes', async () => {
  const store = fileArtifactStore(dir);
  const ref = await store.put(bytes, { mediaType: 'application/json', scope: run });
  expect(ref).toEqual({ sha256: expect.stringMatching(/^[0-9a-f]{64}$/), bytes: bytes.byteLength, mediaType: 'application/json', scope: 'acme/order-7' });
  expect(Buffer.from(await store.get(ref, run)).equals(Buffer.from(bytes))).toBe(true);
  expect(path.basename(await onlyFile())).toBe(ref.sha256);
});

test('storing the same value again leaves one file, and nothing half-written', async () => {
  const store = fileArtifactStore(dir);
  const refs = await Promise.all(Array.from({ length: 20 }, () => store.put(bytes, { mediaType: 'text/plain', scope: run })));
  expect(new Set(refs.map((ref) => ref.sha256)).size).toBe(1);
  await onlyFile();
});

test('a damaged file is told by its checksum, a cut one too, and storing the value again mends it', async () => {
  const store = fileArtifactStore(dir);
  const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
  const file = await onlyFile();
  await writeFile(file, '"a large valuE"');
  await expect(store.get(ref, run)).rejects.toBeInstanceOf(ArtifactDamaged);
  await writeFile(file, '');
  await expect(store.get(ref, run)).rejects.toThrow(/damaged.*0 bytes/);
  await store.put(bytes, { mediaType: 'text/plain', scope: run });
  expect(await readFile(file, 'utf8')).toBe('"a large value"');
});

test('another run and another tenant may not read it, the tenant itself may', async () => {
  const store = fileArtifactStore(dir);
  const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
  await expect(store.get(ref, { tenant: 'acme', run: 'order-8' })).rejects.toBeInstanceOf(ArtifactDenied);
  await expect(store.get(ref, { tenant: 'acm' })).rejects.toBeInstanceOf(ArtifactDenied);
  await expect(store.get(ref, { tenant: 'evil', run: 'order-7' })).rejects.toBeInstanceOf(ArtifactDenied);
  expect(await store.get(ref, { tenant: 'acme' })).toHaveLength(bytes.byteLength);
});

test('knowing a hash opens nothing: a reference forged for the own scope finds nothing', async () => {
  const store = fileArtifactStore(dir);
  const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
  await expect(store.get({ ...ref, scope: 'evil/order-7' }, { tenant: 'evil', run: 'order-7' })).rejects.toBeInstanceOf(ArtifactMissing);
});

test('ids that hold the separator or are very long never share a scope', async () => {
  const store = fileArtifactStore(dir);
  const put = (tenant: string, id: string) => store.put(bytes, { mediaType: 'text/plain', scope: { tenant, run: id } });
  const long = 'ü'.repeat(199);
  const refs = await Promise.all([put('a/b', 'c'), put('a', 'b/c'), put(`${long}1`, `${long}2`), put(`${long}2`, `${long}1`), put('=a', 'b')]);
  expect(new Set(refs.map((ref) => ref.scope)).size).toBe(5);
  expect(await store.get(refs[2] as (typeof refs)[number], { tenant: `${long}1` })).toHaveLength(bytes.byteLength);
});

test('a reference that would lead out of the folder is refused', async () => {
  const store = fileArtifactStore(dir);
  await expect(store.get({ sha256: '../../../etc/passwd', bytes: 1, mediaType: 'x', scope: 'acme/order-7' }, run)).rejects.toThrow();
});

test('the sweep takes what is older, with what a crash left half-written, and leaves the rest', async () => {
  const store = fileArtifactStore(dir);
  const old = await store.put(bytes, { mediaType: 'text/plain', scope: run });
  const file = await onlyFile();
  await writeFile(path.join(path.dirname(file), '.writing-x'), 'half');
  for (const name of await files()) await utimes(name, 0, 0);
  const other = await store.put(new TextEncoder().encode('young'), { mediaType: 'text/plain', scope: { tenant: 'acme', run: 'order-9' } });
  expect(await store.sweep({ olderThanMs: 60_000 })).toEqual({ removed: 1, bytes: bytes.byteLength });
  await expect(store.get(old, run)).rejects.toBeInstanceOf(ArtifactMissing);
  expect(await store.get(other, { tenant: 'acme', run: 'order-9' })).toHaveLength(5);
  await onlyFile();
});

test('storing again begins the retention anew', async () => {
  const store = fileArtifactStore(dir);
  const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
  await utimes(await onlyFile(), 0, 0);
  await store.put(bytes, { mediaType: 'text/plain', scope: run });
  expect(await store.sweep({ olderThanMs: 60_000 })).toEqual({ removed: 0, bytes: 0 });
  expect(await store.get(ref, run)).toHaveLength(bytes.byteLength);
});
