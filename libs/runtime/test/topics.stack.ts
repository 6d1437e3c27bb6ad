import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { ensureTopic, partitionEnds } from '../src/kafka/index.js';

const brokers = (process.env['HOLDFAST_TEST_BROKERS'] ?? '').split(',');

interface Described {
  metadata(names: readonly string[]): Promise<unknown>;
}
const require = createRequire(import.meta.url);
// A broker that has not heard yet of what was just made can't be had at will: its answer is put before kafkajs's own call.
const Broker = require('kafkajs/src/broker') as { prototype: Described };
const { createErrorFromCode } = require('kafkajs/src/protocol/error') as { createErrorFromCode(code: number): Error };
const UNKNOWN_TOPIC_OR_PARTITION = 3;

const { metadata } = Broker.prototype;
let unknown = 0;
beforeAll(() => {
  Broker.prototype.metadata = function (this: Described, names: readonly string[]) {
    if (names.length === 0 || unknown === 0) return metadata.call(this, names);
    unknown -= 1;
    return Promise.reject(createErrorFromCode(UNKNOWN_TOPIC_OR_PARTITION));
  };
});
afterAll(() => {
  Broker.prototype.metadata = metadata;
});

test('a topic that its broker does not know yet is waited for, and made once', async () => {
  const topic = `made-${randomUUID()}`;
  unknown = 2;
  await ensureTopic(brokers, { name: topic, retentionMs: 'forever' }, 2);
  expect(unknown).toBe(0);
  expect(await partitionEnds(brokers, topic)).toEqual(new Map([[0, 0], [1, 0]]));
  await ensureTopic(brokers, { name: topic, retentionMs: 'forever' }, 2);
});

test('a topic of another number of partitions is refused at once', async () => {
  const topic = `made-${randomUUID()}`;
  await ensureTopic(brokers, { name: topic, retentionMs: 'forever' }, 1);
  await expect(ensureTopic(brokers, { name: topic, retentionMs: 'forever' }, 3)).rejects.toThrow(`topic ${topic} has 1 partitions, HOLDFAST_PARTITIONS says 3`);
});
