import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, Failed, HoldfastClient, MayHaveApplied, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { SERVICES, STACK_LIMIT_MS, TestStack, type ServiceName } from './support/stack.js';
import { countingTool, work, type Firing } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

/** Re-reading every topic from its beginning must change nothing. */

let stack: TestStack;
let worker: ServedWorker | undefined;
const firings: Firing[] = [];
const note = (run: string, step: string, attempt: number): number => firings.push({ run, step, attempt, args: null });

const amount = z.object({ amount: z.number() });
const tools = [
  countingTool('pay', 'irreversible', firings),
  countingTool('put', 'idempotent', firings),
  defineTool({ name: 'flaky', version: '1', effect: 'idempotent', input: amount, output: z.json(), retry: { initialMs: 10, maxMs: 20 }, execute: (_, { run, step, attempt }) => {
    note(run, step, attempt);
    if (attempt === 1) throw new Failed({ class: 'transient', message: 'the first try fails' });
    return null;
  } }),
  defineTool({ name: 'lost', version: '1', effect: 'irreversible', input: amount, output: z.json(), owner: 'whoever runs the tests', execute: (_, { run, step, attempt }) => {
    note(run, step, attempt);
    throw new MayHaveApplied('the connection was cut');
  } }),
  defineTool({ name: 'refund', version: '1', effect: 'irreversible', keyScope: 'target', target: ({ order }) => order, input: z.object({ order: z.string(), amount: z.number() }), output: z.json(), owner: 'whoever runs the tests', execute: (_, { run, step, attempt }) => {
    note(run, step, attempt);
    return run;
  } }),
];
const agent = defineAgent({
  name: 'keeper',
  version: '1',
  input: amount,
  output: z.json(),
  run: async (run, { amount: value }) => {
    const [put, pay] = tools;
    if (put === undefined || pay === undefined) throw new Error('no tools');
    await run.call(pay, { amount: value });
    await run.call(put, { amount: value });
    return value;
  },
});

const call = (run: string, step: string, tool: string, args: Json, more: { readonly [name: string]: Json } = {}) => stack.intent(run, 'CallTool', { step, tool: { name: tool, version: '1' }, args, ...more });
const start = (run: string) => stack.intent(run, 'StartRun', { agent: null, input: run });
const settled = (run: string, step: string) => stack.event(run, 'EffectSettled', (data) => data['step'] === step);

/** What a service has decided: all but how far it has read and published. */
async function decided(service: ServiceName): Promise<Record<string, unknown>> {
  return {
    journal: await stack.rows(service, 'select * from journal order by lane, seq'),
    // What came to rest may stand as open, or with its time, for a while: that costs a look, and is no decision.
    agenda: await stack.rows(service, `select * from agenda where open and due_at is null and stream not in (select stream from journal where type = 'RunFinished') order by stream`),
    shared: await stack.rows(service, 'select * from shared order by key'),
    progress: await stack.rows(service, 'select lane, seen, parked, last, next_seq from progress order by lane').then((rows) => rows.map(({ lane, seen, parked, last, next_seq }) => ({ lane, seen: JSON.parse(String(seen)) as Json, parked: JSON.parse(String(parked)) as Json, last: JSON.parse(String(last)) as Json, next_seq }))),
  };
}

const READ_BY: Record<ServiceName, readonly string[]> = {
  orchestrator: [topics.agentIntents, topics.effectEvents, topics.operatorCommands, topics.compensationEvents],
  ledger: [topics.runEvents, topics.toolResults, topics.reconciliationEvents, topics.compensationEvents],
  reconciliation: [topics.effectEvents, topics.toolResults, topics.operatorCommands],
  compensation: [topics.runEvents, topics.effectEvents, topics.toolResults, topics.operatorCommands],
};

/** Every record on the topics that a service reads is decided on, and every row is published. */
async function atTheEnd(service: ServiceName): Promise<boolean> {
  const ends = await stack.ends();
  const rows = await stack.rows<{ lane: number; offsets: string; rest: number }>(service, 'select lane, offsets, next_seq - 1 - published as rest from progress');
  return (
    rows.length === stack.lanes.length &&
    rows.every(({ lane, offsets, rest }) => {
      const read = JSON.parse(offsets) as Record<string, number>;
      return rest === 0 && READ_BY[service].every((topic) => (read[topic] ?? 0) === ends[`${topic}/${lane}`]);
    })
  );
}

const quiet = (): Promise<true> => eventually('everything is read and published', async () => (await Promise.all(SERVICES.map(atTheEnd))).every(Boolean) && true);
const stopServices = (): Promise<unknown> => Promise.all(SERVICES.map((name) => stack.service(name).stop()));
const startServices = (): Promise<unknown> => Promise.all(SERVICES.map((name) => stack.service(name).start()));

beforeAll(async () => {
  stack = await TestStack.start();
  worker = await work(stack.brokers, { tools, agents: [agent] });
  await eventually('every lane is taken', () => stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length > 0));

  // A call before its run, which is then started: it was answered, and stays so.
  const early = stack.runOn(0, 'early');
  await stack.deadLetter(await call(early, '1', 'pay', { amount: 1 }));
  await start(early);
  await stack.event(early, 'RunAccepted');

  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  const runs = await Promise.all(stack.lanes.map((lane) => client.start(agent, { amount: lane }, { runId: stack.runOn(lane, 'agent') })));
  for (const run of runs) expect(await run.outcome()).toMatchObject({ status: 'completed' });
  await client.close();

  for (const lane of stack.lanes) await stack.goodRun(stack.runOn(lane, 'plain'), 'pay');

  // Refused while it was open, in ways that would be refused otherwise once it has ended.
  const refused = stack.runOn(1, 'refused');
  await start(refused);
  await call(refused, '1', 'pay', { amount: 'much' });
  await call(refused, '2', 'none', {});
  await stack.send({ key: refused, type: 'CallTool', value: '{nope' });
  await call(refused, '1', 'pay', { amount: 3 });
  await stack.intent(refused, 'FinishRun', { ending: { status: 'completed', output: { value: 'too soon' } } });
  await settled(refused, '1');
  await call(refused, '2', 'pay', { amount: 4 });
  await settled(refused, '2');
  await stack.finish(refused);
  expect(stack.events(refused).filter(({ envelope }) => envelope.type === 'IntentRejected').length).toBeGreaterThanOrEqual(3);

  // Tried twice; unknown; one key for two runs, and one that asks otherwise.
  const flaky = stack.runOn(2, 'flaky');
  await start(flaky);
  await call(flaky, '1', 'flaky', { amount: 1 });
  await settled(flaky, '1');
  const lost = stack.runOn(3, 'lost');
  await start(lost);
  await call(lost, '1', 'lost', { amount: 1 });
  await stack.event(lost, 'RunBlocked');
  // In doubt as well: given to somebody, judged by one who may not and by one who may, and completed.
  const judged = stack.runOn(3, 'judged');
  await start(judged);
  await call(judged, '1', 'lost', { amount: 2 });
  await stack.event(judged, 'CaseOpened', undefined, topics.reconciliationEvents);
  const order = (type: string, command: string, roles: string[], data: { readonly [name: string]: Json }) => stack.send({ topic: topics.operatorCommands, key: judged, type, value: JSON.stringify({ command, by: { name: 'ann', roles }, step: '1', attempt: 1, ...data }) });
  const found = { verdict: { status: 'applied', result: null }, reason: 'it was looked up', evidence: 'statement 7' };
  await order('AssignCase', 'c-1', ['operator'], { owner: 'bob' });
  await order('ResolveCase', 'c-2', [], found);
  await order('ResolveCase', 'c-3', ['operator'], found);
  await order('ResolveCase', 'c-3', ['operator'], found);
  await settled(judged, '1');
  await stack.finish(judged);
  expect(stack.events(judged, topics.reconciliationEvents).map(({ envelope }) => envelope.type)).toEqual(['CaseOpened', 'CaseEscalated', 'CaseAssigned', 'CaseCommandRefused', 'CaseSettled']);
  for (const [lane, value] of [[0, 5], [1, 5], [2, 6]] as const) {
    const run = stack.runOn(lane, 'refund');
    await start(run);
    await call(run, '1', 'refund', { order: 'A1', amount: value }, { target: 'A1' });
    await settled(run, '1');
  }
  await worker.stop();
  await quiet();
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

const LOSSES = [
  { what: 'positions and marks', reset: `offsets = '{}', seen = '{}'` },
  { what: 'positions', reset: `offsets = '{}'` },
] as const;

test.each(LOSSES.slice(0, proof(1, LOSSES.length)))('after a loss of all $what, everything is read again and nothing changes', async ({ reset }) => {
  await stopServices();
  const [before, ends, fired] = [await Promise.all(SERVICES.map(decided)), await stack.ends(), firings.length];
  for (const service of SERVICES) await stack.database(service).query(`update progress set ${reset}`);

  await startServices();
  await quiet();
  await stopServices();

  expect(await stack.ends()).toEqual(ends);
  const after = await Promise.all(SERVICES.map(decided));
  for (const [i, service] of SERVICES.entries()) expect({ service, ...after[i] }).toEqual({ service, ...before[i] });
  expect(firings).toHaveLength(fired);
  expect(await stack.halts()).toEqual([]);
  await startServices();
  await quiet();
});
