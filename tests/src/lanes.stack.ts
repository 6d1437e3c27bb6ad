import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { createDatabase, databaseUrl } from '@holdfast/deploy';
import { topics } from '@holdfast/protocol';
import { chainHash, openDatabase, PgStore, type JournalRow, type LaneWrite, type Progress } from '@holdfast/runtime';
import type { ServedWorker } from '@holdfast/sdk';
import getPort from 'get-port';
import { eventually } from './support/eventually.js';
import { STACK_LIMIT_MS, TestStack, type ServiceName } from './support/stack.js';
import { countingTool, work, type Firing } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

let stack: TestStack;
let worker: ServedWorker | undefined;
const firings: Firing[] = [];

beforeAll(async () => {
  stack = await TestStack.start();
  worker = await work(stack.brokers, { tools: [countingTool('pay', 'irreversible', firings)] });
  await Promise.all(stack.lanes.map((lane) => stack.goodRun(stack.runOn(lane, 'first'), 'pay')));
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

describe('a lane in the store', () => {
  const stores: PgStore[] = [];

  async function openStore(database: string): Promise<PgStore> {
    const store = new PgStore(await openDatabase({ url: databaseUrl(stack.stack.databaseUrl, database), applicationName: 'lanes' }));
    stores.push(store);
    return store;
  }

  afterAll(() => Promise.all(stores.map((store) => store.close())));

  const rowOf = (lane: number, seq: number): JournalRow => {
    const link = { stream: `run-${lane}-${seq}`, version: 1, type: 'RunAccepted', time: 1, tenant: 'default', data: '{"nul":"\\u0000","half":"\\ud800"}' };
    return { ...link, lane, seq, topic: topics.runEvents, prev: seq - 1, hash: chainHash('', link), trace: null };
  };
  const writeOf = (at: Progress, shared: LaneWrite['shared'] = []): LaneWrite => ({
    progress: { ...at, offsets: { [topics.agentIntents]: at.nextSeq }, nextSeq: at.nextSeq + 1 },
    expectedNextSeq: at.nextSeq,
    rows: [rowOf(at.lane, at.nextSeq)],
    agenda: [{ stream: `run-${at.lane}-${at.nextSeq}`, open: true, dueAt: null, tag: null }],
    shared,
  });
  const of = (taken: readonly Progress[], lane: number): Progress => {
    const found = taken.find((progress) => progress.lane === lane);
    if (found === undefined) throw new Error(`lane ${lane} was not taken`);
    return found;
  };

  async function twoHolders(name: string) {
    await createDatabase(stack.stack.databaseUrl, name);
    const [first, second] = [await openStore(name), await openStore(name)];
    return { first, second, mine: await first.takeLanes([0, 1]) };
  }

  test('that another instance has taken gets nothing from the one before, whose other lanes are written', async () => {
    const { first, second, mine } = await twoHolders('lanes_epoch');
    const theirs = await second.takeLanes([1]);
    expect(of(theirs, 1).epoch).toBe(of(mine, 1).epoch + 1);

    expect(await first.append(mine.map((progress) => writeOf(progress)))).toEqual(new Set([0]));
    expect(await second.rowsAfter(0, 0, 10)).toEqual([rowOf(0, 1)]);
    expect(await second.rowsAfter(1, 0, 10)).toEqual([]);
    expect(await second.openStreams(1)).toEqual([]);
    expect(await second.append(theirs.map((progress) => writeOf(progress)))).toEqual(new Set([1]));
    // Marks without rows are refused as well.
    expect(await first.append([{ ...writeOf(of(mine, 1)), rows: [], agenda: [] }])).toEqual(new Set());
  });

  test('is written once when the answer to a commit is lost', async () => {
    const { first, second, mine } = await twoHolders('lanes_answer');
    const writes = mine.map((progress) => writeOf(progress));
    expect(await first.append(writes)).toEqual(new Set([0, 1]));
    expect(await first.append(writes)).toEqual(new Set());
    expect(await first.rowsAfter(0, 0, 10)).toEqual([rowOf(0, 1)]);
    const [again] = await second.takeLanes([0]);
    expect(again).toMatchObject({ nextSeq: 2, offsets: { [topics.agentIntents]: 1 } });
  });

  test('under a lock is written with all the others or not at all', async () => {
    const { first, second, mine } = await twoHolders('lanes_lock');
    const locked = await first.lock(['k']);
    await second.takeLanes([1]);
    expect(await locked.commit(mine.map((progress) => writeOf(progress, [{ key: 'k', data: `${progress.lane}` }])))).toEqual(new Set());
    expect(await second.rowsAfter(0, 0, 10)).toEqual([]);
    const free = await second.lock(['k']);
    expect(free.rows.get('k')).toBeNull();
    await free.rollback();
  });

  test('has the last word on a shared row when two lanes write it under one lock', async () => {
    const { first, mine } = await twoHolders('lanes_shared');
    const locked = await first.lock(['k']);
    expect(await locked.commit(mine.map((progress) => writeOf(progress, [{ key: 'k', data: `${progress.lane}` }])))).toEqual(new Set([0, 1]));
    const after = await first.lock(['k']);
    expect(after.rows.get('k')).toBe(String(mine.at(-1)?.lane));
    await after.rollback();
  });
});

describe('a service that is killed', () => {
  const points: readonly { readonly at: string; readonly service: ServiceName }[] = [
    { at: 'orchestrator.before-commit', service: 'orchestrator' },
    { at: 'orchestrator.after-commit', service: 'orchestrator' },
    { at: 'orchestrator.after-publish', service: 'orchestrator' },
    { at: 'ledger.before-commit', service: 'ledger' },
    { at: 'ledger.after-commit', service: 'ledger' },
    { at: 'ledger.after-publish', service: 'ledger' },
  ];

  test.each(points)('at $at loses and doubles nothing', async ({ at, service }) => {
    const victim = stack.service(service);
    await victim.restart({ HOLDFAST_CRASH_AT: at });
    const runs = stack.lanes.map((lane) => stack.runOn(lane, at));
    await Promise.all(
      runs.map(async (run) => {
        await stack.intent(run, 'StartRun', { agent: null, input: 1 });
        await stack.intent(run, 'CallTool', { step: '1', tool: { name: 'pay', version: '1' }, args: { amount: 1 } });
      }),
    );
    expect(await victim.exited).toMatchObject({ signal: 'SIGKILL' });
    const unpublished = await stack.rows<{ rest: number }>(service, 'select sum(next_seq - 1 - published)::int as rest from progress');
    if (!at.endsWith('before-commit')) expect(unpublished[0]?.rest).toBeGreaterThan(0);

    await victim.start({ HOLDFAST_CRASH_AT: undefined });
    for (const run of runs) {
      await stack.event(run, 'EffectSettled');
      await stack.finish(run);
      expect(stack.events(run).map(({ envelope }) => envelope.type)).toEqual(['RunAccepted', 'EffectRequested', 'EffectSettled', 'RunFinished']);
      expect(firings.filter((firing) => firing.run === run)).toHaveLength(1);
    }
    // What was committed and not published came first: every lane's rows stand in their order, without a gap.
    for (const topic of [topics.runEvents, topics.effectEvents]) {
      for (const lane of stack.lanes) {
        const rows = stack.seen.filter((record) => record.topic === topic && record.lane === lane);
        expect(rows.map(({ envelope }) => envelope.prev)).toEqual([0, ...rows.slice(0, -1).map(({ envelope }) => envelope.seq)]);
      }
    }
    expect(await stack.halts()).toEqual([]);
  });
});

test('missing offsets halt their lane, and readiness says so; nothing is decided there, and the other lanes go on', async () => {
  const lane = 2;
  const instance = stack.service('orchestrator');
  await instance.stop();
  const lost = stack.runOn(lane, 'lost');
  const place = await stack.intent(lost, 'StartRun', { agent: null, input: 1 });
  expect(place.lane).toBe(lane);
  const kept = stack.runOn(lane, 'kept');
  await stack.admin.fetchTopicOffsets(topics.agentIntents); // kafkajs knows only topics that it was asked about.
  await stack.admin.deleteTopicRecords({ topic: topics.agentIntents, partitions: [{ partition: lane, offset: String(place.offset + 1) }] });
  await stack.intent(kept, 'StartRun', { agent: null, input: 1 });
  const before = await stack.rows('orchestrator', 'select * from journal where lane = $1', [lane]);

  const port = await getPort();
  await instance.start({ HOLDFAST_HEALTH_PORT: String(port) });
  const ready = await eventually('the instance is not ready', async () => {
    const response = await fetch(`http://127.0.0.1:${port}/readyz`);
    return response.status === 503 ? ((await response.json()) as { problem: string }) : undefined;
  });

  expect(ready.problem).toMatch(/lane 2: .*agent\.intents\/2.*messages are missing/);
  expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200);
  expect(await stack.halts()).toEqual([expect.stringMatching(/messages are missing.*holdfast rebuild orchestrator --skip-missing/)]);
  await Promise.all(stack.lanes.filter((other) => other !== lane).map((other) => stack.goodRun(stack.runOn(other, 'after'), 'pay')));
  expect(await stack.rows('orchestrator', 'select * from journal where lane = $1', [lane])).toEqual(before);
  expect([...stack.events(lost), ...stack.events(kept)]).toEqual([]);
});
