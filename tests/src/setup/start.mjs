import { spawn } from 'node:child_process';
import { access, mkdtemp } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const HOLDER = fileURLToPath(new URL('../../../deploy/dist/dev.js', import.meta.url));

/**
 * Starts Kafka and PostgreSQL once for a whole run, in a process of their own that stops them and removes
 * their folder as soon as our end of its stdin closes: however this process ends, nothing is left.
 */
export default async function start() {
  if (process.env.HOLDFAST_TEST_BROKERS && process.env.HOLDFAST_TEST_DATABASE_URL) return;
  await access(HOLDER).catch(() => {
    throw new Error(`${path.relative(process.cwd(), HOLDER)} is missing: run npm run build first.`);
  });
  const dir = await mkdtemp(path.join(os.tmpdir(), 'holdfast-test-'));
  // Detached: a ctrl-C in the terminal reaches us, and through us the holder, once.
  const holder = spawn(process.execPath, [HOLDER, dir, '--temporary'], { stdio: ['pipe', 'pipe', 'pipe'], detached: true });
  let complaints = '';
  holder.stderr.on('data', (chunk) => (complaints += chunk));
  holder.stdin.on('error', () => undefined);
  const ended = new Promise((resolve) => holder.once('exit', resolve));

  const started = new Promise((resolve) => createInterface({ input: holder.stdout }).once('line', resolve));
  const line = await Promise.race([started, ended.then(() => undefined)]);
  if (line === undefined) throw new Error(`Kafka and PostgreSQL for the tests did not start. ${complaints.trim()}`);
  const { brokers, databaseUrl, seed, lender } = JSON.parse(line);
  process.env.HOLDFAST_TEST_BROKERS = brokers.join(',');
  process.env.HOLDFAST_TEST_DATABASE_URL = databaseUrl;
  process.env.HOLDFAST_TEST_SEED = seed;
  process.env.HOLDFAST_TEST_LENDER = lender;
  globalThis.holdfastTestServers = {
    async stop() {
      holder.stdin.end();
      const code = await ended;
      if (code !== 0) throw new Error(`Kafka and PostgreSQL for the tests did not stop in order. ${complaints.trim()}`);
    },
  };
}
