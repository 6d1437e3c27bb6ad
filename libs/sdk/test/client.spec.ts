import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { digestOf, encodeHeaders, operationKey, type Json, type MessageOf, type intentMessages, type Message, type Named, type Outcome, type RunId, type Step, type Tenant } from '@holdfast/protocol';
import type { LogRecord, Outgoing } from '@holdfast/runtime';
import { z } from 'zod';
import { HoldfastClient, type RunEvent } from '../src/client/index.js';
import type { ClientLog } from '../src/client/log.js';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { EffectRejected, IntentRefusedError, InvalidArguments, NotJson, OutcomeTimeout, ResultUnreadable, RunEnded, UnregisteredTool, ValueTooLarge } from '../src/errors.js';
import { turn } from './stand-in.js';

type Intent = MessageOf<(typeof intentMessages)[number]>;
const LANES = 3;
const key = operationKey({ scope: 'run', tenant: 't' as Tenant, run: 'r' as RunId, step: '1' as Step, tool: 'refund', target: null });

/** A log in memory, with as much of the orchestrator behind it as a client can tell. */
class FakeLog implements ClientLog {
  readonly lanes: LogRecord[][] = Array.from({ length: LANES }, () => []);
  readonly intents: { run: string; intent: Intent; headers: Readonly<Record<string, string>> }[] = [];
  readonly opened: { lane: number; from: unknown }[] = [];
  readonly versions = new Map<string, number>();
  readonly refused = new Set<string>();
  open = 0;
  publishesFail = 0;
  tailsFail = 0;
  time = Date.now();
  on: (run: string, intent: Intent) => void = () => undefined;
  readonly #readers = new Set<{ lane: number; onRecord(record: LogRecord): void; onError(error: Error): void }>();

  async publish({ key: run, headers, value }: Outgoing): Promise<number> {
    await turn();
    if ((this.publishesFail -= 1) >= 0) throw new Error('broker away');
    const intent = { type: headers['ce_type'], data: JSON.parse(value) as unknown } as Intent;
    const offset = this.intents.push({ run, intent, headers }) - 1;
    this.on(run, intent);
    return offset;
  }

  async tail({ lane, from, onRecord, onError }: Parameters<ClientLog['tail']>[0]): Promise<{ caughtUp: Promise<void>; close(): Promise<void> }> {
    await turn();
    this.opened.push({ lane, from });
    if ((this.tailsFail -= 1) >= 0) throw new Error('broker away');
    this.open += 1;
    const reader = { lane, onRecord, onError };
    const first = typeof from === 'object' && 'time' in from ? from.time : 0;
    const caughtUp = turn().then(() => {
      for (const record of this.lanes[lane] ?? []) if (record.time >= first) onRecord(record);
      this.#readers.add(reader);
    });
    return { caughtUp, close: () => ((this.open -= this.#readers.delete(reader) ? 1 : 0), Promise.resolve()) };
  }

  laneOf = (run: RunId): number => run.length % LANES;
  close = (): Promise<void> => Promise.resolve();

  /** An event of a run; every one is published twice, as after a crash between publish and commit. */
  tell(run: string, message: Message, tenant = 'default'): void {
    const version = (this.versions.get(run) ?? 0) + 1;
    this.versions.set(run, version);
    const lane = this.lanes[this.laneOf(run as RunId)];
    const headers = encodeHeaders({ id: `${run}/${version}`, type: message.type, source: 's', subject: run, time: this.time, tenant, lane: 0, seq: version, version });
    const record = { topic: 'run.events', lane: 0, offset: lane?.length ?? 0, key: run, headers, value: JSON.stringify(message.data), time: this.time };
    for (let twice = 0; twice < 2; twice += 1) {
      lane?.push(record);
      for (const reader of this.#readers) if (reader.lane === this.laneOf(run as RunId)) reader.onRecord(record);
    }
  }

  breakReaders(): void {
    for (const reader of [...this.#readers]) {
      this.#readers.delete(reader);
      this.open -= 1;
      reader.onError(new Error('offset out of range'));
    }
  }

  accepted(run: string, agent: Named | null, input: Json): void {
    this.tell(run, { type: 'RunAccepted', data: { tenant: 'default', agent, pool: 'default', input, inputDigest: digestOf(input) } });
  }

  refuse(run: string, intent: string, reason: string, step?: string): void {
    const token = `${run}/${intent}/${step ?? ''}/${reason}`;
    if (this.refused.has(token)) return;
    this.refused.add(token);
    this.tell(run, { type: 'IntentRejected', data: { intent, reason, message: 'no', token, ...(step === undefined ? {} : { step }) } });
  }

  /** The start that was written last is refused, for now. */
  noRoom(run: string): void {
    this.tell(run, { type: 'StartRefused', data: { agent: { name: 'adder', version: '1' }, reason: 'queue_full', message: 'no room', retryAt: this.time + 5, offset: this.intents.length - 1 } });
  }

  /** Accepts everything, once. */
  orchestrate(outcome: (step: string) => Outcome | undefined): void {
    const runs = new Map<string, { agent: Named | null; input: Json; steps: Map<string, Json>; ended: boolean }>();
    this.on = (run, { type, data }) => {
      const known = runs.get(run);
      if (type === 'StartRun') {
        if (known !== undefined) return digestOf(known.input) === digestOf(data.input) ? undefined : this.refuse(run, type, 'run_exists_with_other_input');
        runs.set(run, { agent: data.agent, input: data.input, steps: new Map(), ended: false });
        return this.accepted(run, data.agent, data.input);
      }
      if (known === undefined) return;
      if (type === 'CallTool') {
        const before = known.steps.get(data.step);
        if (before !== undefined) return digestOf(before) === digestOf(data.args) || data.onConflict === 'adopt' ? undefined : this.refuse(run, type, 'operation_conflict', data.step);
        if (data.tool.name === 'nobody') return this.refuse(run, type, 'unknown_tool', data.step);
        known.steps.set(data.step, data.args);
        const call = { step: data.step, tool: data.tool, effect: 'irreversible', keyScope: 'run', args: data.args, key, digest: digestOf(data.args), digestVersion: 1 };
        this.tell(run, { type: 'EffectRequested', data: { call, fire: 'granted' } });
        const end = outcome(data.step);
        if (end !== undefined) this.tell(run, { type: 'EffectSettled', data: { step: data.step, attempt: 1, outcome: end } });
      }
      if (type === 'FinishRun') this.finished(run, data.ending);
    };
  }

  finished(run: string, ending: unknown): void {
    this.tell(run, { type: 'RunFinished', data: { ending, effects: [], steps: { fresh: 0, replayed: 0 } } });
  }
}

const agent = defineAgent({ name: 'adder', version: '1', input: z.object({ a: z.number() }), output: z.object({ sum: z.number() }), run: async (_, { a }) => ({ sum: a }) });
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', owner: 'desk', input: z.object({ amount: z.number() }), output: z.object({ paid: z.number() }), execute: ({ amount }) => ({ paid: amount }) });
const paid = (n: number): Outcome => ({ status: 'succeeded', result: { value: { paid: n } }, evidence: { kind: 'receipt' } });
const types = (events: readonly { event: RunEvent }[]): string[] => events.map(({ event }) => event.type);

afterEach(() => {
  jest.useRealTimers();
});

describe('a started run', () => {
  it('is asked for with its natural key and resolves with its output', async () => {
    const log = new FakeLog();
    log.on = (run, { type, data }) => type === 'StartRun' && (log.accepted(run, data.agent, data.input), log.finished(run, { status: 'completed', output: { value: { sum: 3 } } }));
    const client = HoldfastClient.over(log, { tenant: 'default' });
    const handle = await client.start(agent, { a: 3 }, { goal: 'add', pool: 'fast', budgets: { stepsMax: 5 }, success: ['right'], principal: 'ann', deadline: 99 });
    expect(log.intents).toMatchObject([{ run: handle.id, intent: { type: 'StartRun', data: { agent: { name: 'adder', version: '1' }, input: { a: 3 }, goal: 'add', pool: 'fast', budgets: { stepsMax: 5 } } }, headers: { ce_subject: handle.id, ce_tenant: 'default' } }]);
    const outcome = await handle.outcome();
    expect(outcome).toEqual({ status: 'completed', output: { sum: 3 } });
    await client.close();
    expect(log.open).toBe(0);
  });

  it('reads nothing until somebody waits, and then each lane with one reader, from the eldest start on', async () => {
    const log = new FakeLog();
    log.on = (run, { type, data }) => type === 'StartRun' && log.accepted(run, data.agent, data.input);
    const client = HoldfastClient.over(log);
    const began = Date.now();
    const handles = [];
    for (let i = 0; i < 40; i += 1) handles.push(await client.start(agent, { a: i }));
    expect(log.opened).toEqual([]);
    const waiting = handles.map((handle) => handle.outcome());
    for (const [i, { id }] of handles.entries()) log.finished(id, { status: 'completed', output: { value: { sum: i } } });
    expect((await Promise.all(waiting)).map((outcome) => (outcome.status === 'completed' ? outcome.output.sum : null))).toEqual(handles.map((_, i) => i));
    expect(log.opened.length).toBeLessThanOrEqual(LANES);
    expect(log.opened.every(({ from }) => typeof from === 'object' && from !== null && 'time' in from && Number(from.time) <= began - 50_000)).toBe(true);
    await client.close();
  });

  it('that is in truth an older one is found all the same', async () => {
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'Date'] });
    const log = new FakeLog();
    log.time = Date.now() - 3_600_000;
    log.accepted('order-7', { name: 'adder', version: '1' }, { a: 1 });
    log.finished('order-7', { status: 'failed', failure: { class: 'transient', message: 'boom' } });
    const client = HoldfastClient.over(log);
    const handle = await client.start(agent, { a: 1 }, { runId: 'order-7' });
    const outcome = handle.outcome();
    for (let i = 0; i < 10; i += 1) await turn();
    await jest.advanceTimersByTimeAsync(3000);
    expect(await outcome).toMatchObject({ status: 'failed', failure: { message: 'boom' } });
    await client.close();
  });

  it('is refused with the reason, unless it is somebody else’s start that was', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const client = HoldfastClient.over(log);
    const first = await client.start(agent, { a: 1 }, { runId: 'one' });
    const outcome = first.outcome({ timeoutMs: 5000 });
    for (let i = 0; i < 5; i += 1) await turn();
    const second = await client.start(agent, { a: 2 }, { runId: 'one' });
    const [refused] = await Promise.allSettled([second.outcome({ timeoutMs: 1000 })]);
    expect(refused).toMatchObject({ status: 'rejected', reason: expect.any(IntentRefusedError) });
    const waiting = client.run('one').outcome();
    log.finished('one', { status: 'completed', output: { value: { sum: 1 } } });
    expect([await waiting, await outcome]).toMatchObject([{ status: 'completed' }, { status: 'completed' }]);
    await client.close();
  });

  it('for which there was no room is not answered with the refusal of an earlier try', async () => {
    const log = new FakeLog();
    log.on = (run, { type }) => type === 'StartRun' && log.noRoom(run);
    const client = HoldfastClient.over(log);
    const first = await client.start(agent, { a: 1 }, { runId: 'one' });
    await expect(first.outcome({ timeoutMs: 5000 })).rejects.toMatchObject({ name: 'NotAdmitted', reason: 'queue_full', retryAt: log.time + 5 });
    await client.close();
    // Another process asks again, and this time there is room: its reader sees the old refusal first.
    log.on = (run, { type, data }) => type === 'StartRun' && (log.accepted(run, data.agent, data.input), log.finished(run, { status: 'completed', output: { value: { sum: 1 } } }));
    const other = HoldfastClient.over(log);
    const again = await other.start(agent, { a: 1 }, { runId: 'one' });
    expect(await again.outcome({ timeoutMs: 5000 })).toEqual({ status: 'completed', output: { sum: 1 } });
    await other.close();
  });

  it('under the id of one that has ended with another input is refused, and never gets that one’s output', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const client = HoldfastClient.over(log);
    const first = await client.start(agent, { a: 1 }, { runId: 'one' });
    log.finished('one', { status: 'completed', output: { value: { sum: 1 } } });
    expect(await first.outcome()).toMatchObject({ status: 'completed' });
    await client.close();
    // Another process: its reader sees the first run whole, and then the refusal.
    const other = HoldfastClient.over(log);
    const second = await other.start(agent, { a: 2 }, { runId: 'one' });
    await expect(second.outcome({ timeoutMs: 5000 })).rejects.toThrow(IntentRefusedError);
    const again = await other.start(agent, { a: 1 }, { runId: 'one' });
    expect(await again.outcome({ timeoutMs: 5000 })).toEqual({ status: 'completed', output: { sum: 1 } });
    await other.close();
  });

  it('whose outcome does not come in time goes on', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const client = HoldfastClient.over(log);
    const handle = await client.start(agent, { a: 1 });
    await expect(handle.outcome({ timeoutMs: 20 })).rejects.toThrow(OutcomeTimeout);
    log.finished(handle.id, { status: 'completed_partially', output: { value: { sum: 0 } }, because: 'half' });
    expect(await handle.outcome()).toEqual({ status: 'completed_partially', output: { sum: 0 }, because: 'half' });
    await client.close();
  });

  it.each<[string, (client: HoldfastClient, id: string) => Promise<unknown>]>([
    ['by whoever started it', async (client) => (await client.start(agent, { a: 1 })).outcome({ timeoutMs: 60_000 })],
    ['by another client', (client) => client.outcome('one', { timeoutMs: 60_000 })],
    ['by how all stands', (client) => client.standing('one', { timeoutMs: 60_000 })],
  ])('is waited for while brokers are away, and no longer than was allowed: %s', async (_, ask) => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const client = HoldfastClient.over(log);
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'Date'] });
    log.tailsFail = Infinity;
    const asked = ask(client, 'one');
    let settled = false;
    const end = asked.then(() => undefined, (error: unknown) => { settled = true; return error; });
    for (let ms = 0; ms < 59_000; ms += 1000) {
      await jest.advanceTimersByTimeAsync(1000);
      for (let i = 0; i < 5; i += 1) await turn();
    }
    expect(log.opened.length).toBeGreaterThan(5);
    expect(settled).toBe(false);
    await jest.advanceTimersByTimeAsync(2000);
    expect(await end).toBeInstanceOf(OutcomeTimeout);
    const { length } = log.opened;
    await jest.advanceTimersByTimeAsync(60_000);
    expect(log.opened.length).toBe(length);
    await client.close();
  });

  it('is told when brokers are there again', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const client = HoldfastClient.over(log);
    const { id } = await client.start(agent, { a: 1 }, { runId: 'one' });
    log.finished(id, { status: 'completed', output: { value: { sum: 1 } } });
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'Date'] });
    log.tailsFail = 3;
    const outcome = client.outcome('one');
    for (let i = 0; i < 10; i += 1) {
      for (let n = 0; n < 5; n += 1) await turn();
      await jest.advanceTimersByTimeAsync(1000);
    }
    expect(await outcome).toMatchObject({ status: 'completed' });
    await client.close();
    expect(log.open).toBe(0);
  });

  it('is asked no more of a broker that refuses for good', async () => {
    const log = new FakeLog();
    const client = HoldfastClient.over(log);
    log.tail = () => Promise.reject(Object.assign(new Error('not allowed'), { type: 'TOPIC_AUTHORIZATION_FAILED' }));
    await expect(client.outcome('one')).rejects.toThrow('not allowed');
    await client.close();
  });

  it('may be waited for longer than a timer of Node lasts', async () => {
    const log = new FakeLog();
    const client = HoldfastClient.over(log);
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'Date'] });
    const timeoutMs = 30 * 24 * 60 * 60 * 1000;
    let late: unknown;
    void Promise.allSettled([client.outcome('one', { timeoutMs }), client.standing('one', { timeoutMs })]).then((ends) => { late = ends; });
    await jest.advanceTimersByTimeAsync(timeoutMs - 1);
    expect(late).toBeUndefined();
    await jest.advanceTimersByTimeAsync(1);
    expect(late).toMatchObject([{ reason: expect.any(OutcomeTimeout) }, { reason: expect.any(OutcomeTimeout) }]);
    await client.close();
  });

  it('is published again while the broker is away, and followed again when a reader breaks', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    log.publishesFail = 2;
    const client = HoldfastClient.over(log);
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'Date'] });
    const pass = async (ms: number): Promise<void> => {
      for (let i = 0; i < 5; i += 1) await turn();
      await jest.advanceTimersByTimeAsync(ms);
      for (let i = 0; i < 5; i += 1) await turn();
    };
    const starting = client.start(agent, { a: 1 });
    await pass(100);
    await pass(200);
    const handle = await starting;
    expect(log.intents.length).toBe(1);
    const outcome = handle.outcome();
    await pass(0);
    log.tailsFail = 1;
    log.breakReaders();
    log.finished(handle.id, { status: 'completed', output: { value: { sum: 1 } } });
    await pass(1000);
    await pass(1000);
    expect(await outcome).toMatchObject({ status: 'completed' });
    await client.close();
    expect(log.open).toBe(0);
  });

  it('is followed by how all stands, when it was compensated: of the latest plan, and not before that is concluded', async () => {
    const log = new FakeLog();
    const client = HoldfastClient.over(log);
    const concluded = (plan: number, status: string): Message => ({ type: 'RunCompensated', data: { plan, status, effects: [] } });
    const begun = (plan: number): Message => ({ type: 'RunCompensating', data: { plan, because: 'it failed' } });
    for (const event of [begun(1), concluded(1, 'compensation_failed'), begun(2)]) log.tell('gone', event);
    await expect(client.standing('gone', { timeoutMs: 20 })).rejects.toThrow(OutcomeTimeout);
    const standing = client.standing('gone');
    await turn();
    log.tell('gone', concluded(2, 'compensated'));
    expect(await standing).toEqual({ plan: 2, status: 'compensated', effects: [] });
    await expect(client.standing('gone')).resolves.toMatchObject({ plan: 2 });
    await client.close();
    expect(log.open).toBe(0);
  });

  it('with a large output is read from the store, and says so when there is none', async () => {
    const log = new FakeLog();
    const ref = { sha256: 'a'.repeat(64), bytes: 10, mediaType: 'application/json', scope: 'default/big' };
    log.orchestrate(() => undefined);
    const asked: unknown[] = [];
    const artifacts = { get: (...args: unknown[]) => (asked.push(args), Promise.resolve(Buffer.from('{"sum":7}'))) };
    const client = HoldfastClient.over(log, { artifacts });
    const handle = await client.start(agent, { a: 1 }, { runId: 'big' });
    log.finished('big', { status: 'completed', output: { artifact: ref } });
    expect(await handle.outcome()).toEqual({ status: 'completed', output: { sum: 7 } });
    expect(asked).toEqual([[ref, { tenant: 'default', run: 'big' }]]);
    await expect(HoldfastClient.over(log).outcome('big')).rejects.toThrow(ResultUnreadable);
    await client.close();
  });

  it('tells of quarantine', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const client = HoldfastClient.over(log);
    const handle = await client.start(agent, { a: 1 });
    log.tell(handle.id, { type: 'RunQuarantined', data: { reason: 'incompatible_history', message: 'step 3 differs' } });
    expect(await handle.outcome()).toEqual({ status: 'quarantined', because: 'step 3 differs' });
    await client.close();
  });

  it.each<[string, unknown, object, new (...args: never[]) => Error]>([
    ['an input that does not fit', { a: 'one' }, {}, InvalidArguments],
    ['an input that is not JSON', { a: 1n }, {}, NotJson],
    ['an input that is too large', { a: 1, text: 'x'.repeat(300 * 1024) }, {}, ValueTooLarge],
    ['a run id with a control character', { a: 1 }, { runId: 'a\u0000b' }, InvalidArguments],
    ['a pool that is none', { a: 1 }, { pool: 'Not A Pool' }, InvalidArguments],
    ['a budget that is none', { a: 1 }, { budgets: { stepsMax: 0 } }, InvalidArguments],
  ])('with %s is refused before anything is sent', async (_, input, options, error) => {
    const log = new FakeLog();
    await expect(HoldfastClient.over(log).start(agent, input as never, options)).rejects.toThrow(error as never);
    expect(log.intents).toEqual([]);
  });
});

describe('events', () => {
  it('come once each, past ones first, to the end, and of this tenant’s run alone', async () => {
    const log = new FakeLog();
    log.accepted('run-a', null, null);
    log.accepted('run-b', null, null);
    log.tell('run-a', { type: 'SomethingNewer', data: {} });
    const client = HoldfastClient.over(log);
    const events = client.events('run-a');
    const seen = [(await events.next()).value];
    log.tell('run-a', { type: 'StepsReported', data: {} });
    seen.push((await events.next()).value);
    log.finished('run-a', { status: 'failed', failure: { class: 'transient', message: '' } });
    for await (const event of events) seen.push(event);
    const found = seen.flatMap((event) => (event === undefined ? [] : [event]));
    expect(found.map(({ version }) => version)).toEqual([1, 3, 4]);
    expect(types(found)).toEqual(['RunAccepted', 'StepsReported', 'RunFinished']);
    const other = HoldfastClient.over(log, { tenant: 'other' });
    await expect(other.outcome('run-a', { timeoutMs: 20 })).rejects.toThrow(OutcomeTimeout);
    for (const each of [client, other]) await each.close();
    expect(log.open).toBe(0);
  });

  it('can be left before the end', async () => {
    const log = new FakeLog();
    log.accepted('run-a', null, null);
    const client = HoldfastClient.over(log);
    for await (const { event } of client.events('run-a')) {
      expect(event.type).toBe('RunAccepted');
      break;
    }
    expect(log.open).toBe(0);
    await client.close();
  });
});

describe('a harness that owns its loop', () => {
  const attached = async (log: FakeLog, more: object = {}) => {
    const client = HoldfastClient.over(log);
    return { client, run: await client.attach('harness', { tools: [refund], ...more }) };
  };

  it('calls tools, granted, and ends the run', async () => {
    const log = new FakeLog();
    log.orchestrate((step) => (step === '2' ? { status: 'rejected', reason: 'no funds', evidence: { kind: 'receipt' } } : paid(5)));
    const { client, run } = await attached(log, { input: { order: 1 } });
    expect((await run.call('1', refund, { amount: 5 })).paid).toBe(5);
    await expect(run.call('2', 'refund', { amount: 6 })).rejects.toThrow(EffectRejected);
    await run.finish({ done: true });
    expect(log.intents.map(({ intent: { type } }) => type)).toEqual(['StartRun', 'CallTool', 'CallTool', 'FinishRun']);
    expect(log.intents[0]?.intent).toMatchObject({ data: { agent: null, input: { order: 1 } } });
    expect(log.intents[1]?.intent).toMatchObject({ data: { fire: 'granted', onConflict: 'refuse', args: { amount: 5 } } });
    expect('fence' in (log.intents[1]?.intent.data ?? {})).toBe(false);
    await client.close();
    expect(log.open).toBe(0);
  });

  it('hears that there is no room for it, each time that it asks', async () => {
    const log = new FakeLog();
    log.on = (run, { type }) => type === 'StartRun' && log.noRoom(run);
    const refusal = { name: 'NotAdmitted', reason: 'queue_full', retryAt: log.time + 5 };
    await expect(attached(log)).rejects.toMatchObject(refusal);
    await expect(attached(log)).rejects.toMatchObject(refusal);
    log.orchestrate(() => paid(5));
    const { client, run } = await attached(log);
    expect((await run.call('1', refund, { amount: 5 })).paid).toBe(5);
    await client.close();
    expect(log.open).toBe(0);
  });

  it('finds after a restart what is recorded, and asks for none of it again', async () => {
    const log = new FakeLog();
    log.orchestrate(() => paid(5));
    const first = await attached(log);
    await first.run.call('1', refund, { amount: 5 });
    await first.client.close();
    const sent = log.intents.length;
    const { client, run } = await attached(log);
    expect((await run.call('1', refund, { amount: 5 })).paid).toBe(5);
    expect((await run.call('1', refund, { amount: 9 }, { onConflict: 'adopt' })).paid).toBe(5);
    expect(log.intents.length).toBe(sent);
    await expect(run.call('1', refund, { amount: 9 })).rejects.toMatchObject({ reason: 'operation_conflict' });
    await client.close();
  });

  it('answers a failure by calls of its own, which say what they answer', async () => {
    const log = new FakeLog();
    const failure = { class: 'invalid_request' as const, message: 'no', repairable: true, fallback: { name: 'refund', version: '1' } };
    log.orchestrate((step) => (step === '3' ? paid(5) : { status: 'failed', failure, evidence: { kind: 'ledger' } }));
    const { client, run } = await attached(log);
    await expect(run.call('1', refund, { amount: 1 })).rejects.toMatchObject({ failure });
    await expect(run.call('2', refund, { amount: 2 }, { repairs: '1' })).rejects.toMatchObject({ step: '2' });
    expect((await run.call('3', refund, { amount: 3 }, { fallbackFor: '2' })).paid).toBe(5);
    expect(log.intents.slice(1).map(({ intent: { data } }) => data)).toMatchObject([{ step: '1' }, { step: '2', repairs: '1' }, { step: '3', fallbackFor: '2' }]);
    await expect(run.call('4', refund, { amount: 3 }, { repairs: 'one' })).rejects.toThrow(InvalidArguments);
    await client.close();
  });

  it('waits while an outcome is unknown, and hears how it was settled', async () => {
    const log = new FakeLog();
    log.orchestrate(() => ({ status: 'unknown', cause: 'deadline', message: '' }));
    const { client, run } = await attached(log);
    let told = false;
    const call = run.call('1', refund, { amount: 5 }).finally(() => (told = true));
    for (let i = 0; i < 20; i += 1) await turn();
    expect(told).toBe(false);
    log.tell('harness', { type: 'EffectSettled', data: { step: '1', attempt: 1, outcome: paid(5) } });
    expect((await call).paid).toBe(5);
    await client.close();
  });

  it('is told again of a refusal that is spoken only once', async () => {
    const log = new FakeLog();
    log.orchestrate(() => paid(1));
    const nobody = defineTool({ name: 'nobody', version: '1', effect: 'pure', input: z.null(), output: z.null(), execute: () => null });
    const { client, run } = await attached(log);
    await expect(run.call('1', nobody, null)).rejects.toMatchObject({ reason: 'unknown_tool' });
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask'] });
    const again = expect(run.call('1', nobody, null)).rejects.toMatchObject({ reason: 'unknown_tool' });
    for (let i = 0; i < 5; i += 1) await turn();
    await jest.advanceTimersByTimeAsync(5000);
    await again;
    await client.close();
  });

  it('does not take another run for its own', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    log.on('harness', { type: 'StartRun', data: { agent: null, input: { other: true } } });
    await expect(attached(log, { input: { order: 1 } })).rejects.toMatchObject({ reason: 'run_exists_with_other_input' });
    expect(log.open).toBe(0);
  });

  it('refuses what it can judge by itself, and fails what waits when it is closed', async () => {
    const log = new FakeLog();
    log.orchestrate(() => undefined);
    const { client, run } = await attached(log);
    const sent = log.intents.length;
    await expect(run.call('1.x', refund, { amount: 1 })).rejects.toThrow(InvalidArguments);
    await expect(run.call('1', refund, { amount: 'one' as never })).rejects.toThrow(InvalidArguments);
    await expect(run.call('1', 'nothing', null)).rejects.toThrow(UnregisteredTool);
    expect(log.intents.length).toBe(sent);
    const waiting = expect(run.call('1', refund, { amount: 1 })).rejects.toThrow(RunEnded);
    for (let i = 0; i < 5; i += 1) await turn();
    await run.close();
    await waiting;
    await client.close();
  });
});
