import { openWaits, unknownSteps, type Run } from '@holdfast/orchestrator';
import type { Json, OperationKey, Operator, Standing } from '@holdfast/protocol';
import type { AgentDefinition, ToolContext, ToolDefinition } from '@holdfast/sdk';
import { Cluster } from '../sim/cluster.js';
import type { Asked, FaultPlan, SiteFault } from '../sim/faults.js';
import type { SimProcess } from '../sim/process.js';
import { BEGINNING, Scheduler } from '../sim/scheduler.js';
import { sayTo, type Word } from './by-hand.js';
import { milliseconds } from './duration.js';
import type { StepFault } from './faults.js';
import { aboutOf } from './passage.js';
import { UsersCode, type Done, type Insteads } from './users-code.js';
import { watchedRun } from './watched-run.js';

/** What a scenario's tools may use instead of real time. */
export interface Surroundings {
  /** Virtual time, epoch milliseconds. */
  now(): number;
  /** Waits in virtual time. */
  elapse(duration: number | string): Promise<void>;
}

/** An agent and its tools, with a fake of whatever the tools change. Made anew for every world. */
export interface Setup {
  readonly agents: readonly AgentDefinition[];
  readonly tools: readonly ToolDefinition[];
  /** What the tools have changed, as JSON: an interrupted world must end with the same as an uninterrupted one. */
  readonly observe?: () => Json;
}

export interface WorldOptions {
  readonly faults?: readonly StepFault[] | undefined;
  /** How many workers share the work. Default 1; a crashed one is started again. */
  readonly workers?: number | undefined;
  readonly seed?: number | undefined;
}

/** One call of a tool's code. */
export interface ToolCall {
  readonly tool: string;
  readonly run: string;
  readonly step: string;
  readonly attempt: number;
  readonly operationKey: OperationKey;
  readonly args: Json;
}

export type RunEnd =
  | { readonly status: 'completed' | 'completed_partially'; readonly output: Json }
  | { readonly status: 'failed'; readonly message: string }
  | { readonly status: 'cancelled'; readonly reason: string }
  | { readonly status: 'expired'; readonly deadline: number }
  /** Nobody knows whether these steps happened: the run waits for evidence, it does not guess. */
  | { readonly status: 'blocked'; readonly unknown: readonly { readonly step: string; readonly tool: string }[] }
  | { readonly status: 'quarantined'; readonly because: string }
  | { readonly status: 'open' };

export interface StartedRun {
  readonly id: string;
  /** How it stands now. */
  end(): RunEnd;
}

/** What a world came to, for comparison. */
export interface Account {
  readonly runs: Readonly<Record<string, RunEnd>>;
  /** Of each run, how its effects stand that were answered or were to be, by step. */
  readonly standing: Readonly<Record<string, Readonly<Record<string, Standing['standing']>>>>;
  readonly observed: Json;
}

/** A boundary that was passed: where `crashEverywhere` kills. @internal */
export interface Passage extends Asked {
  readonly tools: readonly string[];
  /** The tools or other steps that it was about, in words; null: the run as a whole, or its worker. */
  readonly about: string | null;
}

/** What is otherwise than in the world of before: one crash, and what happens in place of some of its deeds. @internal */
export interface Otherwise {
  readonly kill?: (Asked & { readonly fault: SiteFault }) | undefined;
  readonly instead?: Insteads | undefined;
}

type Action = (world: TestWorld) => Promise<void>;

const QUIET_MS = 15_000;
/** The same, where effects are answered: longer than a circuit stays open. */
const ANSWERED_QUIET_MS = 90_000;
const OPERATOR: Operator = { name: 'an operator', roles: ['operator'] };
const PARTITIONS = 2;
/** How often the real event loop is let turn while a tool's code waits for something that is not virtual. */
const REAL_TURNS_MAX = 20_000;

/**
 * One's own agents and tools on real Holdfast services, worker and SDK, in one process: no Kafka,
 * no PostgreSQL, virtual time, and faults where one wants them. The same seed gives the same.
 */
export class TestWorld {
  readonly calls: ToolCall[] = [];
  /** Boundaries passed by asks that write or do something, in order. @internal */
  readonly passages: Passage[] = [];
  readonly #cluster: Cluster;
  readonly #setup: Setup;
  readonly #actions: Action[] = [];
  readonly #runs: string[] = [];
  /** Some tool says how its effect is answered: then what settles and answers effects is there too. */
  readonly #answers: boolean;
  #said = 0;
  readonly #faults: { readonly fault: StepFault; left: number }[];
  readonly #code: UsersCode;

  constructor(scenario: (surroundings: Surroundings) => Setup, options?: WorldOptions);
  /** @internal */
  constructor(scenario: (surroundings: Surroundings) => Setup, options?: WorldOptions, otherwise?: Otherwise);
  constructor(
    private readonly scenario: (surroundings: Surroundings) => Setup,
    private readonly options: WorldOptions = {},
    private readonly otherwise: Otherwise = {},
  ) {
    this.#faults = (options.faults ?? []).map((fault) => ({ fault, left: fault.nth }));
    const scheduler = new Scheduler();
    this.#code = new UsersCode(scheduler, otherwise.instead ?? new Map());
    this.#setup = scenario({ now: () => Math.floor(scheduler.now), elapse: (duration) => this.#code.elapse(milliseconds(duration)) });
    this.#answers = this.#setup.tools.some(({ compensate }) => compensate !== null);
    const plan: FaultPlan = { timed: [], at: (asked, _, texts) => this.#faultAt(asked, texts) };
    this.#cluster = new Cluster({
      seed: `kit-${options.seed ?? 1}`,
      plan,
      instances: { orchestrator: 1, ledger: 1, worker: options.workers ?? 1, ...(this.#answers ? { reconciliation: 1, compensation: 1 } : {}) },
      partitions: PARTITIONS,
      trace: true,
      scheduler,
      agents: (process) => this.#setup.agents.map((agent) => this.#watched(process, agent)),
      tools: (process) => this.#setup.tools.map((tool) => this.#wrapped(process, tool)),
      onGrant: () => undefined,
      onAlarm: (process, what) => this.#cluster.core.violated('alarm', `${process.name}: ${what}`),
    });
    this.#cluster.start();
  }

  /** Asks for a run of an agent. */
  async start(agent: { readonly name: string; readonly version: string }, input: Json, id = `run-${this.#runs.length + 1}`): Promise<StartedRun> {
    await this.#act(async (world) => {
      world.#runs.push(id);
      world.#cluster.ask({ id, agent: { name: agent.name, version: agent.version }, input, askedTwice: false });
      await world.#pass(50);
    });
    return { id, end: () => this.#endOf(id) };
  }

  /** Another program's signal, as a client sends it. */
  signal(run: string, name: string, payload: Json): Promise<void> {
    return this.#say(run, { say: 'signal', name, payload });
  }

  /** A person's decision on an approval, or on the answer to the effect at a step. */
  decide(run: string, step: string, decision: 'approve' | 'reject', by: Operator): Promise<void> {
    return this.#say(run, { say: decision, step, by });
  }

  /** An operator cancels a run: what is under way ends first. */
  cancel(run: string, reason = 'cancelled by hand', by: Operator = OPERATOR): Promise<void> {
    return this.#say(run, { say: 'cancel', reason, by });
  }

  #say(run: string, word: Word): Promise<void> {
    return this.#act(async (world) => {
      world.#said += 1;
      sayTo(world.#cluster, run, word, world.#said);
      await world.#pass(50);
    });
  }

  /** Lets virtual time pass: `'2 days'`, `'90 min'`, or milliseconds. */
  advance(duration: number | string): Promise<void> {
    return this.#act((world) => world.#pass(milliseconds(duration)));
  }

  /** Lets time pass until nothing moves any more. Throws with the last lines of the story when it never rests. */
  settle(): Promise<void> {
    return this.#act((world) => world.#settle());
  }

  /** What was done for runs so far: calls of tools' code, and recorded work. @internal */
  get deeds(): readonly Done[] {
    return this.#code.deeds;
  }

  /** Whether the scenario shows what its tools leave behind. @internal */
  get isObserved(): boolean {
    return this.#setup.observe !== undefined;
  }

  /** Of each run that has no end, how it stands and what it waits for. @internal */
  unended(): string[] {
    return this.#runs.flatMap((id) => {
      const end = this.#endOf(id);
      if (end.status === 'quarantined') return [`${id} is quarantined: ${end.because}`];
      if (end.status === 'blocked') return [`${id} is blocked: nobody knows whether ${end.unknown.map(({ step, tool }) => `${tool} at step ${step}`).join(', ')} happened`];
      if (end.status !== 'open') return [];
      const run = this.#cluster.run(id);
      const waits = run.status === 'open' ? openWaits(run).map(({ step, wait }) => `${wait.kind}${wait.kind === 'signal' ? ` ${wait.name}` : ''} at step ${step}`) : [];
      return [`${id} is open${waits.length === 0 ? '' : ` and waits for ${waits.join(', ')}`}`];
    });
  }

  /** Calls of a tool's code so far. */
  callsOf(tool: string): ToolCall[] {
    return this.calls.filter((call) => call.tool === tool);
  }

  /** Faults that were asked for and have not come: a test that relies on one checks that this is empty. */
  pending(): string[] {
    return this.#faults.filter(({ left }) => left > 0).map(({ fault }) => fault.name);
  }

  /** What happened, line by line. */
  story(): string[] {
    return this.#cluster.core.story.map(({ ms, who, what }) => `${ms.toFixed(1)} ${who} ${what}`);
  }

  account(): Account {
    return { runs: Object.fromEntries(this.#runs.map((id) => [id, this.#endOf(id)])), standing: Object.fromEntries(this.#runs.map((id) => [id, this.#standingOf(id)])), observed: this.#setup.observe?.() ?? null };
  }

  /** A world with the same scenario and the same actions, without faults. */
  async again(): Promise<TestWorld> {
    const other = new TestWorld(this.scenario, { ...this.options, faults: [] });
    for (const action of this.#actions) await other.#act(action);
    return other;
  }

  /** How this world's account differs from an uninterrupted one's; null when it doesn't. */
  async difference(): Promise<string | null> {
    await this.settle();
    const reference = await this.again();
    return differenceOf(reference.account(), this.account());
  }

  async #act(action: Action): Promise<void> {
    this.#actions.push(action);
    await action(this);
  }

  async #pass(ms: number): Promise<void> {
    const { scheduler } = this.#cluster.core;
    const until = scheduler.now + ms;
    const canLeap = (): boolean => !this.#code.isAwake && this.#isWhole() && scheduler.now - this.#cluster.log.lastAppendAt > QUIET_MS && until - scheduler.now > QUIET_MS;
    while (scheduler.now < until) {
      if (canLeap() && this.#cluster.leap(until)) continue;
      // A few seconds at a time: then it may have come to rest.
      await this.#run(() => false, Math.min(until, scheduler.now + 2000));
    }
  }

  async #settle(): Promise<void> {
    const { core, log, over } = this.#cluster;
    // After a leap everything has been silent for long, also who has only now something to say.
    const beganAt = core.scheduler.now;
    const rest = (): boolean => {
      const silentMs = core.scheduler.now - Math.max(log.lastAppendAt, beganAt);
      const isOver = (): boolean => this.#cluster.isDrained() && this.#runs.every((id) => over.has(id)) && (!this.#answers || this.#cluster.isSettled());
      return !this.#code.isBusy && this.#isWhole() && silentMs > 1000 && (silentMs > (this.#answers ? ANSWERED_QUIET_MS : QUIET_MS) || isOver());
    };
    const limit = core.scheduler.now + 86_400_000;
    await this.#run(rest, limit);
    if (core.scheduler.now >= limit) throw new Error(`the world came to no rest within a virtual day; its last lines:\n${this.story().slice(-30).join('\n')}`);
  }

  /** What died is there again. */
  #isWhole(): boolean {
    return this.#cluster.slots.every(({ running }) => running?.process.alive === true);
  }

  /** Virtual time stands still while a tool's code waits for something real. */
  async #run(over: () => boolean, until: number): Promise<void> {
    const { scheduler } = this.#cluster.core;
    for (let turns = 0; ; ) {
      const end = await scheduler.run(() => over() || (this.#code.isAwake && scheduler.nextAt() > scheduler.now), until);
      if (end !== 'over' || over()) return;
      turns += 1;
      if (turns > REAL_TURNS_MAX) throw new Error('a tool’s code waits for something that never comes; let it wait in virtual time, with the elapse that the scenario is given');
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  #watched(process: SimProcess, agent: AgentDefinition): AgentDefinition {
    return {
      ...agent,
      run: (run, input) => {
        const seen = watchedRun(run, (work, code) => this.#code.perform(process, { ...work, run: run.id, effect: null }, code));
        return this.#code.host(process, () => agent.run(seen, input));
      },
    };
  }

  #wrapped(process: SimProcess, tool: ToolDefinition): ToolDefinition {
    const granted = tool.effect === 'irreversible' || tool.keyScope === 'target';
    const { probe } = tool;
    return {
      ...tool,
      execute: (args, context) => this.#call(process, tool, granted, args, context),
      probe: probe && { ...probe, ask: (args, context) => this.#code.run(process, () => probe.ask(args, context)) },
    };
  }

  async #call(process: SimProcess, tool: ToolDefinition, granted: boolean, args: unknown, context: ToolContext): Promise<unknown> {
    const fault = process.fault(granted ? 'fire.granted' : 'fire.local', () => [`"name":"${tool.name}"`]);
    if (fault === 'crash_before') process.crash(`before ${tool.name} is called`);
    if (!process.alive) return new Promise(() => undefined);
    const { run, step, attempt, operationKey } = context;
    this.calls.push({ tool: tool.name, run, step, attempt, operationKey, args: args as Json });
    this.#cluster.core.trace(process.name, `calls ${tool.name} for ${run} step ${step}, attempt ${attempt}`);
    try {
      return await this.#code.perform(process, { kind: 'call', run, step, name: tool.name, effect: tool.effect }, () => tool.execute(args, context));
    } finally {
      if (fault === 'crash_after') process.crash(`after ${tool.name} returned`);
    }
  }

  #faultAt(asked: Asked, texts: (() => Iterable<string>) | undefined): SiteFault | null {
    if (texts === undefined) return null;
    const { effects } = this.#cluster.core;
    const words = [...texts()];
    const tools = this.#setup.tools.map(({ name }) => name).filter((name) => effects.areAbout(words, name));
    if (words.length > 0) this.passages.push({ ...asked, tools, about: aboutOf(words, tools) });
    const { kill } = this.otherwise;
    if (kill !== undefined && kill.process === asked.process && kill.site === asked.site && kill.nth === asked.nth) return kill.fault;
    for (const planned of this.#faults) {
      const { fault } = planned;
      if (planned.left === 0 || !fault.kinds.has(asked.kind) || !fault.sites.includes(asked.site) || !effects.areAbout(words, fault.tool)) continue;
      planned.left -= 1;
      if (planned.left === 0) return fault.kind;
    }
    return null;
  }

  #standingOf(id: string): Account['standing'][string] {
    const run = this.#cluster.run(id);
    const effects = 'compensation' in run ? (run.compensation?.effects ?? []) : [];
    return Object.fromEntries(effects.map(({ step, standing }) => [step, standing]));
  }

  #endOf(id: string): RunEnd {
    const run: Run = this.#cluster.run(id);
    switch (run.status) {
      case 'ended': {
        const { ending } = run;
        switch (ending.status) {
          case 'failed':
            return { status: 'failed', message: ending.failure.message };
          case 'cancelled':
            return { status: 'cancelled', reason: ending.reason };
          case 'expired':
            return ending;
          default:
            return { status: ending.status, output: ending.output !== undefined && 'value' in ending.output ? ending.output.value : null };
        }
      }
      case 'quarantined':
        return { status: 'quarantined', because: run.because };
      case 'open': {
        const unknown = unknownSteps(run).map(({ call }) => ({ step: call.step, tool: call.tool.name }));
        return unknown.length > 0 ? { status: 'blocked', unknown } : { status: 'open' };
      }
      default:
        return { status: 'open' };
    }
  }

  /** The scenario's agent, where there is one. Throws when there are more. @internal */
  onlyAgent(): AgentDefinition {
    const [only, ...others] = this.#setup.agents;
    if (only === undefined || others.length > 0) throw new TypeError(`the scenario has ${this.#setup.agents.length} agents; it takes exactly one here`);
    return only;
  }

  /** Milliseconds of virtual time since the beginning. @internal */
  get elapsedMs(): number {
    return this.#cluster.core.scheduler.now - BEGINNING;
  }
}

/** In words, what an interrupted world has otherwise; null when nothing. */
export function differenceOf(uninterrupted: Account, interrupted: Account): string | null {
  const lines = Object.entries(uninterrupted.runs).flatMap(([id, wanted]) => {
    const got = interrupted.runs[id];
    return same(wanted, got) ? [] : [`${id} is ${JSON.stringify(got)}, uninterrupted it is ${JSON.stringify(wanted)}`];
  });
  for (const [id, wanted] of Object.entries(uninterrupted.standing)) {
    if (!same(wanted, interrupted.standing[id])) lines.push(`the effects of ${id} stand as ${JSON.stringify(interrupted.standing[id])}, uninterrupted as ${JSON.stringify(wanted)}`);
  }
  if (!same(uninterrupted.observed, interrupted.observed)) lines.push(`the tools have left ${JSON.stringify(interrupted.observed)}, uninterrupted they leave ${JSON.stringify(uninterrupted.observed)}`);
  return lines.length === 0 ? null : lines.join('\n');
}

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
