import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { digestOf, operationKey, DEFAULT_TENANT, RunId, Step, topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { STACK_LIMIT_MS, TestStack, type Place, type ServiceName } from './support/stack.js';
import { countingTool, work, type Firing } from './support/worker.js';

jest.setTimeout(60_000);

const PAY = { name: 'pay', version: '1' };
const call = (args: Json, more: { readonly [name: string]: Json } = {}): Json => ({ step: '2', tool: PAY, args, ...more });
const REPORT = { step: '1', key: 'a'.repeat(64), attempt: 1, outcome: { status: 'succeeded', result: { value: 1 }, evidence: { kind: 'receipt' } }, worker: 'nobody' };

let stack: TestStack;
let worker: ServedWorker;
const firings: Firing[] = [];
let fenced = '';

/** What one bad message leads to: a refusal in its run, a dead letter, both, and nothing else. */
interface Row {
  readonly name: string;
  readonly send: (run: string) => Promise<Place>;
  readonly rejected?: { readonly reason: string; readonly message?: RegExp };
  readonly dead?: string;
  readonly run?: () => string;
  readonly by?: ServiceName;
  /** A worker that holds the run is told, too. */
  readonly told?: true;
}

const raw = (run: string, value: string, type = 'CallTool'): Promise<Place> => stack.send({ key: run, type, value });
const rawArgs = (run: string, args: string): Promise<Place> => raw(run, `{"step":"2","tool":{"name":"pay","version":"1"},"args":${args}}`);
const start = (key: string | Buffer | null, more: { readonly partition?: number; readonly headers?: Record<string, string> } = {}): Promise<Place> => stack.send({ key, type: 'StartRun', value: '{"agent":null,"input":1}', ...more });
const report = (run: string, data: Json): Promise<Place> => stack.send({ topic: topics.toolResults, key: run, type: 'EffectReported', value: JSON.stringify(data) });

/** Another run, of another lane. */
const elsewhere = (run: string): string => stack.runOn((stack.laneOf(run) + 1) % 4, `beside-${run}`);
const NUL_TENANT = { ce_tenant: 'a\u0000' };
const COMMAND = { command: 'c', by: { name: 'kate', roles: ['operator'] }, reason: 'r' };
const brake = (lane: string, type: string): Promise<Place> => stack.send({ topic: topics.operatorCommands, key: lane, type, value: JSON.stringify({ ...COMMAND, target: { kind: 'agent', name: 'nobody' } }), partition: 1, headers: NUL_TENANT });

const rows: readonly Row[] = [
  { name: 'a value that is not JSON', send: (run) => raw(run, '{nope'), rejected: { reason: 'invalid' }, dead: 'not_json' },
  { name: 'no value', send: (run) => stack.send({ key: run, type: 'CallTool', value: null }), rejected: { reason: 'invalid' }, dead: 'invalid' },
  { name: 'a value that fails the schema', send: (run) => stack.intent(run, 'CallTool', { step: 'first', tool: PAY }), rejected: { reason: 'invalid', message: /step.*cursor/ }, dead: 'invalid' },
  { name: 'an unknown type', send: (run) => stack.intent(run, 'CallTools', call({ amount: 1 })), rejected: { reason: 'invalid', message: /CallTools/ }, dead: 'unknown_type' },
  { name: 'no ce_type', send: (run) => stack.send({ key: run, value: JSON.stringify(call({ amount: 1 })) }), dead: 'no_type' },
  { name: 'an unknown tool', send: (run) => stack.intent(run, 'CallTool', { step: '2', tool: { name: 'steal', version: '1' }, args: {} }), rejected: { reason: 'unknown_tool', message: /steal@1/ } },
  { name: 'a wrong version of a tool', send: (run) => stack.intent(run, 'CallTool', { step: '2', tool: { name: 'pay', version: '2' }, args: { amount: 1 } }), rejected: { reason: 'unknown_tool', message: /pay@2/ } },
  { name: 'arguments that fail the contract’s schema', send: (run) => stack.intent(run, 'CallTool', call({ amount: 'much' })), rejected: { reason: 'invalid_arguments', message: /amount/ } },
  { name: 'a key other than ce_subject', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 }), { ce_subject: 'another' }), dead: 'key_mismatch' },
  { name: 'a wrong partition', send: (run) => stack.send({ key: run, type: 'CallTool', value: JSON.stringify(call({ amount: 1 })), partition: (stack.laneOf(run) + 1) % 4 }), dead: 'wrong_partition' },
  { name: 'an unknown type on a wrong partition', send: (run) => stack.send({ key: run, type: 'Nope', value: '{}', partition: (stack.laneOf(run) + 1) % 4 }), dead: 'wrong_partition' },
  { name: 'an unknown type under another key', send: (run) => stack.send({ key: elsewhere(run), type: 'Nope', value: '{}', headers: { ce_subject: run } }), dead: 'key_mismatch' },
  { name: 'an intent of 300 KiB on a wrong partition', send: (run) => stack.send({ key: run, type: 'CallTool', value: JSON.stringify(call({ amount: 1, note: 'x'.repeat(300 * 1024) })), partition: (stack.laneOf(run) + 1) % 4 }), dead: 'wrong_partition' },
  { name: 'an intent of 300 KiB', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1, note: 'x'.repeat(300 * 1024) })), rejected: { reason: 'too_large', message: /artifact/ }, dead: 'too_large' },
  { name: 'the same run with another input', send: (run) => stack.intent(run, 'StartRun', { agent: null, input: 'another' }), rejected: { reason: 'run_exists_with_other_input' } },
  { name: 'the same step with other arguments', send: (run) => stack.intent(run, 'CallTool', { step: '1', tool: PAY, args: { amount: 77 } }), rejected: { reason: 'operation_conflict' } },
  { name: 'the same step with another tool', send: (run) => stack.intent(run, 'CallTool', { step: '1', tool: { name: 'note', version: '1' }, args: { amount: 1 } }), rejected: { reason: 'operation_conflict' } },
  { name: 'a local call of an irreversible tool', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 }, { fire: 'local' })), rejected: { reason: 'local_not_allowed' } },
  { name: 'a fence from the past', run: () => fenced, send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 }, { fence: 1 })), rejected: { reason: 'stale_fence' }, told: true },
  { name: 'no fence while a worker holds the run', run: () => fenced, send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 })), rejected: { reason: 'fence_required' }, told: true },
  { name: 'an intent for a finished run', run: () => 'finished', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 })), rejected: { reason: 'run_ended' } },
  { name: 'an intent for a run that never was', run: () => 'never-was', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 })), dead: 'run_unknown' },
  { name: 'an integer beyond 2^53', send: (run) => rawArgs(run, '{"amount":9007199254740993}'), rejected: { reason: 'invalid', message: /9007199254740993.*string/ }, dead: 'unsafe_number' },
  { name: 'a number beyond a double', send: (run) => rawArgs(run, '{"amount":1e400}'), rejected: { reason: 'invalid', message: /1e400/ }, dead: 'unsafe_number' },
  { name: 'lists nested too deep', send: (run) => rawArgs(run, `{"amount":1,"x":${'['.repeat(600)}${']'.repeat(600)}}`), rejected: { reason: 'invalid', message: /nested more than/ }, dead: 'too_deep' },
  { name: 'a __proto__ member', send: (run) => rawArgs(run, '{"amount":1,"__proto__":{"admin":true}}'), rejected: { reason: 'invalid', message: /__proto__/ }, dead: 'proto_member' },
  { name: 'a __proto__ member in escapes', send: (run) => rawArgs(run, '{"amount":1,"\\u005f_proto__":1}'), rejected: { reason: 'invalid' }, dead: 'proto_member' },
  { name: 'an empty id', run: () => '', send: () => start(''), dead: 'invalid_id' },
  { name: 'no key', run: () => '', send: () => start(null), dead: 'key_mismatch' },
  { name: 'an id of 10,000 characters', run: () => 'x'.repeat(10_000), send: (run) => start(run), dead: 'invalid_id' },
  { name: 'a NUL in an id', run: () => 'a\u0000b', send: (run) => start(run), dead: 'invalid_id' },
  { name: 'half a surrogate pair in an id', run: () => 'a\ud800b', send: (run) => start(run), dead: 'invalid_id' },
  { name: 'an id that is no UTF-8', run: () => 'a\ufffd\ufffdb', send: (run) => start(Buffer.from([0x61, 0xff, 0xfe, 0x62]), { partition: stack.laneOf(run) }), dead: 'invalid_id' },
  { name: 'an id that is kept for lanes', run: () => '~lane/default/1', send: (run) => start(run), dead: 'invalid_id' },
  { name: 'a NUL in the tenant', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 }), { ce_tenant: 'a\u0000' }), dead: 'invalid_id' },
  // A tenant is checked before anything else: nobody is told who can't be named.
  { name: 'a NUL in the tenant of what is not JSON', send: (run) => stack.send({ key: run, type: 'CallTool', value: '{nope', headers: { ce_tenant: 'a\u0000' } }), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of a start by a parent', run: () => 'orphan', send: (run) => stack.intent(run, 'StartRun', { agent: null, input: 1, parent: { run: 'finished', step: '1' } }, NUL_TENANT), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of a fork', run: () => 'forked', send: (run) => stack.intent(run, 'StartFork', { start: { agent: null, input: 1 }, origin: { run: 'finished', from: '1' }, steps: [], observed: [] }, NUL_TENANT), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of an announcement', run: () => '~lane/default/1', send: (run) => stack.send({ key: run, type: 'AnnounceLane', value: JSON.stringify({ pool: 'default', lane: 1, worker: 'w', agents: [], tools: [], taken: {}, generation: 1000 }), partition: 1, headers: NUL_TENANT }), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of a brake', run: () => '~brakes/1', send: (run) => brake(run, 'SetBrake'), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of a brake’s release', run: () => '~brakes/1', send: (run) => brake(run, 'ReleaseBrake'), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of a signal', send: (run) => stack.intent(run, 'SignalRun', { signal: 's', name: 'n', payload: 1 }, NUL_TENANT), dead: 'invalid_id' },
  { name: 'a NUL in the tenant of a cancellation', send: (run) => stack.send({ topic: topics.operatorCommands, key: run, type: 'CancelRun', value: JSON.stringify({ ...COMMAND, scope: 'run', manner: 'graceful' }), headers: NUL_TENANT }), dead: 'invalid_id' },
  { name: 'another tenant’s intent', send: (run) => stack.intent(run, 'CallTool', call({ amount: 1 }), { ce_tenant: 'someone-else' }), dead: 'run_unknown' },
  { name: 'another tenant’s intent that is not JSON', send: (run) => stack.send({ key: run, type: 'CallTool', value: '{nope', headers: { ce_tenant: 'someone-else' } }), dead: 'not_json' },
  { name: 'a NUL in the trace', send: (run) => stack.intent(run, 'CallTool', call({ amount: 'much' }), { traceparent: '00-\u0000' }), rejected: { reason: 'invalid_arguments' } },
  { name: 'a report for an unknown effect', send: (run) => report(run, { ...REPORT, step: '9' }), dead: 'effect_unknown', by: 'ledger' },
  { name: 'a report under another key', send: (run) => report(run, REPORT), dead: 'key_mismatch', by: 'ledger' },
  { name: 'a report for a run that never was', run: () => 'never-was', send: (run) => report(run, REPORT), dead: 'effect_unknown', by: 'ledger' },
  { name: 'another tenant’s report', send: (run) => stack.send({ topic: topics.toolResults, key: run, type: 'EffectReported', value: JSON.stringify(REPORT), headers: { ce_tenant: 'someone-else' } }), dead: 'effect_unknown', by: 'ledger' },
  { name: 'a NUL in the tenant of a report', send: (run) => stack.send({ topic: topics.toolResults, key: run, type: 'EffectReported', value: JSON.stringify(REPORT), headers: NUL_TENANT }), dead: 'invalid_id', by: 'ledger' },
  { name: 'a report that is not JSON', send: (run) => stack.send({ topic: topics.toolResults, key: run, type: 'EffectReported', value: '][' }), dead: 'not_json', by: 'ledger' },
  { name: 'a report that fails the schema', send: (run) => report(run, { ...REPORT, attempt: 0 }), dead: 'invalid', by: 'ledger' },
  { name: 'a report under an id with a NUL', run: () => 'a\u0000c', send: (run) => report(run, REPORT), dead: 'invalid_id', by: 'ledger' },
];

const runOf = (row: Row): string => row.run?.() ?? `bad-${rows.indexOf(row)}`;

beforeAll(async () => {
  stack = await TestStack.start();
  const tools = [countingTool('pay', 'irreversible', firings), countingTool('note', 'irreversible', firings), countingTool('echo', 'irreversible', firings, z.json())];
  // Its second half waits for something that never comes: so a worker holds the run.
  const holding = defineAgent({ name: 'holding', version: '1', input: z.json(), output: z.json(), run: () => new Promise<null>(() => undefined) });
  const first = await work(stack.brokers, { tools, agents: [holding] });
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  fenced = (await client.start(holding, null, { runId: 'fenced' })).id;
  await stack.event(fenced, 'RunAccepted');
  await client.close();
  await first.stop({ graceMs: 0 });
  worker = await work(stack.brokers, { tools, agents: [holding] });
  await eventually('fence 2', () => stack.events(fenced).some(({ data }) => (data['lease'] as { fence?: number } | undefined)?.fence === 2));
  await stack.goodRun('finished', 'pay');
  const runs = rows.flatMap((row) => (row.run === undefined ? [runOf(row)] : []));
  await Promise.all(
    runs.map(async (run) => {
      await stack.intent(run, 'StartRun', { agent: null, input: { for: run } });
      await stack.intent(run, 'CallTool', { step: '1', tool: PAY, args: { amount: 1 } });
      await stack.event(run, 'EffectSettled');
    }),
  );
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

describe('bad input', () => {
  test.each(rows)('$name is answered, and changes nothing else', async (row) => {
    const run = runOf(row);
    const service = row.by ?? 'orchestrator';
    const [orchestrator, ledger, fired] = [await stack.journalSize('orchestrator'), await stack.journalSize('ledger'), firings.length];

    const place = await row.send(run);

    if (row.dead !== undefined) {
      const { data } = await stack.deadLetter(place);
      expect(data).toMatchObject({ ...{ topic: place.topic, partition: place.lane, offset: place.offset }, reason: row.dead });
    }
    if (row.rejected !== undefined) {
      const { reason, message = /./ } = row.rejected;
      const { data, envelope } = await stack.event(run, 'IntentRejected', (rejected) => rejected['reason'] === reason);
      expect(data['message']).toMatch(message);
      expect(envelope.tenant).toBe('default');
    }
    const expected = [...(row.dead === undefined ? [] : ['DeadLetter']), ...(row.rejected === undefined ? [] : ['IntentRejected']), ...(row.told === undefined ? [] : ['IntentRefused'])].sort();
    expect(await stack.journalSince(service, service === 'ledger' ? ledger : orchestrator)).toEqual(expected);
    expect(await stack.journalSize(service === 'ledger' ? 'orchestrator' : 'ledger')).toBe(service === 'ledger' ? orchestrator : ledger);
    expect(firings).toHaveLength(fired);
    expect(await stack.halts()).toEqual([]);
  });

  test('a refused intent is refused once, however often it is sent', async () => {
    const before = stack.events('finished').length;
    const places = await Promise.all(Array.from({ length: 5 }, () => stack.intent('finished', 'CallTool', call({ amount: 1 }))));
    await stack.intent('finished', 'StartRun', { agent: null, input: 'marker' });
    await stack.event('finished', 'IntentRejected', ({ reason }) => reason === 'run_exists_with_other_input');
    expect(places).toHaveLength(5);
    expect(stack.events('finished')).toHaveLength(before + 1);
  });

  test('a client that waits for what it asked in words that can’t be read hears what is wrong with them', async () => {
    const client = await HoldfastClient.connect({ brokers: stack.brokers });
    try {
      const far = defineTool({ ...PAY, effect: 'irreversible', owner: 'desk', input: z.object({ amount: z.number() }), output: z.null(), target: () => 't'.repeat(600), execute: () => null });
      const run = await client.attach('attached', { tools: [far] });
      await expect(run.call('1', 'pay', { amount: 1 })).rejects.toThrow(/^CallTool at step 1 was refused \(invalid\): CallTool: target: .*500/);
    } finally {
      await client.close();
    }
  });

  test('NUL, half a surrogate pair and a large integer as text in a value come back exactly', async () => {
    const args = { nul: 'a\u0000b', half: 'x\ud800y', other: '\udc00', emoji: '😀', big: '9007199254740993', 'na\u0000me': -0.5 };
    const run = RunId.parse('exact');
    await stack.goodRun(run, 'echo', args);
    const requested = await stack.event(run, 'EffectRequested');
    const settled = await stack.event(run, 'EffectSettled');
    const key = operationKey({ scope: 'run', tenant: DEFAULT_TENANT, run, step: Step.parse('1'), tool: 'echo', target: null });
    expect(requested.data['call']).toMatchObject({ args, digest: digestOf(args), key });
    expect(settled.data['outcome']).toMatchObject({ status: 'succeeded', result: { value: args } });
    expect(firings.filter((firing) => firing.run === run)).toEqual([{ run, step: '1', attempt: 1, args }]);
  });

  test('NUL and half a surrogate pair in what a message only names come back exactly, and stop nothing', async () => {
    const odd = 'a\u0000b\ud800';
    const run = 'odd-names';
    await stack.intent(run, 'StartRun', { agent: null, input: 1, goal: odd, principal: odd, concurrencyKey: odd });
    expect((await stack.event(run, 'RunAccepted')).data).toMatchObject({ goal: odd, principal: odd, concurrencyKey: odd });
    await stack.intent(`${run}-2`, 'StartRun', { agent: null, input: 1, concurrencyKey: odd });
    await stack.event(`${run}-2`, 'RunQueued');
    await stack.intent(run, 'SignalRun', { signal: odd, name: odd, payload: odd });
    expect((await stack.event(run, 'SignalReceived')).data).toMatchObject({ signal: odd, name: odd, payload: odd });
    await stack.send({ topic: topics.operatorCommands, key: run, type: 'CancelRun', value: JSON.stringify({ ...COMMAND, command: `c${odd}`, reason: odd, scope: 'run', manner: 'graceful' }) });
    expect((await stack.event(run, 'RunCancelRequested')).data).toMatchObject({ command: `c${odd}`, reason: odd });
    await stack.event(`${run}-2`, 'RunAdmitted');
    await stack.finish(`${run}-2`);
    expect(await stack.halts()).toEqual([]);
  });

  test('afterwards good runs go through on all lanes, each effect once', async () => {
    const runs = stack.lanes.flatMap((lane) => Array.from({ length: 5 }, (_, i) => stack.runOn(lane, `good-${i}`)));
    await Promise.all(runs.map((run) => stack.goodRun(run, 'pay')));
    for (const run of runs) {
      expect(firings.filter((firing) => firing.run === run)).toHaveLength(1);
      expect(stack.events(run).map(({ envelope }) => envelope.type)).toEqual(['RunAccepted', 'EffectRequested', 'EffectSettled', 'RunFinished']);
    }
    expect(new Set(runs.map((run) => stack.laneOf(run))).size).toBe(4);
    expect(await stack.halts()).toEqual([]);
  });
});
