import { expect, test } from '@jest/globals';
import { DeadLetter, FireEffect, topics } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import { fromService, Gate, give, LEDGER, revocation, RUN, RUNS, settle, stage, task, TASKS, TestBroker, TestClock, until } from './kit.js';

const announcements = (broker: TestBroker): Record<string, unknown>[] => broker.sent('AnnounceLane');

test('the worker joins its group only when its contracts are acknowledged', async () => {
  const broker = new TestBroker(new TestClock());
  const acknowledged = new Gate();
  broker.onPublish = () => acknowledged.passed;
  const starting = stage({ broker });
  await settle();
  expect(broker.members.map(({ started }) => started)).toEqual([false]);
  acknowledged.open();
  expect((await starting).member.started).toBe(true);
});

test('contracts are acknowledged before the first announcement, and warnings of them are logged', async () => {
  const { broker, member, log } = await stage();
  await give(member);
  expect(broker.written.filter(({ topic }) => topic !== topics.workerEvents).map(({ topic, key, headers }) => [topic, key, headers['ce_type']])).toEqual([
    [topics.contracts, 'tool:pay@1', 'ToolDeclared'],
    [topics.contracts, 'tool:put@1', 'ToolDeclared'],
    [topics.contracts, 'tool:look@1', 'ToolDeclared'],
    [topics.agentIntents, '~lane/default/0', 'AnnounceLane'],
    [topics.agentIntents, '~lane/default/1', 'AnnounceLane'],
  ]);
  expect(log.warnings).toEqual([expect.stringMatching(/pay@1 is irreversible and has neither a probe nor an owner/)]);
});

test('a taken lane is announced into its own partition, and opened only when that is acknowledged', async () => {
  const { broker, member } = await stage();
  const acknowledged = new Gate();
  broker.onPublish = () => acknowledged.passed;
  broker.rebalance(new Map([[member, [1]]]));
  await settle();
  expect(member.isOpen(TASKS, 1)).toBe(false);
  expect(member.isOpen(RUNS, 1)).toBe(false);
  acknowledged.open();
  await until(() => member.isOpen(TASKS, 1) && member.isOpen(RUNS, 1), 'open');
  expect(broker.written.at(-1)).toMatchObject({ topic: topics.agentIntents, lane: 1, key: '~lane/default/1' });
  expect(announcements(broker)).toEqual([{ pool: 'default', lane: 1, worker: 'worker-a', generation: 1, agents: [], tools: ['pay', 'put', 'look'], taken: {} }]);
});

test('an announcement that was not written before the lane is lost is withdrawn', async () => {
  const { broker, member, clock } = await stage();
  broker.onPublish = () => Promise.reject(new Error('broker down'));
  broker.rebalance(new Map([[member, [0, 1]]]));
  await settle();
  broker.rebalance(new Map([[member, [1]]]));
  await settle();
  broker.onPublish = undefined;
  await clock.advance(200);
  await until(() => member.isOpen(TASKS, 1), 'the lane that came');
  expect(announcements(broker).map(({ lane }) => lane)).toEqual([1]);
});

test('a lane that could not be read yet is tried again, with the others already taken', async () => {
  const { broker, member, clock } = await stage();
  let failures = 2;
  const committed = member.committed;
  member.committed = (topic, lanes) => ((failures -= 1) >= 0 ? Promise.reject(new Error('coordinator moved')) : committed(topic, lanes));
  broker.rebalance(new Map([[member, [0, 1]]]));
  await settle();
  expect(announcements(broker)).toEqual([]);
  await clock.advance(200);
  await clock.advance(400);
  await until(() => member.isOpen(TASKS, 0), 'open');
  expect(announcements(broker)).toHaveLength(2);
});

test('never committed: everything that is kept is read; run.tasks begin at their present end', async () => {
  const broker = new TestBroker(new TestClock());
  broker.append(TASKS, 0, task({ seq: 1 }));
  broker.append(RUNS, 0, { key: 'x', headers: {}, value: 'old' });
  const { member, tools } = await stage({ broker });
  await give(member);
  await until(() => tools.fired.length === 1, 'the waiting task fires');
  expect(broker.sent('DeadLetter')).toEqual([]); // What was in run.tasks before was not read.
});

test('a gap in a service\'s numbers stops the lane with an alarm: what follows does not fire', async () => {
  const { broker, member, tools, log } = await stage();
  await give(member);
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 4, prev: 3 }), task({ seq: 5 }));
  await until(() => log.alarms.length === 1, 'the alarm');
  await settle();
  expect(tools.fired).toEqual([1]);
  expect(log.alarms[0]).toMatch(/lane 0 .* missing: the last one seen has ce_seq 1, this one follows 3/);
  broker.append(TASKS, 1, task({ seq: 9, lane: 1, prev: 8 }));
  await until(() => tools.fired.length === 2, 'the other lane goes on');
  // A rebalance that leaves the lane here doesn't start it again.
  broker.rebalance(new Map([[member, [0, 1]]]));
  await settle();
  expect(member.isOpen(TASKS, 0)).toBe(false);
  expect(member.isOpen(TASKS, 1)).toBe(true);
});

test.each<[string, (record: Pick<LogRecord, 'key' | 'headers' | 'value'>) => Pick<LogRecord, 'key' | 'headers' | 'value'>]>([
  ['a newer type', (record) => ({ ...record, headers: { ...record.headers, ce_type: 'FireEffectV2' } })],
  ['missing data', (record) => ({ ...record, value: '{}' })],
  ['text that is no JSON', (record) => ({ ...record, value: '{' })],
])('a service\'s message that can\'t be understood (%s) stops the lane', async (_, change) => {
  const { broker, member, tools, log } = await stage();
  await give(member);
  broker.append(TASKS, 0, change(task({ seq: 1 })), task({ seq: 2 }));
  await until(() => log.alarms.length === 1, 'the alarm');
  await settle();
  expect(tools.fired).toEqual([]);
  expect(broker.commits).toEqual([]);
});

test('answers that crossed a rebalance raise no alarm', async () => {
  const { broker, member, log } = await stage();
  const before = new Gate<Map<number, { first: number; next: number }>>();
  const { offsets, committed } = member;
  const committedSoon = new Gate();
  member.offsets = (topic) => (topic === TASKS ? before.passed : offsets(topic));
  member.committed = (topic, lanes) => committedSoon.passed.then(() => committed(topic, lanes));
  broker.rebalance(new Map([[member, [0]]]));
  before.open(new Map([[0, { first: 0, next: 0 }]])); // The lane was empty when this was asked.
  await settle();
  member.offsets = offsets;
  broker.rebalance(new Map([[member, [0]]]));
  broker.append(TASKS, 0, task({ seq: 1 }));
  broker.committed.set(0, { offset: 1, metadata: '' });
  committedSoon.open();
  await until(() => member.isOpen(TASKS, 0), 'the lane is open');
  expect(log.alarms).toEqual([]);
});

test('what no service wrote is set aside and fires nothing; the lane goes on', async () => {
  const { broker, member, tools } = await stage();
  await give(member);
  const forged = task({ seq: 1 });
  const { ce_seq: _seq, ...withoutNumber } = forged.headers as Record<string, string>;
  broker.append(TASKS, 0, { ...forged, headers: withoutNumber }, { key: null, headers: {}, value: 'hello' }, task({ seq: 1, args: { n: 5 } }));
  await until(() => tools.fired.length === 1, 'the real one fires');
  await settle();
  expect(tools.fired).toEqual([5]);
  expect(broker.sent(DeadLetter.type)).toMatchObject([{ topic: TASKS, partition: 0, offset: 0, type: FireEffect.type }, { offset: 1, key: null, type: null, excerpt: 'hello' }]);
});

test('a log that was cut and written anew is noticed', async () => {
  const { broker, member, tools, log } = await stage();
  await give(member);
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }));
  await until(() => tools.fired.length === 2, 'both fire');
  broker.records(TASKS, 0).length = 0;
  broker.append(TASKS, 0, task({ seq: 3 }));
  member.open([{ topic: TASKS, lane: 0, offset: 0 }]); // As a client does that is told its offset is out of range.
  await until(() => log.alarms.length === 1, 'the alarm');
  await settle();
  expect(tools.fired).toEqual([1, 2]);
});

test('finished idempotent tasks are saved after a while, so that the next holder does not fire them again', async () => {
  const { broker, member, tools, clock, report } = await stage();
  await give(member);
  const slow = new Gate<unknown>();
  tools.act = ({ n }) => (n === 3 ? slow.passed : {});
  broker.append(TASKS, 0, ...[1, 2, 3, 4].map((seq) => task({ seq, effect: 'idempotent', tool: 'put' })));
  await until(() => report(4).length === 1, 'the quick ones end');
  expect(broker.commits).toEqual([]); // None is needed before they fire.
  await clock.advance(1000);
  expect(broker.committed.get(0)).toEqual({ offset: 2, metadata: JSON.stringify({ [LEDGER]: 2 }) });
  slow.open({});
  await until(() => report(3).length === 1, 'the slow one ends');
  await clock.advance(1000);
  expect(broker.committed.get(0)).toEqual({ offset: 4, metadata: JSON.stringify({ [LEDGER]: 4 }) });
});

test('a task whose report is not acknowledged yet is not saved as ended', async () => {
  const { broker, member, tools, clock } = await stage();
  await give(member);
  broker.onPublish = () => Promise.reject(new Error('broker down'));
  broker.append(TASKS, 0, task({ seq: 1, effect: 'idempotent', tool: 'put' }));
  await until(() => tools.fired.length === 1, 'it fires');
  await settle();
  await clock.advance(5000);
  expect(broker.commits).toEqual([]);
});

test('a saved offset is never lower than what an irreversible task has committed', async () => {
  const { broker, member, tools, clock, report } = await stage();
  await give(member);
  const slow = new Gate<unknown>();
  tools.act = ({ n }) => (n === 1 ? slow.passed : {});
  broker.append(TASKS, 0, task({ seq: 1, effect: 'pure', tool: 'look' }), task({ seq: 2, effect: 'pure', tool: 'look' }), task({ seq: 3 }));
  await until(() => report(3).length === 1, 'the irreversible one ends');
  await clock.advance(2000);
  slow.open({});
  await until(() => report(1).length === 1, 'the slow one ends');
  await clock.advance(2000);
  expect(broker.commits.map(({ offset }) => offset)).toEqual([3]);
});

test('what could not be saved during a rebalance is saved after it, where the lane stayed', async () => {
  const { broker, member, clock } = await stage();
  await give(member);
  broker.append(TASKS, 0, task({ seq: 1 }), revocation({ seq: 2, of: 1 }));
  await settle();
  member.revoke();
  await clock.advance(1500);
  expect(broker.commits).toEqual([]);
  broker.rebalance(new Map([[member, [0, 1]]]));
  await clock.advance(1000);
  expect(broker.committed.get(0)?.offset).toBe(2);
});

test('what a refused commit was to save is saved by another, where the lane stayed', async () => {
  const { broker, member, clock } = await stage();
  await give(member);
  const gate = new Gate();
  broker.commitEnds = (_commit, apply) => gate.passed.then(() => apply());
  broker.append(TASKS, 0, task({ seq: 1 }), revocation({ seq: 2, of: 1 }));
  await clock.advance(1000);
  broker.rebalance(new Map([[member, [0, 1]]]));
  gate.open();
  await settle();
  expect([broker.commits.length, broker.committed.get(0)]).toEqual([1, undefined]);
  await clock.advance(1000);
  expect(broker.committed.get(0)?.offset).toBe(2);
});

test('tasks that end before an irreversible one in front of them are saved once it has ended', async () => {
  const { broker, member, tools, clock, report } = await stage();
  await give(member);
  const slow = new Gate<unknown>();
  tools.act = ({ n }) => (n === 1 ? slow.passed : {});
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2, effect: 'pure', tool: 'look' }));
  await until(() => report(2).length === 1, 'the quick one ends');
  await clock.advance(3000);
  expect(broker.commits.map(({ offset }) => offset)).toEqual([1]);
  slow.open({});
  await until(() => report(1).length === 1, 'the slow one ends');
  await clock.advance(1000);
  expect(broker.committed.get(0)?.offset).toBe(2);
});

test('reading is held back while too much waits, and let go as it fires', async () => {
  const { member, tools } = await stage({ concurrency: 1 });
  await give(member);
  const gates: Gate<unknown>[] = [];
  tools.act = () => {
    const gate = new Gate<unknown>();
    gates.push(gate);
    return gate.passed;
  };
  const many = Array.from({ length: 2100 }, (_, index) => task({ seq: index + 1, effect: 'pure', tool: 'look' }));
  const records = many.map((record, offset): LogRecord => ({ ...record, topic: TASKS, lane: 0, offset, time: 0 }));
  let held = true;
  const membership = member.membership ?? { memberId: '', generation: 0 };
  void member.handlers.onRecords(records, membership).then(() => (held = false));
  await settle();
  expect(held).toBe(true);
  tools.act = () => ({});
  gates[0]?.open({});
  await until(() => !held, 'reading goes on');
});

test('a rebalance lets go of what was held back', async () => {
  const { member, tools } = await stage({ concurrency: 1 });
  await give(member);
  tools.act = () => new Promise(() => undefined);
  const records = Array.from({ length: 2100 }, (_, offset): LogRecord => ({ ...task({ seq: offset + 1, effect: 'pure', tool: 'look' }), topic: TASKS, lane: 0, offset, time: 0 }));
  const done = member.handlers.onRecords(records, member.membership ?? { memberId: '', generation: 0 });
  member.revoke();
  await done;
});

test('records of another generation than the present are not touched', async () => {
  const { member, tools, broker } = await stage();
  await give(member);
  await member.handlers.onRecords([{ ...task({ seq: 1 }), topic: TASKS, lane: 0, offset: 0, time: 0 }], { memberId: 'worker-a', generation: 0 });
  await settle();
  expect(tools.fired).toEqual([]);
  expect(broker.commits).toEqual([]);
});

test('after a crash of the member the worker joins again, with growing pauses', async () => {
  const { member, clock } = await stage();
  await give(member);
  member.onRejoin = () => undefined;
  member.handlers.onCrash(new Error('retries exhausted'));
  await settle();
  expect(member.rejoins).toBe(1);
  member.handlers.onCrash(new Error('retries exhausted'));
  await settle();
  expect(member.rejoins).toBe(1);
  await clock.advance(500);
  expect(member.rejoins).toBe(2);
});

test('two tools of one name and version are refused', async () => {
  const { tools } = await stage();
  tools.definitions.push(tools.tool('pay'));
  await expect(stage({ tools })).rejects.toThrow(/tool pay@1 is given twice/);
});

test('a task for a tool that is not hosted here is reported as not applied, an irreversible one after its commit', async () => {
  const { broker, member, report } = await stage();
  await give(member);
  broker.append(TASKS, 0, task({ seq: 1, version: '2' }));
  await until(() => report(1).length === 1, 'the report');
  expect(report(1)).toMatchObject([{ status: 'failed', failure: { class: 'transient', notApplied: true, message: expect.stringMatching(/does not host pay@2/) } }]);
  expect(broker.commits).toHaveLength(1);
});

test('a foreign message on run.tasks is set aside too', async () => {
  const { broker, member, log } = await stage();
  await give(member);
  broker.append(RUNS, 0, fromService('x', RUN, { type: 'RunGranted', data: {} }, { lane: 0, seq: 1, prev: 0 }));
  await until(() => log.alarms.length === 1, 'of a service\'s message that can\'t be understood it is told');
  broker.append(RUNS, 1, { key: 'x', headers: { ce_type: 'RunGranted' }, value: '{}' });
  await until(() => broker.sent('DeadLetter').length === 1, 'a foreign one does not');
  expect(log.alarms).toHaveLength(1);
});
