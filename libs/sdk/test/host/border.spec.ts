import { expect, test } from '@jest/globals';
import type { CommitEnd } from '@holdfast/runtime';
import { Gate, give, LEDGER, settle, stage, task, TASKS, TestBroker, TestClock, until, type SentCommit, type Stage } from './kit.js';

/* Section 6.1: what a host must do before, and must never do after, each of which some interleaving proves. */

/** Holds every commit until the test says how it ends. */
function heldCommits(broker: TestBroker): { commit: SentCommit; end: (end?: CommitEnd) => void }[] {
  const held: { commit: SentCommit; end: (end?: CommitEnd) => void }[] = [];
  broker.commitEnds = (commit, apply) => {
    const gate = new Gate<CommitEnd>();
    held.push({ commit, end: (end) => gate.open(end ?? apply()) });
    return gate.passed;
  };
  return held;
}

async function open(options: Parameters<typeof stage>[0] = {}): Promise<Stage> {
  const made = await stage(options);
  await give(made.member);
  return made;
}

test('an irreversible task fires after its commit was accepted, not before; the commit names it and what was seen with it', async () => {
  const { broker, tools, report } = await open();
  const held = heldCommits(broker);
  broker.append(TASKS, 0, task({ seq: 1 }));
  await settle();
  expect(tools.fired).toEqual([]);
  expect(held.map(({ commit }) => commit)).toEqual([{ membership: { memberId: 'worker-a', generation: 1 }, lane: 0, offset: 1, metadata: JSON.stringify({ [LEDGER]: 1 }) }]);
  held[0]?.end();
  await until(() => report(1).length === 1, 'the report');
  expect(tools.fired).toEqual([1]);
  expect(report(1)).toMatchObject([{ status: 'succeeded', result: { value: { done: 1 } } }]);
});

test('the commit carries the membership under which the task was polled, whatever the member has become meanwhile', async () => {
  const { broker, tools, member, log } = await open({ irreversibleConcurrency: 1 });
  const busy = new Gate<unknown>();
  tools.act = () => busy.passed;
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }));
  await until(() => tools.fired.length === 1, 'the first fires');
  const before = broker.commits.length;
  broker.rebalance(new Map([[member, [0, 1]]]));
  busy.open({});
  await until(() => tools.fired.length === 2, 'the second was polled again and fires');
  expect(broker.commits.slice(before).map(({ membership, offset }) => [membership.generation, offset])).toEqual([[2, 2]]);
  expect(log.alarms).toEqual([]);
});

/* ---- rule 1: one commit in flight for each partition, never a lower offset; an unknown end stops all until a new generation ---- */

test('rule 1: while a commit is in flight the lane sends no other; offsets only rise', async () => {
  const { broker, tools } = await open();
  const held = heldCommits(broker);
  broker.append(TASKS, 0, task({ seq: 1 }));
  await settle();
  broker.append(TASKS, 0, task({ seq: 2 }), task({ seq: 3 }));
  await settle();
  expect(held).toHaveLength(1);
  held[0]?.end();
  await until(() => held.length === 2, 'the second commit');
  expect(held[1]?.commit.offset).toBe(3);
  held[1]?.end();
  await until(() => tools.fired.length === 3, 'all fire');
  expect(tools.fired).toEqual([1, 2, 3]);
});

test('rule 1: another lane is not held up by it', async () => {
  const { broker, tools } = await open();
  const held = heldCommits(broker);
  broker.append(TASKS, 0, task({ seq: 1 }));
  broker.append(TASKS, 1, task({ seq: 2, lane: 1, prev: 0 }));
  await until(() => held.length === 2, 'a commit for each lane');
  held[1]?.end();
  await until(() => tools.fired.length === 1, 'the second lane fires');
  expect(tools.fired).toEqual([2]);
});

test('rule 1: after a commit whose end is unknown nothing fires or is committed, in no lane, until it has joined anew', async () => {
  const { broker, tools, member, report } = await open();
  const held = heldCommits(broker);
  const joined = new Gate();
  const rejoin = member.onRejoin;
  member.onRejoin = () => void joined.passed.then(rejoin);
  broker.append(TASKS, 0, task({ seq: 1 }));
  broker.append(TASKS, 1, task({ seq: 2, lane: 1, prev: 0 }));
  await until(() => held.length === 2, 'both commits');
  held[0]?.end('unknown');
  await until(() => member.rejoins === 1, 'it leaves and joins again');
  held[1]?.end('accepted');
  broker.append(TASKS, 0, task({ seq: 3 }));
  await settle();
  expect(tools.fired).toEqual([]);
  expect(held).toHaveLength(2);
  // Of the ambiguous one nothing is said; whoever has an accepted commit may say that it did not fire.
  expect(report(1)).toEqual([]);
  expect(report(2)).toMatchObject([{ status: 'failed', failure: { class: 'transient', notApplied: true } }]);
  broker.commitEnds = undefined;
  joined.open();
  await until(() => tools.fired.length > 0, 'the new generation fires');
  expect(broker.commits.slice(2).every(({ membership }) => membership.generation === 2)).toBe(true);
});

test('rule 1: an ambiguous commit that was applied after all is not fired again, and the announcement tells that it was taken', async () => {
  const { broker, tools } = await open();
  broker.commitEnds = (_, apply) => {
    broker.commitEnds = undefined;
    apply();
    return 'unknown';
  };
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => broker.sent('AnnounceLane').length === 4, 'both lanes are announced again');
  broker.append(TASKS, 0, task({ seq: 2 }));
  await until(() => tools.fired.length > 0, 'the next task');
  expect(tools.fired).toEqual([2]);
  expect(broker.sent('AnnounceLane').filter(({ lane }) => lane === 0)[1]).toMatchObject({ taken: { [LEDGER]: 1 } });
});

test('rule 1: a commit that throws counts as unknown', async () => {
  const { broker, tools, member } = await open();
  broker.commitEnds = () => {
    broker.commitEnds = undefined;
    return Promise.reject(new Error('connection lost'));
  };
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => member.rejoins === 1, 'it joins again');
  await until(() => tools.fired.length === 1, 'polled again under the new generation');
  expect(broker.commits.map(({ membership }) => membership.generation)).toEqual([1, 2]);
});

/* ---- rule 2: a commit covers only what fires right now ---- */

test('rule 2: a commit covers no more tasks than may fire at once; the next follows as room comes', async () => {
  const { broker, tools } = await open({ irreversibleConcurrency: 2 });
  const gates: Gate<unknown>[] = [];
  tools.act = () => {
    const gate = new Gate<unknown>();
    gates.push(gate);
    return gate.passed;
  };
  broker.append(TASKS, 0, ...[1, 2, 3, 4, 5].map((seq) => task({ seq })));
  await until(() => tools.fired.length === 2, 'two fire');
  await settle();
  expect(broker.commits.map(({ offset }) => offset)).toEqual([2]);
  gates[0]?.open({});
  await until(() => tools.fired.length === 3, 'a third fires');
  expect(broker.commits.map(({ offset }) => offset)).toEqual([2, 3]);
  expect(broker.committed.get(0)?.metadata).toBe(JSON.stringify({ [LEDGER]: 3 }));
});

test('rule 2: lanes share the bound', async () => {
  const { broker, tools } = await open({ irreversibleConcurrency: 2 });
  tools.act = () => new Promise(() => undefined);
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }));
  broker.append(TASKS, 1, task({ seq: 3, lane: 1, prev: 0 }), task({ seq: 4, lane: 1 }));
  await settle();
  expect(tools.fired).toHaveLength(2);
});

test('rule 2: idempotent tasks before it have begun or are passed over; they hold no commit up', async () => {
  const { broker, tools } = await open({ concurrency: 1 });
  tools.act = ({ name }) => (name === 'put' ? new Promise(() => undefined) : {});
  broker.append(TASKS, 0, task({ seq: 1, effect: 'idempotent', tool: 'put' }), task({ seq: 2, effect: 'idempotent', tool: 'put' }), task({ seq: 3 }));
  await until(() => tools.fired.includes(3), 'the irreversible one fires');
  expect(tools.fired).toEqual([1, 3]);
  expect(broker.commits.map(({ offset }) => offset)).toEqual([3]);
});

/* ---- rule 3: only the host with the accepted commit reports ---- */

test('rule 3: a refused commit fires nothing, says nothing, and drops the lane\'s tasks', async () => {
  const { broker, tools, member, report } = await open();
  broker.commitEnds = () => 'refused';
  member.onRejoin = () => undefined;
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2, notAfter: 1 }));
  await until(() => broker.commits.length === 1, 'the commit');
  await settle();
  expect(tools.fired).toEqual([]);
  expect(report(1)).toEqual([]);
  expect(report(2)).toEqual([]);
  expect(broker.commits).toHaveLength(1);
});

test('rule 3: a task that the ledger published twice fires once, and its duplicate is not reported', async () => {
  const { broker, tools, report } = await open();
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }), task({ seq: 1 }), task({ seq: 2 }), task({ seq: 3 }));
  await until(() => tools.fired.length === 3, 'three fire');
  await settle();
  expect(tools.fired).toEqual([1, 2, 3]);
  expect([1, 2, 3].map((n) => report(n).length)).toEqual([1, 1, 1]);
});

test('rule 3: a republished task stays a duplicate after the lane has gone to another host, by the metadata alone', async () => {
  const first = await open({ name: 'worker-a' });
  const { broker } = first;
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }));
  await until(() => first.tools.fired.length === 2, 'both fire');
  const second = await stage({ broker, name: 'worker-b' });
  broker.rebalance(new Map([[first.member, [1]], [second.member, [0]]]));
  await until(() => second.member.isOpen(TASKS, 0), 'the lane is open there');
  broker.append(TASKS, 0, task({ seq: 2 }), task({ seq: 3 }));
  await until(() => second.tools.fired.length === 1, 'the new one fires');
  expect(second.tools.fired).toEqual([3]);
  expect(broker.sent('AnnounceLane').filter(({ worker }) => worker === 'worker-b')).toMatchObject([{ lane: 0, taken: { [LEDGER]: 2 } }]);
});

test('rule 3: a task redelivered after a rebalance that left the lane here fires once', async () => {
  const { broker, tools, member, report } = await open();
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => report(1).length === 1, 'it fires');
  broker.rebalance(new Map([[member, [0, 1]]]));
  await settle();
  member.open([{ topic: TASKS, lane: 0, offset: 0 }]); // Delivered from the beginning once more.
  await settle();
  expect(tools.fired).toEqual([1]);
  expect(report(1)).toHaveLength(1);
});

test('rule 3: sources are counted apart: the same number of another source is another task', async () => {
  const { broker, tools } = await open();
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 1, prev: 0, source: 'holdfast/ledger/i2', args: { n: 7 } }));
  await until(() => tools.fired.length === 2, 'both fire');
  expect(tools.fired).toEqual([1, 7]);
  expect(broker.committed.get(0)?.metadata).toBe(JSON.stringify({ [LEDGER]: 1, 'holdfast/ledger/i2': 1 }));
});

/* ---- rule 4: notAfter is absolute and checked after the commit, last thing before the call ---- */

test('rule 4: past notAfter nothing fires, and whoever has the accepted commit says so', async () => {
  const { broker, tools, clock, report } = await open();
  const held = heldCommits(broker);
  broker.append(TASKS, 0, task({ seq: 1, notAfter: clock.now() + 50 }), task({ seq: 2, notAfter: clock.now() + 51 }));
  await until(() => held.length === 1, 'the commit');
  await clock.advance(51); // Passes while the commit is on its way.
  held[0]?.end();
  await until(() => report(1).length === 1, 'the report');
  expect(tools.fired).toEqual([2]);
  expect(report(1)).toMatchObject([{ status: 'failed', failure: { class: 'expired', notApplied: true }, evidence: { kind: 'host' } }]);
});

test('rule 4: it is looked at after slow checks of the arguments too', async () => {
  const { broker, tools, clock, report } = await open();
  const checked = new Gate<boolean>();
  const pay = tools.tool('pay');
  Object.assign(pay, { input: pay.input.refine(() => checked.passed) });
  broker.append(TASKS, 0, task({ seq: 1, notAfter: clock.now() + 50 }));
  await settle();
  await clock.advance(51);
  checked.open(true);
  await until(() => report(1).length === 1, 'the report');
  expect(tools.fired).toEqual([]);
  expect(report(1)).toMatchObject([{ failure: { class: 'expired' } }]);
});

/* ---- rule 5: the metadata is a cache ---- */

test.each(['', 'not json', '[1]', '{"holdfast/ledger/i1":"2"}'])('rule 5: absent or unreadable metadata (%j) is rebuilt from the partition up to the committed offset', async (metadata) => {
  const clock = new TestClock();
  const broker = new TestBroker(clock);
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }), task({ seq: 2 }), task({ seq: 3 }));
  broker.committed.set(0, { offset: 2, metadata });
  const { tools } = await open({ broker });
  await until(() => tools.fired.length === 1, 'what lies beyond fires');
  await settle();
  expect(tools.fired).toEqual([3]);
  expect(broker.sent('AnnounceLane').find(({ lane }) => lane === 0)).toMatchObject({ taken: { [LEDGER]: 2 } });
});

test('rule 5: an offset below the first that is kept, or above the last, stops the lane with an alarm; it is not announced', async () => {
  const broker = new TestBroker(new TestClock());
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }));
  broker.firstOffset.set(0, 1);
  broker.committed.set(0, { offset: 0, metadata: '{}' });
  broker.committed.set(1, { offset: 5, metadata: '{}' });
  const made = await stage({ broker });
  broker.rebalance(new Map([[made.member, [0, 1]]]));
  await until(() => made.log.alarms.length === 2, 'the alarms');
  await settle();
  expect(made.log.alarms[0]).toMatch(/lane 0 .* offset 0 is outside of what the topic holds \(1 to 2\)/);
  expect(made.tools.fired).toEqual([]);
  expect(broker.sent('AnnounceLane')).toEqual([]);
});

/* ---- once a rebalance begins, every unfired task is dropped ---- */

test('a rebalance between a commit and its answer: the task does not fire, and is reported as not applied once the commit proves accepted', async () => {
  const { broker, tools, member, report } = await open();
  const held = heldCommits(broker);
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => held.length === 1, 'the commit');
  member.revoke();
  held[0]?.end();
  await settle();
  expect(tools.fired).toEqual([]);
  expect(report(1)).toMatchObject([{ status: 'failed', failure: { class: 'transient', notApplied: true }, evidence: { kind: 'host' } }]);
});

test('a rebalance between a commit and its refusal: nothing fires, nothing is said; the next holder fires it', async () => {
  const first = await open({ name: 'worker-a' });
  const { broker } = first;
  const held = heldCommits(broker);
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => held.length === 1, 'the commit');
  const second = await stage({ broker, name: 'worker-b' });
  broker.commitEnds = undefined;
  broker.rebalance(new Map([[first.member, [1]], [second.member, [0]]]));
  held[0]?.end(); // Of an old generation: the broker refuses it.
  await until(() => second.tools.fired.length === 1, 'the new holder fires');
  await settle();
  expect(first.tools.fired).toEqual([]);
  expect(first.report(1)).toHaveLength(1);
});

test('a zombie that has not noticed its replacement fires nothing', async () => {
  const first = await open({ name: 'worker-a' });
  const { broker } = first;
  const second = await stage({ broker, name: 'worker-b' });
  // The group goes on without the first, which is told nothing: it still believes in its generation.
  broker.rebalance(new Map([[second.member, [0, 1]]]));
  await until(() => second.member.isOpen(TASKS, 0), 'the second holds the lane');
  first.member.onRejoin = () => undefined;
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => second.tools.fired.length === 1, 'the second fires');
  await settle();
  expect(first.tools.fired).toEqual([]);
  expect(first.report(1)).toHaveLength(1);
  expect(broker.commits.map(({ membership }) => [membership.memberId, membership.generation])).toEqual(expect.arrayContaining([['worker-a', 1], ['worker-b', 2]]));
});

test('what was dropped in a rebalance that left the lane here is polled again, and fires once', async () => {
  const { broker, tools, member } = await open({ irreversibleConcurrency: 1, concurrency: 1 });
  const first = new Gate<unknown>();
  tools.act = ({ n }) => (n === 1 || n === 3 ? first.passed : {});
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }), task({ seq: 3, effect: 'pure', tool: 'look' }), task({ seq: 4, effect: 'pure', tool: 'look' }), task({ seq: 5 }));
  await until(() => tools.fired.length === 2, 'one of each kind is in flight');
  broker.rebalance(new Map([[member, [0, 1]]]));
  await settle();
  expect(tools.fired).toEqual([3, 1]);
  first.open({});
  await until(() => tools.fired.length === 5, 'the others fire');
  await settle();
  expect([...tools.fired].sort()).toEqual([1, 2, 3, 4, 5]);
  expect(broker.sent('AnnounceLane')).toHaveLength(2); // A lane that stays is not announced again.
});

test.each(['unknown', 'thrown'])('a lane that stays, but whose last commit has an unknown end (%s), is taken anew', async (how) => {
  const { broker, tools, member } = await open();
  const held: { end: () => void }[] = [];
  broker.commitEnds = () => {
    const gate = new Gate<CommitEnd>();
    held.push({ end: () => (how === 'unknown' ? gate.open('unknown') : gate.fail(new Error('connection lost'))) });
    return gate.passed;
  };
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => held.length === 1, 'the commit');
  broker.commitEnds = undefined;
  broker.rebalance(new Map([[member, [0, 1]]]));
  await settle();
  expect(tools.fired).toEqual([]);
  held[0]?.end();
  await until(() => tools.fired.length === 1, 'it was not applied: polled again, it fires');
  expect(broker.sent('AnnounceLane').map(({ lane }) => lane)).toEqual([0, 1, 0]);
  expect(member.rejoins).toBe(0);
});
