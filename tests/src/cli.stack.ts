import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics } from '@holdfast/protocol';
import { defineAgent, defineTool, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { cli } from './support/cli.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'the desk', input: z.object({ cents: z.number(), memo: z.string().optional() }), output: z.string(), execute: async ({ cents }) => `paid ${cents}` });
const clerk = defineAgent({
  ...{ name: 'clerk', version: '2', input: z.object({ cents: z.number(), memo: z.string().optional() }), output: z.string() },
  run: async (run, { cents, memo }) => {
    const args = { cents, ...(memo === undefined ? {} : { memo }) };
    if (cents > 1000) return run.call(pay, args, { approval: await run.approval({ what: 'a large sum', tool: pay, args, approvers: ['lead'] }) });
    if (cents < 0) throw new Error('nothing to pay');
    return run.call(pay, { cents });
  },
});

let stack: TestStack;
let worker: ServedWorker | undefined;

beforeAll(async () => {
  stack = await TestStack.start();
  process.env['HOLDFAST_BROKERS'] = stack.brokers.join(',');
  process.env['HOLDFAST_DATABASE_URL'] = stack.stack.databaseUrl;
  worker = await work(stack.brokers, { worker: 'counter', agents: [clerk], tools: [pay] });
}, STACK_LIMIT_MS);

afterAll(async () => {
  delete process.env['HOLDFAST_BROKERS'];
  delete process.env['HOLDFAST_DATABASE_URL'];
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

const start = (run: string, cents: number, ...more: string[]) => cli('runs', 'start', 'clerk', '--input', JSON.stringify({ cents }), '--run-id', run, '--json', ...more);

test('a run is started by its agent’s name, waited for, and its end is the exit code', async () => {
  const done = await start('paid', 5, '--wait', '60s');
  expect([done.code, JSON.parse(done.out)]).toEqual([0, { run: 'paid', agent: 'clerk@2', outcome: { status: 'completed', output: 'paid 5' } }]);
  const failed = await start('failed', -1, '--wait');
  expect([failed.code, JSON.parse(failed.out)]).toMatchObject([1, { outcome: { status: 'failed' } }]);
  // The same run id with another input is another run's.
  expect(await start('paid', 6, '--wait')).toMatchObject({ code: 1, err: expect.stringMatching(/input/) });
  for (const words of [['show'], ['signal', 'go'], ['cancel', '--reason', 'r'], ['fork', '--from', '1'], ['export']]) {
    const [verb = '', ...rest] = words;
    expect([verb, await cli('runs', verb, 'nobody', ...rest)]).toMatchObject([verb, { code: 1, err: expect.stringMatching(/run nobody has no events/) }]);
  }
  expect(await cli('runs', 'fork', 'paid', '--from', '99')).toMatchObject({ code: 1, out: expect.stringMatching(/has steps up to 1: fork it from one of 1 to 2/) });
  expect(await cli('tail', '--topic', 'no.such', '--no-follow')).toMatchObject({ code: 2, err: expect.stringMatching(/there is no topic no.such/) });
  expect(await cli('runs', 'start', 'clerk@9')).toMatchObject({ code: 2, err: expect.stringMatching(/no worker has declared clerk@9: `holdfast contracts list/) });
  expect(await cli('runs', 'start', 'clerk', '--input', '{')).toMatchObject({ code: 2, err: expect.stringMatching(/--input is no JSON/) });
});

test('an approval is listed with all that is approved, decided, and gone from the list', async () => {
  await start('large', 5000);
  await stack.event('large', 'WaitStarted');
  const { approvals } = JSON.parse((await cli('approvals', 'list', '--role', 'lead', '--json')).out) as { approvals: unknown[] };
  expect(approvals).toMatchObject([{ approval: 'large/1', what: 'a large sum', tool: 'pay@1', args: { cents: 5000 }, approvers: ['lead'] }]);
  expect((await cli('approvals', 'list')).out).toMatch(/large .* 1 .* a large sum .* pay@1 .* lead/);
  expect((await cli('approvals', 'list', '--role', 'clerk')).out).toBe('nothing waits for an approval\n');
  expect((await cli('runs', 'approve', 'large', '1', '--as', 'kate', '--role', 'lead')).code).toBe(0);
  await stack.event('large', 'RunFinished');
  expect((await cli('approvals', 'list', '--run', 'large')).out).toBe('nothing waits for an approval\n');
});

test('a start carries what is said of its conversation, its place in the queue and its budgets', async () => {
  const said = ['--concurrency-key', 'chat-7', '--priority', '-5', '--steps-max', '50', '--success', 'paid', 'told', '--on-deadline', 'compensate', '--deadline', '1h'];
  expect((await start('talk', 6000, ...said)).code).toBe(0);
  expect((await stack.event('talk', 'RunAccepted')).data).toMatchObject({ budgets: { stepsMax: 50 }, success: ['paid', 'told'], onDeadline: { action: 'compensate' } });
  const refused = await start('talk-2', 100, '--concurrency-key', 'chat-7', '--on-concurrent', 'reject', '--wait', '1m');
  expect([refused.code, JSON.parse(refused.out)]).toMatchObject([1, { refused: { reason: 'concurrent_run', holder: 'talk' } }]);
});

test('tail tells what happened to a run in its order, and ends where it shall not follow', async () => {
  await stack.event('paid', 'EffectSucceeded', () => true, topics.effectEvents);
  const { code, out } = await cli('tail', '--run', 'paid', '--no-follow', '--json');
  const events = out.trim().split('\n').map((line) => JSON.parse(line) as { type: string; run: string; time: string });
  expect(code).toBe(0);
  expect(new Set(events.map(({ run }) => run))).toEqual(new Set(['paid']));
  expect(events.map(({ time }) => time)).toEqual(events.map(({ time }) => time).toSorted());
  expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['RunAccepted', 'EffectRequested', 'EffectDispatched', 'EffectSucceeded', 'RunFinished']));
  expect((await cli('tail', '--since', '1h', '--no-follow', '--type', 'RunFinished', '--tenant', 'default')).out.trim().split('\n')).toHaveLength(3);
  expect((await cli('tail', '--since', '1h', '--no-follow', '--tenant', 'other')).out).toBe('');
});

test('whoever approves is shown the arguments to their end, and approves what was shown', async () => {
  const memo = `${'a quite usual note '.repeat(10)}\u009b2J\u202e to account 666`;
  expect((await cli('runs', 'start', 'clerk', '--input', JSON.stringify({ cents: 5000, memo }), '--run-id', 'long')).code).toBe(0);
  await stack.event('long', 'WaitStarted');
  const [, digest = ''] = /^args long\/1 pay@1 .* --digest (\S+)$/m.exec((await cli('approvals', 'list')).out) ?? [];
  const shown = `pay@1 {"cents":5000,"memo":"${'a quite usual note '.repeat(10)}\\u009b2J\\u202e to account 666"} --digest ${digest}`;
  expect((await cli('approvals', 'list')).out.split('\n')).toContain(`args long/1 ${shown}`);
  expect((await cli('runs', 'show', 'long')).out.split('\n')).toContain(`args       step 1 ${shown}`);
  const approve = (...words: string[]) => cli('runs', 'approve', 'long', '1', '--as', 'kate', '--role', 'lead', ...words);
  expect(await approve('--digest', digest.replace(/^./, (sign) => (sign === '0' ? '1' : '0')))).toMatchObject({ code: 1, out: expect.stringMatching(/other_scope/) });
  expect((await approve('--digest', digest)).code).toBe(0);
  expect((await cli('runs', 'show', 'long')).out).not.toMatch(/^args /m);
});

test('a command with its own id, given again, is answered as before and does nothing more', async () => {
  await start('twice', 6000, '--concurrency-key', 'twice');
  await stack.event('twice', 'WaitStarted');
  const words = [
    ['runs', 'signal', 'twice', 'go', '1', '--id', 'signal-1'],
    ['runs', 'pause', 'twice', '--reason', 'a look', '--id', 'pause-1'],
    ['runs', 'fork', 'twice', '--from', '1', '--id', 'a fork / with such a name'],
    ['brakes', 'set', 'tool', 'none', '--reason', 'a look', '--id', 'brake-1'],
    ['brakes', 'release', 'tool', 'none', '--id', 'brake-2'],
    ['runs', 'cancel', 'twice', '--reason', 'done', '--immediate', '--id', 'cancel-1'],
    ['runs', 'pause', 'twice', '--reason', 'too late', '--id', 'pause-2'],
  ];
  for (const each of words) {
    const first = await cli(...each, '--json');
    expect([each, await cli(...each, '--json')]).toEqual([each, { ...first, err: expect.stringMatching(/^answered so at \S+Z; another --id asks anew$/m) }]);
    expect([each, first.code, first.err]).toEqual([each, each.includes('pause-2') ? 1 : 0, '']);
  }
  expect((await cli('tail', '--run', 'twice', '--no-follow', '--type', 'SignalReceived', '--json')).out.trim().split('\n')).toHaveLength(1);
});

test('an id that named one command names no other, and nothing is sent', async () => {
  await start('other', 6000, '--concurrency-key', 'other');
  await stack.event('other', 'WaitStarted');
  const did = async (...words: string[]) => expect(await cli(...words)).toMatchObject({ code: 0 });
  const isAnothers = async (what: RegExp, ...words: string[]) => expect([words, await cli(...words)]).toMatchObject([words, { code: 2, out: '', err: expect.stringMatching(what) }]);
  await did('brakes', 'set', 'tool', 'none', '--reason', 'a look', '--id', 'INC-7');
  await isAnothers(/--id INC-7 named another command \(BrakeSet of tool:none\); choose another/, 'brakes', 'set', 'tool', 'else', '--reason', 'a look', '--id', 'INC-7');
  await isAnothers(/\(BrakeSet of tool:none\)/, 'brakes', 'release', 'tool', 'none', '--id', 'INC-7');
  await isAnothers(/\(BrakeSet of tool:none, with reason "a look"\)/, 'brakes', 'set', 'tool', 'none', '--reason', 'a second look', '--id', 'INC-7');
  expect((JSON.parse((await cli('brakes', 'list', '--json')).out) as { brakes: unknown[] }).brakes).toMatchObject([{ brake: 'tool:none', reason: 'a look' }]);
  await did('brakes', 'release', 'tool', 'none');
  // What a brake leaves in the runs that it holds is no answer to a command of theirs.
  await did('brakes', 'set', 'tenant', 'default', '--reason', 'a look', '--id', 'INC-8');
  await stack.event('other', 'RunPaused', (data) => 'brake' in data);
  await did('runs', 'pause', 'other', '--reason', 'this one as well', '--id', 'INC-8');
  expect((await stack.event('other', 'RunPaused', (data) => !('brake' in data))).data).toMatchObject({ command: 'INC-8', reason: 'this one as well' });
  await did('brakes', 'release', 'tenant', 'default');
  await isAnothers(/\(RunPaused\)/, 'runs', 'cancel', 'other', '--reason', 'done', '--id', 'INC-8');
  await isAnothers(/\(RunPaused\)/, 'runs', 'signal', 'other', 'go', '--id', 'INC-8');
});

test('a run that ends in part, for want of time, says why, and its page what it came to', async () => {
  const late = await cli('runs', 'start', 'clerk', '--input', '{"cents":8000}', '--run-id', 'late', '--deadline', '1s', '--on-deadline', '{"action":"complete_partially","because":"nobody approved it in time"}', '--wait', '60s');
  expect(late).toMatchObject({ code: 1, out: 'run late: completed_partially nobody approved it in time\n' });
  expect((await cli('runs', 'show', 'late')).out).toMatch(/^ending +\{"status":"completed_partially","because":"nobody approved it in time"\}$/m);
});

test('topics and databases are looked at, made and checked', async () => {
  const described = JSON.parse((await cli('topics', 'describe', 'run.events', '--json')).out) as { topics: { messages: number }[] };
  expect(described.topics).toMatchObject([{ name: 'run.events', partitions: stack.lanes.length, retentionMs: 'forever' }]);
  expect(described.topics[0]?.messages).toBeGreaterThan(0);
  expect(await cli('topics', 'describe', 'no.such')).toMatchObject({ code: 2, err: expect.stringMatching(/there is no topic no.such/) });
  expect(JSON.parse((await cli('topics', 'check', '--json')).out)).toMatchObject({ ok: true });
  expect(await cli('topics', 'check', '--partitions', String(stack.lanes.length + 1))).toMatchObject({ code: 1, out: expect.stringMatching(/wrong {2}run.events has/) });
  expect(JSON.parse((await cli('topics', 'create', '--partitions', String(stack.lanes.length), '--replication', '1', '--pool', 'new', '--json')).out)).toEqual({ made: ['run.tasks.new', 'tool.tasks.new'] });
  expect(await cli('topics', 'create', '--partitions', String(stack.lanes.length + 1), '--replication', '1')).toMatchObject({ code: 2, err: expect.stringMatching(/has \d+ partitions, HOLDFAST_PARTITIONS says/) });
  // This stack has no gateway, so that its database is the one that is missing.
  expect(await cli('migrate', '--check')).toMatchObject({ code: 1, out: expect.stringMatching(/holdfast_gateway \(missing\)/) });
  expect(await cli('migrate')).toMatchObject({ code: 0 });
  expect(await cli('migrate', '--check')).toMatchObject({ code: 0 });
});

interface Found {
  readonly what: string;
  readonly state: string;
  readonly says: string;
  readonly mend: string;
}

async function doctor(): Promise<{ code: number; readonly wrong: readonly Found[]; of(what: string): Found | undefined }> {
  const { code, out } = await cli('doctor', '--json');
  const { findings } = JSON.parse(out) as { findings: Found[] };
  return { code, wrong: findings.filter(({ state }) => state === 'wrong'), of: (what) => findings.find((finding) => finding.what === what) };
}

test('the doctor finds a stack well, and says what is wrong once a service and a database are gone', async () => {
  const well = await doctor();
  expect(['Kafka', 'PostgreSQL', 'clocks', 'orchestrator', 'journal of ledger', 'workers'].map((what) => [what, well.of(what)?.state])).toEqual([['Kafka', 'ok'], ['PostgreSQL', 'ok'], ['clocks', 'ok'], ['orchestrator', 'ok'], ['journal of ledger', 'ok'], ['workers', 'ok']]);
  expect([well.code, well.wrong]).toEqual([0, []]);
  // Who said that it stops is no longer there, however lately it said so.
  const leaver = await work(stack.brokers, { worker: 'leaver', agents: [clerk], tools: [pay] });
  await leaver.stop({ graceMs: 0 });
  expect((await doctor()).of('workers')?.says).toMatch(/^counter\.[^,]*$/);
  await stack.service('compensation').stop();
  const unwell = await doctor();
  expect([unwell.code, unwell.of('compensation')]).toMatchObject([1, { state: 'wrong', says: 'no instance of it takes part', mend: expect.stringMatching(/start one/) }]);
  process.env['HOLDFAST_DATABASE_URL'] = 'postgres://nobody@127.0.0.1:1';
  const blind = await doctor();
  process.env['HOLDFAST_DATABASE_URL'] = stack.stack.databaseUrl;
  expect([blind.code, blind.of('PostgreSQL')]).toMatchObject([1, { state: 'wrong', mend: expect.stringMatching(/HOLDFAST_DATABASE_URL/) }]);
  expect(await cli('doctor')).toMatchObject({ code: 1, out: expect.stringMatching(/wrong {2}compensation: no instance of it takes part\n {7}start one/) });
});

test('a run that nobody waited for to its end is named, on both streams', async () => {
  const unheard = await cli('runs', 'start', 'clerk', '--input', '{"cents":7000}', '--wait', '1ms', '--json');
  const made = JSON.parse(unheard.out) as { run: string };
  expect([unheard.code, made, unheard.err.includes(made.run)]).toEqual([2, { run: expect.any(String), agent: 'clerk@2', phase: expect.any(String), outcome: null }, true]);
});
