import { Chance } from './chance.js';
import type { TraceLine } from './core.js';
import { noFaults, random, scripted, type Cell, type Fault, type FaultPlan } from './faults.js';
import { Judge } from './judge.js';
import { meanSteps, meanWaits, plannedRuns, Simulation } from './simulation.js';
import type { Exemption } from './exempt.js';

export interface SeedResult {
  readonly seed: number;
  readonly runs: number;
  readonly steps: number;
  readonly waits: number;
  readonly faults: readonly Fault[];
  readonly violations: readonly string[];
  readonly exempt: readonly Exemption[];
  readonly cells: ReadonlySet<Cell>;
  readonly virtualMs: number;
  readonly story: readonly TraceLine[];
}

export interface SeedOptions {
  /** Exactly these faults instead of those of the seed. */
  readonly faults?: readonly Fault[] | undefined;
  readonly trace?: boolean | undefined;
}

const RUNS_A_SEED = 6;
/** Every so many seeds the real uninterrupted run is made as well, to check what equality is judged by. */
export const UNINTERRUPTED_EVERY = 20;

const window = { windowMs: 7000, timedMax: 4 };

/** One seed: a world, its runs, its faults, and the judgement. The same seed gives the same, always. */
export async function runSeed(seed: number, { faults, trace = false }: SeedOptions = {}): Promise<SeedResult> {
  const chance = new Chance(`${seed}/shape`);
  const instances = { orchestrator: chance.whole(1, 2), ledger: chance.whole(1, 2), worker: chance.whole(1, 3) };
  const rate = chance.pick([0.025, 0.05, 0.1]);
  const targets = (['orchestrator', 'ledger', 'worker', 'worker', 'worker'] as const).map((kind) => `${kind}-${chance.whole(1, instances[kind])}`) as [string, ...string[]];
  const plan: FaultPlan = faults === undefined ? random(new Chance(`${seed}/faults`), { ...window, rate, targets }) : scripted(faults);
  const runs = plannedRuns(String(seed), RUNS_A_SEED);
  const simulation = new Simulation({ seed: String(seed), runs, plan, instances, partitions: 2, trace, irreversibleConcurrency: chance.pick([1, 1, 2, 4]), staggerMs: chance.pick([0, 0, 600, 2500]) });
  const judge = new Judge(simulation);
  await simulation.run();
  judge.judge();
  const { core } = simulation.cluster;
  return { seed, runs: runs.length, steps: meanSteps(runs) * runs.length, waits: meanWaits(runs) * runs.length, faults: core.faults, violations: core.violations, exempt: judge.exempt, cells: core.cells, virtualMs: core.elapsedMs, story: core.story };
}

/** The same runs in a world of one process of each kind, without any fault: what equality is judged by must be what really comes of it. */
export async function runUninterrupted(seed: number): Promise<readonly string[]> {
  const runs = plannedRuns(String(seed), RUNS_A_SEED);
  const simulation = new Simulation({ seed: String(seed), runs, plan: noFaults, instances: { orchestrator: 1, ledger: 1, worker: 1 }, partitions: 2, trace: false });
  const judge = new Judge(simulation);
  await simulation.run();
  judge.judge();
  return [...simulation.cluster.core.violations, ...judge.exempt.map((exemption) => `exempt without a fault: ${exemption}`)];
}
