import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/* A service's start from what V8 has compiled of it before (ADR 27). Without settings it ends as soon as it is loaded. */

const DIST = fileURLToPath(new URL('../../services/ledger/dist/', import.meta.url));
let dir: string;
let kept: string;
let whole: Buffer;
let source: Buffer;

beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'hf-compiled-'));
  for (const name of ['main.js', 'main.cjs', 'main.cjs.compiled']) await cp(path.join(DIST, name), path.join(dir, name));
  await writeFile(path.join(dir, 'package.json'), '{ "type": "module" }');
  kept = path.join(dir, 'main.cjs.compiled');
  whole = await readFile(kept);
  source = await readFile(path.join(dir, 'main.cjs'));
});

afterAll(() => rm(dir, { recursive: true, force: true }));

const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name === 'PATH'));
const run = (...args: string[]) => spawnSync(process.execPath, args, { cwd: dir, env, encoding: 'utf8' });

/** As the build does, whatever the code. */
const keep = (code: Buffer): Promise<void> => writeFile(kept, Buffer.concat([createHash('sha256').update(source).update(code).digest(), code]));

/** Of a part of a buffer, each bit the other way. */
const damaged = (bytes: Buffer, from: number, length: number): Buffer => Buffer.concat([bytes.subarray(0, from), bytes.subarray(from, from + length).map((byte) => ~byte), bytes.subarray(from + length)]);

/** Whether V8 takes it. */
function taken(): string {
  const code = "const fs = require('fs'); const source = require('module').wrap(fs.readFileSync('main.cjs', 'utf8')); console.log(!new (require('vm').Script)(source, { filename: 'main.cjs', cachedData: fs.readFileSync('main.cjs.compiled').subarray(32) }).cachedDataRejected)";
  return run('-e', code).stdout.trim();
}

test('V8 takes what the build has kept', () => {
  expect(taken()).toBe('true');
});

test.each<[string, () => Promise<void>]>([
  ['what the build has kept', () => writeFile(kept, whole)],
  ['half of it', () => writeFile(kept, whole.subarray(0, whole.length / 2))],
  ['what another version of V8 wrote', () => keep(damaged(whole.subarray(32), 0, 16))],
  ['what is damaged', () => writeFile(kept, damaged(whole, whole.length / 2, 400))],
  ['something else', () => writeFile(kept, 'no code')],
  ['none', () => rm(kept)],
])('a service starts with %s', async (_, prepare) => {
  await prepare();
  const { status, stderr } = run('main.js');
  expect(status).toBe(1);
  expect(stderr).toMatch(/^ledger could not start: settings are wrong or missing: HOLDFAST_BROKERS: /);
  expect(stderr.trim().split('\n')).toHaveLength(1);
});

test('a program that was changed by hand is started as it is now', async () => {
  const program = path.join(dir, 'main.cjs');
  await writeFile(kept, whole);
  await writeFile(program, source.toString().replaceAll('settings are wrong or missing', 'settings are wrong or mislaid'));
  expect(run('main.js').stderr).toContain('settings are wrong or mislaid');
  await writeFile(program, source);
});

test('a start for a service’s own sake keeps nothing', async () => {
  await rm(kept, { force: true });
  run('main.js');
  await expect(readFile(kept)).rejects.toThrow('ENOENT');
});
