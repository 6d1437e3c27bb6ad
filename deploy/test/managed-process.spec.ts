import { appendFile, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { LineFollower } from '../src/line-follower.js';
import { isReadyLine, ManagedProcess, type ProcessSpec } from '../src/managed-process.js';
import type { Exit } from '../src/server-process.js';
import { restartDelayMs, Supervisor } from '../src/supervisor.js';
import { freshFolder, removeFolders } from './folders.js';

const ENTRY = fileURLToPath(new URL('fixtures/service.mjs', import.meta.url));

let dir: string;
let started: ManagedProcess[];

function managed(spec: Partial<ProcessSpec> = {}): ManagedProcess {
  const one = new ManagedProcess({ name: 'fixture-1', entry: ENTRY, dir, ...spec });
  started.push(one);
  return one;
}

beforeEach(async () => {
  dir = await freshFolder();
  started = [];
});

afterEach(async () => {
  await Promise.all(started.map((one) => one.stop()));
  await removeFolders();
});

describe('a managed process', () => {
  test('is started once it says that it is ready, with what it wrote in its log', async () => {
    const service = managed();
    await service.start();
    expect(service.pid).toBeGreaterThan(0);
    await expect(readFile(service.logFile, 'utf8')).resolves.toMatch(/^warming up\n\{.*"msg":"ready".*\}\n$/);
  });

  test('gets its environment on top of ours', async () => {
    const report = path.join(dir, 'environment.json');
    await managed({ env: { FIXTURE_REPORT: report, HOLDFAST_INSTANCE: 'fixture-1' } }).start();
    expect(JSON.parse(await readFile(report, 'utf8'))).toMatchObject({ HOLDFAST_INSTANCE: 'fixture-1', PATH: process.env['PATH'] });
  });

  test('that ends instead quotes the end of its log', async () => {
    await expect(managed({ env: { FIXTURE_MODE: 'broken' } }).start()).rejects.toThrow(
      /fixture-1 did not start: it exited with code 3\. See .*fixture-1\.log, which ends with:\nthe fixture has no lanes/,
    );
  });

  test('that never gets ready is ended, with a reason', async () => {
    const service = managed({ env: { FIXTURE_MODE: 'silent' }, readyLimitMs: 500 });
    await expect(service.start()).rejects.toThrow(/it did not answer within 0\.5 s \(it did not say that it is ready\).*\nwarming up$/s);
    await expect(service.exited).resolves.toEqual({ code: null, signal: 'SIGKILL' });
  });

  test('can be killed and started again, with more environment', async () => {
    const report = path.join(dir, 'environment.json');
    const service = managed({ env: { FIXTURE_REPORT: report } });
    await service.start();
    const first = service.pid;
    await expect(service.kill('SIGKILL')).resolves.toEqual({ code: null, signal: 'SIGKILL' });
    expect(service.pid).toBeUndefined();
    await service.restart({ HOLDFAST_CRASH_AT: 'after-commit' });
    expect(service.pid).not.toBe(first);
    expect(JSON.parse(await readFile(report, 'utf8'))).toMatchObject({ HOLDFAST_CRASH_AT: 'after-commit' });
    await service.restart({ HOLDFAST_CRASH_AT: undefined });
    expect(JSON.parse(await readFile(report, 'utf8'))).not.toHaveProperty('HOLDFAST_CRASH_AT');
  });

  test('tells of an end that nobody asked for, and of no other', async () => {
    const falls: Exit[] = [];
    const service = managed({ onUnexpectedExit: (_, exit) => falls.push(exit) });
    await service.start();
    service.signal('SIGUSR2');
    await service.exited;
    await service.restart();
    await service.stop();
    expect(falls).toEqual([{ code: 7, signal: null }]);
  });

  test('hands its output over line by line, to the last', async () => {
    const lines: string[] = [];
    const service = managed({ onOutput: (name, line) => lines.push(`${name}: ${line}`) });
    await service.start();
    expect(lines).toEqual(['fixture-1: warming up', expect.stringMatching(/^fixture-1: \{.*ready/)]);
  });
});

describe('a line', () => {
  test.each([
    ['{"level":30,"msg":"ready","lanes":4}', true],
    ['{"msg":"not ready"}', false],
    ['ready', false],
    ['{broken', false],
  ])('%s says ready: %s', (line, ready) => {
    expect(isReadyLine(line)).toBe(ready);
  });

  test('is handed over once, whole, also when it is written in pieces', async () => {
    const file = path.join(dir, 'log');
    await writeFile(file, 'old\n');
    const lines: string[] = [];
    const follower = new LineFollower(file, 4, (line) => lines.push(line));
    const [head, rest] = [Buffer.from('zoë').subarray(0, 3), Buffer.from('zoë').subarray(3)];
    await appendFile(file, Buffer.concat([Buffer.from('first\n'), head]));
    await Promise.all([follower.look(), follower.look()]);
    expect(lines).toEqual(['first']);
    await appendFile(file, Buffer.concat([rest, Buffer.from('\n')]));
    await follower.look();
    expect(lines).toEqual(['first', 'zoë']);
  });
});

describe('a supervisor', () => {
  test('waits longer after each fall in a row, up to half a minute', () => {
    expect([1, 2, 3, 7, 20].map(restartDelayMs)).toEqual([500, 1000, 2000, 30_000, 30_000]);
  });

  test('starts again what fell, until it is closed', async () => {
    const said: string[] = [];
    const start = jest.fn(() => Promise.resolve());
    const victim = Object.assign(managed(), { start });
    jest.useFakeTimers();
    try {
      const supervisor = new Supervisor((line) => said.push(line));
      supervisor.fell(victim);
      await jest.advanceTimersByTimeAsync(499);
      expect(start).toHaveBeenCalledTimes(0);
      await jest.advanceTimersByTimeAsync(1);
      expect(start).toHaveBeenCalledTimes(1);
      expect(said).toEqual(['Starting fixture-1 again in 0.5 s.', 'fixture-1 runs again.']);
      supervisor.fell(victim);
      await supervisor.close();
      supervisor.fell(victim);
      await jest.advanceTimersByTimeAsync(60_000);
      expect(start).toHaveBeenCalledTimes(1);
    } finally {
      jest.useRealTimers();
    }
  });
});
