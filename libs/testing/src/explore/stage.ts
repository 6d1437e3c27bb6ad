import type { ToolDefinition } from '@holdfast/sdk';
import { probeOf, settledTools } from '../sim/settling.js';
import { Cluster, type ClusterOptions } from '../sim/cluster.js';
import type { FaultPlan, SiteFault } from '../sim/faults.js';
import type { SimProcess } from '../sim/process.js';
import { FakeWorld } from '../sim/world.js';
import { ExploringScheduler, type Action, type Choose } from './exploring-scheduler.js';

/** A fault that may come at any ask that it knows, so many times in all. */
export interface Budget {
  readonly kinds: readonly SiteFault[];
  readonly at: (site: string, process: string) => boolean;
  left: number;
}

export interface Stage {
  readonly scheduler: ExploringScheduler;
  readonly cluster: Cluster;
  readonly world: FakeWorld;
  /** Nothing more will happen by itself: no host waits for anything. */
  isAtRest(): boolean;
  /** Nothing more will happen by itself that matters: services look about for ever, and say nothing. */
  isSilent(): boolean;
  /** From here on every order is gone through; before, the first one is taken. */
  begin(): void;
}

const SESSION_MS = 3000;
/** For so long faults may come; then all has time to come right. */
const FAULTS_MS = 3000;
/** Longer than anything that a service or worker does late. */
const SILENT_MS = 1500;

export interface StageOptions extends Pick<ClusterOptions, 'instances' | 'agents'> {
  readonly tool: string;
  readonly budgets: readonly Budget[];
  readonly actions: readonly Action[];
  /** How many messages may be held up while time passes. */
  readonly holds?: number;
  /** How long after the beginning an action may come, and a message be held up, milliseconds. */
  readonly windowMs: number;
}

/** A small world whose every order is chosen. */
export function stage(choose: Choose, options: StageOptions): Stage {
  /** When the exploring began; null: not yet. */
  let since: number | null = null;
  const isWithin = (ms: number): boolean => since !== null && scheduler.now < since + ms;
  const pick: Choose = (count, state) => (since === null ? 0 : choose(count, state));
  const scheduler: ExploringScheduler = new ExploringScheduler({
    choose: pick,
    actions: () => (isWithin(options.windowMs) ? options.actions : []),
    holds: () => (isWithin(options.windowMs) ? (options.holds ?? 0) : 0),
    standing: () => [cluster.standing(), made.world.standing(), ...options.budgets.map(({ left }) => left)].join('\n'),
  });
  const plan: FaultPlan = {
    timed: [],
    at: ({ site, process }) => {
      if (!isWithin(FAULTS_MS)) return null;
      const ways = options.budgets.flatMap((budget) => (budget.left > 0 && budget.at(site, process) ? budget.kinds.map((kind) => ({ kind, budget })) : []));
      if (ways.length === 0) return null;
      const way = ways[(pick(ways.length + 1, null) ?? 0) - 1];
      if (way !== undefined) way.budget.left -= 1;
      return way?.kind ?? null;
    },
  };
  const toolsOf = (process: SimProcess): ToolDefinition[] =>
    settledTools
      .filter(({ name }) => name === options.tool)
      .map(({ probe, ...tool }) => ({
        ...tool,
        probe: probe === null ? null : { ...probe, ask: (args, context) => made.world.probe(process, { name: tool.name, sealing: probeOf(tool.name) === 'sealing' }, args as { n: number }, context) },
        execute: (args, context) => made.world.call(process, { name: tool.name, effect: tool.effect, granted: tool.effect === 'irreversible' }, args as { n: number }, context),
      }));
  const cluster: Cluster = new Cluster({
    seed: 'explore',
    plan,
    scheduler,
    instances: options.instances,
    partitions: 1,
    trace: false,
    sessionMs: SESSION_MS,
    agents: options.agents,
    tools: toolsOf,
    onGrant: () => undefined,
    onAlarm: (process, what) => cluster.core.violated('alarm', `${process.name}: ${what}`),
  });
  cluster.end();
  const made: Stage = {
    scheduler,
    cluster,
    world: new FakeWorld(cluster.core),
    isAtRest: () => scheduler.isStill() && scheduler.isIdle() && cluster.areGroupsSettled(),
    isSilent: () => scheduler.isStill() && scheduler.now >= cluster.log.lastAppendAt + SILENT_MS && cluster.areGroupsSettled(),
    begin: () => {
      since = scheduler.now;
    },
  };
  return made;
}
