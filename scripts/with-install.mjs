import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * `node scripts/with-install.mjs WORD ARGS`: one command from a fresh clone to a result. Installs and builds what
 * is missing, then runs WORD. All it says itself goes to stderr: stdout belongs to what it runs. With HOLDFAST_BUILT=true it
 * doesn't look: whoever sets it has just let it build, and runs more than one thing at once.
 */
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const JEST = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js'];

const WORDS = {
  /** Installs and builds, and no more. */
  build: undefined,
  demo: { command: ['examples/dist/demo.js'] },
  test: { command: JEST },
  proof: { command: JEST, env: { HOLDFAST_PROOF: 'full' } },
  bench: { command: ['bench/dist/main.js'] },
  explore: { command: ['--max-semi-space-size=64', 'libs/testing/dist/explore-worlds.js'] },
  mutants: { command: ['scripts/mutants.mjs'] },
  // Runs allocate much and keep little: a larger nursery saves most collections.
  simulate: { command: ['--max-semi-space-size=64', 'libs/testing/dist/simulate.js'] },
  report: { command: ['scripts/report.mjs'] },
  'test-api': { command: ['scripts/test-api.mjs'] },
  soak: { command: ['tests/dist/matrix/soak.js'] },
  'crash-matrix': { command: ['tests/dist/matrix/main.js'] },
};

const [word, ...args] = process.argv.slice(2);
if (word === undefined || !Object.hasOwn(WORDS, word)) {
  process.stderr.write(`usage: node scripts/with-install.mjs ${Object.keys(WORDS).join('|')} [ARGS]\n`);
  process.exit(2);
}

let running;
const interactive = process.stdin.isTTY === true;
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    // A terminal's ctrl-C reaches the whole group: sent again, it would count as a second one.
    if (signal === 'SIGINT' && interactive) return;
    running?.kill(signal);
  });
}

try {
  if (process.env.HOLDFAST_BUILT !== 'true') await build();
  const target = WORDS[word];
  if (target !== undefined) finish(await run(process.execPath, [...target.command, ...args], { env: target.env, stdio: 'inherit' }).ended);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode ||= 1;
}

async function build() {
  if (await installIsStale()) await quietly('Installing packages (npm ci) ...', 'npm', ['ci', '--no-audit', '--no-fund']);
  await quietly('Building ...', 'npm', ['run', 'build'], { NX_DAEMON: 'false', NX_TUI: 'false', FORCE_COLOR: '0' });
}

/** Installed is what node_modules/.package-lock.json says, compared by content where the times make one doubt. */
async function installIsStale() {
  const [wanted, installed] = [path.join(ROOT, 'package-lock.json'), path.join(ROOT, 'node_modules', '.package-lock.json')];
  const [wantedAt, installedAt] = await Promise.all([wanted, installed].map((file) => stat(file).then((found) => found.mtimeMs, () => undefined)));
  if (installedAt === undefined) return true;
  if (wantedAt === undefined || wantedAt <= installedAt) return false;
  const [want, have] = await Promise.all([wanted, installed].map(async (file) => JSON.parse(await readFile(file, 'utf8')).packages ?? {}));
  return Object.entries(want).some(([at, { version, integrity, optional, devOptional, peer, link, resolved }]) => {
    if (!at.startsWith('node_modules/') && !at.includes('/node_modules/')) return false;
    const found = have[at];
    // What is for other platforms stays out.
    if (found === undefined) return !(optional || devOptional || peer);
    return found.version !== version || found.integrity !== integrity || (link === true && found.resolved !== resolved);
  });
}

function run(command, commandArgs, { env, stdio }) {
  const child = spawn(command, commandArgs, { cwd: ROOT, stdio, env: { ...process.env, ...env } });
  running = child;
  const ended = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  return { child, ended };
}

async function quietly(announcement, command, commandArgs, env) {
  // A cached build takes a second or two: only longer work is worth a line.
  const announce = setTimeout(() => process.stderr.write(`${announcement}\n`), 1500);
  const { child, ended } = run(command, commandArgs, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const output = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => output.push(chunk));
  const end = await ended.finally(() => clearTimeout(announce));
  if (end.code === 0) return;
  process.stderr.write(Buffer.concat(output));
  finish(end);
  throw new Error(`${command} ${commandArgs.join(' ')} failed.`);
}

/** Our end is the end of what we ran. */
function finish({ code, signal }) {
  process.exitCode = signal === null ? (code ?? 1) : 128 + constants.signals[signal];
}
