import type { ToolDefinition } from '@holdfast/sdk';
import { tools } from '../sim/agents.js';
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
  /** From here on every order is gone through; before, the first one is taken. */
  begin(): void;
}

const SESSION_MS = 3000;

/** A small world whose every order is chosen. */
export function stage(choose: Choose, options: Pick<ClusterOptions, 'instances' | 'agents'> & { readonly tool: string; readonly budgets: readonly Budget[]; readonly actions: (stage: Stage) => readonly Action[] }): Stage {
  let exploring = false;
  const pick: Choose = (count, state) => (exploring ? choose(count, state) : 0);
  const scheduler = new ExploringScheduler(pick, () => (exploring ? options.actions(made) : []));
  const plan: FaultPlan = {
    timed: [],
    at: ({ site, process }) => {
      if (!exploring) return null;
      const ways = options.budgets.flatMap((budget) => (budget.left > 0 && budget.at(site, process) ? budget.kinds.map((kind) => ({ kind, budget })) : []));
      if (ways.length === 0) return null;
      const way = ways[(pick(ways.length + 1, null) ?? 0) - 1];
      scheduler.note(`${site}: ${way?.kind ?? 'nothing'}`);
      if (way !== undefined) way.budget.left -= 1;
      return way?.kind ?? null;
    },
  };
  const toolsOf = (process: SimProcess): ToolDefinition[] =>
    tools
      .filter(({ name }) => name === options.tool)
      .map((tool) => ({ ...tool, execute: (args, context) => made.world.call(process, { name: tool.name, effect: tool.effect, granted: tool.effect === 'irreversible' }, args as { n: number }, context) }));
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
    begin: () => {
      exploring = true;
    },
  };
  return made;
}
