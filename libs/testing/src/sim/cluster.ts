import { absent, evolve, unknownSteps, type Run, type RunEvent } from '@holdfast/orchestrator';
import { encodeHeaders, DEFAULT_POOL, RunId, runTasks, StartRun, toolTasks, topics, type Budgets, type EffectClass, type Json, type Named, type Pool } from '@holdfast/protocol';
import { Chance } from './chance.js';
import { Coordinator } from './coordinator.js';
import { Core } from './core.js';
import { SERVICES, timedCellOf, type FaultPlan, type ProcessKind, type ServiceKind } from './faults.js';
import { dataOf, STREAMS } from './folds.js';
import { SimLog } from './log.js';
import { SimProcess } from './process.js';
import { start, type Running, type Surroundings } from './processes.js';
import { BEGINNING, type Scheduler } from './scheduler.js';
import { SimDatabase } from './store.js';

/** How many processes of each kind; without a case for each unknown and a plan for each failed run where the two are left out. */
export type Instances = Readonly<Record<'orchestrator' | 'ledger' | 'worker', number> & Partial<Record<ServiceKind, number>>>;

export interface ClusterOptions extends Pick<Surroundings, 'agents' | 'tools' | 'onGrant' | 'onAlarm'> {
  readonly seed: string;
  readonly plan: FaultPlan;
  readonly instances: Instances;
  readonly partitions: number;
  readonly trace: boolean;
  readonly sessionMs?: number;
  readonly irreversibleConcurrency?: number;
  readonly staggerMs?: number;
  readonly scheduler?: Scheduler;
}

export interface RunRequest {
  readonly id: string;
  readonly agent: Named;
  readonly input: Json;
  readonly askedTwice: boolean;
  readonly budgets?: Budgets | undefined;
}

interface Slot {
  readonly name: string;
  readonly kind: Exclude<ProcessKind, 'client'>;
  count: number;
  running: Running | null;
}

const SESSION_MS = 3000;
const POOL = DEFAULT_POOL as Pool;
const RESTARTS_AFTER_MS = 100;
const RESTARTS_WITHIN_MS = 5000;
/** Longer than whatever goes on by itself in a world at rest: heartbeats, sessions, idle turns. */
const LEAP_LEAST_MS = 6000;
const LEAP_SHORT_OF_MS = 1500;

/** Broker, databases, services and workers of one simulated world: started, killed, and started again. */
export class Cluster {
  readonly core: Core;
  readonly log: SimLog;
  readonly databases: Readonly<Record<ServiceKind, SimDatabase>>;
  readonly slots: readonly Slot[];
  /** Runs whose start Kafka has acknowledged. */
  readonly acknowledged = new Set<string>();
  /** Runs that have an end, or are in quarantine. */
  readonly over = new Set<string>();
  readonly #options: ClusterOptions;
  readonly #around: Surroundings;
  readonly #coordinators = new Map<string, Coordinator>();
  readonly #publishedRows = new Set<string>();
  #committedRows = 0;

  constructor(options: ClusterOptions) {
    const { seed, plan, partitions, instances, trace } = options;
    this.#options = options;
    this.core = new Core(seed, plan, trace, options.scheduler);
    this.log = new SimLog(this.core, partitions);
    const database = (name: ServiceKind): SimDatabase => new SimDatabase(this.core, name);
    this.databases = { orchestrator: database('orchestrator'), ledger: database('ledger'), reconciliation: database('reconciliation'), compensation: database('compensation') };
    for (const database of Object.values(this.databases)) database.onCommit = (rows) => void (this.#committedRows += rows.length);
    this.log.watch(({ topic, headers, key, value }) => {
      const { ce_seq: seq, ce_type: type } = headers;
      if (seq !== undefined) this.#publishedRows.add(`${String(headers['ce_source'])}/${String(headers['ce_lane'])}/${String(seq)}`);
      if (topic === topics.compensationEvents && type === 'CompensationOrdered') {
        const { key: operation, effect, tool } = JSON.parse(value ?? '') as Requested;
        this.core.effects.learn(operation, effect, tool.name);
      }
      if (topic !== topics.runEvents || key === null) return;
      if (type === 'RunFinished' || type === 'RunQuarantined') this.over.add(key);
      if (type === 'EffectRequested' || type === 'GroupRequested') {
        const data = JSON.parse(value ?? '') as { call?: Requested; calls?: Requested[] };
        for (const { key: operation, effect, tool } of data.calls ?? (data.call === undefined ? [] : [data.call])) this.core.effects.learn(operation, effect, tool.name);
      }
    });
    const present = SERVICES.filter((service) => (instances[service] ?? 0) > 0);
    const read = new Set([...present.flatMap((service) => [...STREAMS[service].reads, topics.contracts]), ...(instances.worker > 0 ? [runTasks(POOL), toolTasks(POOL)] : [])]);
    this.log.isUnread = (topic) => !read.has(topic);
    this.slots = ([...SERVICES, 'worker'] as const).flatMap((kind) => Array.from({ length: instances[kind] ?? 0 }, (_, index): Slot => ({ name: `${kind}-${index + 1}`, kind, count: 0, running: null })));
    this.#around = { core: this.core, log: this.log, databases: this.databases, coordinator: (id) => this.coordinator(id), irreversibleConcurrency: 4, ...options };
    this.core.onDied = (process) => this.#died(process);
  }

  /** Where its servers and the simulated parts of its processes stand, in words. */
  standing(): string {
    const processes = this.slots.flatMap(({ name, running }) => (running?.process.alive === true ? [name, ...running.process.parts.map((part) => part())] : []));
    return [this.log.standing(), ...Object.values(this.databases).map((database) => database.standing()), ...[...this.#coordinators.values()].map((coordinator) => coordinator.standing()), ...processes].join('\n');
  }

  /** Each group has just the members that are alive. */
  areGroupsSettled(): boolean {
    const alive = (kind: ProcessKind): number => this.slots.filter((slot) => slot.kind === kind && slot.running?.process.alive === true).length;
    return [...this.#coordinators.values()].every((coordinator) => coordinator.isSettled(alive(SERVICES.find((service) => coordinator.id === `holdfast.${service}`) ?? 'worker')));
  }

  coordinator(groupId: string): Coordinator {
    let known = this.#coordinators.get(groupId);
    const sessionMs = this.#options.sessionMs ?? SESSION_MS;
    if (known === undefined) this.#coordinators.set(groupId, (known = new Coordinator(this.core, groupId, this.#options.partitions, sessionMs, sessionMs + 1000)));
    return known;
  }

  /** Leaps over time in which nothing but heartbeats would happen; false when there is nothing to leap over. */
  leap(until: number): boolean {
    const { scheduler } = this.core;
    const due = Object.values(this.databases).flatMap(({ agenda }) => [...agenda.values()].flatMap(({ open, dueAt }) => (open && dueAt !== null && dueAt > scheduler.now ? [dueAt] : [])));
    const to = Math.min(until, scheduler.nextBeyond(LEAP_LEAST_MS), ...due) - LEAP_SHORT_OF_MS;
    if (scheduler.now - this.log.lastAppendAt < LEAP_LEAST_MS || to - scheduler.now < LEAP_LEAST_MS) return false;
    const byMs = to - scheduler.now;
    scheduler.leap(to, LEAP_LEAST_MS);
    for (const coordinator of this.#coordinators.values()) coordinator.leapt(byMs);
    return true;
  }

  /** Starts every process, and lets the planned faults come when their time is there. */
  start(): void {
    const { scheduler, plan } = this.core;
    const chance = new Chance(`${this.core.seed}/start`);
    for (const slot of this.slots) {
      const afterMs = slot.kind === 'worker' && slot.name !== 'worker-1' ? chance.between(0, this.#options.staggerMs ?? 0) : 0;
      scheduler.at(BEGINNING + 1 + afterMs, null, () => this.#start(slot), { name: `${slot.name} starts` });
    }
    for (const fault of plan.timed) scheduler.at(BEGINNING + fault.ms, null, () => this.#happen(fault));
  }

  /** Nothing that happens from now on starts a process again. */
  end(): void {
    this.core.onDied = () => undefined;
  }

  /** Asks for a run, again and again until Kafka acknowledges it. */
  ask({ id, agent, input, askedTwice, budgets }: RunRequest): void {
    const client = new SimProcess(this.core, 'client', `client-${id}`);
    const writer = this.log.writer(client);
    const { type, data } = StartRun({ agent, input, ...(budgets === undefined ? {} : { budgets }) });
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

  /** A run, folded from its journal. */
  run(id: string): Run {
    return this.databases.orchestrator.stream(topics.runEvents, id).reduce<Run>((state, row) => evolve(state, { type: row.type, data: dataOf(row) } as RunEvent), absent);
  }

  isBlocked(id: string): boolean {
    const run = this.run(id);
    return run.status === 'open' && unknownSteps(run).length > 0;
  }

  /** Whether a living process stands still, and goes on later. */
  anyFrozen(): boolean {
    return this.slots.some(({ running }) => running?.process.alive === true && running.process.frozenUntil > this.core.scheduler.now);
  }

  /** Everything committed is published, and everything published is read. */
  isDrained(): boolean {
    return this.#publishedRows.size === this.#committedRows && SERVICES.every((service) => (this.#options.instances[service] ?? 0) === 0 || this.#hasReadAll(service));
  }

  /** Also of a service that has never come so far as to write down where it stands. */
  #hasReadAll(service: ServiceKind): boolean {
    const { progress } = this.databases[service];
    for (let lane = 0; lane < this.#options.partitions; lane += 1) {
      const offsets = progress.get(lane)?.offsets ?? {};
      if (!STREAMS[service].reads.every((topic) => (offsets[topic] ?? 0) >= this.log.lane(topic, lane).length)) return false;
    }
    return true;
  }

  /** Nothing that the ledger granted, no case and no plan is open. */
  isSettled(): boolean {
    const { ledger, reconciliation, compensation } = this.databases;
    return [ledger, reconciliation, compensation].every(({ agenda }) => [...agenda.values()].every(({ open }) => !open));
  }

  /** Starts one process that is not running. */
  startOne(name: string): void {
    const slot = this.slots.find((each) => each.name === name);
    if (slot !== undefined) this.#start(slot);
  }

  #start(slot: Slot): void {
    slot.count += 1;
    slot.running = start(this.#around, slot.kind, `${slot.name}#${slot.count}`);
  }

  #died(process: SimProcess): void {
    const slot = this.slots.find(({ running }) => running?.process === process);
    if (slot === undefined) return;
    const { scheduler } = this.core;
    scheduler.at(scheduler.now + process.chance.between(this.core.plan.restartsAfterMs ?? RESTARTS_AFTER_MS, this.core.plan.restartsWithinMs ?? RESTARTS_WITHIN_MS), null, () => this.#start(slot));
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
}

interface Requested {
  readonly key: string;
  readonly effect: EffectClass;
  readonly tool: { readonly name: string };
}
