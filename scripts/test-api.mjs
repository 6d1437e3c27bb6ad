import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createDatabase, databaseOf, makeStackFolder, startHoldfast } from '@holdfast/deploy';
import { Keys, openGatewayDatabase } from '@holdfast/gateway';

/**
 * `node scripts/test-api.mjs [ARGS]`: starts a stack with a gateway, and has schemathesis (Python) ask it what its own
 * description allows, and what it doesn't: no 5xx, no answer that isn't described. ARGS go to schemathesis
 * (`--max-examples`, `--seed`, ...). Its packages are pinned in test-api-requirements.txt and live under node_modules/.
 */
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const VENV = path.join(ROOT, 'node_modules', '.cache', 'holdfast-test-api');
const REQUIREMENTS = path.join(ROOT, 'scripts', 'test-api-requirements.txt');
const STAMP = path.join(VENV, 'installed');

/** What a described service owes: what it may answer, in which form, and that nobody gets in without a key. */
const CHECKS = ['not_a_server_error', 'status_code_conformance', 'content_type_conformance', 'response_schema_conformance', 'unsupported_method', 'ignored_auth'];

function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    spawn(command, args, { stdio: 'inherit', cwd: ROOT, ...options }).once('error', reject).once('exit', (code) => resolve(code ?? 1));
  });
}

async function mustRun(command, args) {
  if ((await run(command, args, { stdio: ['ignore', 2, 2] })) !== 0) throw new Error(`${command} ${args.join(' ')} failed: it takes Python 3.10 or newer with venv and pip`);
}

async function install() {
  const wanted = await readFile(REQUIREMENTS, 'utf8');
  if (existsSync(STAMP) && (await readFile(STAMP, 'utf8')) === wanted) return;
  process.stderr.write('Installing schemathesis ...\n');
  await mustRun('python3', ['-m', 'venv', '--clear', VENV]);
  await mustRun(path.join(VENV, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', '--requirement', REQUIREMENTS]);
  await writeFile(STAMP, wanted);
}

await install();
const dir = await makeStackFolder('hf-api-');
let url = '';
const stack = await startHoldfast({
  dir,
  durable: false,
  gateway: { HOLDFAST_WEBHOOK_KEY: 'a key for the time of one test of the API', HOLDFAST_HTTP_RATE: '10000000', HOLDFAST_HTTP_REFUSED_RATE: '10000000' },
  log: (line) => process.stderr.write(`${line}\n`),
  onOutput: (_, line) => void (url = /"url":"([^"]+)"/.exec(line)?.[1] ?? url),
});
try {
  await createDatabase(stack.databaseUrl, databaseOf('gateway'));
  const database = await openGatewayDatabase(stack.databaseUrl, 'test-api', 2);
  const { key } = await new Keys(database, Date.now).create({ tenant: 'default', name: 'schemathesis', roles: ['admin'] });
  await database.destroy();
  const args = ['run', `${url}/v1/openapi.json`, '--header', `Authorization: Bearer ${key}`, '--checks', CHECKS.join(','), '--request-timeout', '40', '--workers', '1', '--max-examples', '30', ...process.argv.slice(2)];
  process.exitCode = await run(path.join(VENV, 'bin', 'schemathesis'), args, { cwd: dir });
} finally {
  await stack.stop();
  await rm(dir, { recursive: true, force: true });
}
