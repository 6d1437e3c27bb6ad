import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, rm, symlink } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';

/**
 * Shows that the simulation can fail: applies each small patch of `libs/testing/mutants` to a copy
 * of the product's code, runs seeds until one fails, and says after how many. The unpatched code
 * must pass the same seeds. A mutant that no seed catches fails the command.
 *
 *   npm run mutants [-- --only NAME,NAME] [--seeds-max 2000] [--jobs 2]
 *   npm run mutants -- --explore STATES [--worlds REGEX]   by the small worlds instead, so many states of each: says who is caught there
 */
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PATCHES = path.join(ROOT, 'libs/testing/mutants');
const WORK = path.join(ROOT, '.holdfast/mutants');
const PACKAGES = ['libs/kernel', 'libs/protocol', 'libs/runtime', 'libs/sdk', 'libs/testing', 'services/orchestrator', 'services/ledger', 'services/reconciliation', 'services/compensation'];
const run = promisify(execFile);

const { values } = parseArgs({ options: { only: { type: 'string' }, 'seeds-max': { type: 'string', default: '2000' }, jobs: { type: 'string', default: '2' }, explore: { type: 'string' }, worlds: { type: 'string', default: '' } } });
const seedsMax = Number(values['seeds-max']);
const names = (await readdir(PATCHES)).filter((name) => name.endsWith('.patch')).map((name) => name.slice(0, -'.patch'.length)).filter((name) => values.only === undefined || values.only.split(',').includes(name));
if (names.length === 0) throw new Error(`no mutant ${values.only ?? ''} in libs/testing/mutants`);

/** The built packages with their sources, so that a patched one can be built again; everything else comes from the root. */
async function copyOf(slot) {
  const copy = path.join(WORK, String(slot));
  await rm(copy, { recursive: true, force: true });
  await mkdir(path.join(copy, 'node_modules/@holdfast'), { recursive: true });
  await cp(path.join(ROOT, '.swcrc'), path.join(copy, '.swcrc'));
  for (const name of PACKAGES) {
    for (const part of ['src', 'dist', 'package.json']) await cp(path.join(ROOT, name, part), path.join(copy, name, part), { recursive: true });
    await symlink(path.join(copy, name), path.join(copy, 'node_modules/@holdfast', path.basename(name)));
    // A version of its own that a package has beside the root's.
    const own = path.join(ROOT, name, 'node_modules');
    if (existsSync(own)) await symlink(own, path.join(copy, name, 'node_modules'));
  }
  // The copy itself must run: else everything would look caught.
  const sound = await hunt(copy, 2);
  if (sound.caughtAt !== null) throw new Error(`the unpatched copy fails at seed ${sound.caughtAt}: ${sound.violation}`);
  return copy;
}

async function build(copy, name) {
  await run(process.execPath, [path.join(ROOT, 'node_modules/@swc/cli/bin/swc.js'), 'src', '--out-dir', 'dist', '--strip-leading-paths', '--config-file', path.join(copy, '.swcrc'), '-q'], { cwd: path.join(copy, name) });
}

async function hunt(copy, seeds) {
  if (values.explore !== undefined) return explored(copy, seeds === seedsMax ? values.explore : '100');
  const { stdout } = await run(process.execPath, ['--max-semi-space-size=64', path.join(copy, 'libs/testing/dist/simulate.js'), '--hunt', String(seeds)], { maxBuffer: 16 * 1024 * 1024 });
  return JSON.parse(stdout.trim().split('\n').at(-1));
}

/** The first small world in which something is wrong. */
async function explored(copy, states) {
  const { stdout } = await run(process.execPath, ['--max-semi-space-size=64', path.join(copy, 'libs/testing/dist/explore-worlds.js'), '--states-max', states, '--only', values.worlds, '--first'], { maxBuffer: 16 * 1024 * 1024 }).catch((error) => (error.code === 1 ? error : Promise.reject(error)));
  const lines = stdout.split('\n');
  const at = lines.findIndex((line) => line.startsWith('  '));
  return at === -1 ? { caughtAt: null, violation: '' } : { caughtAt: lines[at - 1].replace(/:.*/, ''), violation: lines[at].trim() };
}

async function tryMutant(copy, name) {
  const patch = path.join(PATCHES, `${name}.patch`);
  const text = await readFile(patch, 'utf8');
  const packages = [...new Set([...text.matchAll(/^\+\+\+ b\/((?:libs|services)\/[a-z]+)\//gm)].map(([, found]) => found))];
  const apply = (...more) => run('git', ['apply', ...more, `--directory=${path.relative(ROOT, copy)}`, patch], { cwd: ROOT });
  await apply();
  for (const each of packages) await build(copy, each);
  try {
    return { name, why: text.split('\n')[0], ...(await hunt(copy, seedsMax)) };
  } catch (error) {
    // A patch that breaks the code itself shows nothing of what the simulation sees.
    return { name, why: text.split('\n')[0], caughtAt: null, violation: `the run broke off: ${String(error.stderr ?? error.message).split('\n').find((line) => /Error/.test(line)) ?? error.message}` };
  } finally {
    await apply('-R');
    for (const each of packages) await build(copy, each);
  }
}

/** What one mutant came to, in a line. */
function told({ caughtAt, violation, why }) {
  if (values.explore !== undefined) return caughtAt === null ? 'not caught by the small worlds' : `caught in "${caughtAt}" (${violation.slice(0, 140)})`;
  return caughtAt === null ? `NOT CAUGHT within ${seedsMax} seeds. ${why}${violation === undefined ? '' : ` (${violation})`}` : `caught after ${caughtAt} seeds (${violation.slice(0, 140)})`;
}

const results = [];
const waiting = [...names];
await Promise.all(
  Array.from({ length: Math.min(Number(values.jobs), names.length) }, async (_, slot) => {
    const copy = await copyOf(slot);
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      const result = await tryMutant(copy, name);
      results.push(result);
      process.stdout.write(`${name}: ${told(result)}\n`);
    }
  }),
);

const missed = results.filter(({ caughtAt }) => caughtAt === null);
if (values.explore === undefined) {
  const most = Math.max(0, ...results.map(({ caughtAt }) => caughtAt ?? 0));
  const unpatched = await hunt(path.join(WORK, '0'), most);
  process.stdout.write(unpatched.caughtAt === null ? `the unpatched code passes the same ${most} seeds\n` : `the unpatched code fails at seed ${unpatched.caughtAt}: ${unpatched.violation}\n`);
  process.stdout.write(`${results.length} mutants, ${missed.length} not caught\n`);
  process.exitCode = missed.length > 0 || unpatched.caughtAt !== null ? 1 : 0;
} else {
  // The small worlds hold a part of the product only, so that nobody must be caught there; but what they say must not come of themselves.
  const unpatched = await hunt(path.join(WORK, '0'), seedsMax);
  process.stdout.write(unpatched.caughtAt === null ? 'the unpatched code passes the same worlds\n' : `the unpatched code fails in "${unpatched.caughtAt}": ${unpatched.violation}\n`);
  process.stdout.write(`${results.length} mutants, ${results.length - missed.length} caught by the small worlds\n`);
  process.exitCode = unpatched.caughtAt === null ? 0 : 1;
}
