import { afterEach, expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { Kafka, logLevel } from 'kafkajs';
import { createLaneGroup, createWriter } from '../src/kafka/index.js';
import type { LaneGroup, LogWriter, Membership } from '../src/ports.js';

const brokers = (process.env['HOLDFAST_TEST_BROKERS'] ?? '').split(',');
const SESSION_MS = 2000;
const WITHIN_MS = 30_000;

interface Coordinator {
  joinGroup(request: unknown): Promise<unknown>;
  leaveGroup(request: { groupId: string; memberId: string }): Promise<unknown>;
}
const require = createRequire(import.meta.url);
// What a coordinator answers while it loads can't be asked of a healthy one: it is put before kafkajs's own call.
const Broker = require('kafkajs/src/broker') as { prototype: Coordinator };
const { createErrorFromCode } = require('kafkajs/src/protocol/error') as { createErrorFromCode(code: number): Error };
const COORDINATOR_LOAD_IN_PROGRESS = 14;

async function until(what: string, check: () => boolean): Promise<void> {
  const deadline = Date.now() + WITHIN_MS;
  while (!check()) {
    if (Date.now() > deadline) throw new Error(`${what}: not so within ${WITHIN_MS} ms`);
    await new Promise((resolve) => {
      setTimeout(resolve, 25);
    });
  }
}

const undo: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each();
});

async function madeTopic(): Promise<{ topic: string; writer: LogWriter }> {
  const topic = `group-${randomUUID()}`;
  const admin = new Kafka({ brokers, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const writer = await createWriter({ brokers, clientId: topic });
  undo.push(() => writer.close());
  return { topic, writer };
}

test('a member whom the group has forgotten, and whose coordinator is loading when it joins again, is in the group again and reads on', async () => {
  const { topic, writer } = await madeTopic();
  const groupId = `holdfast.${topic}`;
  const read: (string | null)[] = [];
  const memberships: Membership[] = [];
  let next = 0;
  const group: LaneGroup = createLaneGroup({
    brokers,
    clientId: topic,
    groupId,
    topics: [topic],
    sessionTimeoutMs: SESSION_MS,
    handlers: {
      onAssigned: ({ membership }) => {
        memberships.push(membership);
        group.open([{ topic, lane: 0, offset: next }]);
      },
      onRevoked: () => undefined,
      onRecords: (records) => {
        for (const { value, offset } of records) {
          read.push(value);
          next = offset + 1;
        }
        return Promise.resolve();
      },
      onCrash: (error) => {
        throw error;
      },
    },
  });
  undo.push(() => group.stop());

  const { joinGroup } = Broker.prototype;
  undo.push(() => {
    Broker.prototype.joinGroup = joinGroup;
  });
  const coordinators: Coordinator[] = [];
  let loading = false;
  let refused = 0;
  Broker.prototype.joinGroup = function (this: Coordinator, request: unknown) {
    coordinators.push(this);
    if (!loading) return joinGroup.call(this, request);
    loading = false;
    refused += 1;
    return Promise.reject(createErrorFromCode(COORDINATOR_LOAD_IN_PROGRESS));
  };
  const write = (value: string): Promise<unknown> => writer.publish([{ topic, lane: 0, key: 'k', headers: {}, value }]);

  await group.start();
  await write('first');
  await until('the first is read', () => read.includes('first'));
  const [[mine], [coordinator]] = [memberships, coordinators];
  if (coordinator === undefined || mine === undefined) throw new Error('it has not joined');

  loading = true;
  await coordinator.leaveGroup({ groupId, memberId: mine.memberId });
  await until('the coordinator was loading', () => refused === 1);
  await write('second');
  await until('the second is read', () => read.includes('second'));
  expect(read).toEqual(['first', 'second']);
  expect(memberships.length).toBeGreaterThan(1);
  expect(memberships.at(-1)?.memberId).not.toBe(mine.memberId);
});
