import { execFile } from 'node:child_process';
import { access } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { proof } from './support/proof.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);
const LIMIT_MS = 240_000;

interface Result {
  readonly runs: number;
  readonly completed: number;
  readonly blocked: number;
  readonly effects: number;
  readonly fired: number;
  readonly duplicates: number;
  readonly missing: number;
  readonly outOfOrder: number;
  readonly unknown: number;
  readonly kills: number;
  readonly killsInFlight: number;
}

async function demo(...args: string[]): Promise<Result> {
  const { HOLDFAST_BROKERS: _brokers, HOLDFAST_DATABASE_URL: _url, ...env } = process.env;
  const { stdout } = await run(process.execPath, [path.join(root, 'examples/dist/demo.js'), ...args, '--json'], { env, timeout: LIMIT_MS, maxBuffer: 10_000_000 });
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Result;
}

/** In full length the public benchmark's tasks, which lie beside the repository; it says so where they are missing. */
async function tasks(): Promise<{ file: string; kills: number; runs: number; effects: number }> {
  const short = { file: path.join(root, 'tests/src/data/tasks.json'), kills: 4, runs: 12, effects: 24 };
  if (proof(true, false)) return short;
  const file = path.join(root, '../shared/data/tau-airline.json');
  await access(file).catch(() => {
    throw new Error(`the full proof needs ${path.relative(root, file)}`);
  });
  return { file, kills: 30, runs: 50, effects: 60 };
}

const WAYS = [
  { what: 'settles every unknown by probe, and doubles nothing, when services and workers are killed amid effects and the model words its calls anew', args: ['--reword', '--seed', '5'], killed: true },
  { what: 'ends every run by the verdicts of a person where the tools have no probe', args: ['--blind', '--seed', '7'], killed: true },
  { what: 'does every effect once and in order when nothing is killed', args: [], killed: false },
] as const;

describe('the demo, judged by the world outside', () => {
  it.each(WAYS.slice(0, proof(1, WAYS.length)))('$what', async ({ args, killed }) => {
    const { file, kills, runs, effects } = await tasks();
    const result = await demo('--tasks', file, ...args, ...(killed ? ['--kill', String(kills)] : []));
    expect(result).toMatchObject({ runs, completed: runs, blocked: 0, effects, fired: effects, duplicates: 0, missing: 0, outOfOrder: 0, unknown: 0, kills: killed ? kills : 0 });
  }, LIMIT_MS);

  it('fails with one sentence on a file that is no task file', async () => {
    await expect(demo('--tasks', path.join(root, 'package.json'))).rejects.toThrow(/--tasks .*package\.json/);
  }, LIMIT_MS);
});
