import { AgentDeclared, AnnounceLane, contractKey, contractWarnings, DEFAULT_TENANT, laneStream, runTasks, ToolDeclared, toolTasks, topics, type Pool, type RunId, type WorkerId } from '@holdfast/protocol';
import type { Assignment, Clock, CrashPoint, LaneGroup, LaneGroupHandlers, LogRecord, LogWriter, Membership, Random } from '@holdfast/runtime';
import type { AgentDefinition } from '../define/agent.js';
import type { ToolDefinition } from '../define/tool.js';
import { InvalidDefinition, messageOf } from '../errors.js';
import type { ArtifactPort } from './artifacts.js';
import { Firing } from './firing.js';
import { Hold } from './hold.js';
import { LaneTaker, type ReadLane } from './lane-taker.js';
import { LocalFiring } from './local-firing.js';
import type { WorkerLog } from './log.js';
import type { HostObserver } from './observer.js';
import { Outbox } from './outbox.js';
import type { RunPort } from './port.js';
import { Runs, type Execute } from './runs.js';
import { Showing } from './showing.js';
import { Slots } from './slots.js';
import { ToolHost } from './tool-host.js';
import type { WorkerFacts } from './watch.js';

/** Makes the worker's member of its group; given the handlers, so that tests can play the broker. */
export type LaneGroupFactory = (handlers: LaneGroupHandlers, about: { readonly groupId: string; readonly topics: readonly string[] }) => LaneGroup;

export interface WorkerParts {
  readonly id: WorkerId;
  readonly pool: Pool;
  readonly agents: readonly AgentDefinition[];
  readonly tools: readonly ToolDefinition[];
  readonly createGroup: LaneGroupFactory;
  readonly writer: LogWriter;
  readonly readLane: ReadLane;
  readonly execute: Execute;
  readonly artifacts: ArtifactPort | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: WorkerLog;
  /** How many pure and idempotent effects may be in flight. */
  readonly concurrency: number;
  /** How many irreversible effects may be in flight: what one crash can leave unknown at most. */
  readonly irreversibleConcurrency: number;
  readonly observer?: HostObserver | undefined;
  /** Passed by name where a test may kill the process. */
  readonly crashPoint: CrashPoint;
}

/** How long stopping waits for Kafka to take what is still to be written, milliseconds. */
const FLUSH_MS = 5000;

/** A worker's parts, joined: its group member, its outbox, its runs and its tools. */
export class Worker {
  readonly #parts: WorkerParts;
  readonly #outbox: Outbox;
  readonly #group: LaneGroup;
  readonly #hold: Hold;
  readonly #firing: Firing;
  readonly #runs: Runs;
  readonly #local: LocalFiring;
  readonly #host: ToolHost;
  readonly #taker: LaneTaker;
  readonly #showing: Showing;
  #stopped: Promise<void> | undefined;

  constructor(parts: WorkerParts) {
    const { id, pool, clock, log, random, writer, observer } = parts;
    this.#parts = parts;
    const tools = byName('tool', parts.tools);
    const agents = byName('agent', parts.agents);
    const hosted = (name: string, version: string): ToolDefinition | undefined => tools.get(`${name}@${version}`);
    const handlers: LaneGroupHandlers = {
      onAssigned: (assignment) => this.#assigned(assignment),
      onRevoked: () => this.#revoked(),
      onRecords: (records, polled) => this.#receive(records, polled),
      onTrouble: (error) => log.warn('outside the group, which is joined again', { error: messageOf(error) }),
      onCrash: (error) => this.#crashed(error),
    };
    this.#outbox = new Outbox({ writer, clock, log, crashPoint: parts.crashPoint, source: `worker/${id}`, incarnation: random.uuid(), traceparent: observer?.traceparent && ((key, message) => observer.traceparent?.(key, message)) });
    // The group derives from the pool alone, never from a version: else two versions would both fire a task.
    this.#group = parts.createGroup(handlers, { groupId: `holdfast.workers.${pool}`, topics: [runTasks(pool), toolTasks(pool)] });
    this.#hold = new Hold({ group: this.#group, clock, log });
    this.#firing = new Firing({ clock, artifacts: parts.artifacts, observer });
    this.#runs = new Runs({ worker: id, agent: (name, version) => agents.get(`${name}@${version}`) ?? [...agents.values()].find((agent) => agent.name === name && agent.compatibleWith.includes(version)), execute: parts.execute, outbox: this.#outbox, log, onExecuted: observer?.onExecuted && executedBy(observer, clock) });
    const slots = new Slots(parts.concurrency);
    this.#local = new LocalFiring({ firing: this.#firing, hold: this.#hold, runs: this.#runs, slots, crashPoint: parts.crashPoint });
    this.#host = new ToolHost({
      group: this.#group,
      topic: toolTasks(pool),
      hold: this.#hold,
      firing: this.#firing,
      outbox: this.#outbox,
      artifacts: parts.artifacts,
      clock,
      log,
      worker: id,
      hosted,
      slots,
      observer,
      crashPoint: parts.crashPoint,
      irreversibleSlots: new Slots(parts.irreversibleConcurrency),
      onReport: (run, report) => this.#runs.seen(run, report),
    });
    this.#runs.connect(this.#port(hosted));
    this.#taker = new LaneTaker({
      group: this.#group,
      hold: this.#hold,
      host: this.#host,
      runs: this.#runs,
      pool,
      clock,
      log,
      readLane: parts.readLane,
      announce: (lane, generation, taken, wanted) => this.#announce(lane, generation, taken, wanted),
    });
    this.#showing = new Showing({
      writer,
      clock,
      source: `worker/${id}`,
      facts: () => ({
        worker: id,
        pool,
        agents: parts.agents.map(named),
        tools: parts.tools.map(named),
        lanes: this.#taker.lanes,
        generation: this.#hold.membership?.generation ?? null,
        runs: this.#runs.size,
      }),
    });
  }

  get id(): WorkerId {
    return this.#parts.id;
  }

  /** How it stands, for its health and metrics. */
  facts(): WorkerFacts {
    return { lanes: this.#taker.lanes.length, runs: this.#runs.size, inFlight: this.#host.inFlight + this.#local.inFlight, unwritten: this.#outbox.unwritten, heartbeatAgeMs: this.#group.heartbeatAgeMs() };
  }

  /** Publishes the contracts and joins the group. Resolves when it has joined; lanes come when the group assigns them. */
  async start(): Promise<void> {
    await this.#publishContracts();
    await this.#group.start();
    this.#showing.start();
  }

  /**
   * Fires nothing new, lets what fired end within the grace time (milliseconds), writes what is to
   * be written, leaves the group at once. Safe to call again.
   */
  stop(graceMs: number): Promise<void> {
    this.#stopped ??= this.#stop(graceMs);
    return this.#stopped;
  }

  async #stop(graceMs: number): Promise<void> {
    const { log } = this.#parts;
    this.#host.stop();
    this.#local.stop();
    const ended = await this.#within(graceMs, Promise.all([this.#host.idle(), this.#local.idle()]));
    if (!ended) log.warn('the grace time is over and effects are still in flight; the ledger will settle how they ended', { graceMs });
    this.#firing.abort('the worker stops');
    this.#host.abort('the worker stops');
    // What ended last is told to its run, which sends it on, before the runs are given up.
    await new Promise<void>((resolve) => this.#parts.clock.soon(resolve));
    this.#runs.abandonAll('the worker stops');
    const flushed = await this.#within(FLUSH_MS, this.#outbox.drained());
    if (!flushed) log.warn('Kafka did not take everything that was to be written', { withinMs: FLUSH_MS });
    await this.#within(FLUSH_MS, this.#host.save());
    this.#hold.end();
    this.#outbox.close();
    this.#taker.ended();
    await this.#within(FLUSH_MS, this.#showing.end());
    await this.#group.stop().catch((error: unknown) => log.warn('leaving the group failed; it will notice by itself', { error: messageOf(error) }));
    await this.#parts.writer.close();
  }

  async #within(ms: number, work: Promise<unknown>): Promise<boolean> {
    let cancel: () => void = () => undefined;
    const late = new Promise<boolean>((resolve) => {
      cancel = this.#parts.clock.after(ms, () => resolve(false));
    });
    const done = await Promise.race([work.then(() => true), late]);
    cancel();
    return done;
  }

  #port(hosted: RunPort['hosted']): RunPort {
    const { clock, random, observer } = this.#parts;
    return {
      worked: observer?.onWorked && ((worked) => observer.onWorked?.(worked)),
      intend: (run, tenant, intents) => this.#outbox.send(topics.agentIntents, run, tenant, intents),
      hosted,
      heldStill: (run, tool) => this.#runs.heldStill(run, tool),
      fireLocal: (call) => this.#local.fire(call),
      now: () => clock.now(),
      random: () => random.next(),
      uuid: () => random.uuid(),
      after: (delayMs, callback) => clock.after(delayMs, callback),
      soon: (callback) => clock.soon(callback),
    };
  }

  #assigned(assignment: Assignment): void {
    this.#host.revoked(); // What was polled before belongs to another generation, whether or not anybody said so.
    this.#hold.assigned(assignment.membership);
    this.#taker.assigned(assignment);
  }

  #revoked(): void {
    this.#hold.revoked();
    this.#taker.revoked();
    this.#host.revoked();
  }

  #receive(records: readonly LogRecord[], polled: Membership): Promise<void> {
    if (records[0]?.topic === toolTasks(this.#parts.pool)) return this.#host.receive(records, polled);
    this.#runs.receive(records);
    return Promise.resolve();
  }

  #crashed(error: Error): void {
    this.#parts.log.error('the group member crashed', { error: messageOf(error) });
    this.#revoked();
    this.#hold.rejoin('the group member crashed');
  }

  #announce(lane: number, generation: number, taken: Readonly<Record<string, number>>, wanted: () => boolean): Promise<void> {
    const { id, pool, agents, tools } = this.#parts;
    const announcement = AnnounceLane({
      pool,
      lane,
      worker: id,
      generation,
      agents: agents.map(named),
      tools: [...new Set(tools.map(({ name }) => name))],
      taken: { ...taken },
    });
    return this.#outbox.send(topics.agentIntents, laneStream(pool, lane), DEFAULT_TENANT, [announcement], { lane, wanted });
  }

  async #publishContracts(): Promise<void> {
    const { pool, tools, agents, log } = this.#parts;
    const sent: Promise<void>[] = [];
    for (const tool of tools) {
      const contract = tool.contract(pool);
      for (const warning of contractWarnings(contract)) log.warn(warning);
      sent.push(this.#outbox.send(topics.contracts, contractKey('tool', tool), DEFAULT_TENANT, [ToolDeclared(contract)]));
    }
    for (const agent of agents) sent.push(this.#outbox.send(topics.contracts, contractKey('agent', agent), DEFAULT_TENANT, [AgentDeclared(agent.contract(pool))]));
    await Promise.all(sent);
  }
}

/** Tells of a run's execution when it is over. */
const executedBy = (observer: HostObserver, clock: Clock) => (run: RunId, fence: number, agent: string): (() => void) => {
  const startedAt = clock.now();
  return () => observer.onExecuted?.(run, fence, agent, startedAt);
};

const named = ({ name, version }: { readonly name: string; readonly version: string }): { name: string; version: string } => ({ name, version });

/** @throws InvalidDefinition when two share a name and a version */
function byName<T extends { readonly name: string; readonly version: string }>(kind: string, definitions: readonly T[]): Map<string, T> {
  const map = new Map<string, T>();
  for (const definition of definitions) {
    const key = `${definition.name}@${definition.version}`;
    if (map.has(key)) throw new InvalidDefinition(`${kind} ${key} is given twice: a change needs a new version`);
    map.set(key, definition);
  }
  return map;
}
