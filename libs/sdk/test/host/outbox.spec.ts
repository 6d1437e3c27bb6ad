import { beforeEach, expect, test } from '@jest/globals';
import type { Outgoing } from '@holdfast/runtime';
import { ValueTooLarge } from '../../src/errors.js';
import { Outbox, WorkerStopped } from '../../src/host/outbox.js';
import { Gate, settle, TestClock, TestLog } from './kit.js';

let clock: TestClock;
let log: TestLog;
let outbox: Outbox;
let produces: (readonly Outgoing[])[];
let publish: (records: readonly Outgoing[]) => Promise<void>;

beforeEach(() => {
  clock = new TestClock();
  log = new TestLog();
  produces = [];
  publish = () => Promise.resolve();
  const writer = {
    publish: (records: readonly Outgoing[]) => {
      produces.push(records);
      return publish(records);
    },
    close: () => Promise.resolve(),
  };
  outbox = new Outbox({ writer, clock, log, source: 'worker/w', incarnation: 'i' });
});

const message = (n: unknown) => ({ type: 'T', data: { n } });
const send = (n: unknown, key = 'k') => outbox.send('t', key, 'acme', [message(n)]);
const sent = (): unknown[][] => produces.map((records) => records.map(({ value }) => (JSON.parse(value) as { n: unknown }).n));

test('what is queued in one turn travels together; what comes while a produce is in flight goes in the next one', async () => {
  const gate = new Gate();
  publish = () => gate.passed;
  const first = Promise.all([send(1), send(2, 'other')]);
  await settle();
  const second = send(3);
  void send(4);
  await settle();
  expect(sent()).toEqual([[1, 2]]);
  gate.open();
  await first;
  await second;
  expect(sent()).toEqual([[1, 2], [3, 4]]);
});

test('a produce that fails is repeated as it was, before anything newer, until it succeeds', async () => {
  let failures = 3;
  publish = () => ((failures -= 1) >= 0 ? Promise.reject(new Error('no leader')) : Promise.resolve());
  const done: number[] = [];
  void send(1).then(() => done.push(1));
  await settle();
  void send(2).then(() => done.push(2));
  await clock.advance(99);
  expect(sent()).toEqual([[1]]);
  await clock.advance(1);
  await clock.advance(200);
  expect(done).toEqual([]);
  await clock.advance(400);
  expect(sent()).toEqual([[1], [1], [1], [1], [2]]);
  expect(done).toEqual([1, 2]);
  expect(log.warnings).toHaveLength(3);
});

test('a value over 256 KiB is refused before anything of it is queued', async () => {
  const refused = outbox.send('t', 'k', 'acme', [message(1), message('x'.repeat(256 * 1024))]);
  await expect(refused).rejects.toBeInstanceOf(ValueTooLarge);
  await expect(refused).rejects.toThrow(/has 262152 bytes.*262144.*artifact/);
  await send(2);
  expect(sent()).toEqual([[2]]);
});

test('bytes count, not characters', async () => {
  await expect(send('ü'.repeat(127 * 1024))).resolves.toBeUndefined();
  await expect(send('ü'.repeat(129 * 1024))).rejects.toBeInstanceOf(ValueTooLarge);
});

test('what passes one by one passes together: a produce stays below the broker\'s limit (C25)', async () => {
  await Promise.all(Array.from({ length: 12 }, (_, n) => send(`${n}${'x'.repeat(200 * 1024)}`)));
  expect(produces.map((records) => records.length)).toEqual([3, 3, 3, 3]);
  expect(produces.every((records) => records.reduce((bytes, { value }) => bytes + value.length, 0) < 800 * 1024)).toBe(true);
});

test('the text is made at once: what its owner does to the data later changes nothing', async () => {
  const data = { n: 1 };
  const acknowledged = outbox.send('t', 'k', 'acme', [{ type: 'T', data }]);
  data.n = 2;
  await acknowledged;
  expect(sent()).toEqual([[1]]);
});

test('each message has an id of its own, its source, subject, tenant and time', async () => {
  await outbox.send('t', 'run-1', 'acme', [message(1), message(2)]);
  expect(produces[0]?.map(({ key, headers }) => [key, headers])).toEqual(
    ['i.1', 'i.2'].map((id) => ['run-1', expect.objectContaining({ ce_id: id, ce_type: 'T', ce_source: 'worker/w', ce_subject: 'run-1', ce_tenant: 'acme', ce_time: new Date(clock.now()).toISOString() })]),
  );
});

test('NUL and half a surrogate pair travel as they are', async () => {
  await send('a\u0000\ud83d');
  expect(sent()).toEqual([['a\u0000\ud83d']]);
});

test('what is no longer wanted is withdrawn between tries, the rest goes on', async () => {
  let wanted = true;
  publish = () => Promise.reject(new Error('down'));
  const withdrawn = outbox.send('t', 'k', 'acme', [message(1)], { lane: 3, wanted: () => wanted });
  const kept = send(2);
  await settle();
  wanted = false;
  publish = () => Promise.resolve();
  await clock.advance(100);
  await Promise.all([withdrawn, kept]);
  expect(sent()).toEqual([[1, 2], [2]]);
  expect(produces[0]?.[0]).toMatchObject({ lane: 3 });
});

test('closing rejects what is not acknowledged, and what comes later', async () => {
  publish = () => Promise.reject(new Error('down'));
  const pending = send(1);
  await settle();
  const queued = send(2);
  outbox.close();
  await expect(pending).rejects.toBeInstanceOf(WorkerStopped);
  await expect(queued).rejects.toBeInstanceOf(WorkerStopped);
  await expect(send(3)).rejects.toBeInstanceOf(WorkerStopped);
  await clock.advance(60_000);
  expect(produces).toHaveLength(1);
});

test('drained when all is acknowledged', async () => {
  const gate = new Gate();
  publish = () => gate.passed;
  let drained = false;
  void send(1);
  void outbox.drained().then(() => (drained = true));
  await settle();
  expect(drained).toBe(false);
  gate.open();
  await settle();
  expect(drained).toBe(true);
});
