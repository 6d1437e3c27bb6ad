import { beforeEach, expect, test } from '@jest/globals';
import { Gate, give, settle, stage, task, TASKS, until, type Stage } from './kit.js';
import { AGENT, fromOrchestrator, granted, localCall, TestRuns, type Answer } from './run-kit.js';

/* Local firing: the hold on the lane is looked at last thing before the call. Session 6000 ms, margin 1500 ms. */

let made: Stage;
let runs: TestRuns;

beforeEach(async () => {
  runs = new TestRuns();
  made = await stage({ agents: [AGENT], execute: runs.execute, concurrency: 1 });
  await give(made.member);
  fromOrchestrator(made.broker, 0, granted(1));
  await until(() => runs.all.length === 1, 'the run is granted');
});

/** Fires, and notes the answer when it comes. */
function fire(tool: string, n: number, fence = 1): { answer: Answer | undefined } {
  const noted: { answer: Answer | undefined } = { answer: undefined };
  void runs.last.port.fireLocal(localCall(made.tools, tool, n, fence)).then((answer) => (noted.answer = answer));
  return noted;
}

test('a local effect fires at once while the hold is fresh, without any commit, and the report goes to its run alone', async () => {
  const fired = fire('put', 1);
  expect(made.tools.fired).toEqual([1]); // In the same turn: nothing is waited for.
  await settle();
  expect(fired.answer).toEqual({ step: '1', attempt: 1, outcome: expect.objectContaining({ status: 'succeeded', result: { value: { done: 1 } } }) });
  expect(made.broker.commits).toEqual([]);
  expect(made.broker.sent('EffectReported')).toEqual([]);
  expect(made.tools.calls[0]?.context).toMatchObject({ attempt: 1, fence: 1, deadline: made.clock.now() + 30_000 });
});

test('fresh means: the last answered heartbeat was sent less than the session less its margin ago', async () => {
  await made.clock.advance(4499);
  expect(fire('put', 1)).toBeDefined();
  expect(made.tools.fired).toEqual([1]);
  await settle();
  await made.clock.advance(1);
  const stale = fire('put', 2);
  await settle();
  expect(made.tools.fired).toEqual([1]);
  made.member.heartbeatSentAt = made.clock.now();
  await made.clock.advance(50);
  expect(stale.answer).toMatchObject({ step: '2' });
});

test('a paused process that wakes after its session fires nothing until it is heard again', async () => {
  await made.clock.advance(60_000); // SIGSTOP, SIGCONT: no heartbeat went out meanwhile.
  const woken = fire('put', 1);
  await settle();
  expect(made.tools.fired).toEqual([]);
  // Its first heartbeat is answered with "unknown member": the group has given the lane away.
  made.broker.rebalance(new Map([[made.member, [1]]]));
  await made.clock.advance(50);
  expect(woken.answer).toBe('lease_lost');
  expect(made.tools.fired).toEqual([]);
  expect(runs.last.abandoned).toMatch(/went to another worker/);
});

test('a new generation whose first heartbeat is not answered yet is not fresh', async () => {
  made.member.heartbeatSentAt = null;
  const waiting = fire('put', 1);
  await made.clock.advance(1000);
  expect(made.tools.fired).toEqual([]);
  made.member.heartbeatSentAt = made.clock.now();
  await made.clock.advance(50);
  expect(waiting.answer).toMatchObject({ step: '1' });
});

test('a worker that distrusts its membership fires nothing, though heartbeats are answered', async () => {
  const { broker, member, clock, tools } = made;
  member.onRejoin = () => undefined;
  broker.commitEnds = () => 'unknown';
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => member.rejoins === 1, 'it joins again');
  member.heartbeatSentAt = clock.now();
  fire('put', 2);
  await clock.advance(1000);
  expect(tools.fired).toEqual([]);
});

test('during a rebalance nothing fires; when the lane has stayed, it does', async () => {
  const { member, clock, broker } = made;
  member.revoke();
  const waiting = fire('put', 1);
  await clock.advance(500);
  expect(made.tools.fired).toEqual([]);
  expect(waiting.answer).toBeUndefined();
  broker.rebalance(new Map([[member, [0, 1]]]));
  await clock.advance(50);
  expect(waiting.answer).toMatchObject({ step: '1' });
  expect(runs.last.abandoned).toBeUndefined();
});

test('a lane that came back newly taken: the run of before is lost', async () => {
  const { member, clock, broker } = made;
  member.revoke();
  const waiting = fire('put', 1);
  broker.rebalance(new Map([[member, [0, 1]]]), false);
  await clock.advance(50);
  expect(waiting.answer).toBe('lease_lost');
  expect(made.tools.fired).toEqual([]);
});

test('heartbeats that stay unanswered for a session make the worker join anew, and the run is given up', async () => {
  const { member, clock } = made;
  await clock.advance(5000);
  const waiting = fire('put', 1);
  await clock.advance(5900);
  expect(member.rejoins).toBe(0);
  await clock.advance(200);
  expect(member.rejoins).toBe(1);
  expect(waiting.answer).toBe('lease_lost');
  expect(made.tools.fired).toEqual([]);
  expect(runs.last.abandoned).toBeDefined();
});

test('the hold is looked at after waiting for room, not before', async () => {
  const { tools, member, clock } = made;
  const busy = new Gate<unknown>();
  tools.act = ({ n }) => (n === 1 ? busy.passed : {});
  fire('put', 1);
  const waiting = fire('put', 2);
  await clock.advance(5000);
  busy.open({});
  await settle();
  expect(tools.fired).toEqual([1]);
  member.heartbeatSentAt = clock.now();
  await clock.advance(50);
  expect(tools.fired).toEqual([1, 2]);
  expect(waiting.answer).toMatchObject({ step: '2' });
});

test('a stale fence fires nothing', async () => {
  const before = runs.last;
  fromOrchestrator(made.broker, 0, granted(2));
  await until(() => runs.all.length === 2, 'granted again');
  expect(before.abandoned).toMatch(/granted again/);
  const stale = fire('put', 1, 1);
  await settle();
  expect(stale.answer).toBe('lease_lost');
  expect(fire('put', 2, 2)).toBeDefined();
  expect(made.tools.fired).toEqual([2]);
});

test('an irreversible tool never fires locally', async () => {
  await expect(runs.last.port.fireLocal(localCall(made.tools, 'pay', 1))).rejects.toThrow(/fires only when the ledger grants it/);
  expect(made.tools.fired).toEqual([]);
});

test('a tool that throws is called once (C01), and the ledger alone retries', async () => {
  made.tools.act = () => {
    throw new Error('503');
  };
  const fired = fire('put', 1);
  await settle();
  expect(fired.answer).toMatchObject({ outcome: { status: 'failed', failure: { class: 'transient' } } });
  expect(made.tools.fired).toEqual([1]);
});
