import type { LogWriter, Outgoing } from '../ports.js';
import { Partitioners, type PartitionMetadata, type RecordMetadata } from 'kafkajs';
import { connect, type ConnectOptions } from './client.js';

/** A writer that tells where it wrote. */
export interface PlacingWriter extends LogWriter {
  /** As `publish`, for one record. Resolves with its offset, null where the broker doesn't say. */
  append(record: Outgoing): Promise<number | null>;
}

/** Writes with `acks=all`. Connects before it returns. */
export async function createWriter(options: ConnectOptions): Promise<PlacingWriter> {
  const producer = connect(options).producer({
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
    // Retries belong to whoever owns the order of the records; here only short hiccups are smoothed.
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 3 },
  });
  await producer.connect();
  return {
    async publish(records: readonly Outgoing[]): Promise<void> {
      for (const round of rounds(records)) await produce(round);
    },
    async append(record) {
      const offset = (await produce([record]))[0]?.baseOffset;
      return offset === undefined ? null : Number(offset);
    },
    close: () => producer.disconnect(),
  };

  async function produce(records: readonly Outgoing[]): Promise<RecordMetadata[]> {
      const byTopic = new Map<string, { key: string; value: string; headers: Record<string, string>; partition?: number }[]>();
      for (const { topic, lane, key, headers, value } of records) {
        let messages = byTopic.get(topic);
        if (messages === undefined) byTopic.set(topic, (messages = []));
        messages.push({ key, value, headers, ...(lane === undefined ? {} : { partition: lane }) });
      }
      return producer.sendBatch({ acks: -1, timeout: 10_000, topicMessages: [...byTopic].map(([topic, messages]) => ({ topic, messages })) });
  }
}

/** Stays below Kafka's `message.max.bytes` (1 MiB by default), which holds for a whole batch of one partition. */
const PARTITION_BYTES_MAX = 900 * 1024;
const RECORD_OVERHEAD_BYTES = 600;

/**
 * Splits records into produces of which each fits the broker's limit for every partition. Records
 * that would pass one by one but not together are never refused for their company.
 */
export function rounds(records: readonly Outgoing[]): Outgoing[][] {
  const result: Outgoing[][] = [];
  let round: Outgoing[] = [];
  let bytes = new Map<string, number>();
  for (const record of records) {
    // A record without a lane may share a partition with any other.
    const place = record.lane === undefined ? record.topic : `${record.topic}/${record.lane}`;
    const size = Buffer.byteLength(record.value) + record.key.length + RECORD_OVERHEAD_BYTES;
    const before = bytes.get(place) ?? 0;
    if (before > 0 && before + size > PARTITION_BYTES_MAX) {
      result.push(round);
      round = [];
      bytes = new Map();
    }
    bytes.set(place, (bytes.get(place) ?? 0) + size);
    round.push(record);
  }
  if (round.length > 0) result.push(round);
  return result;
}

const partitioner = Partitioners.DefaultPartitioner();
const partitionsByNumber = new Map<number, PartitionMetadata[]>();

function partitionsOf(count: number): PartitionMetadata[] {
  let all = partitionsByNumber.get(count);
  if (all === undefined) {
    all = Array.from({ length: count }, (_, partitionId) => ({ partitionErrorCode: 0, partitionId, leader: 0, replicas: [], isr: [], offlineReplicas: [] }));
    partitionsByNumber.set(count, all);
  }
  return all;
}

/** The partition of a key: Kafka's default partitioner (murmur2 over the key's UTF-8 bytes). */
export function laneOf(key: string, partitions: number): number {
  return partitioner({ topic: '', partitionMetadata: partitionsOf(partitions), message: { key, value: null } });
}
