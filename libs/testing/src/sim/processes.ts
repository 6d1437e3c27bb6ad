import { orchestrator, RunHandlers, WaitHandlers } from '@holdfast/orchestrator';
import { compensation, PlanHandlers } from '@holdfast/compensation';
import { EffectHandlers, ledger } from '@holdfast/ledger';
import { DEFAULT_POOL, serviceSource, topics, WorkerId, type Message } from '@holdfast/protocol';
import { Loop, openContractBook, SchemaChecker, type LaneGroupHandlers, type Service } from '@holdfast/runtime';
import type { AgentDefinition, ToolDefinition } from '@holdfast/sdk';
import { CaseHandlers, reconciliation } from '@holdfast/reconciliation';
import { executeWith, Worker, type Execute } from '@holdfast/sdk/host';
import type { Core } from './core.js';
import type { Coordinator } from './coordinator.js';
import type { ProcessKind, ServiceKind } from './faults.js';
import { SimLaneGroup } from './lane-group.js';
import type { SimLog } from './log.js';
import { SimProcess } from './process.js';
import { CALLBACKS } from './waits.js';
import { SimStore, type SimDatabase } from './store.js';

/** What the processes of one world find around them. */
export interface Surroundings {
  readonly core: Core;
  readonly log: SimLog;
  readonly databases: Readonly<Record<ServiceKind, SimDatabase>>;
  readonly irreversibleConcurrency: number;
  coordinator(groupId: string): Coordinator;
  agents(process: SimProcess): readonly AgentDefinition[];
  tools(process: SimProcess): readonly ToolDefinition[];
  /** A run was granted to a worker, with its history. */
  onGrant(process: SimProcess, grant: Parameters<Execute>[0]): void;
  /** A lane stands still, or a worker raised an alarm: nothing that the faults here may lead to. */
  onAlarm(process: SimProcess, what: string): void;
}

export interface Running {
  readonly process: SimProcess;
  /** Leaves in order. */
  stop(): Promise<void>;
  /** A stream's state in memory, for services. */
  peek(stream: string): { readonly version: number; readonly state: unknown } | undefined;
}

/** Compiling a schema costs milliseconds: one checker for every orchestrator of this process, and one for every reconciliation. */
const checker = new SchemaChecker('input');
const results = new SchemaChecker('output');

export function start(around: Surroundings, kind: Exclude<ProcessKind, 'client'>, name: string): Running {
  const process = new SimProcess(around.core, kind, name);
  around.core.trace(name, 'starts');
  switch (kind) {
    case 'orchestrator':
      return startLoop(around, process, around.databases.orchestrator, (contracts) => {
        const runs = new RunHandlers(contracts, checker);
        return orchestrator(runs, new WaitHandlers(runs, contracts, checker));
      });
    case 'ledger':
      return startLoop(around, process, around.databases.ledger, (contracts) => ledger(new EffectHandlers(contracts, serviceSource('ledger', '1'))));
    case 'reconciliation':
      return startLoop(around, process, around.databases.reconciliation, (contracts) => reconciliation(new CaseHandlers(contracts, results)));
    case 'compensation':
      return startLoop(around, process, around.databases.compensation, (contracts) => compensation(new PlanHandlers(contracts)));
    case 'worker':
      return startWorker(around, process);
  }
}

type Contracts = Awaited<ReturnType<typeof openContractBook>>;

function startLoop<State, Event extends Message>(around: Surroundings, process: SimProcess, database: SimDatabase, serviceOf: (contracts: Contracts) => Service<State, Event>): Running {
  const { core, log } = around;
  let loop: Loop<State, Event> | undefined;
  const boot = async (): Promise<void> => {
    const contracts = await openContractBook({
      open: (onRecord) => Promise.resolve(log.follow(process, topics.contracts, onRecord)),
      ends: () => process.ask({ site: 'group', server: 'broker', reads: true, apply: () => new Map(Array.from({ length: log.partitions }, (_, lane) => [lane, log.lane(topics.contracts, lane).length])) }),
    });
    const service = serviceOf(contracts);
    loop = new Loop<State, Event>({
      service,
      store: new SimStore(process, database),
      writer: log.writer(process),
      clock: process.clock,
      random: process.chance,
      laneOf: log.laneOf,
      join: (handlers) => join(around, process, `holdfast.${service.name}`, service.inbound.map((topic) => topic.name), handlers),
      repair: () => Promise.resolve(),
      observer: {
        onTurn: ({ lanes }) => {
          for (const { rows, handled } of lanes) if (rows.length > 0) core.onHandled(service.name, handled);
        },
      },
      onAlarm: (what, detail) => {
        core.trace(process.name, () => `alarm: ${what} ${JSON.stringify(detail)}`);
        if (what === 'lane halted') around.onAlarm(process, `${what}: ${JSON.stringify(detail)}`);
      },
      onFatal: (error) => process.crash(`of itself: ${error.message}`),
    });
    await loop.start();
  };
  boot().catch((error: unknown) => process.crash(`it could not start: ${String(error)}`));
  return { process, stop: () => loop?.stop() ?? Promise.resolve(), peek: (stream) => loop?.peek(stream) };
}

function startWorker(around: Surroundings, process: SimProcess): Running {
  const { core, log } = around;
  const tools = around.tools(process);
  const say = (level: string) => (message: string, about: Readonly<Record<string, unknown>> = {}) => core.trace(process.name, () => `${level}: ${message} ${JSON.stringify(about)}`);
  const logger = {
    info: say('info'),
    warn: say('warn'),
    error: (message: string, about?: Readonly<Record<string, unknown>>) => {
      say('alarm')(message, about);
      around.onAlarm(process, message);
    },
  };
  const execute = executeWith(tools, undefined, logger, CALLBACKS);
  const worker = new Worker({
    id: WorkerId.parse(process.name),
    pool: DEFAULT_POOL as never,
    agents: around.agents(process),
    tools,
    createGroup: (handlers, { groupId, topics: read }) => join(around, process, groupId, read, handlers),
    writer: log.writer(process),
    readLane: (topic, lane, from, to) => log.read(process, topic, lane, from, to),
    execute: (grant, agent, port) => {
      around.onGrant(process, grant);
      return execute(grant, agent, port);
    },
    artifacts: undefined,
    clock: process.clock,
    random: process.chance,
    log: logger,
    concurrency: 16,
    irreversibleConcurrency: around.irreversibleConcurrency,
    crashPoint: () => undefined,
  });
  worker.start().catch((error: unknown) => process.crash(`it could not start: ${String(error)}`));
  return { process, stop: () => worker.stop(2000), peek: () => undefined };
}

function join(around: Surroundings, process: SimProcess, groupId: string, read: readonly string[], handlers: LaneGroupHandlers): SimLaneGroup {
  const { log } = around;
  return new SimLaneGroup({
    process,
    log,
    coordinator: around.coordinator(groupId),
    topics: read,
    handlers,
    texts: (topic, lane, from, to) => log.lane(topic, lane).slice(from, to).map(({ value }) => value ?? ''),
  });
}
