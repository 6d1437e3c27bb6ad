import { describe, expect, it } from '@jest/globals';
import { digestOf, RunId, StartRefused, StartRun, type Json } from '@holdfast/protocol';
import type { Principal } from '../src/domain/access.js';
import type { Ask, Answered, Commands } from '../src/api/commands.js';
import type { EventRow, KnownRun } from '../src/api/queries.js';
import { Queries } from '../src/api/queries.js';
import { RunsController, startRun } from '../src/api/runs.js';
import { refusedStart, startProblem } from '../src/api/start-refusal.js';
import { Problem } from '../src/http/problem.js';
import type { Views } from '../src/views/views.js';

const principal: Principal = { id: 'k', name: 'shop', tenant: 'default', roles: ['agent'], tools: null, amountMax: null };
const agent = { name: 'desk', version: '1' };
const NOW = 1_800_000_000_000;
const refused = (data: object) => StartRefused(StartRefused.schema.parse({ agent, message: 'agent desk may start 1 runs a minute', retryAt: NOW + 12_345, ...data }));

type Told = { readonly type: string; readonly data: object };
/** A controller whose start is answered by the first of these events that answers a start, with what was asked. `known`: the run at each look. */
function starting({ known = [] }: { known?: (KnownRun | null)[] } = {}, ...told: Told[]) {
  const asked: Ask[] = [];
  const commands = {
    ask: (ask: Ask): Promise<Answered | null> => {
      asked.push(ask);
      return Promise.resolve((told as Answered[]).find((each) => ask.answers(each)) ?? null);
    },
  } as unknown as Commands;
  const queries = { run: () => Promise.resolve(known.shift() ?? null), ownerOf: () => Promise.resolve(null) } as unknown as Queries;
  const start = (body: object = {}) =>
    new RunsController(queries, commands).start({
      ...{ params: {}, query: startRun.query.parse({ waitMs: '0' }), body: startRun.body?.parse({ agent, ...body }) ?? fail(), principal },
      ...{ command: 'c-1', header: () => undefined, address: 'here', signal: new AbortController().signal },
    });
  return { asked, start };
}
const fail = (): never => {
  throw new Error('starting a run takes a body');
};
const problemOf = (answer: Promise<unknown>): Promise<unknown> => answer.then(() => 'no problem', (error: unknown) => (error instanceof Problem ? { status: error.status, body: error.body, headers: error.headers } : error));

describe('a start that limits refuse', () => {
  it.each(['rate_limited', 'limit_reached', 'queue_full'])('is answered with when to ask again: %s', async (reason) => {
    expect(await problemOf(starting({}, refused({ reason })).start())).toMatchObject({
      status: 429,
      headers: { 'retry-after': expect.stringMatching(/^[1-9]\d*$/) },
      body: { type: 'urn:holdfast:problem:no-room', detail: 'agent desk may start 1 runs a minute', reason, retryAt: new Date(NOW + 12_345).toISOString() },
    });
  });

  it('is a conflict where the conversation has an open run, which is named', async () => {
    expect(await problemOf(starting({}, refused({ reason: 'concurrent_run', holder: RunId.parse('run-1') })).start({ concurrencyKey: 'chat-7', onConcurrent: 'reject' }))).toMatchObject({
      status: 409,
      headers: { 'retry-after': expect.stringMatching(/^[1-9]\d*$/) },
      body: { type: 'urn:holdfast:problem:refused', reason: 'concurrent_run', holder: 'run-1', retryAt: new Date(NOW + 12_345).toISOString() },
    });
  });

  it.each([
    [12_345, '13'],
    [1000, '1'],
    [0, '1'],
    [-60_000, '1'],
  ])('that may be asked again in %d ms says so in whole seconds, one at least', (inMs, seconds) => {
    const { type, data } = refused({ reason: 'rate_limited', retryAt: NOW + inMs });
    const told = refusedStart(type, data as unknown as Record<string, Json>);
    expect(told === null ? null : startProblem(told, NOW).headers).toEqual({ 'retry-after': seconds });
  });

  it('is not kept for repetitions of its request: a later one may be taken', () => {
    const final = (type: string, data: object) => {
      const told = refusedStart(type, data as Record<string, Json>);
      return told === null ? null : startProblem(told, NOW).isFinal;
    };
    expect([...['rate_limited', 'limit_reached', 'queue_full', 'concurrent_run'].map((reason) => final('StartRefused', refused({ reason }).data)), final('IntentRejected', { intent: 'StartRun', reason: 'invalid', message: 'm' })]).toEqual([false, false, false, false, true]);
  });

  it('is a refusal also where an orchestrator of another version has a reason unknown here', async () => {
    expect(await problemOf(starting({}, { type: 'StartRefused', data: { agent, reason: 'full_moon', message: 'not tonight', retryAt: NOW } }).start())).toMatchObject({ status: 409, body: { reason: 'full_moon', detail: 'not tonight' } });
  });
});

describe('the start of a run that there is', () => {
  const run = (input: Json): KnownRun => ({ id: 'c-1', view: { agent, input, inputDigest: digestOf(input), version: 1 } as unknown as KnownRun['view'] });

  it('is refused each time with another input, not only when the orchestrator first says so', async () => {
    const { asked, start } = starting({ known: [run('one')] });
    expect(await problemOf(start({ input: 'other' }))).toMatchObject({ status: 409, body: { reason: 'run_exists_with_other_input' } });
    expect(asked).toEqual([]);
  });

  it('is not answered with the run that another start made meanwhile', async () => {
    const { start } = starting({ known: [null, run('one')] }, { type: 'RunAccepted', data: {} });
    expect(await problemOf(start({ input: 'other' }))).toMatchObject({ status: 409, body: { reason: 'run_exists_with_other_input' } });
  });
});

describe('starting a run over HTTP', () => {
  it('takes all that a start can say, and leaves the rest out', async () => {
    const all = { runId: 'r-1', input: { a: 1 }, pool: 'fast', goal: 'g', success: ['s'], budgets: { stepsMax: 3 }, onDeadline: { action: 'compensate' }, concurrencyKey: 'chat-7', onConcurrent: 'interrupt', priority: -3, queueMs: 0 };
    const { asked, start } = starting();
    await start({ ...all, deadline: '2027-01-31T12:00:00Z' });
    await start();
    const { runId, ...said } = all;
    expect(asked.map(({ run }) => run)).toEqual([runId, 'c-1']);
    expect(asked.map(({ message }) => message.data)).toEqual([
      { agent, ...said, deadline: Date.parse('2027-01-31T12:00:00Z'), principal: 'shop' },
      { agent, input: null, principal: 'shop' },
    ]);
    for (const { message } of asked) expect(StartRun.schema.safeParse(message.data).success).toBe(true);
  });

  it.each([{ onConcurrent: 'wait' }, { priority: 101 }, { queueMs: -1 }, { concurrencyKey: '' }, { parent: { run: 'r', step: '1' } }])('takes no %j', (body) => {
    expect(startRun.body?.safeParse({ agent, ...body }).success).toBe(false);
  });
});

describe('the page of a run whose start was refused', () => {
  /** Read models without the run, whose latest event is this one. */
  const queriesWith = (latest: Pick<EventRow, 'type' | 'data'> | null) =>
    new Queries({ schema: 'view_1', database: { query: (text: string) => Promise.resolve(text.includes('view_1.event') && latest !== null ? [latest] : []) } } as unknown as Views);
  const pageOf = (type: string, data: Json) => problemOf(queriesWith({ type, data: JSON.stringify(data) }).runOr404('default', 'r-1'));

  it('says that there is none, and why', async () => {
    const { data } = refused({ reason: 'queue_full' });
    expect(await pageOf('StartRefused', data as unknown as Json)).toMatchObject({ status: 404, body: { detail: 'there is no run r-1: its start was refused, agent desk may start 1 runs a minute', reason: 'queue_full', retryAt: new Date(NOW + 12_345).toISOString() } });
    expect(await pageOf('IntentRejected', { intent: 'StartRun', reason: 'invalid', message: 'no agent' })).toMatchObject({ status: 404, body: { detail: 'there is no run r-1: its start was refused, no agent', reason: 'invalid' } });
  });

  it('says no more than that there is none where nobody asked for it', async () => {
    expect(await pageOf('IntentRejected', { intent: 'CallTool', reason: 'run_unknown', message: 'no such run' })).toMatchObject({ status: 404, body: { detail: 'there is no run r-1' } });
    expect(await problemOf(queriesWith(null).runOr404('default', 'r-1'))).toMatchObject({ status: 404, body: { detail: 'there is no run r-1' } });
  });
});
