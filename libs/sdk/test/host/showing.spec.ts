import { expect, test } from '@jest/globals';
import { topics, WorkerId, WorkerSeen } from '@holdfast/protocol';
import { systemClock, type LogWriter } from '@holdfast/runtime';
import { SHOW_EVERY_MS, Showing, type ShowingParts } from '../../src/host/showing.js';
import { Gate, give, POOL, settle, stage } from './kit.js';

const tools = [{ name: 'pay', version: '1' }, { name: 'put', version: '1' }, { name: 'look', version: '1' }];

test('a worker shows itself at its start, now and then, and at its end', async () => {
  const { broker, member, worker, clock } = await stage();
  await settle();
  const at = clock.now();
  await give(member);
  await clock.advance(2 * SHOW_EVERY_MS);
  await worker.stop(10);
  const all = { worker: 'worker-a', pool: POOL, agents: [], tools, runs: 0, everyMs: SHOW_EVERY_MS };
  expect(broker.sent('WorkerSeen')).toEqual([
    { ...all, state: 'started', lanes: [], generation: null, at },
    { ...all, state: 'serving', lanes: [0, 1], generation: 1, at: at + SHOW_EVERY_MS },
    { ...all, state: 'serving', lanes: [0, 1], generation: 1, at: at + 2 * SHOW_EVERY_MS },
    { ...all, state: 'stopped', lanes: [], generation: 1, at: at + 2 * SHOW_EVERY_MS },
  ]);
  const records = broker.written.filter(({ headers }) => headers['ce_type'] === WorkerSeen.type);
  expect(records.every(({ topic, key }) => topic === topics.workerEvents && key === 'worker-a')).toBe(true);
  expect(new Set(records.map(({ headers }) => headers['ce_id'])).size).toBe(4);
});

test('while Kafka takes nothing, one is under way and no other is made; what failed is not repeated', async () => {
  const { broker, clock } = await stage();
  await settle();
  const stuck = new Gate();
  let tries = 0;
  broker.onPublish = () => {
    tries += 1;
    return stuck.passed;
  };
  await clock.advance(10 * SHOW_EVERY_MS);
  expect(tries).toBe(1);
  stuck.fail(new Error('no leader'));
  await settle();
  await clock.advance(SHOW_EVERY_MS);
  expect(tries).toBe(2);
  expect(broker.sent('WorkerSeen')).toHaveLength(1);
});

test('stopping twice is one last word, and nothing follows it', async () => {
  const { broker, worker, clock } = await stage();
  await settle();
  await Promise.all([worker.stop(10), worker.stop(10)]);
  await clock.advance(10 * SHOW_EVERY_MS);
  expect(broker.sent<{ state: string }>('WorkerSeen').map(({ state }) => state)).toEqual(['started', 'stopped']);
});

test('the last word is the last: it waits for the one that Kafka has not taken yet', async () => {
  const { broker, worker, clock } = await stage();
  await settle();
  const slow = new Gate();
  let held = false;
  broker.onPublish = () => {
    if (held) return Promise.resolve();
    held = true;
    return slow.passed;
  };
  await clock.advance(SHOW_EVERY_MS);
  const stopped = worker.stop(10);
  await settle();
  slow.open();
  await stopped;
  expect(broker.sent<{ state: string }>('WorkerSeen').map(({ state }) => state)).toEqual(['started', 'serving', 'stopped']);
});

test('a word that can’t be said keeps none of the later ones back', async () => {
  let asked = 0;
  const facts = (): ReturnType<ShowingParts['facts']> => {
    asked += 1;
    if (asked === 1) throw new Error('not known yet');
    return { worker: WorkerId.parse('worker-a'), pool: POOL, lanes: [], generation: null, agents: [], tools: [], runs: 0 };
  };
  const said: unknown[] = [];
  const writer: LogWriter = { publish: (records) => Promise.resolve(void said.push(...records.map(({ value }) => (JSON.parse(value ?? '') as { state: string }).state))), close: () => Promise.resolve() };
  const showing = new Showing({ writer, clock: systemClock, source: 'w', facts });
  showing.start();
  await showing.end();
  expect(said).toEqual(['stopped']);
});
