import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { rebuildService, verify } from '@holdfast/cli';
import { createDatabase, LOCAL_SESSION_TIMEOUT_MS } from '@holdfast/deploy';
import { decodeHeaders, ProbeEffect, toolTasks, topics, type Pool } from '@holdfast/protocol';
import { tail } from '@holdfast/runtime/kafka';
import { applied, defineAgent, defineTool, HoldfastClient, MayHaveApplied, notApplied, type RunHandle, type ServedWorker, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { entryOf, STACK_LIMIT_MS, TestStack, type ServiceName } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const FULL = process.env['HOLDFAST_PROOF'] === 'full';
const RUNS = FULL ? 60 : 15;
const STEPS = 4;
/** A lost attempt is given up after this time, so that a test sees its end. */
const QUEUE_MS = 4000;
const TIMEOUT_MS = 2000;

let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

const input = z.object({ amount: z.number() });
/** Writes into a table without any constraint: whatever happens twice is there twice. */
const worldly = (name: string, effect: 'idempotent' | 'irreversible'): ToolDefinition =>
  defineTool({ name, version: '1', effect, input, output: z.json(), owner: 'whoever runs the tests', queueTimeout: QUEUE_MS, timeout: TIMEOUT_MS, execute: async ({ amount }, { run, step, operationKey }) => {
    await stack.pool('world').query('insert into fired (tool, run, step, key) values ($1, $2, $3, $4)', [name, run, step, operationKey]);
    return amount;
  } });
const pay = worldly('pay', 'irreversible');
const put = worldly('put', 'idempotent');
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', keyScope: 'target', target: ({ order }) => order, input: z.object({ order: z.string() }), output: z.json(), owner: 'whoever runs the tests', execute: async ({ order }, { run, step, operationKey }) => {
  await stack.pool('world').query('insert into fired (tool, run, step, key) values ($1, $2, $3, $4)', ['refund', run, step, operationKey]);
  return order;
} });
const payer = defineAgent({ name: 'payer', version: '1', input: z.object({}), output: z.number(), run: async (run) => {
  for (let amount = 1; amount <= STEPS; amount += 1) {
    await run.call(pay, { amount });
    await run.call(put, { amount });
  }
  return STEPS;
} });

/** Closed: whoever looks into the world gets no answer. */
class Gate {
  open: () => void = () => undefined;
  passed: Promise<void> = Promise.resolve();
  close(): void {
    this.passed = new Promise((resolve) => (this.open = resolve));
  }
}
const looks = new Gate();
/** Its first attempt leaves nobody knowing: at every second run it has been applied. */
const lend = defineTool({ name: 'lend', version: '1', effect: 'irreversible', input, output: z.json(), owner: 'whoever runs the tests', settleDelay: 0, breaker: { failures: 1000 }, execute: async ({ amount }, { run, step, operationKey, attempt }) => {
  if (attempt > 1 || amount % 2 === 0) await stack.pool('world').query('insert into fired (tool, run, step, key) values ($1, $2, $3, $4)', ['lend', run, step, operationKey]);
  if (attempt === 1) throw new MayHaveApplied('the connection was lost');
  return amount;
}, probe: { sealing: false, timeout: 1000, schedule: { initial: 200, max: 1000 }, ask: async ({ amount }, { operationKey }) => {
  await looks.passed;
  const { rows } = await stack.pool('world').query('select 1 from fired where key = $1', [operationKey]);
  return rows.length > 0 ? applied(amount) : notApplied('no row has this key');
} } });
const lender = defineAgent({ name: 'lender', version: '1', input, output: z.json(), run: async (run, { amount }) => run.call(lend, { amount }) });

interface Fired extends Record<string, unknown> {
  readonly run: string;
  readonly step: string;
}
const paid = async (prefix: string): Promise<Fired[]> => (await stack.pool('world').query<Fired>(`select run, step from fired where tool = 'pay' and run like $1`, [`${prefix}-%`])).rows;
const starts = (prefix: string): Promise<RunHandle[]> => Promise.all(Array.from({ length: RUNS }, (_, i) => client.start(payer, {}, { runId: `${prefix}-${i}` })));
const reached = (prefix: string, share: number) => eventually(`${share} of the effects`, async () => (await paid(prefix)).length >= RUNS * STEPS * share, 60_000);
const rebuild = (service: ServiceName, skipMissing = false) => rebuildService(service, { brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl, skipMissing, entry: entryOf(service) });
const on = (statement: string) => stack.pool('postgres').query(statement);
/** Drops a service's database, and leaves an empty one. */
async function drop(service: ServiceName): Promise<void> {
  await on(`drop database holdfast_${service} with (force)`);
  await createDatabase(stack.stack.databaseUrl, `holdfast_${service}`);
}
/** Keeps a stopped service's database as it is now. */
async function copyOf(service: ServiceName): Promise<void> {
  await on(`drop database if exists copy with (force)`);
  // A template must have no other user: this test's own idle connections are some.
  await on(`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'holdfast_${service}'`);
  await on(`create database copy template holdfast_${service}`);
}
async function putBack(service: ServiceName): Promise<void> {
  await on(`drop database holdfast_${service} with (force)`);
  await on(`create database holdfast_${service} template copy`);
}

/** Every run has ended, or is blocked on an effect that the ledger calls unknown; nothing was done twice. */
async function allOnce(prefix: string): Promise<void> {
  const ends = await eventually('every run ended or is blocked', () => {
    const found = Array.from({ length: RUNS }, (_, i) => `${prefix}-${i}`).map((run) => ({
      run,
      finished: stack.events(run).find(({ envelope }) => envelope.type === 'RunFinished'),
      blocked: stack.events(run).find(({ envelope }) => envelope.type === 'RunBlocked'),
    }));
    return found.every(({ finished, blocked }) => finished !== undefined || blocked !== undefined) && found;
  }, 90_000);
  for (const { run, finished, blocked } of ends) {
    if (finished !== undefined) expect({ run, ending: finished.data['ending'] }).toMatchObject({ ending: { status: 'completed' } });
    else expect(stack.events(run, topics.effectEvents).some(({ envelope, data }) => envelope.type === 'EffectOutcomeUnknown' && data['step'] === blocked?.data['step'])).toBe(true);
  }
  const fired = (await paid(prefix)).map(({ run, step }) => `${run}/${step}`);
  expect(fired.filter((place, i) => fired.indexOf(place) !== i)).toEqual([]);
  // What one crash left unknown is little; the rest went on.
  expect(ends.filter(({ finished }) => finished === undefined).length).toBeLessThan(RUNS / 2);
}

async function inOrder(): Promise<void> {
  await eventually('the agenda is at rest', async () => (await stack.rows<{ n: number }>('orchestrator', `select count(*)::int as n from agenda where open and due_at is not null`))[0]?.n === 0);
  expect(await stack.halts()).toEqual([]);
  expect((await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences).toEqual([]);
}

beforeAll(async () => {
  // A rebuild waits for the sessions of members that were killed: as long as the stack's own are.
  process.env['HOLDFAST_SESSION_TIMEOUT_MS'] = String(LOCAL_SESSION_TIMEOUT_MS);
  stack = await TestStack.start();
  await createDatabase(stack.stack.databaseUrl, 'world');
  await stack.pool('world').query('create table fired (tool text, run text, step text, key text)');
  worker = await work(stack.brokers, { agents: [payer, lender], tools: [pay, put, refund, lend], irreversibleConcurrency: 4 });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

/** Lost between commit and publish, and lost with all of it published. */
const CRASHES = [
  { service: 'ledger', at: 'ledger.after-commit' },
  { service: 'orchestrator', at: 'orchestrator.after-publish' },
  { service: 'ledger', at: 'ledger.after-publish' },
  { service: 'orchestrator', at: 'orchestrator.after-commit' },
] as const;

test.each(FULL ? CRASHES : CRASHES.slice(0, 1))('$service, killed at $at in mid-work and its database dropped, is rebuilt from its topic and goes on', async ({ service, at }) => {
  const prefix = at.replace('.', '-');
  const victim = stack.service(service);
  await victim.restart({ HOLDFAST_CRASH_AT: `${at}:${RUNS}` });
  await starts(prefix);
  await victim.exited;
  await drop(service);

  await expect(victim.start({ HOLDFAST_CRASH_AT: undefined })).rejects.toThrow(new RegExp(`holdfast rebuild ${service}`));
  const report = await rebuild(service);
  expect(report).toMatchObject({ service, known: 0, foreign: 0, missing: [] });
  expect(report.added).toBeGreaterThan(0);
  await victim.start();

  await allOnce(prefix);
  await inOrder();
});

/** The third one has its own test: it has something to do only where outcomes are unknown. */
const ON_EVERY_RUN = ['orchestrator', 'ledger'] as const satisfies readonly ServiceName[];

test.each((FULL ? ON_EVERY_RUN : ON_EVERY_RUN.slice(0, 1)).map((service) => ({ service })))('$service on an older copy of its database takes what it had published since, and goes on', async ({ service }) => {
  const prefix = `copy-${service}`;
  const victim = stack.service(service);
  await starts(prefix);
  await reached(prefix, 0.1);
  await victim.stop();
  await copyOf(service);
  await victim.start();
  await reached(prefix, 0.5);
  await victim.kill();
  await putBack(service);

  await expect(victim.start()).rejects.toThrow(/older copy.*holdfast rebuild/);
  const report = await rebuild(service);
  expect(report.known).toBeGreaterThan(0);
  expect(report.added).toBeGreaterThan(0);
  await victim.start();

  await allOnce(prefix);
  await inOrder();
});

const LOANS = FULL ? 24 : 6;
const LOSSES = [
  { how: 'is dropped while its questions are out', crashAt: undefined, copied: false },
  { how: 'is dropped after a commit that is on no topic', crashAt: `reconciliation.after-commit:${LOANS}`, copied: false },
  { how: 'goes back to before half of its cases', crashAt: undefined, copied: true },
] as const;

test.each(FULL ? LOSSES : LOSSES.slice(0, 1))('the reconciliation’s database $how: every unknown is settled, by questions of which none is put twice', async ({ how, crashAt, copied }) => {
  const prefix = `loan-${LOSSES.findIndex((loss) => loss.how === how)}`;
  const runs = Array.from({ length: LOANS }, (_, i) => `${prefix}-${i}`);
  const some = copied ? LOANS / 2 : LOANS;
  const victim = stack.service('reconciliation');
  const lendTo = (from: number, to: number) => Promise.all(runs.slice(from, to).map((runId, i) => client.start(lender, { amount: from + i }, { runId })));
  const asked = (run: string): number => stack.events(run, topics.reconciliationEvents).filter(({ envelope }) => envelope.type === 'ProbeSent').length;
  const allAsked = (from: number, to: number, times: number) => eventually(`cases of ${from} to ${to} were asked about ${times} times`, () => runs.slice(from, to).every((run) => asked(run) >= times), 60_000);

  looks.close();
  await victim.restart({ HOLDFAST_CRASH_AT: crashAt });
  const { exited } = victim;
  await lendTo(0, some);
  if (crashAt === undefined) {
    await allAsked(0, some, 1);
    if (copied) {
      await victim.stop();
      await copyOf('reconciliation');
      await victim.start();
      await lendTo(some, LOANS);
      await allAsked(some, LOANS, 1);
    }
    await victim.kill();
  }
  await exited;
  await (copied ? putBack('reconciliation') : drop('reconciliation'));

  await expect(victim.start({ HOLDFAST_CRASH_AT: undefined })).rejects.toThrow(/holdfast rebuild reconciliation/);
  const report = await rebuild('reconciliation');
  expect(report).toMatchObject({ service: 'reconciliation', foreign: 0, missing: [] });
  expect(report.added).toBeGreaterThan(0);
  await victim.start();

  // What was out is over at its time, and asked again under the next number.
  await allAsked(0, LOANS, 2);
  looks.open();
  for (const run of runs) expect((await stack.event(run, 'RunFinished')).data['ending']).toMatchObject({ status: 'completed' });
  const { rows } = await stack.pool('world').query<Fired>(`select run, step from fired where tool = 'lend' and run like $1`, [`${prefix}-%`]);
  expect(rows.map(({ run }) => run).sort()).toEqual([...runs].sort());
  const questions = (await tasks()).flatMap(({ run, type, data }) => (type === ProbeEffect.type && runs.includes(run) ? [`${run}/${String(data['step'])}/${String(data['attempt'])}/${String(data['probe'])}`] : []));
  expect(questions.length).toBeGreaterThanOrEqual(2 * LOANS);
  expect(questions.filter((question, i) => questions.indexOf(question) !== i)).toEqual([]);
  await inOrder();
});

interface Task {
  readonly run: string;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Everything that tool hosts were ever sent; what was only published again, once. */
async function tasks(): Promise<Task[]> {
  const found = new Map<string, Task>();
  const reader = await tail({ brokers: stack.brokers, topics: [toolTasks('default' as Pool)], from: 'beginning', onRecord: ({ headers, key, time, value }) => {
    const envelope = decodeHeaders(headers, key, time);
    if (envelope !== undefined) found.set(`${envelope.source}/${envelope.lane}/${envelope.seq}`, { run: envelope.subject, type: envelope.type, data: JSON.parse(value ?? '{}') as Task['data'] });
  } });
  await reader.caughtUp;
  await reader.close();
  return [...found.values()];
}

test('two runs under one business key: the claim outlives the database, and the second one fires nothing', async () => {
  const ask = async (run: string): Promise<void> => {
    await stack.intent(run, 'StartRun', { agent: null, input: run });
    await stack.intent(run, 'CallTool', { step: '1', tool: { name: 'refund', version: '1' }, args: { order: 'A1' }, target: 'A1' });
    await stack.event(run, 'EffectSettled');
  };
  await ask(stack.runOn(2, 'first'));
  // How targets are doing is learnt anew; who holds a key is not.
  const claims = () => stack.rows('ledger', `select * from shared where key like 'effect:%' order by key`);
  const before = await claims();
  expect(before).toHaveLength(1);
  await stack.service('ledger').stop();
  await drop('ledger');
  // Told to, a start does it by itself.
  await stack.service('ledger').start({ HOLDFAST_REBUILD: 'auto' });
  expect(await claims()).toEqual(before);
  await ask(stack.runOn(0, 'second'));
  expect((await stack.pool('world').query(`select run from fired where tool = 'refund'`)).rows).toEqual([{ run: stack.runOn(2, 'first') }]);
});

test('a rebuild is refused while an instance runs', async () => {
  await expect(rebuild('ledger')).rejects.toThrow(/ledger is running \(ledger-1\): stop every instance/);
  await stack.goodRun(stack.runOn(1, 'undisturbed'), 'pay');
});

test('an instance whose journal is taken for a rebuild ends, and none starts until that is done', async () => {
  const victim = stack.service('ledger');
  const { exited } = victim;
  await stack.database('ledger').query('update incarnation set rebuilding = true');
  await stack.database('ledger').query('update progress set epoch = epoch + 1');
  await stack.intent(stack.runOn(1, 'meanwhile'), 'StartRun', { agent: null, input: 1 });
  expect(await exited).toMatchObject({ code: 1 });
  await expect(victim.start({ HOLDFAST_REBUILD: undefined })).rejects.toThrow(/begun and not finished.*holdfast rebuild ledger/);
  await rebuild('ledger');
  await victim.start();
  await stack.goodRun(stack.runOn(1, 'then'), 'pay');
});

test('an instance whose database goes back in time under it ends', async () => {
  const victim = stack.service('ledger');
  const { exited } = victim;
  const lane = 1;
  await stack.goodRun(stack.runOn(lane, 'before'), 'pay');
  await stack.database('ledger').query(`
    with cut as (select next_seq - 2 as seq from progress where lane = ${lane}), gone as (delete from journal where lane = ${lane} and seq >= (select seq from cut))
    update progress set next_seq = (select seq from cut), published = (select seq - 1 from cut) where lane = ${lane}`);
  await stack.intent(stack.runOn(lane, 'after'), 'StartRun', { agent: null, input: 1 });
  expect(await exited).toMatchObject({ code: 1 });
  expect(await victim.logTail()).toMatch(/the database is an older copy; run .holdfast rebuild ledger/);
  await expect(victim.start()).rejects.toThrow(/holdfast rebuild ledger/);
  expect(await rebuild('ledger')).toMatchObject({ added: 1 });
  await victim.start();
  await stack.goodRun(stack.runOn(lane, 'later'), 'pay');
  await inOrder();
});

test('intents that are gone before they were read stop their lane alone, with an alarm that says what to do', async () => {
  const victim = stack.service('orchestrator');
  const lane = 3;
  await victim.stop();
  const [lost, other, again] = [stack.runOn(lane, 'lost'), stack.runOn(0, 'other-lane'), stack.runOn(lane, 'again')];
  const { offset } = await stack.intent(lost, 'StartRun', { agent: null, input: lost });
  await stack.admin.fetchTopicOffsets(topics.agentIntents); // kafkajs deletes only where it knows the leaders.
  await stack.admin.deleteTopicRecords({ topic: topics.agentIntents, partitions: [{ partition: lane, offset: String(offset + 1) }] });

  await victim.start();
  await eventually('the lane stands still', async () => (await stack.halts()).some((reason) => new RegExp(`agent.intents/${lane} is to be read from offset ${offset}.*holdfast rebuild orchestrator --skip-missing`).test(String(reason))));
  await stack.goodRun(other, 'pay');
  await victim.stop();

  await expect(rebuild('orchestrator')).rejects.toThrow(new RegExp(`agent.intents/${lane} offsets ${offset} to ${offset}. .*--skip-missing`));
  await expect(victim.start()).rejects.toThrow(/begun and not finished/);
  expect(await rebuild('orchestrator', true)).toMatchObject({ missing: [{ topic: topics.agentIntents, lane, from: offset, to: offset + 1 }] });
  await victim.start();
  await stack.goodRun(again, 'pay');
  expect(stack.events(lost)).toEqual([]);
  await stack.goodRun(lost, 'pay');
});
