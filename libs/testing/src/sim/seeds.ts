import { Chance } from './chance.js';
import type { TraceLine } from './core.js';
import { HANDING_TEMPO, handovers, SERVICES, noFaults, random, scripted, type Cell, type Fault, type FaultPlan, type Handing } from './faults.js';
import { Judge } from './judge.js';
import { plannedRuns, Simulation, type RunPlan } from './simulation.js';
import type { Exemption } from './exempt.js';

export interface SeedResult {
  readonly seed: number;
  readonly runs: number;
  /** As their streams hold them. */
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
/** Of the seeds, those whose world has reconciliation and compensation, and so runs that are answered; fewer of them, since each lasts longer. */
const SETTLES_OF_ALL = 0.3;
const SETTLING_RUNS = 4;
const UNSETTLED_STORES = ['orchestrator', 'ledger'] as const;
/** Jumps of clocks. Where unknowns are settled by time, all of them together stay below the skew that is assumed (ADR 0009). Milliseconds. */
const JUMP_MS = 1500;
const JUMP_SETTLING_MS = 1200;
/** Every so many seeds the real uninterrupted run is made as well, to check what equality is judged by. */
export const UNINTERRUPTED_EVERY = 20;

const window = { windowMs: 7000, laterWindowMs: 15_000, timedMax: 4 };

/** Of the seeds, those in which runs go from worker to worker more than chance has it. */
const HANDOVERS_OF_ALL = 0.25;

/** Where lanes return, runs begin over a longer time, so that each holding of a lane has some. */
const RETURNING_STARTS = 3;

const settles = (seed: number): boolean => new Chance(`${seed}/settles`).hits(SETTLES_OF_ALL);

const runsOf = (seed: number): RunPlan[] => plannedRuns(String(seed), settles(seed) ? SETTLING_RUNS : RUNS_A_SEED, settles(seed));

/** One seed: a world, its runs, its faults, and the judgement. The same seed gives the same, always. */
export async function runSeed(seed: number, { faults, trace = false }: SeedOptions = {}): Promise<SeedResult> {
  const chance = new Chance(`${seed}/shape`);
  const some = { orchestrator: chance.whole(1, 2), ledger: chance.whole(1, 2), worker: chance.whole(1, 3) };
  const rate = chance.pick([0.025, 0.05, 0.1]);
  const also = new Chance(`${seed}/settling`);
  const instances = settles(seed) ? { ...some, reconciliation: also.pick([1, 1, 2]), compensation: also.pick([1, 1, 2]) } : { ...some, reconciliation: 0, compensation: 0 };
  const handing = new Chance(`${seed}/hands over`);
  const hands = handing.hits(HANDOVERS_OF_ALL) && instances.worker > 1 ? handing.pick<Handing>(['quick', 'returning']) : null;
  const besides = settles(seed) ? (['reconciliation', 'compensation', 'compensation'] as const) : [];
  const targets = ([...besides, 'orchestrator', 'ledger', 'worker', 'worker', 'worker'] as const).map((kind) => `${kind}-${chance.whole(1, instances[kind])}`) as [string, ...string[]];
  const options = { ...window, rate, targets, stores: settles(seed) ? SERVICES : UNSETTLED_STORES, jumpMs: settles(seed) ? JUMP_SETTLING_MS : JUMP_MS };
  const byChance = new Chance(`${seed}/faults`);
  const plan: FaultPlan = { ...(faults !== undefined ? scripted(faults) : hands !== null ? handovers(byChance, options, `worker-${instances.worker}`, hands) : random(byChance, options)), ...(hands !== null ? HANDING_TEMPO[hands] : {}) };
  const runs = runsOf(seed).map((run) => (hands === 'returning' ? { ...run, startMs: run.startMs * RETURNING_STARTS } : run));
  const simulation = new Simulation({ seed: String(seed), runs, plan, instances, partitions: 2, trace, irreversibleConcurrency: chance.pick([1, 1, 2, 4]), staggerMs: chance.pick([0, 0, 600, 2500]) });
  const judge = new Judge(simulation);
  await simulation.run();
  judge.judge();
  const { core } = simulation.cluster;
  return { seed, runs: runs.length, steps: judge.steps, waits: judge.waits, faults: core.faults, violations: core.violations, exempt: judge.exempt, cells: core.cells, virtualMs: core.elapsedMs, story: core.story };
}

/** The same runs in a world of one process of each kind, without any fault: what equality is judged by must be what really comes of it. */
export async function runUninterrupted(seed: number): Promise<readonly string[]> {
  const runs = runsOf(seed);
  const also = settles(seed) ? { reconciliation: 1, compensation: 1 } : {};
  const simulation = new Simulation({ seed: String(seed), runs, plan: noFaults, instances: { orchestrator: 1, ledger: 1, worker: 1, ...also }, partitions: 2, trace: false });
  const judge = new Judge(simulation);
  await simulation.run();
  judge.judge();
  return [...simulation.cluster.core.violations, ...judge.exempt.map((exemption) => `exempt without a fault: ${exemption}`)];
}
