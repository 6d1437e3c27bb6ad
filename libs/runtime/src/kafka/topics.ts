import kafkajs, { type Admin } from 'kafkajs';
import { fixedTopics, Pool, poolTopics, type TopicSpec } from '@holdfast/protocol';
import { pause, systemClock } from '../system.js';
import { connect } from './client.js';

/** The cluster doesn't match what Holdfast was told; the message says what to change. */
export class TopicError extends Error {
  override readonly name = 'TopicError';
}

const TRIES_MAX = 20;
const RETRY_MS = 250;

/** `retries`: how often the first connection is tried again; a few when absent. */
export async function withAdmin<T>(brokers: readonly string[], work: (admin: Admin) => Promise<T>, retries?: number): Promise<T> {
  const admin = connect({ brokers, clientId: 'holdfast-topics', ...(retries === undefined ? {} : { retries }) }).admin();
  await admin.connect();
  try {
    for (let tries = 1; ; tries += 1) {
      try {
        return await work(admin);
      } catch (error) {
        // Two instances that start at once both create topics, whose leaders take a moment to be known.
        if (error instanceof TopicError || tries >= TRIES_MAX) throw error;
        await pause(systemClock, RETRY_MS);
      }
    }
  } finally {
    await admin.disconnect();
  }
}

/** Creates what is missing, and checks that what exists has the configured number of partitions. */
export function ensureTopics(brokers: readonly string[], partitions: number, replication = 1): Promise<void> {
  return withAdmin(brokers, (admin) => ensure(admin, fixedTopics, partitions, replication));
}

/** The topics of one pool, with as many partitions as `run.events` has. */
export function ensurePoolTopics(brokers: readonly string[], pool: Pool): Promise<void> {
  return withAdmin(brokers, async (admin) => {
    const { topics: described } = await admin.fetchTopicMetadata({ topics: ['run.events'] });
    const partitions = described[0]?.partitions ?? [];
    if (partitions.length === 0) throw new TopicError('topic run.events does not exist: start the Holdfast services first, or run `holdfast topics create`');
    await ensure(admin, poolTopics(pool), partitions.length, partitions[0]?.replicas.length ?? 1);
  });
}

/** Creates the topics of every pool that one of the names belongs to; a contract may name a pool before its first worker came. */
export async function ensureTopicsOfPools(brokers: readonly string[], names: readonly string[]): Promise<void> {
  const pools = new Set(names.flatMap((name) => Pool.safeParse(/^(?:run|tool)\.tasks\.(.+)$/.exec(name)?.[1]).data ?? []));
  for (const pool of pools) await ensurePoolTopics(brokers, pool);
}

/** One topic, as `ensureTopics` makes them: once this returns the brokers know it, which kafkajs's own waiting for leaders does not promise. */
export function ensureTopic(brokers: readonly string[], spec: TopicSpec, partitions: number, replication = 1): Promise<void> {
  return withAdmin(brokers, (admin) => ensure(admin, [spec], partitions, replication));
}

async function ensure(admin: Admin, specs: readonly TopicSpec[], partitions: number, replication: number): Promise<void> {
  const existing = new Set(await admin.listTopics());
  const missing = specs.filter(({ name }) => !existing.has(name));
  if (missing.length > 0) {
    await admin.createTopics({
      waitForLeaders: true,
      topics: missing.map((spec) => ({ topic: spec.name, numPartitions: partitions, replicationFactor: replication, configEntries: configOf(spec) })),
    });
  }
  const { topics: described } = await admin.fetchTopicMetadata({ topics: specs.map(({ name }) => name) });
  for (const topic of described) {
    if (topic.partitions.length !== partitions) {
      throw new TopicError(
        `topic ${topic.name} has ${topic.partitions.length} partitions, HOLDFAST_PARTITIONS says ${partitions}: the number is fixed for the life of a cluster; set HOLDFAST_PARTITIONS=${topic.partitions.length}`,
      );
    }
  }
}

const configOf = (spec: TopicSpec): { name: string; value: string }[] => [
  { name: 'retention.ms', value: spec.retentionMs === 'forever' ? '-1' : String(spec.retentionMs) },
  { name: 'cleanup.policy', value: spec.compacted === true ? 'compact' : 'delete' },
];

/** How many partitions a topic has. */
export function partitionsOf(brokers: readonly string[], topic: string): Promise<number> {
  return withAdmin(brokers, async (admin) => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]?.partitions.length ?? 0);
}

/** Next offset of each partition of a topic. */
export function partitionEnds(brokers: readonly string[], topic: string): Promise<Map<number, number>> {
  return withAdmin(brokers, async (admin) => new Map((await admin.fetchTopicOffsets(topic)).map(({ partition, high }) => [partition, Number(high)])));
}

/** What is too weak about the cluster to call a message durable, in one sentence; null when nothing is. */
export function durabilityProblem(brokers: readonly string[], topic: string): Promise<string | null> {
  return withAdmin(brokers, async (admin) => {
    const { topics: described } = await admin.fetchTopicMetadata({ topics: [topic] });
    const replicas = Math.min(...(described[0]?.partitions ?? []).map((partition) => partition.replicas.length));
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: kafkajs.ConfigResourceTypes.TOPIC, name: topic, configNames: ['min.insync.replicas', 'unclean.leader.election.enable'] }] });
    const config = new Map(resources[0]?.configEntries.map(({ configName, configValue }) => [configName, configValue]));
    const weak = [
      ...(replicas < 3 ? [`${replicas} replica${replicas === 1 ? '' : 's'}`] : []),
      ...(Number(config.get('min.insync.replicas')) < 2 ? [`min.insync.replicas ${config.get('min.insync.replicas') ?? '?'}`] : []),
      ...(config.get('unclean.leader.election.enable') === 'true' ? ['unclean leader election'] : []),
    ];
    return weak.length === 0 ? null : `topic ${topic} has ${weak.join(', ')}: it survives killed processes, not a lost machine or a power cut; production wants 3 replicas, min.insync.replicas=2 and no unclean election`;
  });
}
