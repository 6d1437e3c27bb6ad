import { encodeHeaders, RunId, StartRun, topics } from '@holdfast/protocol';
import { absent, evolve, unknownSteps, type Run, type RunEvent } from '@holdfast/orchestrator';
import type { AgentDefinition, ToolDefinition } from '@holdfast/sdk';
import { interpreter, randomProgram, stepsOf, TOOLS, tools, type Op } from './agents.js';
import { Chance } from './chance.js';
import { Coordinator } from './coordinator.js';
import { Core } from './core.js';
import { EffectIndex } from './effects.js';
import { timedCellOf, type FaultPlan, type ProcessKind } from './faults.js';
import { SimLog } from './log.js';
import { SimProcess } from './process.js';
import { start, type Running, type Surroundings } from './processes.js';
import { BEGINNING } from './scheduler.js';
import { SimDatabase } from './store.js';
import { FakeWorld } from './world.js';

export interface RunPlan {
  readonly id: string;
  readonly program: readonly Op[];
  /** When it is asked for, milliseconds from the beginning. */
  readonly startMs: number;
  readonly askedTwice: boolean;
}

export interface SimulationOptions {
  readonly seed: string;
  readonly runs: readonly RunPlan[];
  readonly plan: FaultPlan;
  readonly instances: Readonly<Record<'orchestrator' | 'ledger' | 'worker', number>>;
  readonly partitions: number;
  readonly trace: boolean;
}

const SESSION_MS = 3000;
const REBALANCE_MS = 4000;
const LOOK_EVERY_MS = 250;
/** How long nothing may be written before the world counts as come to rest, milliseconds: longer than any deadline or back-off here. */
const QUIET_MS = 20_000;
const SETTLED_MS = 1500;
/** The same, where every run that is left is known to be blocked. */
const BLOCKED_MS = 4000;
const LIMIT_MS = 10 * 60_000;

interface Slot {
  readonly name: string;
  readonly kind: Exclude<ProcessKind, 'client'>;
  count: number;
  running: Running | null;
}

/** A random program for each run of a seed. */
export function plannedRuns(seed: string, count: number): RunPlan[] {
  const chance = new Chance(`${seed}/runs`);
  const common = { shared: [`shared-${seed}-1`, `shared-${seed}-2`], contested: `contested-${seed}` };
  return Array.from({ length: count }, (_, index) => {
    const id = `run-${index + 1}`;
    return { id, program: randomProgram(chance, id, common), startMs: chance.between(10, 1500), askedTwice: chance.hits(0.2) };
  });
}

/** One world of services, workers and runs, from its beginning until it comes to rest. */
export class Simulation {
  readonly core: Core;
  readonly log: SimLog;
  readonly world: FakeWorld;
  readonly databases: Readonly<Record<'orchestrator' | 'ledger', SimDatabase>>;
  readonly slots: readonly Slot[];
  readonly effects = new EffectIndex();
  /** Runs whose start Kafka has acknowledged. */
  readonly acknowledged = new Set<string>();
  /** Told each time that recorded work is really done, with the fence of its grant. */
  onWork: (fence: number, run: string, what: string) => void = () => undefined;
  ended: 'settled' | 'quiet' | 'late' = 'late';
  readonly #around: Surroundings;
  readonly #coordinators = new Map<string, Coordinator>();
  readonly #granted = new Map<string, number>();
  readonly #over = new Set<string>();
  readonly #programs: ReadonlyMap<string, readonly Op[]>;
  #committedRows = 0;
  #lookedAt = -1;
  #words = 0;
  readonly #publishedRows = new Set<string>();

  constructor(readonly options: SimulationOptions) {
    const { seed, plan, partitions, instances, trace } = options;
    this.core = new Core(seed, plan, trace);
    this.#programs = new Map(options.runs.map(({ id, program }) => [id, program]));
    this.log = new SimLog(this.core, partitions, (records) => this.effects.in(records.map(({ value }) => value)));
    this.world = new FakeWorld(this.core);
    this.databases = { orchestrator: new SimDatabase(this.core, 'orchestrator'), ledger: new SimDatabase(this.core, 'ledger') };
    for (const database of Object.values(this.databases)) database.onCommit = (rows) => void (this.#committedRows += rows.length);
    this.log.watch(({ topic, headers, key, value }) => {
      const { ce_seq: seq, ce_type: type } = headers;
      if (seq !== undefined) this.#publishedRows.add(`${String(headers['ce_source'])}/${String(headers['ce_lane'])}/${String(seq)}`);
      if (topic !== topics.runEvents || key === null) return;
      if (type === 'RunFinished' || type === 'RunQuarantined') this.#over.add(key);
      if (type === 'EffectRequested' || type === 'GroupRequested') {
        const data = JSON.parse(value ?? '') as { call?: Requested; calls?: Requested[] };
        for (const { key: operation, effect } of data.calls ?? (data.call === undefined ? [] : [data.call])) this.effects.learn(operation, effect);
      }
    });
    this.slots = (['orchestrator', 'ledger', 'worker'] as const).flatMap((kind) => Array.from({ length: instances[kind] }, (_, index): Slot => ({ name: `${kind}-${index + 1}`, kind, count: 0, running: null })));
    this.#around = {
      core: this.core,
      log: this.log,
      effects: this.effects,
      databases: this.databases,
      coordinator: (id) => this.coordinator(id),
      agents: (process) => [this.#agent(process)],
      tools: (process) => this.#tools(process),
      onGrant: (process, { run, fence }) => void this.#granted.set(`${process.name}/${run}`, fence),
      onAlarm: (process, what) => this.core.violated('alarm', `${process.name}: ${what}`),
    };
    this.core.onDied = (process) => this.#died(process);
  }

  coordinator(groupId: string): Coordinator {
    let known = this.#coordinators.get(groupId);
    if (known === undefined) this.#coordinators.set(groupId, (known = new Coordinator(this.core, groupId, this.options.partitions, SESSION_MS, REBALANCE_MS)));
    return known;
  }

  async run(): Promise<void> {
    const { scheduler } = this.core;
    for (const slot of this.slots) scheduler.at(BEGINNING + this.core.seed.length, null, () => this.#start(slot));
    for (const run of this.options.runs) scheduler.at(BEGINNING + run.startMs, null, () => this.#ask(run));
    for (const fault of this.core.plan.timed) scheduler.at(BEGINNING + fault.ms, null, () => this.#happen(fault));
    let over = false;
    const look = (): void => {
      over = this.#atRest();
      scheduler.at(scheduler.now + LOOK_EVERY_MS, null, look);
    };
    scheduler.at(BEGINNING + 500, null, look);
    await scheduler.run(() => over, BEGINNING + LIMIT_MS);
    // What is still under way belongs to a world that is over.
    this.core.onDied = () => undefined;
  }

  #atRest(): boolean {
    const silentMs = this.core.scheduler.now - this.log.lastAppendAt;
    const { runs } = this.options;
    if (this.world.inFlight > 0) return false;
    if (silentMs > SETTLED_MS && this.#over.size === runs.length && this.acknowledged.size === runs.length && this.#publishedRows.size === this.#committedRows && this.#allRead()) {
      this.ended = 'settled';
      return true;
    }
    const quiet = silentMs > QUIET_MS || (silentMs > BLOCKED_MS && this.#publishedRows.size === this.#committedRows && this.#restIsBlocked());
    if (quiet) this.ended = 'quiet';
    return quiet;
  }

  /** Every run that has no end is known to be blocked, and every service has read all there is. */
  #restIsBlocked(): boolean {
    if (this.#lookedAt === this.log.lastAppendAt) return false;
    this.#lookedAt = this.log.lastAppendAt;
    if (!this.#allRead()) {
      this.#lookedAt = -1;
      return false;
    }
    return this.options.runs.every(({ id }) => this.#over.has(id) || this.#isBlocked(id));
  }

  #allRead(): boolean {
    return Object.values(this.databases).every(({ progress }) => [...progress.values()].every(({ lane, offsets }) => Object.entries(offsets).every(([topic, next]) => next >= this.log.lane(topic, lane).length)));
  }

  #isBlocked(id: string): boolean {
    const rows = this.databases.orchestrator.stream(topics.runEvents, id);
    const run = rows.reduce<Run>((state, { type, data }) => evolve(state, { type, data: JSON.parse(data) as unknown } as RunEvent), absent);
    return run.status === 'open' && unknownSteps(run).length > 0;
  }

  #start(slot: Slot): void {
    slot.count += 1;
    slot.running = start(this.#around, slot.kind, `${slot.name}#${slot.count}`);
  }

  #died(process: SimProcess): void {
    const slot = this.slots.find(({ running }) => running?.process === process);
    if (slot === undefined) return;
    const { scheduler } = this.core;
    scheduler.at(scheduler.now + process.chance.between(100, 5000), null, () => this.#start(slot));
  }

  #happen(fault: FaultPlan['timed'][number]): void {
    const { core } = this;
    const { scheduler } = core;
    const slot = this.slots.find(({ name }) => name === fault.target);
    const process = slot?.running?.process;
    core.faults.push(fault);
    core.cells.add(timedCellOf(fault.kind, slot?.kind ?? fault.target));
    core.trace('fault', `${fault.kind} of ${fault.target} for ${fault.forMs} ms`);
    switch (fault.kind) {
      case 'store_outage':
        return core.takeOut(`store.${fault.target}`, fault.forMs);
      case 'broker_outage':
        return core.takeOut('broker', fault.forMs);
      case 'freeze':
        if (process !== undefined) process.frozenUntil = scheduler.now + fault.forMs;
        return;
      case 'cut_off':
        if (process !== undefined) process.cutOffUntil = scheduler.now + fault.forMs;
        return;
      case 'clock_jump':
        if (process !== undefined) process.skewMs += fault.forMs;
        return;
      case 'restart':
        if (slot !== undefined && process?.alive === true) void slot.running?.stop().then(() => process.crash('it was stopped'));
        return;
    }
  }

  /** The client: asks for a run, again and again until Kafka acknowledges it. */
  #ask({ id, askedTwice }: RunPlan): void {
    const client = new SimProcess(this.core, 'client', `client-${id}`);
    const writer = this.log.writer(client);
    const { type, data } = StartRun({ agent: { name: 'interpreter', version: '1' }, input: null });
    const publish = (nth: number): void => {
      const headers = encodeHeaders({ id: `${client.name}/${nth}`, type, source: client.name, subject: RunId.parse(id), time: client.clock.now(), tenant: 'default' });
      writer.publish([{ topic: topics.agentIntents, key: id, headers, value: JSON.stringify(data) }]).then(
        () => {
          this.acknowledged.add(id);
          if (askedTwice && nth === 1) publish(2);
        },
        () => void client.clock.after(200, () => publish(nth + 1)),
      );
    };
    publish(1);
  }

  #tools(process: SimProcess): ToolDefinition[] {
    return tools.map((tool) => {
      const kind = TOOLS.find(({ name }) => name === tool.name);
      if (kind === undefined) throw new Error(`no tool ${tool.name}`);
      const granted = kind.effect === 'irreversible' || kind.keyScope === 'target';
      return { ...tool, execute: (args, context) => this.world.call(process, { ...kind, granted }, args as { n: number }, context) };
    });
  }

  #agent(process: SimProcess): AgentDefinition {
    return interpreter((run) => this.#programs.get(run) ?? [], (run) => {
      const granted = this.#granted.get(`${process.name}/${run}`) ?? 0;
      return { onWork: (what) => this.onWork(granted, run, what), newWords: () => `words ${(this.#words += 1)}` };
    });
  }
}

interface Requested {
  readonly key: string;
  readonly effect: (typeof TOOLS)[number]['effect'];
}

export const meanSteps = (runs: readonly RunPlan[]): number => runs.reduce((sum, { program }) => sum + stepsOf(program), 0) / runs.length;
