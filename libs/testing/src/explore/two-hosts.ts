import { Attempt, DEFAULT_POOL, DEFAULT_TENANT, encodeHeaders, Fence, FireEffect, operationKey, RunId, serviceSource, Step, toolTasks, type Pool } from '@holdfast/protocol';
import type { Outgoing } from '@holdfast/runtime';
import { BEGINNING } from '../sim/scheduler.js';
import type { Choose } from './exploring-scheduler.js';
import { stage, type Budget } from './stage.js';

const TOPIC = toolTasks(DEFAULT_POOL as Pool);
const RUN = RunId.parse('run-1');
/** Long enough for a dead host to be counted out and its lane taken. */
const HORIZON_MS = 12_000;

/** The ledger's task no. `n`, as it stands on the topic. */
function task(n: number): Outgoing {
  const step = Step.parse(String(n));
  const key = operationKey({ scope: 'run', tenant: DEFAULT_TENANT, run: RUN, step, tool: 'card.charge', target: null });
  const { type, data } = FireEffect({ step, key, tool: { name: 'card.charge', version: '1' }, effect: 'irreversible', attempt: Attempt.parse(1), fence: Fence.parse(1), args: { n: 0, target: 't', from: '' }, notAfter: BEGINNING + 3_600_000, timeoutMs: 1200 });
  const source = serviceSource('ledger', '1');
  return { topic: TOPIC, lane: 0, key: RUN, value: JSON.stringify(data), headers: encodeHeaders({ id: `${source}/0/${n}`, type, source, subject: RUN, time: BEGINNING, tenant: DEFAULT_TENANT, lane: 0, seq: n, prev: n - 1 }) };
}

export interface TwoHostsOptions {
  readonly tasks: number;
  /** A second host joins at any moment: a rebalance. */
  readonly joins: boolean;
  /** A host dies at one of its commits, calls or reports. */
  readonly crashes: boolean;
  /** The answer to one commit is lost. */
  readonly loses: boolean;
  /** The ledger publishes its first task again. */
  readonly republishes: boolean;
}

/** Two hosts, irreversible attempts, and whatever may befall them: each attempt fires at most once. */
export async function twoHosts(choose: Choose, { tasks, joins, crashes, loses, republishes }: TwoHostsOptions): Promise<readonly string[]> {
  const budgets: Budget[] = [
    { kinds: ['crash_before', 'crash_after'], at: (site) => site === 'offset.commit' || site === 'fire.granted' || site === 'publish.results', left: crashes ? 1 : 0 },
    { kinds: ['lost_ack'], at: (site) => site === 'offset.commit', left: loses ? 1 : 0 },
  ];
  const { scheduler, cluster, world, begin } = stage(choose, {
    instances: { orchestrator: 0, ledger: 0, worker: 2 },
    tool: 'card.charge',
    agents: () => [],
    budgets,
    actions: () => [
      ...(joins ? [{ name: 'worker-2 joins', act: () => cluster.startOne('worker-2') }] : []),
      ...(republishes ? [{ name: 'task 1 is published again', act: () => cluster.log.append([task(1)]) }] : []),
    ],
  });
  cluster.startOne('worker-1');
  await scheduler.run(() => false, BEGINNING + 100);
  cluster.log.append(Array.from({ length: tasks }, (_, index) => task(index + 1)));
  begin();
  await scheduler.run(() => false, BEGINNING + HORIZON_MS);
  for (const [first, second] of world.byKey.values()) {
    if (first !== undefined && second !== undefined) cluster.core.violated('I3', `${first.tool} at ${first.run}/${first.step} fired on ${first.process} and on ${second.process}`);
  }
  return cluster.core.violations;
}
