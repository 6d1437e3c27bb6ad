import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import path from 'node:path';
import { writeFile } from 'node:fs/promises';
import { compare, explain, makeAnchor, readAnchor, showRun, verify } from '@holdfast/cli';
import { topics } from '@holdfast/protocol';
import { chainHash } from '@holdfast/runtime';
import type { ServedWorker } from '@holdfast/sdk';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { countingTool, work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

let stack: TestStack;
let worker: ServedWorker | undefined;
const RUN = 'audited';

const check = (anchor?: Parameters<typeof verify>[0]['anchor']) => verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl, ...(anchor === undefined ? {} : { anchor }) });

/** Does something to the orchestrator's journal, looks, and puts it back as it was. */
async function tampered(statement: string): Promise<Awaited<ReturnType<typeof verify>>> {
  const database = stack.database('orchestrator');
  await database.query('create table journal_kept as select * from journal');
  try {
    await database.query(statement, [RUN]);
    return await check();
  } finally {
    await database.query('truncate journal');
    await database.query('insert into journal select * from journal_kept');
    await database.query('drop table journal_kept');
  }
}

beforeAll(async () => {
  stack = await TestStack.start();
  worker = await work(stack.brokers, { tools: [countingTool('pay', 'irreversible', [])] });
  await stack.intent(RUN, 'StartRun', { agent: null, input: { for: RUN }, goal: 'pay once' });
  await stack.intent(RUN, 'CallTool', { step: '1', tool: { name: 'pay', version: '1' }, args: { amount: 1 } });
  await stack.intent(RUN, 'CallTool', { step: '1', tool: { name: 'pay', version: '1' }, args: { amount: 2 } });
  await stack.event(RUN, 'EffectSettled');
  await stack.finish(RUN);
  await stack.goodRun('another', 'pay');
  await worker.stop();
  await Promise.all(stack.stack.services.map((service) => service.stop()));
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('what nobody touched has no differences', async () => {
  const result = await check();
  expect(result.differences).toEqual([]);
  expect(result.streams).toBe(4 + stack.seen.filter(({ envelope }) => envelope.type === 'LaneTaken').length);
  expect(result.events).toBe(stack.seen.filter(({ topic }) => topic !== topics.deadLetters).length);
});

test('a changed row is found, by run and version', async () => {
  const { differences } = await tampered(`update journal set data = replace(data, '"amount":1', '"amount":9') where stream = $1 and type = 'EffectRequested'`);
  expect(differences).toEqual([{ topic: topics.runEvents, stream: RUN, problem: expect.stringMatching(/version 2 \(EffectRequested\) doesn't hash/) }]);
});

test('a row deleted from the middle is found', async () => {
  const { differences } = await tampered(`delete from journal where stream = $1 and topic = 'run.events' and version = 2`);
  expect(differences).toEqual([{ topic: topics.runEvents, stream: RUN, problem: expect.stringMatching(/doesn't hash|differ from version 2/) }]);
});

test('a row deleted from the end is found', async () => {
  const { differences } = await tampered(`delete from journal where stream = $1 and type = 'RunFinished'`);
  expect(differences).toEqual([{ topic: topics.runEvents, stream: RUN, problem: expect.stringMatching(/behind what was published/) }]);
});

test('an event that was acknowledged, and is gone from the topic, is found', async () => {
  const database = stack.database('orchestrator');
  const { rows } = await database.query("select * from journal where stream = $1 and topic = 'run.events' order by version desc limit 1", [RUN]);
  const last = rows[0] as { lane: number; version: string; hash: string; tenant: string };
  const row = { stream: RUN, version: Number(last.version) + 1, type: 'RunFinished', time: 1, tenant: last.tenant, data: '{}' };
  const seq = 1_000_000;
  const add = 'insert into journal (lane, seq, prev, topic, stream, version, type, time, tenant, hash, data) values ($1, $2, 0, $3, $4, $5, $6, $7, $8, $9, $10)';
  const published = 'update progress set published = published + $2 where lane = $1';
  await database.query(add, [last.lane, seq, topics.runEvents, RUN, row.version, row.type, row.time, row.tenant, chainHash(last.hash, row), row.data]);
  try {
    // Not published yet, it is the outbox's.
    expect((await check()).differences).toEqual([]);
    await database.query(published, [last.lane, seq]);
    expect((await check()).differences).toEqual([{ topic: topics.runEvents, stream: RUN, problem: expect.stringMatching(/lost an event that the broker had acknowledged, from version 6 \(RunFinished\)/) }]);
  } finally {
    await database.query('delete from journal where seq = $1', [seq]);
    await database.query(published, [last.lane, -seq]);
  }
});

test('a run is explained and shown from its events alone', async () => {
  expect(await explain(stack.brokers, 'another')).toEqual({
    run: 'another',
    phase: 'completed',
    steps: [{ step: '1', what: 'pay', effect: 'irreversible', origin: 'fresh', outcome: 'succeeded', attempts: 1 }],
    resumes: [],
    refused: {},
    doubledByNaiveRestart: null,
  });
  expect(await explain(stack.brokers, RUN)).toMatchObject({ refused: { operation_conflict: 1 } });
  expect(await showRun(stack.brokers, 'another')).toMatchObject({
    phase: 'completed',
    chain: 'intact',
    cursor: '1',
    unknown: [],
    next: null,
    ending: { status: 'completed', output: { value: 'done' } },
    steps: [{ step: '1', tool: 'pay@1', effect: 'irreversible', fire: 'granted', attempts: 1, outcome: { status: 'succeeded' } }],
  });
  expect(await showRun(stack.brokers, RUN)).toMatchObject({ goal: 'pay once', chain: 'intact' });
  expect(await explain(stack.brokers, 'never-was')).toBeNull();
  expect(await showRun(stack.brokers, 'never-was')).toBeNull();
});

test('a run is set beside another from their events alone', async () => {
  expect(await compare(stack.brokers, 'another', 'another')).toMatchObject({ alike: true, steps: [{ step: '1', run: { what: 'call pay@1' }, differs: [] }] });
  expect(await compare(stack.brokers, RUN, 'another')).toMatchObject({ alike: false, input: { differs: true }, steps: [{ step: '1', differs: [] }] });
  expect(await compare(stack.brokers, 'another', 'never-was')).toEqual({ missing: 'never-was' });
});

test('an event that no service wrote is found', async () => {
  const before = await check();
  await stack.send({ topic: topics.runEvents, key: RUN, type: 'RunFinished', value: '{}', headers: { ce_streamversion: '99', ce_hash: '0'.repeat(64) } });
  const { differences } = await check();
  expect(before.differences).toEqual([]);
  expect(differences.map(({ stream, problem }) => ({ stream, problem }))).toEqual(
    expect.arrayContaining([
      { stream: RUN, problem: expect.stringMatching(/version 99 follows version 5: events are missing/) },
      { stream: RUN, problem: expect.stringMatching(/RunFinished \(version 99\) doesn't hash/) },
    ]),
  );
  expect(differences.every(({ stream }) => stream === RUN)).toBe(true);
});

test('an anchor finds a cut head, and one that was changed after it was signed is refused', async () => {
  const file = path.join(stack.stack.dir, 'anchor.json');
  const key = path.join(stack.stack.dir, 'key.pem');
  const anchor = await makeAnchor(stack.brokers, key, new Date());
  await writeFile(file, JSON.stringify(anchor));
  const signed = await readAnchor(file);
  const about = async (given: typeof signed) => (await check(given)).differences.filter(({ stream }) => stream === 'another');
  expect(await about(signed)).toEqual([]);

  // As if it had been made before the last events were cut.
  const heads = signed.heads[topics.runEvents] ?? {};
  const head = heads['another'] ?? { version: 0, hash: '' };
  const later = { ...signed, heads: { ...signed.heads, [topics.runEvents]: { ...heads, another: { version: head.version + 1, hash: 'f'.repeat(64) } } } };
  expect(await about(later)).toEqual([{ topic: topics.runEvents, stream: 'another', problem: expect.stringMatching(/its tail was cut/) }]);
  const other = { ...signed, heads: { ...signed.heads, [topics.runEvents]: { ...heads, another: { ...head, hash: 'f'.repeat(64) } } } };
  expect(await about(other)).toEqual([{ topic: topics.runEvents, stream: 'another', problem: expect.stringMatching(/rewritten/) }]);

  await writeFile(file, JSON.stringify({ ...anchor, heads: later.heads }));
  await expect(readAnchor(file)).rejects.toThrow(/signature.*changed after it was signed/);
});
