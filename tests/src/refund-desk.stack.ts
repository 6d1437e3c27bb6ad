import { execFile } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';

const root = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);
const LIMIT_MS = 180_000;

test('the refund desk asks, waits, is cut short and cancelled, and the shop holds each refund and each letter once', async () => {
  const { HOLDFAST_BROKERS: _brokers, HOLDFAST_DATABASE_URL: _url, ...env } = process.env;
  const { stdout } = await run(process.execPath, [path.join(root, 'examples/dist/demo.js'), '--example', 'refund-desk', '--json'], { env, timeout: LIMIT_MS, maxBuffer: 10_000_000 });
  const row = (name: string, status: string, refunded: number | null, approvals: number, retries: number, refunds: number, letters: number) => ({ run: name, status, refunded, approvals, retries, refunds, letters });
  expect(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')).toEqual({
    runs: [
      row('claim-1', 'completed', 4200, 1, 1, 1, 1),
      row('claim-2', 'completed', 0, 0, 1, 0, 1),
      row('claim-3', 'completed', 2500, 2, 1, 1, 1),
      row('claim-4', 'cancelled', null, 0, 0, 0, 0),
      row('claim-5', 'completed', 4000, 1, 1, 1, 1),
    ],
    tries: 8,
  });
}, LIMIT_MS);
