import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { parseTraceparent, spanOf, traceOf, traceparentOf } from '@holdfast/protocol';
import type { LoopObserver, TurnFacts } from '../src/loop/observer.js';
import { noting } from '../src/nest/noted.js';
import { listMetrics, LoopMetrics, loopGauges, LoopTracer, openRegistry, openTracing, servePages, together, traced, type SpanFacts } from '../src/telemetry/index.js';
import { lane, news, NEWS, turn, wish, WISHES } from './kit.js';

const open = (offset: number, stream: string) => wish(offset, stream, { does: 'open' });
const add = (offset: number, stream: string) => wish(offset, stream, { does: 'add' });

class Spans {
  readonly told: SpanFacts[] = [];
  span = (facts: SpanFacts): void => void this.told.push(facts);
  close = (): Promise<void> => Promise.resolve();
}
const tracerOf = (spans: Spans): LoopTracer => new LoopTracer('counter', spans);
const facts = (over: Partial<TurnFacts> = {}): TurnFacts => ({ startedAt: 100, decidedAt: 130, committedAt: 150, messages: 1, timers: 0, lanes: [], ...over });

describe('where traces are kept', () => {
  test('each row names the span of the message that it follows from; without, a trace is passed on as it came', async () => {
    const asked = { ...open(0, 's1'), headers: { ...open(0, 's1').headers, traceparent: traceparentOf('a'.repeat(32), 'b'.repeat(16)) } };
    const { rows } = await turn(lane(), [asked, add(1, 's1')], { observer: tracerOf(new Spans()) });
    expect(rows.map(({ trace }) => parseTraceparent(trace ?? ''))).toEqual([0, 1].map((offset) => ({ trace: traceOf('s1'), span: spanOf('s1', 'counter', WISHES, asked.lane, offset) })));
    expect((await turn(lane(), [asked])).rows[0]?.trace).toBe(asked.headers['traceparent']);
  });

  test('a row about another run is in that run’s trace, one of a timer right under its run, and one of a lane in none', () => {
    const tracer = tracerOf(new Spans());
    expect(tracer.traceparent(add(0, 's1'), 's2')).toBe(traceparentOf(traceOf('s2'), spanOf('s2')));
    expect(tracer.traceparent(null, 's1')).toBe(traceparentOf(traceOf('s1'), spanOf('s1')));
    expect(tracer.traceparent(null, '~lane/default/0')).toBeNull();
  });

  test('a message is told with the turn that took it, under whoever sent it, or beside them where they have a trace of their own', () => {
    const spans = new Spans();
    const sent = (offset: number, traceparent?: string) => ({ ...add(offset, 's1'), headers: { ...add(offset, 's1').headers, ...(traceparent === undefined ? {} : { traceparent }) } });
    const handled = [sent(0, traceparentOf(traceOf('s1'), 'c'.repeat(16))), sent(1, traceparentOf('a'.repeat(32), 'b'.repeat(16))), sent(2), add(3, '~lane')];
    tracerOf(spans).onTurn(facts({ messages: 4, lanes: [{ handled, rows: [], marks: [] }] }));
    expect(spans.told.map(({ parent, link }) => [parent, link?.trace])).toEqual([['c'.repeat(16), undefined], [spanOf('s1'), 'a'.repeat(32)], [spanOf('s1'), undefined]]);
    expect(spans.told[0]).toMatchObject({ trace: traceOf('s1'), name: 'counter Wish', startedAt: 100, endedAt: 150, attributes: { 'holdfast.run': 's1', 'messaging.batch.message_count': 4, 'holdfast.decide_ms': 30, 'holdfast.commit_ms': 20 } });
  });

  test('what lasts is told at its end, from its beginning; what began elsewhere says so', () => {
    const spans = new Spans();
    const tracer = tracerOf(spans);
    const mark = (at: number, of: 'begins' | 'ends', parts: readonly (string | number)[], over: object = {}) => ({ stream: 's1', at, mark: { parts, name: 'thing', mark: of, ...over } });
    const told = (...marks: ReturnType<typeof mark>[]): void => tracer.onTurn(facts({ lanes: [{ handled: [], rows: [], marks }] }));
    told(mark(10, 'begins', ['step', '1']), mark(15, 'begins', ['step', '1']));
    told(mark(40, 'ends', ['step', '1']), mark(50, 'ends', ['step', '2'], { failed: 'unknown' }), mark(60, 'ends', [], { since: 5 }));
    expect(spans.told.map(({ span, parent, startedAt, endedAt, failed, attributes }) => [span, parent, startedAt, endedAt, failed, attributes['holdfast.began_elsewhere']])).toEqual([
      [spanOf('s1', 'step', '1'), spanOf('s1'), 10, 40, undefined, undefined],
      [spanOf('s1', 'step', '2'), spanOf('s1'), 50, 50, 'unknown', true],
      [spanOf('s1'), null, 5, 60, undefined, undefined],
    ]);
  });

  test('nothing is opened where no receiver is named, and a receiver that is gone holds up nobody', async () => {
    expect(await openTracing('counter', 'counter-1', undefined)).toBeNull();
    expect(await openTracing('counter', 'counter-1', '')).toBeNull();
    const tracing = await openTracing('counter', 'counter-1', 'http://127.0.0.1:9');
    for (let i = 0; i < 100; i += 1) tracing?.span({ trace: traceOf('s'), span: spanOf('s', i), parent: null, name: 'n', kind: 'internal', startedAt: 1, endedAt: 0, attributes: {} });
    await expect(tracing?.close()).resolves.toBeUndefined();
  });

  test('a receiver that refuses them is told of once, however many are lost', async () => {
    let refused = 0;
    const server = createServer((request, response) => {
      request.resume().on('end', () => {
        refused += 1;
        response.writeHead(400).end();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const troubles: string[] = [];
    const tracing = await openTracing('counter', 'counter-1', `http://127.0.0.1:${(server.address() as AddressInfo).port}`, (error) => troubles.push(error));
    for (let i = 0; i < 1200; i += 1) tracing?.span({ trace: traceOf('s'), span: spanOf('s', i), parent: null, name: 'n', kind: 'internal', startedAt: 1, endedAt: 2, attributes: {} });
    await tracing?.close();
    server.close();
    expect(refused).toBeGreaterThan(1);
    expect(troubles).toHaveLength(1);
  });
});

describe('what is counted', () => {
  test('is counted once, however often its turn had to begin anew', async () => {
    const of = lane({ seen: { [`${NEWS}|holdfast/other/1|${lane().id}`]: 9 } });
    // The first try finds that a lock is wanted.
    const { counts } = await turn(of, [news(0, 1, 0), wish(0, 's1', { does: 'share' })]);
    expect(counts).toEqual(['skipped: duplicate']);
  });

  test('of a message that failed, nothing but that', async () => {
    const { counts } = await turn(lane(), [open(0, 's1'), wish(1, 's1', { does: 'boom' })]);
    expect(counts).toEqual(['poison: TypeError']);
  });
});

describe('/metrics', () => {
  const health = () => ({ lanes: 4, halted: [{ lane: 1, reason: 'r' }], shelved: [{ stream: 's9', reason: 'r', messages: 2 }], unpublishedMs: 0, stuckMs: 1500, waiting: 7, silentMs: 0, unpublishedRows: 3, openStreams: 9 });
  const counts = new Map([['skipped: duplicate', 2], ['ignored: already_settled', 3], ['ignored: not_due', 5], ['parked: too_large', 1], ['tokens: replayed', 100], ['refused: stale_fence', 4]]);

  test('tells what a service does and how it stands', async () => {
    const registry = openRegistry('counter', 'counter-1');
    const metrics = new LoopMetrics(registry);
    loopGauges(registry, { health, ready: () => false, counts, unpublishedSince: () => 2000, lag: () => [{ topic: 'news', lane: 2, messages: 6 }], lagStuckMs: () => 0, databaseSilentMs: () => 0, pool: () => ({ total: 5, idle: 2, waiting: 1 }), now: () => 6000 });
    const { rows } = await turn(lane(), [open(0, 's1'), add(1, 's1')]);
    metrics.onTurn(facts({ messages: 2, lanes: [{ handled: [open(0, 's1'), add(1, 's1')], rows, marks: [] }] }));
    const text = await registry.metrics();
    const line = (name: string): string | undefined => text.split('\n').find((each) => each.startsWith(name))?.replace(/\{.*\}/, '');
    const of = (name: string): string[] => text.split('\n').filter((each) => each.startsWith(`${name}{`)).map((each) => each.replace(/,?(service|instance_name)="[^"]*"/g, ''));
    expect(of('holdfast_rows_total')).toEqual(['holdfast_rows_total{type="Opened"} 1', 'holdfast_rows_total{type="Added"} 1']);
    expect(of('holdfast_messages_total')).toEqual(['holdfast_messages_total{type="Wish"} 2']);
    expect(line('holdfast_turn_seconds_sum')).toBe('holdfast_turn_seconds_sum 0.03');
    expect(line('holdfast_outbox_oldest_seconds')).toBe('holdfast_outbox_oldest_seconds 4');
    expect(of('holdfast_lag_messages')).toEqual(['holdfast_lag_messages{topic="news",lane="2"} 6']);
    expect(of('holdfast_database_connections')).toEqual(['holdfast_database_connections{state="used"} 3', 'holdfast_database_connections{state="idle"} 2', 'holdfast_database_connections{state="waiting"} 1']);
    expect(of('holdfast_suppressed_duplicates_total')).toEqual(['holdfast_suppressed_duplicates_total{because="duplicate"} 2', 'holdfast_suppressed_duplicates_total{because="already_settled"} 3']);
    expect(of('holdfast_tokens_total')).toEqual(['holdfast_tokens_total{steps="replayed"} 100']);
    expect(line('holdfast_shelved_runs')).toBe('holdfast_shelved_runs 1');
    expect(line('holdfast_ready')).toBe('holdfast_ready 0');
    expect(of('holdfast_decisions_total')).toContain('holdfast_decisions_total{what="refused",because="stale_fence"} 4');
    // Asked again it says the same: nothing is added up twice.
    expect((await registry.metrics()).split('\n').filter((each) => each.startsWith('holdfast_suppressed'))).toEqual(text.split('\n').filter((each) => each.startsWith('holdfast_suppressed')));
  });

  test('has a name, a kind and a description for each, none twice', () => {
    const listed = listMetrics();
    expect(new Set(listed.map(({ name }) => name)).size).toBe(listed.length);
    expect(listed.filter(({ name, help, kind }) => !name.startsWith('holdfast_') || help === '' || !['gauge', 'counter', 'histogram'].includes(kind))).toEqual([]);
  });

  test('stands beside /healthz and /readyz, each with its own answer', async () => {
    const server = servePages(0, () => ({ unready: 'the broker is gone', dead: null, facts: { lanes: 4 } }), { contentType: 'text/plain', metrics: () => Promise.reject(new Error('no database')) });
    await new Promise((resolve) => server.once('listening', resolve));
    const ask = async (page: string): Promise<[number, string]> => {
      const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${page}`);
      return [response.status, await response.text()];
    };
    expect(await ask('/healthz')).toEqual([200, '{"ok":true,"lanes":4}']);
    expect(await ask('/readyz?verbose')).toEqual([503, '{"ok":false,"problem":"the broker is gone","lanes":4}']);
    expect(await ask('/metrics')).toEqual([500, '{"ok":false,"problem":"no database"}']);
    expect((await ask('/'))[0]).toBe(404);
    server.close();
  });
});

describe('lines of a log', () => {
  test('carry the trace of the run that they name', () => {
    expect(traced({ run: 'r', step: '1' })).toEqual({ run: 'r', step: '1', trace: traceOf('r') });
    expect(traced({ lane: 3 })).toEqual({ lane: 3 });
  });

  test('tell of what may want a person, and of nothing else', async () => {
    const { rows } = await turn(lane(), [open(0, 's1')]);
    const row = { ...(rows[0] as (typeof rows)[number]), type: 'EffectOutcomeUnknown', data: JSON.stringify({ step: '2', attempt: 1, message: 'secret' }) };
    const lines: unknown[] = [];
    noting({ warn: (line: unknown) => void lines.push(line) } as Parameters<typeof noting>[0]).onTurn(facts({ lanes: [{ handled: [], rows: [...rows, row], marks: [] }] }));
    expect(lines).toEqual([{ run: 's1', step: '2', attempt: 1, event: 'EffectOutcomeUnknown', tenant: 'acme' }]);
  });

  test('several observers each hear of a turn; only one that names spans does so', () => {
    const heard: string[] = [];
    const one = (name: string, more: Partial<LoopObserver> = {}): LoopObserver => ({ onTurn: () => void heard.push(name), ...more });
    expect(together([])).toBeUndefined();
    expect(together([one('a'), one('b')])?.traceparent).toBeUndefined();
    const both = together([one('a'), one('b', { traceparent: () => 'tp' })]);
    both?.onTurn(facts());
    expect(heard).toEqual(['a', 'b']);
    expect(both?.traceparent?.(null, 's')).toBe('tp');
  });
});

test('spans reach a receiver as OTLP in JSON, with what they were and not what was in them', async () => {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    request.on('data', (chunk: Buffer) => bodies.push(chunk.toString()));
    request.on('end', () => response.writeHead(200, { 'content-type': 'application/json' }).end('{}'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const tracing = await openTracing('counter', 'counter-1', `http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  tracing?.span({ trace: traceOf('s'), span: spanOf('s', 'x'), parent: spanOf('s'), name: 'thing', kind: 'client', startedAt: 1_700_000_000_001, endedAt: 1_700_000_000_251, attributes: { 'holdfast.run': 's' }, failed: 'unknown', link: { trace: 'a'.repeat(32), span: 'b'.repeat(16) } });
  await tracing?.close();
  server.close();
  expect(JSON.parse(bodies.join(''))).toMatchObject({
    resourceSpans: [{ resource: { attributes: expect.arrayContaining([{ key: 'service.name', value: { stringValue: 'holdfast-counter' } }]) }, scopeSpans: [{ spans: [{ traceId: traceOf('s'), spanId: spanOf('s', 'x'), parentSpanId: spanOf('s'), name: 'thing', kind: 3, status: { code: 2, message: 'unknown' }, links: [{ traceId: 'a'.repeat(32), spanId: 'b'.repeat(16) }] }] }] }],
  });
});
