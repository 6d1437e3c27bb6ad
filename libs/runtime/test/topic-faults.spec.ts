import { describe, expect, it } from '@jest/globals';
import type { TopicSpec } from '@holdfast/protocol';
import { topicFaults, type DescribedTopic } from '../src/kafka/describe.js';

const specs: TopicSpec[] = [{ name: 'run.events', retentionMs: 'forever' }, { name: 'agent.intents', retentionMs: 1000 }, { name: 'contracts', retentionMs: 'forever', compacted: true }];
const topic = (name: string, otherwise: Partial<DescribedTopic> = {}): DescribedTopic => ({ name, partitions: 12, replicas: 3, inSync: 3, retentionMs: 'forever', compacted: name === 'contracts', minInSync: 2, uncleanElection: false, messages: 0, ...otherwise });
const all = (name?: string, otherwise?: Partial<DescribedTopic>): DescribedTopic[] => specs.map((spec) => topic(spec.name, spec.name === name ? otherwise : {}));

describe('topics of a cluster', () => {
  it('are well as Holdfast makes them', () => {
    expect(topicFaults(all(), specs)).toEqual([]);
    expect(topicFaults(all('agent.intents', { retentionMs: 1000 }), specs)).toEqual([]);
  });

  it('that are missing are named', () => {
    expect(topicFaults(all().slice(1), specs)).toEqual([{ topic: 'run.events', grave: true, problem: 'is not there', mend: 'run `holdfast topics create`' }]);
  });

  it.each<[string, Partial<DescribedTopic>, boolean, RegExp]>([
    ['agent.intents', { partitions: 6 }, true, /has 6 partitions, not 12/],
    ['run.events', { retentionMs: 604_800_000 }, true, /keeps messages 604800000 ms, not for ever/],
    ['agent.intents', { retentionMs: 999 }, true, /keeps messages 999 ms, not 1000 ms/],
    ['run.events', { compacted: true }, true, /is compacted/],
    ['contracts', { compacted: false }, false, /is not compacted/],
    ['run.events', { uncleanElection: true }, true, /unclean leader election/],
    ['run.events', { inSync: 1 }, true, /has 1 replicas in step and needs 2/],
    ['run.events', { replicas: 1, inSync: 1, minInSync: 1 }, false, /has 1 replica and min.insync.replicas 1/],
  ])('%s with %j is a fault', (name, otherwise, grave, problem) => {
    const faults = topicFaults(all(name, otherwise), specs);
    expect(faults).toEqual([expect.objectContaining({ topic: name, grave, problem: expect.stringMatching(problem) })]);
    expect(faults[0]?.mend).not.toBe('');
  });

  it('are compared with a number of partitions that somebody names', () => {
    expect(topicFaults(all(), specs, 24).map(({ topic: name }) => name)).toEqual(['run.events', 'agent.intents', 'contracts']);
  });
});
