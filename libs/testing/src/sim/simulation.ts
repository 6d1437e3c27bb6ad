import type { Budgets } from '@holdfast/protocol';
import type { AgentDefinition, ToolDefinition } from '@holdfast/sdk';
import { interpreter, randomProgram, stepsOf, tools, type Op } from './agents.js';
import { Chance } from './chance.js';
import { Cluster, type Instances } from './cluster.js';
import { Desk } from './desk.js';
import type { FaultPlan } from './faults.js';
import { People } from './people.js';
import type { SimProcess } from './process.js';
import { BEGINNING } from './scheduler.js';
import { KINDS, probeOf, settledTools, withAnswers } from './settling.js';
import { untaken } from './tasks.js';
import { withWaits } from './waits.js';
import { FakeWorld } from './world.js';

export interface RunPlan {
  readonly id: string;
  readonly program: readonly Op[];
  /** When it is asked for, milliseconds from the beginning. */
  readonly startMs: number;
  readonly askedTwice: boolean;
  readonly budgets?: Budgets | undefined;
}

export interface SimulationOptions {
  readonly seed: string;
  readonly runs: readonly RunPlan[];
  readonly plan: FaultPlan;
  readonly instances: Instances;
  readonly partitions: number;
  readonly trace: boolean;
  /** How many irreversible effects one worker fires at once. */
  readonly irreversibleConcurrency?: number;
  /** Within how long the workers start, one after the other, milliseconds. */
  readonly staggerMs?: number;
}

const LOOK_EVERY_MS = 250;
/** How long nothing may be written before the world counts as come to rest, milliseconds: longer than any deadline or back-off here. */
const QUIET_MS = 20_000;
/** The same, where cases and plans go on by themselves: longer than a circuit stays open. */
const SETTLING_QUIET_MS = 90_000;
const SETTLED_MS = 1500;
/** The same, where every run that is left is known to be blocked. */
const BLOCKED_MS = 4000;
const LIMIT_MS = 10 * 60_000;
const BUDGETED_OF_ALL = 0.12;

/** Some runs may do less than they would, or just as much. */
function budgetsOf(chance: Chance, program: readonly Op[]): Budgets | undefined {
  if (!chance.hits(BUDGETED_OF_ALL)) return undefined;
  return chance.hits(0.6) ? { stepsMax: chance.whole(2, stepsOf(program) + 2) } : { tokensMax: chance.whole(1, 12) };
}

/** A random program for each run of a seed. */
export function plannedRuns(seed: string, count: number, settles: boolean): RunPlan[] {
  const chance = new Chance(`${seed}/runs`);
  const common = { shared: [`shared-${seed}-1`, `shared-${seed}-2`], contested: `contested-${seed}` };
  return Array.from({ length: count }, (_, index) => {
    const id = `run-${index + 1}`;
    const waiting = withWaits(randomProgram(chance, id, common), new Chance(`${seed}/waits/${id}`), id);
    const program = settles ? withAnswers(waiting, new Chance(`${seed}/answers/${id}`), id) : waiting;
    return { id, program, startMs: chance.between(10, 1500), askedTwice: chance.hits(0.2), budgets: budgetsOf(new Chance(`${seed}/budgets/${id}`), program) };
  });
}

/** One world of services, workers and runs, from its beginning until it comes to rest. */
export class Simulation {
  readonly cluster: Cluster;
  readonly world: FakeWorld;
  readonly people: People;
  /** Present where cases and plans are there to be decided on. */
  readonly desk: Desk | null;
  /** Reconciliation and compensation are there: nothing stays unknown, and what failed is answered. */
  readonly settles: boolean;
  /** Told each time that recorded work is really done, with the fence of its grant. */
  onWork: (fence: number, run: string, what: string) => void = () => undefined;
  ended: 'settled' | 'quiet' | 'late' = 'late';
  readonly #granted = new Map<string, number>();
  readonly #programs: ReadonlyMap<string, readonly Op[]>;
  #lookedAt = -1;
  #words = 0;

  constructor(readonly options: SimulationOptions) {
    this.settles = (options.instances.reconciliation ?? 0) > 0;
    this.#programs = new Map(options.runs.map(({ id, program }) => [id, program]));
    this.cluster = new Cluster({
      ...options,
      agents: (process) => [this.#agent(process)],
      tools: (process) => this.#tools(process),
      onGrant: (process, { run, fence }) => void this.#granted.set(`${process.name}/${run}`, fence),
      onAlarm: (process, what) => this.cluster.core.violated('alarm', `${process.name}: ${what}`),
    });
    this.world = new FakeWorld(this.cluster.core);
    this.people = new People(this.cluster, options.runs);
    this.desk = this.settles ? new Desk(this.cluster, this.world, this.people) : null;
  }

  async run(): Promise<void> {
    const { cluster, options } = this;
    const { scheduler } = cluster.core;
    cluster.start();
    for (const { id, startMs, askedTwice, budgets } of options.runs) scheduler.at(BEGINNING + startMs, null, () => cluster.ask({ id, agent: { name: 'interpreter', version: '1' }, input: null, askedTwice, budgets }));
    let over = false;
    const look = (): void => {
      over = this.#atRest();
      scheduler.at(scheduler.now + LOOK_EVERY_MS, null, look);
    };
    scheduler.at(BEGINNING + 500, null, look);
    await scheduler.run(() => over, BEGINNING + LIMIT_MS);
    cluster.end();
  }

  #atRest(): boolean {
    const { cluster, world, options } = this;
    const { lastAppendAt } = cluster.log;
    const silentMs = cluster.core.scheduler.now - lastAppendAt;
    const { runs } = options;
    // Who is frozen may yet say what it saw.
    if (world.inFlight > 0 || this.people.outstanding > 0 || cluster.anyFrozen()) return false;
    if (silentMs > SETTLED_MS && cluster.over.size === runs.length && cluster.acknowledged.size === runs.length && cluster.isDrained() && (!this.settles || cluster.isSettled()) && this.#isAllTaken()) {
      this.ended = 'settled';
      return true;
    }
    const quiet = silentMs > (this.settles ? SETTLING_QUIET_MS : QUIET_MS) || (!this.settles && silentMs > BLOCKED_MS && this.#lookedAt !== lastAppendAt && this.#restIsBlocked(lastAppendAt));
    if (quiet) this.ended = 'quiet';
    return quiet;
  }

  /** Every run that has no end is known to be blocked, and there is nothing left to read. */
  #restIsBlocked(lastAppendAt: number): boolean {
    const { cluster, options } = this;
    if (!cluster.isDrained() || !this.#isAllTaken()) return false;
    this.#lookedAt = lastAppendAt;
    return options.runs.every(({ id }) => cluster.over.has(id) || cluster.isBlocked(id));
  }

  /** A lane may be between two hosts, and a host says only now and then how far it has come with what is not to fire. */
  #isAllTaken(): boolean {
    return untaken(this.cluster).length === 0;
  }

  #tools(process: SimProcess): ToolDefinition[] {
    return (this.settles ? settledTools : tools).map((tool) => {
      const kind = KINDS.find(({ name }) => name === tool.name);
      if (kind === undefined) throw new Error(`no tool ${tool.name}`);
      const granted = kind.effect === 'irreversible' || kind.keyScope === 'target';
      const sealing = probeOf(tool.name) === 'sealing';
      const probe = tool.probe === null ? null : { ...tool.probe, ask: (args: unknown, context: Parameters<typeof tool.probe.ask>[1]) => this.world.probe(process, { name: tool.name, sealing }, args as { n: number }, context) };
      return { ...tool, probe, execute: (args, context) => this.world.call(process, { ...kind, granted }, args as { n: number }, context) };
    });
  }

  #agent(process: SimProcess): AgentDefinition {
    return interpreter(
      (run) => this.#programs.get(run) ?? [],
      (run) => {
        const fence = this.#granted.get(`${process.name}/${run}`) ?? 0;
        return { onWork: (what) => this.onWork(fence, run, what), onCallback: (url) => this.people.told(url), newWords: () => `words ${(this.#words += 1)}` };
      },
    );
  }
}
