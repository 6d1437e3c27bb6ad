import type { Kafka } from 'kafkajs';
import { toOutgoing } from '../loop/publisher.js';
import type { LogRecord } from '../ports.js';
import { RebuildProblem, type RebuildLog } from '../rebuild/ports.js';
import { pause, systemClock } from '../system.js';
import { connect } from './client.js';
import { tail } from './tail.js';
import { createWriter } from './writer.js';

const READ_MOST = 1000;
const GROUP_WAIT_MS = 500;
/** A member that was killed is counted in until its session has timed out, and the group has noticed. */
const GROUP_EMPTY_WITHIN_SESSIONS = 3;

export interface KafkaRebuildLogOptions {
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly groupId: string;
}

/** The topics as a rebuild reads them, from real Kafka. */
export function kafkaRebuildLog({ brokers, clientId, groupId }: KafkaRebuildLogOptions): RebuildLog {
  const kafka = connect({ brokers, clientId });
  return {
    read: (topic, onRecords) => readTopic(brokers, topic, onRecords),
    topics: () => asking(kafka, (admin) => admin.listTopics()),
    bounds: (topic) => asking(kafka, async (admin) => new Map((await admin.fetchTopicOffsets(topic)).map(({ partition, low, high }) => [partition, { first: Number(low), next: Number(high) }]))),
    committed: (topics) =>
      asking(kafka, async (admin) => {
        const answers = await admin.fetchOffsets({ groupId, topics: [...topics] });
        return new Map(answers.map(({ topic, partitions }) => [topic, new Map(partitions.flatMap(({ partition, offset }) => (Number(offset) < 0 ? [] : [[partition, Number(offset)] as const])))]));
      }),
    async publish(rows, source) {
      const writer = await createWriter({ brokers, clientId });
      await writer.publish(rows.map((row) => toOutgoing(row, source))).finally(() => writer.close());
    },
  };
}

/**
 * `sessionTimeoutMs`: of the service's instances, milliseconds.
 * @throws RebuildProblem while the service's group has members
 */
export async function requireStopped(options: KafkaRebuildLogOptions, service: string, sessionTimeoutMs: number): Promise<void> {
  const until = systemClock.now() + GROUP_EMPTY_WITHIN_SESSIONS * sessionTimeoutMs;
  await asking(connect(options), async (admin) => {
    for (;;) {
      const { groups } = await admin.describeGroups([options.groupId]);
      const members = groups.flatMap(({ members }) => members.map(({ clientId }) => clientId));
      if (members.length === 0) return;
      if (systemClock.now() > until) throw new RebuildProblem(`${service} is running (${members.join(', ')}): stop every instance of it, then begin again`);
      await pause(systemClock, GROUP_WAIT_MS);
    }
  });
}

async function asking<T>(kafka: Kafka, ask: (admin: ReturnType<Kafka['admin']>) => Promise<T>): Promise<T> {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await ask(admin);
  } finally {
    await admin.disconnect();
  }
}

async function readTopic(brokers: readonly string[], topic: string, onRecords: (records: readonly LogRecord[]) => Promise<void>): Promise<void> {
  let waiting: LogRecord[] = [];
  let handled: Promise<void> = Promise.resolve();
  const handle = (): Promise<void> => {
    const records = waiting;
    waiting = [];
    // Lanes arrive side by side; they are dealt with one after the other.
    handled = handled.then(async () => {
      for (let i = 0; i < records.length; i += READ_MOST) await onRecords(records.slice(i, i + READ_MOST));
    });
    return handled;
  };
  const reader = await tail({ brokers, topics: [topic], from: 'beginning', onRecord: (record) => waiting.push(record), hold: handle });
  try {
    await reader.caughtUp;
    await handle();
  } finally {
    await reader.close();
  }
}
