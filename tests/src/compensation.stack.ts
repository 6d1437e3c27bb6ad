import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { topics, type Json } from '@holdfast/protocol';
import { rebuildService, runProgram, verify } from '@holdfast/cli';
import { createDatabase, LOCAL_SESSION_TIMEOUT_MS } from '@holdfast/deploy';
import { defineAgent, defineTool, HoldfastClient, IntentRefusedError, type ServedWorker, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import { Bookings } from './support/bookings.js';
import { entryOf, STACK_LIMIT_MS, TestStack, type Seen } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const books = new Bookings();
let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

const mail = defineTool({ name: 'mail.send', version: '1', effect: 'irreversible', input: z.object({}), output: z.null(), owner: 'the desk', execute: () => null });
const paid = defineTool({ name: 'ship', version: '1', effect: 'irreversible', input: z.object({}), output: z.null(), owner: 'the desk', pointOfNoReturn: true, execute: () => null });

/** Books a flight, then a hotel; rolls back to the flight, and books a suite instead. */
const changesItsMind = defineAgent({
  name: 'changes-its-mind',
  version: '1',
  input: z.object({ letter: z.boolean() }),
  output: z.object({ status: z.string(), keys: z.array(z.string()) }),
  run: async (run, { letter }) => {
    await run.call('flight.book', { seats: 1 });
    const flight = run.lastStep();
    await run.call('hotel.book', { seats: 1 });
    if (letter) await run.call('mail.send', {});
    try {
      const { status, again } = await run.rollback({ to: flight });
      await run.call('hotel.book', { seats: 2 });
      return { status, keys: again.map(({ step, key }) => `${step}: ${key}`) };
    } catch (error) {
      if (error instanceof IntentRefusedError) return { status: error.reason, keys: [] };
      throw error;
    }
  },
});

beforeAll(async () => {
  // A rebuild waits for the sessions of members that were killed: as long as the stack's own are.
  process.env['HOLDFAST_SESSION_TIMEOUT_MS'] = String(LOCAL_SESSION_TIMEOUT_MS);
  stack = await TestStack.start();
  const tools = [...books.tools('flight'), ...books.tools('hotel', { computed: true }), ...books.tools('suite', { approvers: ['manager'] }), mail, paid] as ToolDefinition[];
  worker = await work(stack.brokers, { tools, agents: [changesItsMind] });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await worker?.stop();
  await stack?.stop();
});

/** Calls one after the other, each once the one before has an end, and a failure at the end. */
async function trip(run: string, ...tools: readonly string[]): Promise<void> {
  await stack.intent(run, 'StartRun', { agent: null, input: { for: run } });
  for (const [index, tool] of tools.entries()) await call(run, String(index + 1), tool);
  await fail(run);
}
async function call(run: string, step: string, tool: string): Promise<void> {
  await stack.intent(run, 'CallTool', { step, tool: { name: tool, version: '1' }, args: tool.endsWith('.book') ? { seats: 2 } : {} });
  await stack.event(run, 'EffectSettled', (data) => data['step'] === step);
}
const fail = (run: string): Promise<unknown> => stack.intent(run, 'FinishRun', { ending: { status: 'failed', failure: { class: 'business_rejected', message: 'no table left' } } });
const plan = (run: string, type: string, where: (data: Seen['data']) => boolean = () => true): Promise<Seen> => stack.event(run, type, where, topics.compensationEvents);
const plans = (run: string): string[] => stack.events(run, topics.compensationEvents).map(({ envelope }) => envelope.type);
const concluded = async (run: string, number = 1): Promise<Seen['data']> => (await plan(run, 'PlanConcluded', (data) => data['plan'] === number)).data;
const command = (run: string, type: string, data: { readonly [member: string]: Json }): Promise<unknown> => stack.send({ topic: topics.operatorCommands, key: run, type, value: JSON.stringify(data) });
const cancel = (run: string, id: string, manner: string): Promise<unknown> => command(run, 'CancelRun', { command: id, by: by('operator'), reason: 'off', scope: 'run', manner });
const standings = (data: Seen['data']): Record<string, Json> => Object.fromEntries((data['effects'] as { step: string; standing: string }[]).map(({ step, standing }) => [step, standing]));
const by = (...roles: string[]): Json => ({ name: 'ada', roles });

describe('a run that failed', () => {
  test('has what it did answered in reverse order, once, found by probes, and says what remains', async () => {
    const run = 'all works';
    await trip(run, 'flight.book', 'hotel.book');
    const done = await concluded(run);
    expect(done['status']).toBe('compensated');
    expect((await stack.event(run, 'RunCompensated')).data).toMatchObject({ plan: 1, status: 'compensated', effects: done['effects'] });
    expect(await client.standing(run, { timeoutMs: 30_000 })).toMatchObject({ plan: 1, status: 'compensated', effects: done['effects'] });
    expect(stack.events(run).map(({ envelope }) => envelope.type).slice(-3)).toEqual(['RunFinished', 'RunCompensating', 'RunCompensated']);
    expect(books.standing(run)).toEqual([]);
    expect(books.of(run).map(({ what, thing }) => `${what} ${thing}`)).toEqual(['book flight', 'book hotel', 'cancel hotel', 'cancel flight']);
    expect(done['effects']).toMatchObject([{ step: '1', standing: 'compensated', residual: [{ what: 'cancellation fee', amount: 5 }], answers: [{ step: '1~1', verified: true }] }, { step: '2' }]);
    expect(stack.events(run, topics.compensationEvents).find(({ envelope }) => envelope.type === 'CompensationRegistered')?.data).toMatchObject({ step: '1' });
  });

  test('names what stands: what nothing answers, and all before a point of no return', async () => {
    await Promise.all([trip('a letter', 'flight.book', 'mail.send'), trip('shipped', 'flight.book', 'ship', 'hotel.book')]);
    const letter = await concluded('a letter');
    expect([letter['status'], standings(letter)]).toEqual(['compensated_partially', { 1: 'compensated', 2: 'stands' }]);
    const shipped = await concluded('shipped');
    expect([shipped['status'], standings(shipped)]).toEqual(['compensated_partially', { 1: 'stands', 2: 'stands', 3: 'compensated' }]);
    expect(books.standing('shipped')).toHaveLength(1);
  });

  test('that did nothing, or nothing that can be answered, has no plan', async () => {
    await trip('only a letter', 'mail.send');
    await stack.event('only a letter', 'RunFinished');
    await trip('only a letter after', 'flight.book');
    await concluded('only a letter after');
    expect(plans('only a letter')).not.toContain('PlanOpened');
  });
});

describe('what nobody knows', () => {
  test('is settled before it is answered: a booking that lands after everyone gave up is found, and cancelled once', async () => {
    const run = 'late';
    books.meets(run, 'book', 'flight', 'late');
    await stack.intent(run, 'StartRun', { agent: null, input: {} });
    await stack.intent(run, 'CallTool', { step: '1', tool: { name: 'flight.book', version: '1' }, args: { seats: 1 } });
    await stack.event(run, 'RunBlocked');
    await fail(run);
    await plan(run, 'PlanOpened');
    expect((await concluded(run))['status']).toBe('compensated');
    expect(books.of(run).map(({ what }) => what)).toEqual(['book', 'cancel']);
  });

  test('of a compensation is settled like any unknown, and it is never done again', async () => {
    const run = 'silent';
    books.meets(run, 'cancel', 'flight', 'silent');
    await trip(run, 'flight.book');
    const done = await concluded(run);
    expect(plans(run)).toContain('CompensationNoted');
    expect(await stack.event(run, 'CaseOpened', (data) => data['step'] === '1~1', topics.reconciliationEvents)).toBeDefined();
    expect(done['status']).toBe('compensated');
    expect(books.of(run, 'cancel')).toHaveLength(1);
  });
});

describe('a compensation', () => {
  test('that failed is brought to people, and goes on under its own key when they say so', async () => {
    const run = 'closed';
    books.meets(run, 'cancel', 'hotel', 'fails');
    await trip(run, 'flight.book', 'hotel.book');
    const failed = await concluded(run);
    expect([failed['status'], standings(failed)]).toEqual(['compensation_failed', { 1: 'failed', 2: 'failed' }]);
    expect((await plan(run, 'CompensationEscalated')).data).toMatchObject({ of: '2', reason: 'failed' });
    await command(run, 'CompensateRun', { command: 'again', by: by('operator'), reason: 'the hotel is open again' });
    const done = await concluded(run, 2);
    expect(done['status']).toBe('compensated');
    expect(books.standing(run)).toEqual([]);
    const keys = stack.events(run, topics.compensationEvents).filter(({ envelope, data }) => envelope.type === 'CompensationOrdered' && data['of'] === '2').map(({ data }) => data['key']);
    expect(new Set(keys).size).toBe(1);
  });

  test('that needs a role waits for it, and for exactly what was shown', async () => {
    const run = 'manager';
    await trip(run, 'suite.book');
    const { data } = await plan(run, 'CompensationApprovalAsked');
    expect(data).toMatchObject({ of: '1', approvers: ['manager'], args: { booking: books.of(run)[0]?.booking ?? '' } });
    await command(run, 'DecideCompensation', { command: 'no', by: by('operator'), step: '1', decision: 'approve' });
    expect((await plan(run, 'PlanCommandRefused')).data).toMatchObject({ command: 'no', reason: 'role_missing' });
    expect(books.of(run, 'cancel')).toEqual([]);
    await command(run, 'DecideCompensation', { command: 'yes', by: by('manager'), step: '1', decision: 'approve', digest: data['digest'] ?? null });
    expect((await concluded(run))['effects']).toMatchObject([{ standing: 'compensated', answers: [{ authorisedBy: 'ada' }] }]);
  });

  test('is done once, whoever asks, and however often the service is killed on the way', async () => {
    const run = 'killed';
    await trip(run, 'flight.book', 'hotel.book');
    await plan(run, 'CompensationOrdered');
    await stack.service('compensation').kill();
    await command(run, 'CompensateRun', { command: 'too', by: by('operator'), reason: 'to be sure' });
    await stack.service('compensation').start();
    const done = await concluded(run);
    expect([done['status'], books.standing(run), books.of(run, 'cancel').length]).toEqual(['compensated', [], 2]);
  });
});

describe('a lost database', () => {
  const ordered = (run: string): string[] => stack.events(run, topics.compensationEvents).filter(({ envelope }) => envelope.type === 'CompensationOrdered').map(({ data }) => `${String(data['of'])} under ${String(data['key'])}`);

  test('is rebuilt from the topic in mid-plan: what was ordered is known, what was approved stays so, and nothing is answered twice', async () => {
    const run = 'restored';
    books.meets(run, 'cancel', 'suite', 'late');
    await trip(run, 'flight.book', 'suite.book');
    const { data } = await plan(run, 'CompensationApprovalAsked');
    await command(run, 'DecideCompensation', { command: 'go', by: by('manager'), step: '2', decision: 'approve', digest: data['digest'] ?? null });
    await plan(run, 'CompensationOrdered', ({ of }) => of === '2');
    const victim = stack.service('compensation');
    await victim.kill();
    const before = ordered(run);
    await stack.pool('postgres').query('drop database holdfast_compensation with (force)');
    await createDatabase(stack.stack.databaseUrl, 'holdfast_compensation');

    await expect(victim.start()).rejects.toThrow(/holdfast rebuild compensation/);
    const report = await rebuildService('compensation', { brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl, entry: entryOf('compensation') });
    expect(report).toMatchObject({ service: 'compensation', known: 0, foreign: 0, missing: [] });
    expect(report.added).toBeGreaterThan(0);
    await victim.start();

    const done = await concluded(run);
    expect(done).toMatchObject({ status: 'compensated', effects: [{ step: '1' }, { step: '2', answers: [{ authorisedBy: 'ada' }] }] });
    expect(before).toHaveLength(1);
    expect(ordered(run)).toEqual([...before, expect.stringMatching(/^1 under /)]);
    expect(stack.events(run, topics.compensationEvents).filter(({ envelope }) => envelope.type === 'CompensationApprovalAsked')).toHaveLength(1);
    expect([books.standing(run), books.of(run, 'cancel').length]).toEqual([[], 2]);
  });
});

describe('an agent', () => {
  test('rolls back to a step, is told what is answered and which keys are new, and goes on', async () => {
    const run = 'other plans';
    const outcome = await (await client.start(changesItsMind, { letter: false }, { runId: run })).outcome({ timeoutMs: 30_000 });
    expect(outcome).toMatchObject({ status: 'completed', output: { status: 'compensated', keys: ['2: a new key'] } });
    expect(books.of(run).map(({ what, thing }) => `${what} ${thing}`)).toEqual(['book flight', 'book hotel', 'cancel hotel', 'book hotel']);
  });

  test('is refused a way back over what nothing answers, and nothing is done', async () => {
    const run = 'posted';
    const outcome = await (await client.start(changesItsMind, { letter: true }, { runId: run })).outcome({ timeoutMs: 30_000 });
    expect(outcome).toMatchObject({ status: 'completed', output: { status: 'not_compensable' } });
    expect(books.of(run, 'cancel')).toEqual([]);
  });
});

describe('a run that is cancelled, or whose time is up', () => {
  test.each(['graceful', 'immediate'])('is compensated in a scope of its own: cancelled again (%s), nothing of that stops, nor is done twice', async (manner) => {
    const run = `cancelled ${manner}`;
    books.meets(run, 'cancel', 'flight', 'late');
    await stack.intent(run, 'StartRun', { agent: null, input: {} });
    await call(run, '1', 'flight.book');
    await cancel(run, 'once', 'immediate');
    await plan(run, 'CompensationOrdered');
    await cancel(run, 'twice', manner);
    await stack.event(run, 'InputRefused', ({ id, reason }) => id === 'twice' && reason === 'run_ended');
    expect((await concluded(run))['status']).toBe('compensated');
    expect(books.of(run).map(({ what }) => what)).toEqual(['book', 'cancel']);
    expect((await stack.event(run, 'RunCompensated')).data['status']).toBe('compensated');
    expect(stack.events(run).filter(({ envelope }) => envelope.type === 'RunFinished')).toHaveLength(1);
  });

  test.each(['graceful', 'immediate'])('while its code waits for its own roll-back (%s) ends at once; what was ordered goes on, and all else is answered too, once', async (manner) => {
    const run = `rolling back ${manner}`;
    books.meets(run, 'cancel', 'hotel', 'late');
    await client.start(changesItsMind, { letter: false }, { runId: run });
    await plan(run, 'CompensationOrdered');
    await cancel(run, 'off', manner);
    expect((await stack.event(run, 'RunFinished')).data['ending']).toMatchObject({ status: 'cancelled', by: 'ada' });
    await stack.event(run, 'RunCompensated', ({ status }) => status === 'compensated');
    expect(books.of(run).map(({ what, thing }) => `${what} ${thing}`)).toEqual(['book flight', 'book hotel', 'cancel hotel', 'cancel flight']);
    expect(stack.events(run).filter(({ envelope }) => ['RunResumed', 'LeaseGranted'].includes(envelope.type))).toEqual([]);
  });

  test('by the deadline of an approval: one plan, for both of its causes', async () => {
    const run = 'nobody approves';
    await stack.intent(run, 'StartRun', { agent: null, input: {} });
    await call(run, '1', 'flight.book');
    await stack.intent(run, 'StartWait', { step: '2', wait: { kind: 'signal', name: 'yes' }, deadline: Date.now() + 300, onDeadline: { action: 'compensate' } });
    expect((await concluded(run))['status']).toBe('compensated');
    expect(plans(run).filter((type) => type === 'PlanOpened')).toHaveLength(1);
    expect((await plan(run, 'PlanOpened')).data['cause']).toMatchObject({ kind: 'deadline', step: '2' });
  });
});

describe('the command line', () => {
  async function holdfast(...args: string[]): Promise<{ readonly code: number; readonly said: Json }> {
    const out: string[] = [];
    const spy = jest.spyOn(process.stdout, 'write').mockImplementation((text) => out.push(String(text)) > 0);
    process.exitCode = 0;
    process.env['HOLDFAST_BROKERS'] = stack.brokers.join(',');
    process.env['HOLDFAST_DATABASE_URL'] = stack.stack.databaseUrl;
    try {
      const code = await runProgram([...args, '--json']);
      return { code, said: JSON.parse(out.join('')) as Json };
    } finally {
      delete process.env['HOLDFAST_BROKERS'];
      delete process.env['HOLDFAST_DATABASE_URL'];
      process.exitCode = 0;
      spy.mockRestore();
    }
  }

  test('says first what would be done and who is needed, then does it, and shows how all stands', async () => {
    const run = 'by hand';
    await stack.intent(run, 'StartRun', { agent: null, input: {} });
    await call(run, '1', 'flight.book');
    await call(run, '2', 'suite.book');
    await stack.finish(run);
    await plan(run, 'RunEndNoted');
    const dry = await holdfast('compensate', run, '--dry-run');
    expect(dry.said).toMatchObject({ refused: null, would: [{ of: '2', approvers: ['manager'] }, { of: '1', approvers: null }], then: { status: 'compensated' } });
    expect(plans(run)).not.toContain('PlanOpened');
    expect(await holdfast('compensate', run, '--reason', 'the customer asked')).toMatchObject({ code: 0, said: { event: 'PlanOpened' } });
    await plan(run, 'CompensationApprovalAsked');
    expect(await holdfast('plans', 'approve', run, '2', '--role', 'viewer')).toMatchObject({ code: 1, said: { reason: 'role_missing' } });
    expect(await holdfast('plans', 'approve', run, '2', '--role', 'manager')).toMatchObject({ code: 0, said: { decision: 'approved' } });
    expect((await concluded(run))['status']).toBe('compensated');
    expect(await holdfast('plans', 'show', run)).toMatchObject({ said: { status: 'compensated', effects: [{ step: '1', stands: 'compensated' }, { step: '2', stands: 'compensated' }] } });
    expect((await holdfast('runs', 'show', run)).said).toMatchObject({ phase: 'compensated', compensation: { status: 'compensated' } });
    expect(books.standing(run)).toEqual([]);
  });
});

test('journals, agendas, topics and hash chains agree', async () => {
  const { differences } = await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl });
  expect(differences).toEqual([]);
  expect(await stack.halts()).toEqual([]);
});
