import { randomUUID } from 'node:crypto';
import type { Assignment, LogRecord } from '../ports.js';
import { connect, type ConnectOptions } from './client.js';
import { createLaneGroup } from './lane-group.js';

export interface FollowOptions extends Omit<ConnectOptions, 'clientId'> {
  readonly topic: string;
  /** Members of one group share the topic: each record is handed to one of them. */
  readonly groupId: string;
  /** Where a group that never committed begins. */
  readonly from: 'beginning' | 'end';
  /** Its offset is committed when the promise has resolved; a rejection ends the member. Records of one lane come one after another. */
  readonly onRecord: (record: LogRecord) => Promise<void>;
  /** The member can't go on: whoever wants to, starts another. */
  readonly onCrash: (error: Error) => void;
  readonly sessionTimeoutMs?: number;
}

/**
 * Hands each record of a topic to one member of a group, at least once: one that was handed over
 * and not yet committed is handed over again after a crash or a rebalance.
 */
export async function follow(options: FollowOptions): Promise<{ close(): Promise<void> }> {
  const { brokers, topic, groupId, onRecord, onCrash, sessionTimeoutMs } = options;
  await beginAt(options);
  let current: Assignment | null = null;
  const group = createLaneGroup({
    brokers,
    clientId: `follow-${randomUUID()}`,
    groupId,
    topics: [topic],
    ...(sessionTimeoutMs === undefined ? {} : { sessionTimeoutMs }),
    handlers: {
      onAssigned: (assignment) => {
        current = assignment;
        void open(assignment).catch(onCrash);
      },
      onRevoked: () => {
        current = null;
      },
      onRecords: async (records, polled) => {
        try {
          for (const record of records) {
            if (current?.membership.generation !== polled.generation) return;
            await onRecord(record);
            const end = await group.commit(polled, [{ topic, lane: record.lane, offset: record.offset + 1, metadata: '' }]);
            if (end !== 'accepted') return; // Whoever has the lane now is handed it again.
          }
        } catch (error) {
          onCrash(error instanceof Error ? error : new Error(String(error)));
        }
      },
      onCrash,
    },
  });
  const open = async ({ lanes }: Assignment): Promise<void> => {
    const [committed, bounds] = await Promise.all([group.committed(topic, lanes), group.offsets(topic)]);
    group.open(lanes.map((lane) => ({ topic, lane, offset: Math.max(committed.get(lane)?.offset ?? 0, bounds.get(lane)?.first ?? 0) })));
  };
  await group.start();
  return { close: () => group.stop() };
}

/** Commits the beginning for lanes that the group never committed for, so that "end" means the end at its first start. */
async function beginAt({ brokers, topic, groupId, from }: FollowOptions): Promise<void> {
  const admin = connect({ brokers, clientId: `follow-${randomUUID()}` }).admin();
  await admin.connect();
  try {
    const [known] = await admin.fetchOffsets({ groupId, topics: [topic] });
    if (known === undefined || known.partitions.every(({ offset }) => offset !== '-1')) return;
    const ends = await admin.fetchTopicOffsets(topic);
    const missing = new Set(known.partitions.filter(({ offset }) => offset === '-1').map(({ partition }) => partition));
    const partitions = ends.filter(({ partition }) => missing.has(partition)).map(({ partition, high, low }) => ({ partition, offset: from === 'end' ? high : low }));
    // Another member may be there already: then it has done the same.
    await admin.setOffsets({ groupId, topic, partitions }).catch(() => undefined);
  } finally {
    await admin.disconnect();
  }
}
