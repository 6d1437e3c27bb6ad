import { parseArgs } from 'node:util';
import { describeFault, everyCell, type Cell } from './sim/faults.js';
import { runSeed, runUninterrupted, UNINTERRUPTED_EVERY } from './sim/seeds.js';
import { shrink } from './sim/shrink.js';

const USAGE = `usage: npm run simulate -- --seeds FROM..TO     run these seeds
       npm run simulate -- --seed N [--trace]    run one; with --trace, tell its story, shrunk to the fewest faults that fail
`;
/** From so many seeds on, a cell that none of them met is a failure. */
const COVERAGE_FROM_SEEDS = 2000;
const STEPS_LEAST = 8;
const FAULTS_LEAST = 2;
const WAITS_LEAST = 1;
const PROGRESS_EVERY_MS = 500;

const say = (line: string): void => void process.stdout.write(`${line}\n`);

async function one(seed: number, trace: boolean): Promise<number> {
  const result = await runSeed(seed);
  const failed = result.violations.length > 0;
  const faults = failed && trace ? await shrink(result) : result.faults;
  const told = trace ? await runSeed(seed, { faults, trace: true }) : result;
  if (trace) {
    for (const { ms, who, what } of told.story) say(`${ms.toFixed(3).padStart(11)} ${who.padEnd(16)} ${what}`);
    say('');
  }
  say(`seed ${seed}: ${result.faults.length} faults${failed && trace ? `, of which these are enough to fail` : ''}`);
  for (const fault of faults) say(`  ${describeFault(fault)}`);
  for (const violation of told.violations) say(`  ${violation}`);
  return failed ? 1 : 0;
}

async function many(from: number, to: number): Promise<number> {
  const total = to - from + 1;
  const met = new Map<Cell, number>();
  const exempt = new Map<string, number>();
  let [failed, runs, steps, waits, faults, done, uninterruptedMs, shown, cpuMs] = [0, 0, 0, 0, 0, 0, 0, 0, 0];
  const began = performance.now();
  // Of interrupted runs alone: those that equality is checked with are neither counted nor timed.
  const rate = (): number => (runs * 1000) / (performance.now() - began - uninterruptedMs);
  for (let seed = from; seed <= to; seed += 1) {
    const cpu = process.cpuUsage();
    const result = await runSeed(seed);
    const { user, system } = process.cpuUsage(cpu);
    cpuMs += (user + system) / 1000;
    const violations = [...result.violations];
    if (seed % UNINTERRUPTED_EVERY === 0) {
      const before = performance.now();
      violations.push(...(await runUninterrupted(seed)).map((violation) => `uninterrupted: ${violation}`));
      uninterruptedMs += performance.now() - before;
    }
    runs += result.runs;
    steps += result.steps;
    waits += result.waits;
    faults += result.faults.length;
    done += 1;
    for (const cell of result.cells) met.set(cell, (met.get(cell) ?? 0) + 1);
    for (const each of result.exempt) exempt.set(each, (exempt.get(each) ?? 0) + 1);
    if (violations.length > 0) {
      failed += 1;
      say(`seed ${seed} failed: ${violations[0] ?? ''}${violations.length > 1 ? ` (and ${violations.length - 1} more)` : ''}`);
    }
    if (performance.now() - shown > PROGRESS_EVERY_MS) {
      shown = performance.now();
      progress(done, total, failed, rate());
    }
  }
  progress(done, total, failed, rate());
  process.stderr.write('\n');
  const cells = everyCell();
  const uncovered = cells.filter((cell) => !met.has(cell));
  say(`mean steps a run ${(steps / runs).toFixed(1)}, waits a run ${(waits / runs).toFixed(1)}, faults a run ${(faults / runs).toFixed(1)}; ${Math.floor(to / UNINTERRUPTED_EVERY) - Math.floor((from - 1) / UNINTERRUPTED_EVERY)} seeds compared with their real uninterrupted run, the others with what it must come to`);
  say(`exempt runs: ${exempt.size === 0 ? 'none' : [...exempt].map(([name, count]) => `${name} ${count}`).join(', ')}`);
  say(`coverage (fault × boundary × effect class): ${cells.length - uncovered.length} of ${cells.length} cells`);
  for (const cell of uncovered) say(`  not met: ${cell}`);
  const thin = steps / runs < STEPS_LEAST || waits / runs < WAITS_LEAST || (total >= COVERAGE_FROM_SEEDS && faults / runs < FAULTS_LEAST);
  if (thin) say(`these runs prove too little: at least ${STEPS_LEAST} steps, ${WAITS_LEAST} wait and ${FAULTS_LEAST} faults a run are wanted`);
  say(`${((runs * 1000) / cpuMs).toFixed(0)} runs for each second of this process's CPU time, ${(runs / total).toFixed(1)} agents' runs a seed`);
  say(`${total} seeds, ${failed} failed, ${rate().toFixed(0)} runs/s`);
  return failed > 0 || thin || (total >= COVERAGE_FROM_SEEDS && uncovered.length > 0) ? 1 : 0;
}

/** Runs seeds from 1 on until one fails: for mutants. The last line is JSON. */
async function hunt(most: number): Promise<number> {
  for (let seed = 1; seed <= most; seed += 1) {
    const { violations, faults } = await runSeed(seed);
    if (violations.length === 0) continue;
    say(JSON.stringify({ caughtAt: seed, faults: faults.length, violation: violations[0] }));
    return 0;
  }
  say(JSON.stringify({ caughtAt: null, seeds: most }));
  return 0;
}

function progress(done: number, total: number, failed: number, rate: number): void {
  const width = 30;
  const full = Math.round((done / total) * width);
  const line = `[${'#'.repeat(full)}${' '.repeat(width - full)}] ${done}/${total}, ${failed} failed, ${rate.toFixed(0)} runs/s`;
  if (process.stderr.isTTY) process.stderr.write(`\r${line}`);
  else if (done === total) process.stderr.write(line);
}

const { values } = parseArgs({ options: { seeds: { type: 'string' }, seed: { type: 'string' }, trace: { type: 'boolean', default: false }, hunt: { type: 'string' } } });
const range = /^(\d+)(?:\.\.(\d+))?$/.exec(values.seeds ?? '');
if (values.seed !== undefined && /^\d+$/.test(values.seed)) process.exitCode = await one(Number(values.seed), values.trace);
else if (values.hunt !== undefined && /^\d+$/.test(values.hunt)) process.exitCode = await hunt(Number(values.hunt));
else if (range !== null) process.exitCode = await many(Number(range[1]), Number(range[2] ?? range[1]));
else {
  process.stderr.write(USAGE);
  process.exitCode = 2;
}
