import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { ArtifactDamaged, ArtifactMissing, openArtifactStore, type ArtifactStore } from '../../src/artifacts/index.js';
import { s3ArtifactStore } from '../../src/artifacts/s3-store.js';
import { artifactStoreContract, bytes, HOUR_MS, run } from './contract.js';

const SERVER = fileURLToPath(new URL('s3-server.mjs', import.meta.url));
const BUCKET = 'artifacts';
const CONTENT = '._S3rver_object';

let dir: string;
let server: ChildProcess;
let port: string;
let before: NodeJS.ProcessEnv;
let prefix = '';
let tests = 0;
let passedMs = 0;

/** On the same port again, once it has had one. */
async function startServer(): Promise<void> {
  // It makes its continuation tokens with an old cipher.
  server = spawn(process.execPath, ['--openssl-legacy-provider', SERVER, dir, BUCKET, ...(port === undefined ? [] : [port])], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = (await Promise.race([
    once(createInterface({ input: server.stdout as NodeJS.ReadableStream }), 'line'),
    once(server, 'exit').then(() => Promise.reject(new Error('the S3 server did not start'))),
  ])) as [string];
  port = line;
}

async function stopServer(): Promise<void> {
  const exit = once(server, 'exit');
  server.kill('SIGKILL');
  await exit;
}

beforeAll(async () => {
  before = { ...process.env };
  dir = await mkdtemp(path.join(os.tmpdir(), 'artifacts-s3-'));
  await startServer();
  Object.assign(process.env, { AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}`, AWS_REGION: 'eu-central-1', AWS_ACCESS_KEY_ID: 'S3RVER', AWS_SECRET_ACCESS_KEY: 'S3RVER' });
});
afterAll(async () => {
  process.env = before;
  await stopServer();
  await rm(dir, { recursive: true, force: true });
});
beforeEach(() => {
  prefix = `test-${(tests += 1)}`;
});
afterEach(() => {
  passedMs = 0;
});

/** Another value's object with the content of one that is there, as the server lays them. */
async function copyObject(file: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await copyFile(file, path.join(folder, path.basename(file)));
}

const open = (): ArtifactStore => s3ArtifactStore({ bucket: BUCKET, prefix }, () => Date.now() + passedMs);

async function kept(): Promise<string[]> {
  const folder = path.join(dir, BUCKET, prefix);
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isFile() && entry.name.endsWith(CONTENT)).map((entry) => path.join(entry.parentPath, entry.name));
}

describe('artifacts in a bucket', () => {
  artifactStoreContract({
    store: open,
    another: open,
    kept,
    tamper: writeFile,
    pass: (ms) => {
      passedMs += ms;
      return Promise.resolve();
    },
  });

  test('a sweep takes only what it wrote, and only when its hour has long been over', async () => {
    const store = open();
    await store.put(bytes, { mediaType: 'text/plain', scope: run });
    const other = s3ArtifactStore({ bucket: BUCKET, prefix: `${prefix}-other` });
    const ref = await other.put(bytes, { mediaType: 'text/plain', scope: run });
    passedMs = HOUR_MS;
    expect(await store.sweep({ olderThanMs: HOUR_MS })).toEqual({ removed: 0, bytes: 0 });
    passedMs = 2 * HOUR_MS;
    expect(await store.sweep({ olderThanMs: HOUR_MS })).toEqual({ removed: 1, bytes: bytes.byteLength });
    expect(await other.get(ref, run)).toHaveLength(bytes.byteLength);
    passedMs = 100 * HOUR_MS;
    expect(await s3ArtifactStore({ bucket: BUCKET, prefix: '' }, () => Date.now() + passedMs).sweep({ olderThanMs: 0 })).toEqual({ removed: 0, bytes: 0 });
  });

  test('what is stored again later is another object: a sweep that has seen the old one takes no other, and the new one is read', async () => {
    const store = open();
    const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
    const [old = ''] = await kept();
    passedMs = 48 * HOUR_MS;
    await store.put(bytes, { mediaType: 'text/plain', scope: run });
    expect(await kept()).toHaveLength(2);
    await writeFile(old, 'damaged');
    expect(await store.get(ref, run)).toHaveLength(bytes.byteLength);
    await rm(old);
    expect(await store.get(ref, run)).toHaveLength(bytes.byteLength);
  });

  test('more values than fit one page of a listing are all swept', async () => {
    const store = open();
    const folder = path.join(dir, BUCKET, prefix, 'a'.repeat(64));
    await store.put(bytes, { mediaType: 'text/plain', scope: run });
    const [first = ''] = await kept();
    const names = Array.from({ length: 1100 }, (_, i) => path.join(folder, i.toString(16).padStart(64, '0')));
    for (const name of names) await copyObject(first, name);
    passedMs = 48 * HOUR_MS;
    expect(await store.sweep({ olderThanMs: HOUR_MS })).toEqual({ removed: 1101, bytes: 1101 * bytes.byteLength });
    expect(await kept()).toEqual([]);
  });

  test('is opened by its address, whose prefix may be left out', async () => {
    const store = await openArtifactStore(`s3://${BUCKET}/${prefix}/`);
    const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
    expect(await kept()).toHaveLength(1);
    expect(await open().get(ref, run)).toHaveLength(bytes.byteLength);
    const whole = await openArtifactStore(`s3://${BUCKET}`);
    await expect(whole.get(ref, run)).rejects.toBeInstanceOf(ArtifactMissing);
    expect(await whole.get(await whole.put(bytes, { mediaType: 'text/plain', scope: run }), run)).toHaveLength(bytes.byteLength);
  });

  test('a bucket that is not there, or credentials that are wrong, are trouble with the store and not a missing artifact', async () => {
    const ref = await open().put(bytes, { mediaType: 'text/plain', scope: run });
    const elsewhere = s3ArtifactStore({ bucket: 'nobodys', prefix });
    const isTrouble = expect.objectContaining({ name: 'Error', message: expect.stringMatching(/the artifact store s3:\/\/nobodys\/test-\d+ did not do as asked: NoSuchBucket/) });
    await expect(elsewhere.get(ref, run)).rejects.toEqual(isTrouble);
    await expect(elsewhere.put(bytes, { mediaType: 'text/plain', scope: run })).rejects.toEqual(isTrouble);
    process.env['AWS_ACCESS_KEY_ID'] = 'nobody';
    const stranger = open();
    await expect(stranger.get(ref, run)).rejects.toThrow(/did not do as asked: InvalidAccessKeyId/);
    await expect(stranger.put(bytes, { mediaType: 'text/plain', scope: run })).rejects.toThrow(/did not do as asked: InvalidAccessKeyId/);
    process.env['AWS_ACCESS_KEY_ID'] = 'S3RVER';
  });

  test('a server that is away is trouble with the store; when it is back the value is there', async () => {
    const store = open();
    const ref = await store.put(bytes, { mediaType: 'text/plain', scope: run });
    await stopServer();
    const end = await store.get(ref, run).catch((error: unknown) => error);
    expect(end).toMatchObject({ message: expect.stringMatching(/did not do as asked: .*ECONNREFUSED/) });
    expect(end).not.toBeInstanceOf(ArtifactMissing);
    expect(end).not.toBeInstanceOf(ArtifactDamaged);
    await startServer();
    expect(await store.get(ref, run)).toHaveLength(bytes.byteLength);
  });
});
