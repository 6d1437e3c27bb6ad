import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, MayHaveApplied, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { cli, type Said } from './support/cli.js';
import { eventually } from './support/eventually.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const CLI = fileURLToPath(new URL('../../cli/bin/holdfast.mjs', import.meta.url));
const HOUR_MS = 3_600_000;

interface Fired {
  readonly run: string;
  readonly attempt: number;
  readonly key: string;
}
const fired: Fired[] = [];
const order = z.object({ order: z.string() });
const receipt = z.object({ id: z.string() });

/** Irreversible, without a probe. Its first attempts end in doubt, a later one in a receipt. */
const doubtful = (name: string, settleDelay: number | null, verdictRole?: string, doubts = 1) =>
  defineTool({
    name,
    version: '1',
    effect: 'irreversible',
    input: order,
    output: receipt,
    owner: 'the desk',
    settleDelay,
    ...(verdictRole === undefined ? {} : { ageing: { verdictRole } }),
    execute: (_, { run, attempt, operationKey }) => {
      fired.push({ run, attempt, key: operationKey });
      if (attempt <= doubts) throw new MayHaveApplied('the line went dead');
      return { id: `re-${attempt}` };
    },
  });
const charge = doubtful('charge', HOUR_MS);
const wire = doubtful('wire', null, 'treasurer');
const prompt = doubtful('prompt', 0);
const twice = doubtful('twice', 0, undefined, 2);

/** Its first attempt outlives its time-out, and says how it ended when it is told to. */
let letGo: () => void = () => undefined;
const slow = defineTool({
  name: 'slow',
  version: '1',
  effect: 'irreversible',
  input: order,
  output: receipt,
  owner: 'the desk',
  timeout: 200,
  execute: async (_, { run, attempt, operationKey }) => {
    fired.push({ run, attempt, key: operationKey });
    if (attempt === 1) await new Promise<void>((resolve) => (letGo = resolve));
    return { id: `slow-${attempt}` };
  },
});

const agentOf = (tool: typeof charge) =>
  defineAgent({ name: `asks-${tool.name}`, version: '1', input: order, output: receipt, run: (run, input) => run.call(tool, input) });
const agents = { charge: agentOf(charge), wire: agentOf(wire), prompt: agentOf(prompt), twice: agentOf(twice), slow: agentOf(slow) };

let stack: TestStack;
let worker: ServedWorker | undefined;
let client: HoldfastClient;

const cases = (...args: string[]): Promise<Said> => cli('cases', ...args);

async function json(...args: string[]): Promise<{ code: number; said: { readonly [member: string]: Json } }> {
  const { code, out, err } = await cases(...args, '--json');
  if (out === '') throw new Error(`nothing was said: ${err}`);
  return { code, said: JSON.parse(out) as { [member: string]: Json } };
}
const why = ['--reason', 'I called the bank', '--evidence', 'statement 7'];
const resolve = (run: string, ...args: string[]) => json('resolve', `${run}/1/1`, ...why, ...args);

async function inDoubt(tool: keyof typeof agents, run: string): Promise<void> {
  await client.start(agents[tool], { order: run }, { runId: run });
  await stack.event(run, 'CaseOpened', undefined, topics.reconciliationEvents);
  await stack.event(run, 'RunBlocked');
}
const outcome = (run: string) => client.outcome(run, { timeoutMs: 20_000 });

beforeAll(async () => {
  stack = await TestStack.start();
  Object.assign(process.env, { HOLDFAST_BROKERS: stack.brokers.join(','), HOLDFAST_DATABASE_URL: stack.stack.databaseUrl, HOLDFAST_OPERATOR: 'ann', NO_COLOR: '1' });
  worker = await work(stack.brokers, { agents: Object.values(agents), tools: [charge, wire, prompt, twice, slow] });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
  await Promise.all([inDoubt('charge', 'seen'), inDoubt('charge', 'found'), inDoubt('wire', 'nested/run'), inDoubt('prompt', 'gone'), inDoubt('slow', 'late')]);
}, STACK_LIMIT_MS);

afterAll(async () => {
  letGo();
  await client?.close();
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

test('list: open cases, oldest first, with whose they are and who looks next', async () => {
  const { code, said } = await json('list');
  const listed = said['cases'] as { case: string; since: string }[];
  expect([code, listed.map((each) => each.case).sort(), said['alarms']]).toEqual([0, ['found/1/1', 'gone/1/1', 'late/1/1', 'nested/run/1/1', 'seen/1/1'], []]);
  expect(listed.map(({ since }) => since)).toEqual(listed.map(({ since }) => since).sort());
  expect(listed.find((each) => each.case === 'seen/1/1')).toMatchObject({ run: 'seen', step: '1', attempt: 1, status: 'open', tool: 'charge@1', effect: 'irreversible', cause: 'may_have_applied', owner: 'the desk', escalated: ['nothing_helps'], nextLook: null, args: { order: 'seen' }, probes: 0 });

  const names = async (...args: string[]) => ((await json('list', ...args)).said['cases'] as { case: string }[]).map((each) => each.case).sort();
  expect(await names('--tool', 'charge')).toEqual(['found/1/1', 'seen/1/1']);
  expect(await names('--run', 'seen')).toEqual(['seen/1/1']);
  expect(await names('--owner', 'nobody')).toEqual([]);
  expect(await names('--escalated')).toHaveLength(5);

  const people = await cases('list');
  expect([people.code, people.out]).toEqual([0, expect.stringMatching(/seen\/1\/1.*charge@1.*open.*may_have_applied.*the desk.*a person/)]);
});

test('show: what it is about, and what happened to it', async () => {
  const { code, said } = await json('show', 'seen/1/1');
  expect([code, said]).toEqual([0, expect.objectContaining({ case: 'seen/1/1', message: 'MayHaveApplied: the line went dead', readingFrom: expect.any(String), operationKey: fired.find(({ run }) => run === 'seen')?.key })]);
  expect((said['history'] as { event: string }[]).map(({ event }) => event)).toEqual(['CaseOpened', 'CaseEscalated']);
  // Whoever looks it up at the target needs all of the key.
  const whole = (await cases('show', 'seen/1/1')).out;
  expect([whole, whole.includes(`operationKey  ${String(said['operationKey'])}\n`)]).toEqual([whole, true]);
  const people = await cases('show', 'nested/run/1/1');
  expect([people.code, people.out]).toEqual([0, expect.stringMatching(/^case +nested\/run\/1\/1\n/)]);
  expect(await cases('show', 'seen/2/1')).toMatchObject({ code: 2, out: '', err: expect.stringContaining('there is no case seen/2/1') });
  expect(await cases('show', 'seen')).toMatchObject({ code: 2, err: expect.stringContaining('names no case') });
});

test('the exit code is that of the process: 0 done, 1 refused, 2 could not be asked', async () => {
  const ends = (...args: string[]) => new Promise<number | null>((resolve) => execFile(process.execPath, [CLI, 'cases', ...args], { cwd: stack.stack.dir, env: process.env }, () => undefined).on('exit', resolve));
  expect(await Promise.all([ends('list'), ends('resolve', 'seen/1/1', ...why, '--not-applied'), ends('show', 'seen/2/1')])).toEqual([0, 1, 2]);
});

test('assign: to somebody, by an operator alone', async () => {
  expect(await json('assign', 'seen/1/1', 'bob', '--role', 'viewer')).toMatchObject({ code: 1, said: { event: 'CaseCommandRefused', reason: 'role_missing', by: { name: 'ann', roles: ['viewer'] } } });
  expect(await json('assign', 'seen/1/1', 'bob', '--as', 'eve')).toMatchObject({ code: 0, said: { case: 'seen/1/1', event: 'CaseAssigned', owner: 'bob', by: { name: 'eve', roles: ['operator'] } } });
  expect((await json('list', '--owner', 'bob')).said['cases']).toMatchObject([{ case: 'seen/1/1' }]);
  expect(await cases('assign', 'seen/1/1', '-')).toMatchObject({ code: 0, out: 'seen/1/1: given to nobody\n' });
});

test('resolve: what is no verdict is not sent', async () => {
  const before = stack.events('seen', topics.reconciliationEvents).length;
  expect(await cases('resolve', 'seen/1/1', ...why)).toMatchObject({ code: 2, err: expect.stringContaining('say what you found') });
  expect(await cases('resolve', 'seen/1/1', ...why, '--applied', '{}', '--not-applied')).toMatchObject({ code: 2, err: expect.stringContaining('say what you found') });
  expect(await cases('resolve', 'seen/1/1', ...why, '--applied', '{"id"')).toMatchObject({ code: 2, err: expect.stringContaining('as JSON') });
  expect(await cases('resolve', 'seen/1/1', ...why, '--not-applied', '--read-at', 'yesterday')).toMatchObject({ code: 2, err: expect.stringContaining('is no time such as') });
  expect(await cases('resolve', 'seen/1/2', ...why, '--not-applied')).toMatchObject({ code: 2, err: expect.stringContaining('is at attempt 1 by now: look at seen/1/1') });
  expect((await cases('resolve', 'seen/1/1', '--not-applied')).code).not.toBe(0);
  expect(stack.events('seen', topics.reconciliationEvents)).toHaveLength(before);
});

test('resolve: what the contract or the proof forbids is refused with the reason, and changes nothing', async () => {
  const no = (reason: string) => ({ code: 1, said: { event: 'CaseCommandRefused', reason } });
  expect(await resolve('seen', '--not-applied')).toMatchObject(no('too_early'));
  expect(await resolve('seen', '--not-applied', '--read-at', '2999-01-01T00:00:00Z')).toMatchObject(no('too_early'));
  expect(await resolve('seen', '--applied', '{"id":7}')).toMatchObject(no('invalid_result'));
  expect(await resolve('seen', '--applied')).toMatchObject(no('invalid_result'));
  expect(await resolve('seen', '--applied', '{"id":"c-1"}', '--role', 'viewer')).toMatchObject(no('role_missing'));
  expect(await resolve('nested/run', '--applied', '{"id":"c-1"}')).toMatchObject(no('role_missing'));
  expect(await resolve('nested/run', '--not-applied', '--role', 'treasurer')).toMatchObject(no('too_early'));
  expect(await cases('resolve', 'seen/1/1', ...why, '--not-applied')).toMatchObject({ code: 1, out: expect.stringMatching(/^refused \(too_early\): the attempt can still take effect until /) });
  expect((await json('show', 'seen/1/1')).said).toMatchObject({ status: 'open', verdict: null });
  expect(fired.filter(({ run }) => run === 'seen')).toHaveLength(1);
});

test('resolve, by a command that names another attempt: refused by whoever owns the case, and told once', async () => {
  const command = { command: 'by-hand', by: { name: 'ann', roles: ['operator'] }, step: '1', attempt: 2, verdict: { status: 'not_applied' }, reason: 'r', evidence: 'e', force: true };
  for (let i = 0; i < 2; i += 1) await stack.send({ topic: topics.operatorCommands, key: 'seen', type: 'ResolveCase', value: JSON.stringify(command) });
  expect((await stack.event('seen', 'CaseCommandRefused', (data) => data['command'] === 'by-hand', topics.reconciliationEvents)).data).toMatchObject({ reason: 'other_attempt' });
  // The next command comes after both.
  await resolve('seen', '--not-applied');
  expect(stack.events('seen', topics.reconciliationEvents).filter(({ data }) => data['command'] === 'by-hand')).toHaveLength(1);
});

test('resolve --applied: the run goes on with the result that was found, and ends; nothing fires again', async () => {
  expect(await resolve('found', '--applied', '{"id":"c-9"}', '--as', 'eve')).toMatchObject({ code: 0, said: { case: 'found/1/1', event: 'CaseSettled', by: 'person', forced: false, because: 'eve: I called the bank', evidence: { note: 'statement 7' } } });
  expect(await outcome('found')).toEqual({ status: 'completed', output: { id: 'c-9' } });
  expect((await stack.event('found', 'EffectSucceeded', undefined, topics.effectEvents)).data).toMatchObject({ attempt: 1, result: { value: { id: 'c-9' } }, evidence: { kind: 'person' }, reconciled: { by: 'person' } });
  expect(fired.filter(({ run }) => run === 'found')).toHaveLength(1);

  // A second verdict, the same or another, forced or not.
  for (const args of [['--applied', '{"id":"c-9"}'], ['--not-applied'], ['--not-applied', '--force']]) {
    expect(await resolve('found', ...args)).toMatchObject({ code: 1, said: { event: 'CaseCommandRefused', reason: 'already_settled', message: 'it was settled as applied by person' } });
  }
  expect(await json('assign', 'found/1/1', 'bob')).toMatchObject({ code: 1, said: { reason: 'already_settled' } });
  expect((await json('list', '--run', 'found')).said['cases']).toEqual([]);
  expect((await json('list', '--run', 'found', '--all')).said['cases']).toMatchObject([{ status: 'settled', by: 'person', verdict: { status: 'applied' } }]);
  expect((await cases('list', '--run', 'found')).out).toBe('no open cases\n');
});

test('resolve --not-applied: refused until it is final, then another attempt under the same key', async () => {
  await eventually('a reading that is late enough', async () => (await resolve('gone', '--not-applied')).code === 0);
  expect(await outcome('gone')).toEqual({ status: 'completed', output: { id: 're-2' } });
  const both = fired.filter(({ run }) => run === 'gone');
  expect(both.map(({ attempt }) => attempt)).toEqual([1, 2]);
  expect(new Set(both.map(({ key }) => key)).size).toBe(1);
  await stack.event('gone', 'EffectSucceeded', undefined, topics.effectEvents);
  expect(stack.events('gone').map(({ envelope }) => envelope.type)).toEqual(expect.arrayContaining(['RunBlocked', 'StepReleased', 'RunFinished']));
  expect(stack.events('gone', topics.effectEvents).map(({ envelope }) => envelope.type)).toEqual(['EffectDispatched', 'EffectOutcomeUnknown', 'EffectRetryScheduled', 'EffectDispatched', 'EffectSucceeded']);
});

test('a command with its own id, given again, is answered as before, whatever became of its case; one that names another is not', async () => {
  await inDoubt('twice', 'again');
  const first = ['resolve', 'again/1/1', ...why, '--not-applied', '--force', '--id', 'INC-9'];
  const settled = await cases(...first);
  expect(settled).toMatchObject({ code: 0, err: '' });
  await stack.event('again', 'CaseOpened', ({ attempt }) => attempt === 2, topics.reconciliationEvents);
  expect(await cases(...first)).toEqual({ ...settled, err: expect.stringMatching(/^answered so at \S+Z; another --id asks anew$/m) });
  expect(await cases('resolve', 'again/1/2', ...why, '--not-applied', '--id', 'INC-9')).toMatchObject({ code: 2, out: '', err: expect.stringContaining('--id INC-9 named another command (CaseSettled of step 1, attempt 1); choose another') });
  expect(await cases('resolve', 'again/1/1', ...why, '--applied', '{"id":"c-1"}', '--id', 'INC-9')).toMatchObject({ code: 2, out: '', err: expect.stringContaining('(CaseSettled of step 1, attempt 1, with verdict {"status":"not_applied"})') });
  expect(await cases('assign', 'again/1/1', 'bob', '--id', 'INC-9')).toMatchObject({ code: 2, out: '', err: expect.stringContaining('(CaseSettled of step 1, attempt 1)') });
  expect((await json('show', 'again/1/2')).said).toMatchObject({ status: 'open', owner: 'the desk' });
});

test('resolve --force: a person’s word where nothing proves it, marked so', async () => {
  expect(await resolve('nested/run', '--not-applied', '--role', 'treasurer', '--force')).toMatchObject({ code: 0, said: { event: 'CaseSettled', forced: true } });
  expect(await outcome('nested/run')).toEqual({ status: 'completed', output: { id: 're-2' } });
  expect((await stack.event('nested/run', 'EffectRetryScheduled', undefined, topics.effectEvents)).data).toMatchObject({ reconciled: { by: 'person', forced: true } });
});

test('a late truth that contradicts the verdict is kept, raised and listed', async () => {
  expect(await resolve('late', '--not-applied', '--force')).toMatchObject({ code: 0 });
  expect(await outcome('late')).toEqual({ status: 'completed', output: { id: 'slow-2' } });
  letGo();
  await stack.event('late', 'DuplicateEffectDetected', undefined, topics.effectEvents);
  await stack.event('late', 'VerdictContradicted', undefined, topics.effectEvents);
  const { said } = await json('list', '--run', 'late');
  expect(said['alarms']).toMatchObject([{ run: 'late', event: 'DuplicateEffectDetected' }, { run: 'late', event: 'VerdictContradicted' }]);
  expect((await cases('list')).out).toMatch(/alarm DuplicateEffectDetected .* run late: attempts 2 and 1 of slow both report success/);
  // The run ended as it ended.
  expect(await outcome('late')).toEqual({ status: 'completed', output: { id: 'slow-2' } });
});
