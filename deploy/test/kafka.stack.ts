import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Kafka, logLevel } from 'kafkajs';
import { ensureTopic } from '@holdfast/runtime/kafka';
import { startKafka, type KafkaServer } from '../src/kafka.js';
import { isRunning } from '../src/process-table.js';
import { freshFolder, removeFolders } from './folders.js';

const TOPIC = 'kept.events';
/** Two brokers start on two shared cores, one of them after a kill. */
const LIMIT_MS = 90_000;

const client = (server: KafkaServer): Kafka => new Kafka({ clientId: 'test', brokers: [...server.brokers], logLevel: logLevel.NOTHING });

async function produce(server: KafkaServer, value: string): Promise<void> {
  const producer = client(server).producer();
  await producer.connect();
  await producer.send({ topic: TOPIC, acks: -1, messages: [{ value }] });
  await producer.disconnect();
}

async function read(server: KafkaServer, count: number): Promise<string[]> {
  const consumer = client(server).consumer({ groupId: `reader-${count}`, sessionTimeout: 1000, heartbeatInterval: 200 });
  const values: string[] = [];
  await consumer.connect();
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
  await new Promise<void>((resolve, reject) => {
    const eachMessage = ({ message }: { message: { value: Buffer | null } }): Promise<void> => {
      values.push(String(message.value));
      if (values.length === count) resolve();
      return Promise.resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return values;
}

async function topicsOf(server: KafkaServer): Promise<string[]> {
  const admin = client(server).admin();
  await admin.connect();
  const topics = await admin.listTopics();
  await admin.disconnect();
  return topics;
}

describe('Kafka', () => {
  let one: KafkaServer;
  let other: KafkaServer;

  beforeAll(async () => {
    one = await startKafka({ dir: await freshFolder() });
    other = await startKafka({ dir: await freshFolder() });
  }, LIMIT_MS);

  afterAll(async () => {
    await Promise.all([one, other].map((server) => server.stop()));
    await removeFolders();
  }, LIMIT_MS);

  test('in two folders is two: a topic of one is not in the other', async () => {
    await ensureTopic(one.brokers, { name: TOPIC, retentionMs: 'forever' }, 1);
    await expect(topicsOf(one)).resolves.toContain(TOPIC);
    await expect(topicsOf(other)).resolves.not.toContain(TOPIC);
    expect(one.port).not.toBe(other.port);
  });

  test('in a folder where it runs already is refused, with whose it is', async () => {
    await expect(startKafka({ dir: one.dir })).rejects.toThrow(`Kafka is already running in ${one.dir}, started by process ${process.pid}`);
    await expect(topicsOf(one)).resolves.toBeDefined();
  });

  test('keeps what it acknowledged over a stop and over a kill, on the same port', async () => {
    await produce(one, 'before the stop');
    const { pid, port } = one;
    await one.stop();
    expect(await isRunning(pid)).toBe(false);
    await one.start();
    await produce(one, 'before the kill');
    await one.kill();
    await one.start();
    expect(one.port).toBe(port);
    await expect(read(one, 2)).resolves.toEqual(['before the stop', 'before the kill']);
  }, LIMIT_MS);

  test('does not make a topic that nobody created', async () => {
    const producer = client(other).producer({ allowAutoTopicCreation: true, retry: { retries: 0 } });
    await producer.connect();
    await expect(producer.send({ topic: 'nobody.made.this', messages: [{ value: 'x' }] })).rejects.toThrow(/topic-partition/);
    await producer.disconnect();
    await expect(topicsOf(other)).resolves.not.toContain('nobody.made.this');
  });
});

describe('Kafka on a port in use', () => {
  let holder: Server;
  let port: number;

  beforeAll(async () => {
    holder = createServer();
    port = await new Promise((resolve) => {
      holder.listen(0, '127.0.0.1', () => resolve((holder.address() as { port: number }).port));
    });
  });

  afterAll(async () => {
    await new Promise((resolve) => holder.close(resolve));
    await removeFolders();
  });

  test('says which port and which setting', async () => {
    await expect(startKafka({ dir: await freshFolder(), port })).rejects.toThrow(
      `Kafka can't listen on port ${port}, which is in use: stop what listens there or set HOLDFAST_KAFKA_PORT to a free port.`,
    );
    await expect(startKafka({ dir: await freshFolder(), controllerPort: port })).rejects.toThrow(/set HOLDFAST_KAFKA_CONTROLLER_PORT to a free port/);
  });
});
