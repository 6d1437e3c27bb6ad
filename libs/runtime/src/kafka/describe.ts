import kafkajs from 'kafkajs';
import { fixedTopics, type TopicSpec } from '@holdfast/protocol';
import { withAdmin } from './topics.js';

/** A topic as the cluster has it. */
export interface DescribedTopic {
  readonly name: string;
  readonly partitions: number;
  /** Of the partition that has fewest. */
  readonly replicas: number;
  /** Replicas that are in step, of the partition that has fewest. */
  readonly inSync: number;
  /** Milliseconds, or for ever. */
  readonly retentionMs: number | 'forever';
  readonly compacted: boolean;
  readonly minInSync: number;
  readonly uncleanElection: boolean;
  /** Offsets between the oldest record that is kept and the next one: as many messages, where nothing was compacted. */
  readonly messages: number;
}

/** A consumer group as its coordinator sees it. */
export interface DescribedGroup {
  readonly id: string;
  readonly state: string;
  /** Client ids of those that take part. */
  readonly members: readonly string[];
}

/** Whoever looks wants to hear soon that nobody answers. */
const RETRIES = 1;

const CONFIGS = ['retention.ms', 'cleanup.policy', 'min.insync.replicas', 'unclean.leader.election.enable'];

/**
 * Holdfast's topics of a cluster: those of `names`, or every fixed one and the pools' when absent. What is not there is
 * not in the answer. Rejects when no broker answers within a few seconds: it does not wait for one.
 */
export function describeTopics(brokers: readonly string[], names?: readonly string[]): Promise<DescribedTopic[]> {
  return withAdmin(brokers, async (admin) => {
    const there = await admin.listTopics();
    const fixed = new Set(fixedTopics.map(({ name }) => name));
    const wanted = there.filter((name) => names?.includes(name) ?? (fixed.has(name) || /^(run|tool)\.tasks\./.test(name))).sort();
    if (wanted.length === 0) return [];
    const [{ topics }, { resources }] = await Promise.all([
      admin.fetchTopicMetadata({ topics: wanted }),
      admin.describeConfigs({ includeSynonyms: false, resources: wanted.map((name) => ({ type: kafkajs.ConfigResourceTypes.TOPIC, name, configNames: CONFIGS })) }),
    ]);
    const described: DescribedTopic[] = [];
    for (const { name, partitions } of topics) {
      const config = new Map(resources.find(({ resourceName }) => resourceName === name)?.configEntries.map(({ configName, configValue }) => [configName, configValue]));
      const offsets = await admin.fetchTopicOffsets(name);
      const retention = Number(config.get('retention.ms'));
      described.push({
        name,
        partitions: partitions.length,
        replicas: Math.min(...partitions.map(({ replicas }) => replicas.length)),
        inSync: Math.min(...partitions.map(({ isr }) => isr.length)),
        retentionMs: retention < 0 ? 'forever' : retention,
        compacted: config.get('cleanup.policy')?.includes('compact') ?? false,
        minInSync: Number(config.get('min.insync.replicas')),
        uncleanElection: config.get('unclean.leader.election.enable') === 'true',
        messages: offsets.reduce((sum, { high, low }) => sum + Number(high) - Number(low), 0),
      });
    }
    return described.sort((a, b) => a.name.localeCompare(b.name));
  }, RETRIES);
}

/** Who takes part in groups. Rejects when no broker answers within a few seconds. */
export function describeGroups(brokers: readonly string[], ids: readonly string[]): Promise<DescribedGroup[]> {
  return withAdmin(brokers, async (admin) => {
    const { groups } = await admin.describeGroups([...ids]);
    return groups.map(({ groupId, state, members }) => ({ id: groupId, state, members: members.map(({ clientId }) => clientId) }));
  }, RETRIES);
}

/** What is wrong with a topic, and what mends it. `grave`: something will be lost or refused; else it is weaker than production wants. */
export interface TopicFault {
  readonly topic: string;
  readonly grave: boolean;
  readonly problem: string;
  readonly mend: string;
}

const kept = (retentionMs: number | 'forever'): string => (retentionMs === 'forever' ? 'for ever' : `${retentionMs} ms`);

/** Compares topics with what they shall be. `partitions`: their number, or that of the first one when absent. */
export function topicFaults(found: readonly DescribedTopic[], specs: readonly TopicSpec[] = fixedTopics, partitions = found.find(({ name }) => name === specs[0]?.name)?.partitions): TopicFault[] {
  return specs.flatMap((spec): TopicFault[] => {
    const topic = found.find(({ name }) => name === spec.name);
    if (topic === undefined) return [{ topic: spec.name, grave: true, problem: 'is not there', mend: 'run `holdfast topics create`' }];
    const faults: Omit<TopicFault, 'topic'>[] = [];
    if (partitions !== undefined && topic.partitions !== partitions) {
      faults.push({ grave: true, problem: `has ${topic.partitions} partitions, not ${partitions}`, mend: 'a run’s lane is the same on every topic: make the topic anew with that number, before anything is written to it' });
    }
    const shortest = spec.retentionMs === 'forever' ? Number.POSITIVE_INFINITY : spec.retentionMs;
    const retention = topic.retentionMs === 'forever' ? Number.POSITIVE_INFINITY : topic.retentionMs;
    if (retention < shortest && !topic.compacted) {
      faults.push({ grave: true, problem: `keeps messages ${kept(topic.retentionMs)}, not ${kept(spec.retentionMs)}: what is older can’t be rebuilt or audited`, mend: `set retention.ms=${spec.retentionMs === 'forever' ? -1 : spec.retentionMs}` });
    }
    if (topic.compacted !== (spec.compacted === true)) {
      faults.push(
        topic.compacted
          ? { grave: true, problem: 'is compacted: older events of a run vanish', mend: 'set cleanup.policy=delete' }
          : { grave: false, problem: 'is not compacted: it grows with every start', mend: 'set cleanup.policy=compact' },
      );
    }
    if (topic.uncleanElection) faults.push({ grave: true, problem: 'allows unclean leader election, which loses acknowledged messages', mend: 'set unclean.leader.election.enable=false' });
    if (topic.inSync < topic.minInSync) faults.push({ grave: true, problem: `has ${topic.inSync} replicas in step and needs ${topic.minInSync}: nothing can be written`, mend: 'bring the brokers back that are down' });
    if (topic.replicas < 3 || topic.minInSync < 2) {
      faults.push({ grave: false, problem: `has ${topic.replicas} replica${topic.replicas === 1 ? '' : 's'} and min.insync.replicas ${topic.minInSync}: it survives killed processes, not a lost machine`, mend: 'production wants 3 replicas and min.insync.replicas=2' });
    }
    return faults.map((fault) => ({ topic: spec.name, ...fault }));
  });
}
