import { Attempt, DEFAULT_POOL, DEFAULT_TENANT, EffectReported, encodeHeaders, Fence, FireEffect, operationKey, ProbeEffect, ProbeReported, RunId, serviceSource, Step, toolTasks, topics, type Message, type OperationKey, type Pool } from '@holdfast/protocol';
import type { Outgoing } from '@holdfast/runtime';
import type { Cluster } from '../sim/cluster.js';
import { BEGINNING } from '../sim/scheduler.js';
import type { FakeWorld } from '../sim/world.js';
import type { Choose } from './exploring-scheduler.js';
import { stage, type Budget } from './stage.js';

const TOPIC = toolTasks(DEFAULT_POOL as Pool);
const RUN = RunId.parse('run-1');
const GROUP = `holdfast.workers.${DEFAULT_POOL}`;
/** Long enough for the first heartbeats, and for what a host saves a second after. Later, what may come meets a world that only waits for it. */
const WINDOW_MS = 1100;
/** Long enough for a dead host to be counted out and its lane taken. */
const HORIZON_MS = 12_000;

/** What is fired and asked about; its probe seals. */
const TOOL = 'fund.take';
const OF_EACH = { step: Step.parse('1'), tool: { name: TOOL, version: '1' }, attempt: Attempt.parse(1), fence: Fence.parse(1), args: { n: 0, target: 't', from: '' } };
const keyOf = (step: string): OperationKey => operationKey({ scope: 'run', tenant: DEFAULT_TENANT, run: RUN, step: Step.parse(step), tool: TOOL, target: null });

/** Message no. `n` of the ledger, as it stands on the topic. */
function nth(n: number, { type, data }: Message): Outgoing {
  const source = serviceSource('ledger', '1');
  return { topic: TOPIC, lane: 0, key: RUN, value: JSON.stringify(data), headers: encodeHeaders({ id: `${source}/0/${n}`, type, source, subject: RUN, time: BEGINNING, tenant: DEFAULT_TENANT, lane: 0, seq: n, prev: n - 1 }) };
}

const task = (n: number): Outgoing => nth(n, FireEffect({ ...OF_EACH, step: Step.parse(String(n)), key: keyOf(String(n)), effect: 'irreversible', notAfter: BEGINNING + 3_600_000, timeoutMs: 1200 }));
/** Asks about the first task's attempt. */
const question = (n: number): Outgoing => nth(n, ProbeEffect({ ...OF_EACH, key: keyOf('1'), probe: 1, answerBy: BEGINNING + 3_600_000, timeoutMs: 1200 }));

export interface TwoHostsOptions {
  /** The first is there, the others come at any moment. */
  readonly tasks: number;
  /** `joins`: a second host joins at any moment. `counted out`: it has, and the first is counted out at any moment, and goes on for a while. */
  readonly rebalance: 'none' | 'joins' | 'counted out';
  /** A host dies at one of its commits, calls or reports. */
  readonly crashes: boolean;
  /** The answer to one commit is lost. */
  readonly loses: boolean;
  /** The ledger publishes its first task again. */
  readonly republishes: boolean;
  /** The ledger asks what became of the first task. */
  readonly asks: boolean;
  /** How many messages are held up while time passes. */
  readonly holds: number;
}

/**
 * Two hosts, irreversible attempts, and whatever may befall them: each attempt fires at most once, and what a probe has
 * found stays so. `onEnd` is told who fired each task in the end.
 */
export async function twoHosts(choose: Choose, { tasks, rebalance, crashes, loses, republishes, asks, holds }: TwoHostsOptions, onEnd: (firedBy: readonly string[]) => void = () => undefined): Promise<readonly string[]> {
  const budgets: Budget[] = [
    { kinds: ['crash_before', 'crash_after'], at: (site) => site === 'offset.commit' || site === 'fire.granted' || site === 'publish.results' || site === 'probe', left: crashes ? 1 : 0 },
    { kinds: ['lost_ack'], at: (site) => site === 'offset.commit', left: loses ? 1 : 0 },
  ];
  /** The ledger's messages come in their order. */
  let published = 1;
  const publish = (messages: readonly Outgoing[]): void => {
    published += messages.length;
    cluster.log.append(messages);
  };
  const { scheduler, cluster, world, begin, isAtRest } = stage(choose, {
    instances: { orchestrator: 0, ledger: 0, worker: 2 },
    tool: TOOL,
    agents: () => [],
    budgets,
    windowMs: WINDOW_MS,
    holds,
    actions: [
      ...(rebalance === 'counted out' ? [{ name: 'worker-1 is counted out', act: () => cluster.coordinator(GROUP).countOut('worker-1#1') }] : []),
      ...(rebalance === 'joins' ? [{ name: 'worker-2 joins', act: () => cluster.startOne('worker-2') }] : []),
      ...Array.from({ length: tasks - 1 }, (_, index) => ({ name: `task ${index + 2} is published`, isPossible: () => published === index + 1, act: () => publish([task(index + 2)]) })),
      ...(republishes ? [{ name: 'task 1 is published again', act: () => cluster.log.append([task(1)]) }] : []),
      ...(asks ? [{ name: 'the ledger asks', isPossible: () => published === tasks, act: () => publish([question(tasks + 1)]) }] : []),
    ],
  });
  world.isUnasked = !asks;
  cluster.startOne('worker-1');
  await scheduler.run(() => false, BEGINNING + 100);
  if (rebalance === 'counted out') {
    cluster.startOne('worker-2');
    await scheduler.run(() => false, BEGINNING + 1000);
  }
  cluster.log.append([task(1)]);
  begin();
  await scheduler.run(isAtRest, BEGINNING + HORIZON_MS);
  judge(cluster, world);
  // Who dies, or never hears of its commit, leaves an unknown behind.
  if (!crashes && !loses && holds === 0) judgeLeft(cluster, world, Math.min(published, tasks));
  onEnd(Array.from({ length: tasks }, (_, index) => world.byKey.get(keyOf(String(index + 1)))?.[0]?.process ?? 'nobody'));
  return cluster.core.violations;
}

/** No task is left alone: it was fired, or its host has said that it was not. */
function judgeLeft({ core, log }: Cluster, world: FakeWorld, tasks: number): void {
  const reported = log.lane(topics.toolResults, 0).flatMap(({ headers, value }) => (headers['ce_type'] === EffectReported.type ? [EffectReported.schema.parse(JSON.parse(value ?? '')).key] : []));
  for (let n = 1; n <= tasks; n += 1) {
    const key = keyOf(String(n));
    if (!world.byKey.has(key) && !reported.includes(key)) core.violated('I2', `task ${n} was neither fired nor reported`);
  }
}

function judge({ core, log }: Cluster, world: FakeWorld): void {
  for (const [first, second] of world.byKey.values()) {
    if (first !== undefined && second !== undefined) core.violated('I3', `${first.tool} at ${first.run}/${first.step} fired on ${first.process} and on ${second.process}`);
  }
  for (const { headers, value } of log.lane(topics.toolResults, 0)) {
    if (headers['ce_type'] !== ProbeReported.type) continue;
    const { answer } = ProbeReported.schema.parse(JSON.parse(value ?? ''));
    const hasHappened = world.hasHappened(keyOf('1'));
    if ((answer.status === 'applied' && !hasHappened) || (answer.status === 'not_applied' && hasHappened)) core.violated('I5', `a probe found ${answer.status}, and at the end it ${hasHappened ? 'has' : 'has not'} happened`);
  }
}
