import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { encodeHeaders, spanOf, topics, traceOf, traceparentOf, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, MayHaveApplied, type ServedWorker, type ToolDefinition } from '@holdfast/sdk';
import getPort from 'get-port';
import { z } from 'zod';
import { Bookings } from './support/bookings.js';
import { eventually } from './support/eventually.js';
import { TestGateway, type Reply } from './support/gateway.js';
import { startOtlpReceiver, type ReceivedSpan } from './support/otlp.js';
import { samplesIn, valueOf, type Sample } from './support/scrape.js';
import { SERVICES, STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const SECRET = 'tok_planted_7f3a91';
const TOKENS = { tokensIn: 70, tokensOut: 30, cost: 0.25 };
const books = new Bookings();
/** Who waits at the gate. */
const waiting: (() => void)[] = [];

const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'tests', input: z.object({ card: z.string() }), output: z.object({ card: z.string() }), execute: (args) => args });
const gate = defineTool({
  name: 'gate',
  version: '1',
  effect: 'pure',
  input: z.object({}),
  output: z.null(),
  execute: () => new Promise<null>((resolve) => waiting.push(() => resolve(null))),
});
/** Nobody knows what became of the first attempt. */
const wire = defineTool({
  name: 'wire',
  version: '1',
  effect: 'irreversible',
  owner: 'tests',
  settleDelay: 3_600_000,
  input: z.object({}),
  output: z.null(),
  execute: (_, { attempt }) => {
    if (attempt === 1) throw new MayHaveApplied('the line went dead');
    return null;
  },
});
const thinker = defineAgent({
  name: 'thinker',
  version: '1',
  input: z.object({ card: z.string() }),
  output: z.object({ card: z.string() }),
  run: async (run, input) => {
    await run.model('decide', () => ({ output: `pay with ${input.card}`, usage: TOKENS }));
    return run.call(pay, input);
  },
});
const resumer = defineAgent({
  name: 'resumer',
  version: '1',
  input: z.object({}),
  output: z.null(),
  run: async (run) => {
    await run.model('decide', () => ({ output: 'go', usage: TOKENS }));
    return run.call(gate, {});
  },
});

let stack: TestStack;
let gateway: TestGateway;
let otlp: Awaited<ReturnType<typeof startOtlpReceiver>>;
let worker: ServedWorker | undefined;
let key = '';
const ports = new Map<string, number>();
const PAGES = [...SERVICES, 'gateway', 'worker'];

const tools = [pay, gate, wire, ...books.tools('suite', { approvers: ['manager'] }), ...books.tools('tent')] as ToolDefinition[];
const serveWorker = () => work(stack.brokers, { agents: [thinker, resumer], tools, otlp: otlp.url, healthPort: ports.get('worker') });

beforeAll(async () => {
  otlp = await startOtlpReceiver();
  for (const name of PAGES) ports.set(name, await getPort());
  const env = (name: string): Record<string, string> => ({ HOLDFAST_OTLP: otlp.url, HOLDFAST_HEALTH_PORT: String(ports.get(name)), HOLDFAST_UNREADY_AFTER_MS: '2000' });
  stack = await TestStack.start({ ownServers: true, env: Object.fromEntries(SERVICES.map((name) => [name, env(name)])) });
  [gateway, worker] = await Promise.all([TestGateway.start(stack, env('gateway')), serveWorker()]);
  key = await gateway.key({ roles: ['admin'], name: 'ada' });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await worker?.stop();
  await gateway?.stop();
  await stack?.stop();
  await otlp?.close();
}, STACK_LIMIT_MS);

const scrape = async (name: string): Promise<Sample[]> => samplesIn(await (await fetch(`http://127.0.0.1:${ports.get(name)}/metrics`)).text());
const start = (runId: string, agent: string, input: Json, headers: Record<string, string> = {}): Promise<Reply> => gateway.post('/v1/runs', key, { agent: { name: agent, version: '1' }, input, runId }, headers);
const figures = async (): Promise<{ readonly figures: Record<string, Json>; readonly series: readonly Record<string, Json>[] }> => (await gateway.ask('/v1/figures', { key })).body as never;

test('a run is one trace over gateway, orchestrator, ledger and worker, in which each span has its parent, and no secret', async () => {
  const run = 'traced-1';
  const asker = traceparentOf('a'.repeat(32), 'b'.repeat(16));
  expect((await start(run, 'thinker', { card: SECRET }, { traceparent: asker })).status).toBe(201);
  await stack.event(run, 'RunFinished');
  const trace = traceOf(run);
  const spans = await eventually('the whole trace', () => {
    const found = otlp.spans(trace);
    return ['run', 'attempt', 'pay@1', 'execute thinker@1', 'POST /v1/runs', 'ledger EffectReported', 'orchestrator EffectSucceeded'].every((name) => found.some((span) => span.name === name)) && found;
  });
  expect([...new Set(spans.map(({ service }) => service))].sort()).toEqual(expect.arrayContaining(['holdfast-gateway', 'holdfast-ledger', 'holdfast-orchestrator', 'holdfast-worker']));
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  expect(byId.size).toBe(spans.length);
  const one = (name: string, where: (span: ReceivedSpan) => boolean = () => true): ReceivedSpan => {
    const found = spans.find((span) => span.name === name && where(span));
    if (found === undefined) throw new Error(`no span ${name} among ${spans.map((span) => span.name).join(', ')}`);
    return found;
  };
  const parentOf = (name: string, where?: (span: ReceivedSpan) => boolean): string | undefined => byId.get(one(name, where).parentSpanId ?? '')?.name;
  expect(spans.filter(({ parentSpanId }) => parentSpanId === null).map(({ name }) => name)).toEqual(['run']);
  expect(spans.filter(({ parentSpanId }) => parentSpanId !== null && !byId.has(parentSpanId))).toEqual([]);
  expect(one('run')).toMatchObject({ spanId: spanOf(run), service: 'holdfast-orchestrator', attributes: { 'holdfast.status': 'completed', 'holdfast.agent': 'thinker@1', 'holdfast.run': run } });
  expect(parentOf('POST /v1/runs')).toBe('run');
  expect(parentOf('orchestrator StartRun')).toBe('POST /v1/runs');
  expect(parentOf('execute thinker@1')).toBe('run');
  expect(parentOf('model decide')).toBe('model');
  expect(parentOf('orchestrator CallTool')).toBe('step');
  expect(parentOf('ledger EffectRequested')).toBe('orchestrator CallTool');
  expect(parentOf('attempt')).toBe('step');
  expect(parentOf('pay@1')).toBe('attempt');
  expect(parentOf('ledger EffectReported')).toBe('pay@1');
  expect(parentOf('orchestrator EffectSucceeded')).toBe('ledger EffectReported');
  const [whole, inner] = [one('run'), one('pay@1')];
  expect(inner.startMs).toBeGreaterThanOrEqual(whole.startMs);
  expect(one('step').startMs).toBeLessThanOrEqual(inner.startMs);
  // Whoever asked keeps a trace of its own, and finds ours from it.
  expect(otlp.bodies.some((body) => body.includes('a'.repeat(32)))).toBe(true);
  expect(otlp.bodies.filter((body) => body.includes(SECRET))).toEqual([]);
});

test('each process shows what it does in /metrics', async () => {
  const of = Object.fromEntries(await Promise.all(PAGES.map(async (name): Promise<[string, Sample[]]> => [name, await scrape(name)])));
  const value = (name: string, metric: string, labels?: Record<string, string>): number | undefined => valueOf(of[name] ?? [], metric, labels);
  for (const name of SERVICES) {
    expect(value(name, 'holdfast_turn_seconds_count', { part: 'commit' })).toBeGreaterThan(0);
    expect(value(name, 'holdfast_turn_messages_count')).toBeGreaterThan(0);
    expect(value(name, 'holdfast_lanes')).toBe(stack.lanes.length);
    expect(value(name, 'holdfast_lag_messages')).toBeGreaterThanOrEqual(0);
    expect(value(name, 'holdfast_outbox_oldest_seconds')).toBeGreaterThanOrEqual(0);
    expect(value(name, 'holdfast_database_connections')).toBeGreaterThan(0);
    expect(value(name, 'holdfast_heartbeat_age_seconds')).toBeLessThan(10);
  }
  for (const name of PAGES) expect([name, value(name, 'holdfast_ready')]).toEqual([name, 1]);
  expect(value('orchestrator', 'holdfast_rows_total', { type: 'RunFinished' })).toBeGreaterThan(0);
  expect(value('orchestrator', 'holdfast_messages_total', { type: 'CallTool' })).toBeGreaterThan(0);
  expect(value('orchestrator', 'holdfast_tokens_total', { steps: 'fresh' })).toBe(100);
  expect(value('orchestrator', 'holdfast_cost_total', { steps: 'fresh' })).toBe(0.25);
  expect(value('ledger', 'holdfast_rows_total', { type: 'EffectSucceeded' })).toBeGreaterThan(0);
  expect(value('worker', 'holdfast_effect_seconds_count', { tool: 'pay', outcome: 'succeeded' })).toBe(1);
  expect(value('worker', 'holdfast_work_seconds_count', { kind: 'model' })).toBe(1);
});

test('what is asked again is counted as suppressed, what can’t be read as parked', async () => {
  await stack.intent('traced-1', 'StartRun', { agent: { name: 'thinker', version: '1' }, input: { card: SECRET } });
  await stack.deadLetter(await stack.send({ key: 'odd', type: 'CallTool', value: '{"step":"x"}' }));
  await eventually('both', async () => {
    const samples = await scrape('orchestrator');
    return (valueOf(samples, 'holdfast_suppressed_duplicates_total') ?? 0) > 0 && (valueOf(samples, 'holdfast_parked_total') ?? 0) > 0;
  });
});

test('a run that changes hands is counted as recovered, what it replays as not paid again, and what its former worker still asks for as refused', async () => {
  expect((await start('resumed-1', 'resumer', {})).status).toBe(201);
  await stack.event('resumed-1', 'EffectRequested');
  await eventually('it is at the gate', () => waiting.length === 1);
  await worker?.stop({ graceMs: 0 });
  worker = await serveWorker();
  await stack.event('resumed-1', 'RunResumed');
  // As from the worker that had it before.
  await stack.intent('resumed-1', 'CallTool', { step: '9', tool: { name: 'pay', version: '1' }, args: { card: SECRET }, fence: 1 });
  await stack.event('resumed-1', 'IntentRejected', ({ reason }) => reason === 'stale_fence');
  await eventually('it is at the gate again', () => waiting.length === 2);
  for (const open of waiting) open();
  await stack.event('resumed-1', 'RunFinished');
  const { figures: of } = await eventually('the figures', async () => {
    const found = await figures();
    return found.figures['successfulResumes'] === 1 && found;
  });
  expect(of).toMatchObject({ recoveryMs: { count: 1, p50: expect.any(Number) }, successfulResumes: 1, staleRejections: 1 });
  expect((of['recoveryMs'] as { max: number }).max).toBeGreaterThan(0);
  expect(valueOf(await scrape('orchestrator'), 'holdfast_tokens_total', { steps: 'replayed' })).toBe(100);
  expect(valueOf(await scrape('orchestrator'), 'holdfast_cost_total', { steps: 'replayed' })).toBe(0.25);
  // Its trace goes on over the change of hands.
  await eventually('both executions', () => otlp.spans(traceOf('resumed-1')).filter(({ name }) => name === 'execute resumer@1').length === 2);
});

test('an outcome that nobody knows and a second effect under one key each show in their figure', async () => {
  const run = 'doubt-1';
  await stack.intent(run, 'StartRun', { agent: null, input: 1 });
  await stack.intent(run, 'CallTool', { step: '1', tool: { name: 'wire', version: '1' }, args: {} });
  const address = `/v1/cases/${encodeURIComponent(`${run}/1/1`)}`;
  await eventually('the case', async () => (await gateway.ask(address, { key })).status === 200);
  expect((await figures()).figures['unknowns']).toMatchObject({ open: 1, oldestMs: expect.any(Number) });
  await eventually('the gauge', async () => valueOf(await scrape('gateway'), 'holdfast_unknown_outcomes', { tenant: 'default' }) === 1);
  expect(await gateway.post(`${address}/resolve`, key, { verdict: { status: 'not_applied' }, reason: 'the bank says so', evidence: 'call 17', force: true })).toMatchObject({ status: 200 });
  await stack.event(run, 'EffectSettled');
  // The first attempt had happened after all.
  const dispatched = stack.events(run, topics.effectEvents).find(({ envelope }) => envelope.type === 'EffectDispatched')?.data;
  await stack.send({ topic: topics.toolResults, key: run, type: 'EffectReported', value: JSON.stringify({ step: '1', key: dispatched?.['key'], attempt: 1, outcome: { status: 'succeeded', result: { value: null }, evidence: { kind: 'receipt', at: 1 } }, worker: 'late' }) });
  await stack.event(run, 'DuplicateEffectDetected', () => true, topics.effectEvents);
  const of = await eventually('the figures', async () => {
    const found = (await figures()).figures;
    return Number(found['duplicateEffectRate']) > 0 && found;
  });
  expect(of).toMatchObject({ unknowns: { open: 0 } });
  expect(of['duplicateEffectRate']).toBeGreaterThan(0);
});

test('plans that wait, compensations that fail, and outcomes that were verified each show in their figure', async () => {
  const trip = async (run: string, tool: string): Promise<void> => {
    await stack.intent(run, 'StartRun', { agent: null, input: 1 });
    await stack.intent(run, 'CallTool', { step: '1', tool: { name: tool, version: '1' }, args: { seats: 1 } });
    await stack.event(run, 'EffectSettled');
    await stack.intent(run, 'FinishRun', { ending: { status: 'failed', failure: { class: 'business_rejected', message: 'no table left' } } });
  };
  books.meets('failing-1', 'cancel', 'tent', 'fails', 'fails', 'fails', 'fails');
  await Promise.all([trip('waiting-1', 'suite.book'), trip('failing-1', 'tent.book')]);
  await stack.intent('verified-1', 'StartRun', { agent: null, input: 1, success: ['it is done'] });
  await stack.intent('verified-1', 'FinishRun', { ending: { status: 'completed', output: { value: 1 }, verified: true } });
  await stack.event('waiting-1', 'CompensationApprovalAsked', () => true, topics.compensationEvents);
  await stack.event('failing-1', 'CompensationEscalated', () => true, topics.compensationEvents);
  const of = await eventually('the figures', async () => {
    const found = (await figures()).figures;
    const backlog = found['compensationBacklog'] as { open: number; escalated: number; failed: number };
    return backlog.open > 0 && backlog.escalated > 0 && backlog.failed > 0 && Number(found['verifiedOutcomes']) > 0 && found;
  });
  expect(of['compensationBacklog']).toMatchObject({ open: expect.any(Number), oldestMs: expect.any(Number), p50Ms: expect.any(Number), escalated: 1, failed: 1 });
  await eventually('the gauges', async () => {
    const samples = await scrape('gateway');
    return (valueOf(samples, 'holdfast_compensation_backlog') ?? 0) > 0 && (valueOf(samples, 'holdfast_compensation_backlog_oldest_seconds') ?? 0) > 0 && valueOf(samples, 'holdfast_compensations_escalated') === 1;
  });
});

test('an event that is missing in a run’s stream is counted', async () => {
  const run = 'lossy-1';
  const lane = stack.laneOf(run);
  const event = (seq: number, version: number, type: string, data: Json): { key: string; value: string; headers: Record<string, string>; partition: number } => ({
    ...{ key: run, value: JSON.stringify(data), partition: lane },
    headers: encodeHeaders({ id: `lost/${seq}`, type, source: 'holdfast/orchestrator/lost', subject: run, time: Date.now(), tenant: 'default', lane, seq, prev: seq - 1, version }),
  });
  await stack.producer.send({ topic: topics.runEvents, acks: -1, messages: [event(1, 1, 'StepsReported', {}), event(2, 4, 'StepsReported', {})] });
  const found = await eventually('the loss', async () => {
    const of = await figures();
    return of.figures['acceptedStateLoss'] === 2 && of;
  });
  expect(found.series.reduce((sum, { acceptedStateLoss }) => sum + Number(acceptedStateLoss), 0)).toBe(2);
  await eventually('the gauge', async () => valueOf(await scrape('gateway'), 'holdfast_accepted_state_loss_events') === 2);
  expect(found.series.some(({ compensationsOpen, unknownsOpen, staleRejections }) => [compensationsOpen, unknownsOpen, staleRejections].some((n) => Number(n) > 0))).toBe(true);
});

test('cases and compensations stand in the traces of their runs', async () => {
  const within = (run: string, name: string): Promise<ReceivedSpan> => eventually(`the span ${name} of ${run}`, () => otlp.spans(traceOf(run)).find((span) => span.name === name));
  expect(await within('doubt-1', 'case')).toMatchObject({ service: 'holdfast-reconciliation', parentSpanId: spanOf('doubt-1', 'step', '1'), attributes: { 'holdfast.verdict': 'not_applied', 'holdfast.by': 'person' } });
  expect(await within('failing-1', 'compensation')).toMatchObject({ service: 'holdfast-compensation', attributes: { 'holdfast.standing': 'failed' } });
  expect(await within('failing-1', 'compensation plan')).toMatchObject({ parentSpanId: spanOf('failing-1'), attributes: { 'holdfast.status': 'compensation_failed' } });
  expect(otlp.bodies.filter((body) => body.includes(SECRET) || body.includes('the line went dead') || body.includes('call 17'))).toEqual([]);
});

test('a line of a log that names a run names its trace', async () => {
  const lines = (await Promise.all(SERVICES.map((name) => stack.log(stack.service(name))))).flat();
  expect(lines).toContainEqual(expect.objectContaining({ level: 40, service: 'ledger', run: 'doubt-1', step: '1', event: 'DuplicateEffectDetected', trace: traceOf('doubt-1') }));
  expect(JSON.stringify(lines)).not.toContain(SECRET);
});

const readiness = async (name: string): Promise<{ status: number; problem?: string }> => {
  const response = await fetch(`http://127.0.0.1:${ports.get(name)}/readyz`);
  return { ...((await response.json()) as object), status: response.status };
};
const all = (names: readonly string[], what: string, so: (answer: { status: number; problem?: string }) => boolean): Promise<unknown> =>
  Promise.all(names.map((name) => eventually(`${name}: ${what}`, async () => so(await readiness(name)))));

test('a database that is gone, and a broker that does not answer, are told by the readiness of all that need them, though nothing is asked of them, and taken back', async () => {
  const [database, broker] = [stack.stack.postgres, stack.stack.kafka?.pid];
  if (database === null || database === undefined || broker === undefined) throw new Error('this stack has no servers of its own');
  await all(PAGES, 'ready', ({ status }) => status === 200);
  await database.kill();
  await all([...SERVICES, 'gateway'], 'unready', ({ status, problem }) => status === 503 && /database/.test(problem ?? ''));
  expect((await readiness('worker')).status).toBe(200);
  await database.start();
  await all(PAGES, 'ready again', ({ status }) => status === 200);
  process.kill(broker, 'SIGSTOP');
  try {
    await all(PAGES, 'unready', ({ status, problem }) => status === 503 && /broker|unpublished/.test(problem ?? ''));
  } finally {
    process.kill(broker, 'SIGCONT');
  }
  await all(PAGES, 'ready again', ({ status }) => status === 200);
});
