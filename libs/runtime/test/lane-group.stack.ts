import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { Kafka, logLevel } from 'kafkajs';
import { connect } from '../src/kafka/client.js';
import { createLaneGroup, createWriter, ensureTopic } from '../src/kafka/index.js';
import type { LaneGroup, LogWriter, Membership } from '../src/ports.js';

const brokers = (process.env['HOLDFAST_TEST_BROKERS'] ?? '').split(',');
const SESSION_MS = 2000;
const WITHIN_MS = 30_000;

interface Coordinator {
  joinGroup(request: unknown): Promise<unknown>;
  leaveGroup(request: { groupId: string; memberId: string }): Promise<unknown>;
}
interface Finder {
  findGroupCoordinatorMetadata(request: unknown): Promise<unknown>;
}
const require = createRequire(import.meta.url);
// What brokers answer in trouble can't be asked of a healthy one: it is put before kafkajs's own calls.
const Broker = require('kafkajs/src/broker') as { prototype: Coordinator };
const Cluster = require('kafkajs/src/cluster') as { prototype: Finder };
const { createErrorFromCode } = require('kafkajs/src/protocol/error') as { createErrorFromCode(code: number): Error };
const { KafkaJSGroupCoordinatorNotFound } = require('kafkajs/src/errors') as { KafkaJSGroupCoordinatorNotFound: new (message: string) => Error };
const COORDINATOR_LOAD_IN_PROGRESS = 14;
const GROUP_AUTHORIZATION_FAILED = 30;

const { joinGroup } = Broker.prototype;
const { findGroupCoordinatorMetadata } = Cluster.prototype;
/** The next tries fail so, or they or their answers are on the way for so long, one after the other. */
const joins: (Error | { readonly asking?: Promise<void>; readonly answer?: Promise<void> })[] = [];
const searches: Error[] = [];
const coordinators: Coordinator[] = [];
beforeAll(() => {
  Broker.prototype.joinGroup = function (this: Coordinator, request: unknown) {
    coordinators.push(this);
    const trouble = joins.shift();
    if (trouble instanceof Error) return Promise.reject(trouble);
    return (trouble?.asking ?? Promise.resolve()).then(() => joinGroup.call(this, request)).finally(() => trouble?.answer);
  };
  Cluster.prototype.findGroupCoordinatorMetadata = function (this: Finder, request: unknown) {
    const error = searches.shift();
    return error === undefined ? findGroupCoordinatorMetadata.call(this, request) : Promise.reject(error);
  };
});
afterAll(() => {
  Broker.prototype.joinGroup = joinGroup;
  Cluster.prototype.findGroupCoordinatorMetadata = findGroupCoordinatorMetadata;
});

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
  await ensureTopic(brokers, { name: topic, retentionMs: 'forever' }, 1);
  const writer = await createWriter({ brokers, clientId: topic });
  undo.push(() => writer.close());
  return { topic, writer };
}

/** A member that has read a record, whom its group then forgets while `trouble` keeps it from joining again. */
async function forgotten(trouble: () => void): Promise<{ read: (string | null)[]; memberships: Membership[]; crashes: string[]; write(value: string): Promise<void> }> {
  const { topic, writer } = await madeTopic();
  const groupId = `holdfast.${topic}`;
  const read: (string | null)[] = [];
  const memberships: Membership[] = [];
  const crashes: string[] = [];
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
      onCrash: (error) => void crashes.push(error.message),
    },
  });
  undo.push(() => group.stop());
  const write = (value: string): Promise<void> => writer.publish([{ topic, lane: 0, key: 'k', headers: {}, value }]);
  coordinators.splice(0);
  await group.start();
  await write('first');
  await until('the first is read', () => read.includes('first'));
  const [[mine], [coordinator]] = [memberships, coordinators];
  if (coordinator === undefined || mine === undefined) throw new Error('it has not joined');
  trouble();
  await coordinator.leaveGroup({ groupId, memberId: mine.memberId });
  await until('the trouble was met', () => joins.length + searches.length === 0);
  return { read, memberships, crashes, write };
}

test.each([
  { what: 'whose coordinator is loading when it joins again', trouble: () => joins.push(createErrorFromCode(COORDINATOR_LOAD_IN_PROGRESS)) },
  { what: 'whose coordinator can’t be found, over and over', trouble: () => searches.push(...Array.from({ length: 3 }, () => new KafkaJSGroupCoordinatorNotFound('Failed to find group coordinator'))) },
])('a member whom its group has forgotten, and $what, is in it again and reads on', async ({ trouble }) => {
  const { read, memberships, crashes, write } = await forgotten(() => void trouble());
  await write('second');
  await until('the second is read', () => read.includes('second'));
  expect(read).toEqual(['first', 'second']);
  expect(memberships.length).toBeGreaterThan(1);
  expect(memberships.at(-1)?.memberId).not.toBe(memberships[0]?.memberId);
  expect(crashes).toEqual([]);
});

/** A member that handles nothing, and how many its group counts. */
async function lone(onTrouble: (group: LaneGroup) => void = () => undefined): Promise<{ group: LaneGroup; members(): Promise<number> }> {
  const { topic } = await madeTopic();
  const groupId = `holdfast.${topic}`;
  const admin = new Kafka({ brokers, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  undo.push(() => admin.disconnect());
  const crash = (error: Error): void => {
    throw error;
  };
  const group: LaneGroup = createLaneGroup({
    ...{ brokers, clientId: topic, groupId, topics: [topic], sessionTimeoutMs: SESSION_MS },
    handlers: { onAssigned: () => undefined, onRevoked: () => undefined, onRecords: () => Promise.resolve(), onCrash: crash, onTrouble: () => onTrouble(group) },
  });
  undo.push(() => group.stop());
  const members = async (): Promise<number> => (await admin.describeGroups([groupId])).groups[0]?.members.length ?? 0;
  // Also so that a broker just started has its coordinator by now.
  expect(await members()).toBe(0);
  return { group, members };
}

test('told to join again, and again, while it joins, it is in its group once', async () => {
  const { group, members } = await lone();
  let go: () => void = () => undefined;
  joins.push({ asking: new Promise((resolve) => (go = resolve)) });
  const started = group.start();
  await until('it joins', () => joins.length === 0);
  const again = [group.rejoin(), group.rejoin()];
  go();
  await Promise.all([started, ...again]);
  expect(await members()).toBe(1);
});

test('told to join again after a join that failed, which is tried again anyway, it is in its group once', async () => {
  const rejoined: Promise<void>[] = [];
  const { group, members } = await lone((one) => void rejoined.push(one.rejoin()));
  joins.push(createErrorFromCode(COORDINATOR_LOAD_IN_PROGRESS));
  await group.start();
  await until('it was in trouble', () => rejoined.length > 0);
  await Promise.all(rejoined);
  // Behind the try that comes anyway.
  await group.rejoin();
  expect(await members()).toBe(1);
});

test('told to stop while it joins, it is in its group no more', async () => {
  const { group, members } = await lone();
  let go: () => void = () => undefined;
  joins.push({ answer: new Promise((resolve) => (go = resolve)) });
  const started = group.start();
  await until('it joins', () => joins.length === 0);
  const stopped = group.stop();
  go();
  await Promise.all([started, stopped]);
  expect(await members()).toBe(0);
});

test('a connection that has nothing to send is left alone, and what waits for its turn is sent', async () => {
  const RequestQueue = require('kafkajs/src/network/requestQueue') as { prototype: { checkPendingRequests(): void } };
  const { checkPendingRequests } = RequestQueue.prototype;
  let looks = 0;
  RequestQueue.prototype.checkPendingRequests = function (this: unknown) {
    looks += 1;
    checkPendingRequests.call(this as never);
  };
  undo.push(() => {
    RequestQueue.prototype.checkPendingRequests = checkPendingRequests;
  });
  const admin = connect({ brokers, clientId: 'looks' }).admin();
  await admin.connect();
  undo.push(() => admin.disconnect());
  // More at once than kafkajs puts on the way at once.
  expect(await Promise.all(Array.from({ length: 40 }, () => admin.listTopics()))).toHaveLength(40);
  const before = looks;
  // Two round trips of another connection: time enough for hundreds of looks at one a millisecond.
  await madeTopic();
  await madeTopic();
  expect(looks - before).toBeLessThan(100);
});

test('what waiting can’t mend is told', async () => {
  const { read, crashes } = await forgotten(() => searches.push(createErrorFromCode(GROUP_AUTHORIZATION_FAILED)));
  await until('it is told', () => crashes.length > 0);
  expect(crashes).toEqual([expect.stringMatching(/not authorized/i)]);
  expect(read).toEqual(['first']);
});
