import { expect, test } from '@jest/globals';
import { Gate, give, LEDGER, RUN, settle, stage, task, TASKS, until, type Stage, type StageOptions } from './kit.js';
import { AGENT, fromOrchestrator, granted, localCall, TestRuns, type Answer } from './run-kit.js';

async function open(options: StageOptions = {}): Promise<Stage> {
  const made = await stage(options);
  await give(made.member);
  return made;
}

/** What happens, in order. */
function order(made: Stage): string[] {
  const events: string[] = [];
  const { member, broker } = made;
  const stop = member.stop;
  member.stop = () => {
    events.push('left');
    return stop();
  };
  broker.onPublish = (records) => void events.push(...records.map(({ headers }) => String(headers['ce_type'])));
  broker.writer.close = () => {
    events.push('closed');
    return Promise.resolve();
  };
  return events;
}

test('with nothing in flight it leaves at once', async () => {
  const made = await open();
  const events = order(made);
  await made.worker.stop(10_000);
  expect(events).toEqual(['WorkerSeen', 'left', 'closed']);
});

test('what fired may end, its result is written, then the group is left, then the writer closed; nothing new fires', async () => {
  const made = await open({ irreversibleConcurrency: 1 });
  const { broker, tools, worker, report } = made;
  const end = new Gate<unknown>();
  tools.act = () => end.passed;
  broker.append(TASKS, 0, task({ seq: 1 }), task({ seq: 2 }), task({ seq: 3, effect: 'pure', tool: 'look' }));
  await until(() => tools.fired.length === 2, 'in flight');
  const events = order(made);
  const stopped = worker.stop(10_000);
  broker.append(TASKS, 0, task({ seq: 4, effect: 'pure', tool: 'look' }));
  await settle();
  expect(events).toEqual([]);
  end.open({ ok: true });
  await stopped;
  expect(events).toEqual(['EffectReported', 'EffectReported', 'WorkerSeen', 'left', 'closed']);
  expect([...tools.fired].sort()).toEqual([1, 3]);
  expect(report(1)).toMatchObject([{ status: 'succeeded' }]);
});

test('the offset is saved before it leaves: the next holder begins with what did not fire', async () => {
  const { broker, tools, worker, report } = await open({ concurrency: 1 });
  const end = new Gate<unknown>();
  tools.act = ({ n }) => (n === 2 ? end.passed : {});
  broker.append(TASKS, 0, ...[1, 2, 3].map((seq) => task({ seq, effect: 'idempotent', tool: 'put' })));
  await until(() => tools.fired.length === 2, 'the second is in flight');
  const stopped = worker.stop(10_000);
  end.open({});
  await stopped;
  expect(report(2)).toHaveLength(1);
  expect(broker.committed.get(0)).toEqual({ offset: 2, metadata: JSON.stringify({ [LEDGER]: 2 }) });
});

test('after the grace time it goes, and tells the tools that listen', async () => {
  const { broker, tools, worker, clock, member, log } = await open();
  let signal: AbortSignal | undefined;
  tools.act = ({ context }) => {
    signal = context.signal;
    return new Promise(() => undefined);
  };
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => tools.fired.length === 1, 'in flight');
  const stopped = worker.stop(1000);
  await clock.advance(999);
  expect(member.left).toBe(false);
  await clock.advance(1);
  await stopped;
  expect(signal?.aborted).toBe(true);
  expect(member.left).toBe(true);
  expect(log.warnings.some((warning) => warning.includes('grace time is over'))).toBe(true);
});

test('a commit that is answered after the stop began fires nothing; it is reported as not applied', async () => {
  const { broker, tools, worker, report } = await open();
  const answer = new Gate();
  broker.commitEnds = async (_, apply) => {
    await answer.passed;
    return apply();
  };
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => broker.commits.length === 1, 'the commit');
  const stopped = worker.stop(10_000);
  await settle();
  answer.open();
  await stopped;
  expect(tools.fired).toEqual([]);
  expect(report(1)).toMatchObject([{ status: 'failed', failure: { notApplied: true } }]);
});

test('a local effect that fired may end and is recorded by its run; a new one does not fire; then the runs are given up', async () => {
  const runs = new TestRuns();
  const { broker, tools, worker } = await open({ agents: [AGENT], execute: runs.execute });
  fromOrchestrator(broker, 0, granted(1));
  await until(() => runs.all.length === 1, 'the run');
  const end = new Gate<unknown>();
  tools.act = () => end.passed;
  const { port, grant } = runs.last;
  const answers: Answer[] = [];
  void port.fireLocal(localCall(tools, 'put', 1)).then((answer) => {
    answers.push(answer);
    void port.intend(RUN, grant.tenant, [{ type: 'ReportSteps', data: {} }]);
  });
  await settle();
  const stopped = worker.stop(10_000);
  await settle();
  expect(runs.last.abandoned).toBeUndefined();
  void port.fireLocal(localCall(tools, 'put', 2)).then((answer) => answers.push(answer));
  await settle();
  expect(answers).toEqual(['lease_lost']);
  end.open({});
  await stopped;
  expect(tools.fired).toEqual([1]);
  expect(answers[1]).toMatchObject({ step: '1' });
  expect(broker.sent('ReportSteps')).toHaveLength(1);
  expect(runs.last.abandoned).toBeDefined();
});

test('Kafka that does not answer holds the stop up for a bounded time only', async () => {
  const { broker, tools, worker, clock, member } = await open();
  broker.onPublish = () => new Promise(() => undefined);
  broker.append(TASKS, 0, task({ seq: 1 }));
  await until(() => tools.fired.length === 1, 'it fires');
  let stopped = false;
  void worker.stop(1000).then(() => (stopped = true));
  await clock.advance(20_000);
  expect(stopped).toBe(true);
  expect(member.left).toBe(true);
});

test('stopping twice is one stop', async () => {
  const made = await open();
  const events = order(made);
  await Promise.all([made.worker.stop(10), made.worker.stop(10)]);
  expect(events).toEqual(['WorkerSeen', 'left', 'closed']);
});

test('nothing is left running: no timer keeps a stopped worker', async () => {
  const { worker, clock, member } = await open();
  await worker.stop(1000);
  await clock.advance(600_000);
  expect(member.rejoins).toBe(0);
});
