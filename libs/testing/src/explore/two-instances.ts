import { DEFAULT_POOL, DEFAULT_TENANT, digestOf, EffectRequested, encodeHeaders, Fence, operationKey, RunId, serviceSource, Step, ToolDeclared, toolTasks, topics, type Pool } from '@holdfast/protocol';
import type { Outgoing } from '@holdfast/runtime';
import { tools } from '../sim/agents.js';
import type { Cluster } from '../sim/cluster.js';
import { BEGINNING } from '../sim/scheduler.js';
import type { Choose } from './exploring-scheduler.js';
import { stage } from './stage.js';

const HORIZON_MS = 9000;
/** Long enough for the first heartbeats. */
const WINDOW_MS = 600;
const RUN = RunId.parse('run-1');

/** The orchestrator's event no. `n`: step `n` asks for a charge. */
function requested(n: number): Outgoing {
  const step = Step.parse(String(n));
  const args = { n: 0, target: 't', from: '' };
  const key = operationKey({ scope: 'run', tenant: DEFAULT_TENANT, run: RUN, step, tool: 'card.charge', target: null });
  const { type, data } = EffectRequested({ call: { step, tool: { name: 'card.charge', version: '1' }, effect: 'irreversible', keyScope: 'run', args, key, digest: digestOf(args), digestVersion: 1 }, fire: 'granted', fence: Fence.parse(1) });
  const source = serviceSource('orchestrator', '1');
  return { topic: topics.runEvents, lane: 0, key: RUN, value: JSON.stringify(data), headers: encodeHeaders({ id: `${source}/0/${n}`, type, source, subject: RUN, time: BEGINNING, tenant: DEFAULT_TENANT, lane: 0, seq: n, prev: n - 1, version: n }) };
}

/** Two instances of the ledger and one lane, which the second takes over at any moment while the first goes on, or does not: whoever has it when, each request is granted once, and the topics hold what the journal holds, in its order. */
export async function twoInstances(choose: Choose, { requests, takenOver, crashes, loses }: { readonly requests: number; readonly takenOver: boolean; readonly crashes: boolean; readonly loses: boolean }): Promise<readonly string[]> {
  /** The orchestrator's events come in their order: the first is there, the others come at any moment. */
  let asked = 0;
  const ask = (): void => {
    asked += 1;
    cluster.log.append([requested(asked)]);
  };
  const { scheduler, cluster, begin, isSilent } = stage(choose, {
    instances: { orchestrator: 0, ledger: 2, worker: 0 },
    tool: 'card.charge',
    agents: () => [],
    budgets: [
      { kinds: ['crash_before', 'crash_after'], at: (site, process) => process.startsWith('ledger-1') && (site === 'store.commit' || site === 'publish'), left: crashes ? 1 : 0 },
      { kinds: ['lost_ack'], at: (site) => site === 'store.commit' || site === 'publish', left: loses ? 1 : 0 },
    ],
    windowMs: WINDOW_MS,
    actions: [
      takenOver ? { name: 'ledger-1 is counted out', act: () => cluster.coordinator('holdfast.ledger').countOut('ledger-1#1') } : { name: 'ledger-2 joins', act: () => cluster.startOne('ledger-2') },
      ...Array.from({ length: requests - 1 }, (_, index) => ({ name: `request ${index + 2} is published`, isPossible: () => asked === index + 1, act: () => ask() })),
    ],
  });
  const [charge] = tools.filter(({ name }) => name === 'card.charge');
  if (charge === undefined) throw new Error('no tool card.charge');
  const declared = ToolDeclared(charge.contract(DEFAULT_POOL as Pool));
  cluster.log.append([{ topic: topics.contracts, key: 'tool:card.charge@1', value: JSON.stringify(declared.data), headers: encodeHeaders({ id: 'c', type: declared.type, source: 'w', subject: 'tool:card.charge@1', time: BEGINNING, tenant: DEFAULT_TENANT }) }]);
  cluster.startOne('ledger-1');
  await scheduler.run(() => false, BEGINNING + 100);
  if (takenOver) {
    cluster.startOne('ledger-2');
    await scheduler.run(() => false, BEGINNING + 1000);
  }
  ask();
  begin();
  const { ledger } = cluster.databases;
  const dispatched = (): string[] => ledger.rows(0).flatMap(({ type, data }) => (type === 'EffectDispatched' ? [(JSON.parse(data) as { step: string }).step] : []));
  const isPublished = (): boolean => TOPICS.every((topic) => publishedOf(cluster, topic) === journalOf(cluster, topic));
  await scheduler.run(() => dispatched().length >= asked && isPublished() && isSilent(), BEGINNING + HORIZON_MS);
  const steps = dispatched();
  if (new Set(steps).size !== steps.length) cluster.core.violated('I1', `granted twice: ${steps.join()}`);
  if (steps.length !== asked) cluster.core.violated('I1', `of ${asked} requests ${steps.length} were granted`);
  for (const topic of TOPICS) {
    const published = publishedOf(cluster, topic);
    const wanted = journalOf(cluster, topic);
    if (published !== wanted) cluster.core.violated('I8', `${topic} holds rows ${published}, the journal ${wanted}`);
  }
  return cluster.core.violations;
}

const TOPICS = [topics.effectEvents, toolTasks(DEFAULT_POOL as Pool)];

/** The rows of a topic's one lane, in its order, those left out that are published again. */
function publishedOf({ log }: Cluster, topic: string): string {
  let last = 0;
  return log
    .lane(topic, 0)
    .flatMap(({ headers }) => {
      const seq = Number(headers['ce_seq']);
      if (seq <= last) return [];
      last = seq;
      return [seq];
    })
    .join();
}

const journalOf = ({ databases }: Cluster, topic: string): string => databases.ledger.rows(0).filter((row) => row.topic === topic).map(({ seq }) => seq).join();
