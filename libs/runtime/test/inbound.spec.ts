import { describe, expect, test } from '@jest/globals';
import { encodeHeaders, MESSAGE_DEPTH_MAX, VALUE_BYTES_MAX } from '@holdfast/protocol';
import { Inspector, type Marks } from '../src/loop/inbound.js';
import type { LogRecord } from '../src/ports.js';
import { counter, LANE, lane, NEWS, news, NOW, parsed, progress, said, turn, wish, WISHES } from './kit.js';

const inspector = new Inspector(counter(), (key) => (key === 'elsewhere' ? LANE + 1 : LANE));
const marks = (over: Partial<Marks> = {}): Marks => ({ seen: {}, parked: {}, ...over });
const source = (name = 'holdfast/other/1', of = LANE): string => `${NEWS}|${name}|${of}`;

describe('a service’s record', () => {
  test('is a message, and moves the mark of its source', () => {
    const seen = marks();
    expect(inspector.inspect(news(0, 4, 0), seen)).toMatchObject({ kind: 'message', inbound: { data: { n: 1 } } });
    expect(seen.seen).toEqual({ [source()]: 4 });
  });

  test('seen before is a duplicate', () => {
    for (const seq of [4, 3]) expect(inspector.inspect(news(0, seq, 0), marks({ seen: { [source()]: 4 } }))).toEqual({ kind: 'skip', because: 'duplicate' });
  });

  test('that names a row before it which was never seen halts the lane, and moves nothing', () => {
    const seen = marks({ seen: { [source()]: 4 } });
    expect(inspector.inspect(news(9, 8, 6), seen)).toMatchObject({ kind: 'halt', reason: expect.stringMatching(/gap on news\/2 at offset 9.*seq 6 came before 8, last seen is 4/) });
    expect(seen.seen).toEqual({ [source()]: 4 });
    expect(inspector.inspect(news(9, 8, 4), seen).kind).toBe('message');
  });

  test('is counted by source and by the source’s lane', () => {
    const seen = marks({ seen: { [source()]: 4 } });
    expect(inspector.inspect(news(0, 1, 0, { source: 'holdfast/other/2' }), seen).kind).toBe('message');
    expect(inspector.inspect(news(1, 1, 0, { lane: LANE + 1 }), seen).kind).toBe('message');
    expect(seen.seen).toEqual({ [source()]: 4, [source('holdfast/other/2')]: 1, [source('holdfast/other/1', LANE + 1)]: 1 });
  });

  test('of a known type without a route is skipped, and counts as seen', () => {
    const seen = marks();
    expect(inspector.inspect(news(0, 4, 0, { type: 'OtherNews' }), seen)).toEqual({ kind: 'skip', because: 'not_routed' });
    expect(seen.seen).toEqual({ [source()]: 4 });
  });

  test.each([
    ['of a type from a newer version', { type: 'Later' }, /type "Later".*is not known to this version/],
    ['with data that this version can’t read', { data: { n: 'one' } }, /can't be read by this version: n:/],
  ])('%s waits with its run, and counts as seen; about the lane itself it halts the lane, and moves nothing: it is nobody’s poison', (_, over, reason) => {
    const seen = marks();
    expect(inspector.inspect(news(0, 4, 0, over), seen)).toEqual({ kind: 'newer', stream: 's1', reason: expect.stringMatching(reason) });
    expect(seen.seen).toEqual({ [source()]: 4 });
    const other = marks();
    expect(inspector.inspect(news(0, 4, 0, { ...over, stream: '~lane/p/2' }), other)).toMatchObject({ kind: 'halt', reason: expect.stringMatching(/the lane waits for a newer one/) });
    expect(other.seen).toEqual({});
  });

  test('without its numbers is parked: it is no service’s', () => {
    const record: LogRecord = { ...news(0, 1, 0), headers: { ce_type: 'News' } };
    expect(inspector.inspect(record, marks())).toMatchObject({ kind: 'unreadable', problem: { reason: 'not_from_a_service' } });
  });

  test.each(['ce_tenant', 'ce_subject'])('with a NUL in its %s is parked, and moves nothing: no service could have stored it', (header) => {
    const record = news(0, 1, 0, { stream: 's1' });
    const seen = marks();
    const result = inspector.inspect({ ...record, headers: { ...record.headers, [header]: 'a\0b' } }, seen);
    expect(result).toMatchObject({ kind: 'unreadable', problem: { reason: 'not_from_a_service' } });
    expect(result.kind === 'unreadable' && result.problem.envelope).toBeUndefined();
    expect(seen.seen).toEqual({});
  });
});

describe('an outsider’s record', () => {
  const big = { does: 'add', pad: 'x'.repeat(VALUE_BYTES_MAX) };
  const of = (tenant: string, data: unknown = { does: 'add' }, stream = 's1'): LogRecord => {
    const record = wish(3, stream, data);
    return { ...record, headers: { ...record.headers, ce_tenant: tenant } };
  };

  test.each<[string, LogRecord]>([
    ['no_type', { ...wish(3, 's1', {}), headers: {} }],
    ['invalid_id', wish(3, 'a\0b', { does: 'add' })],
    ['invalid_id', of('a\0b')],
    ['invalid_id', of('')],
    ['invalid_id', of('x'.repeat(201))],
    ['invalid_id', of('a\ufffd')],
    ['invalid_id', of('a\0b', { does: 'add' }, '~lane/p/2')],
    ['invalid_id', of('a\0b', { does: 'fly' })],
    ['too_large', wish(3, 's1', big)],
    ['unknown_type', wish(3, 's1', {}, { type: 'Wihs' })],
    ['key_mismatch', wish(3, 's1', { does: 'add' }, { key: 's2' })],
    ['key_mismatch', wish(3, 's1', { does: 'add' }, { key: null })],
    ['wrong_partition', wish(3, 'elsewhere', { does: 'add' })],
    ['wrong_partition', wish(3, 'elsewhere', {}, { type: 'Wihs' })],
    ['wrong_partition', wish(3, 'elsewhere', big)],
    ['key_mismatch', wish(3, 's1', {}, { type: 'Wihs', key: 's2' })],
    ['key_mismatch', wish(3, 's1', big, { key: 's2' })],
    ['invalid', wish(3, 's1', { does: 'add' }, { value: null })],
    ['invalid', wish(3, 's1', { does: 'fly' })],
    ['not_json', wish(3, 's1', {}, { value: '{' })],
    ['too_deep', wish(3, 's1', {}, { value: `{"does":"add","n":${'['.repeat(MESSAGE_DEPTH_MAX)}${']'.repeat(MESSAGE_DEPTH_MAX)}}` })],
    ['unsafe_number', wish(3, 's1', {}, { value: '{"does":"add","n":9007199254740993}' })],
    ['proto_member', wish(3, 's1', {}, { value: '{"does":"add","__proto__":{}}' })],
  ])('is parked as %s, once', (reason, record) => {
    expect(inspector.inspect(record, marks())).toMatchObject({ kind: 'unreadable', problem: { reason, record: { offset: 3 } } });
    expect(inspector.inspect(record, marks({ parked: { [WISHES]: 3 } })).kind).toBe('unreadable');
    expect(inspector.inspect(record, marks({ parked: { [WISHES]: 4 } }))).toEqual({ kind: 'skip', because: 'answered_before' });
  });

  test('that breaks its schema is named field by field', () => {
    expect(inspector.inspect(wish(3, 's1', { does: 'add', n: 'x' }), marks())).toMatchObject({ problem: { message: expect.stringContaining('Wish: n:'), data: { does: 'add', n: 'x' } } });
  });

  test('of a lane’s own stream need not hash to its partition', () => {
    expect(new Inspector(counter(), () => LANE + 1).inspect(wish(3, '~lane/p/2', { does: 'add' }), marks()).kind).toBe('message');
  });

  test.each<[string, LogRecord]>([
    ['whose subject can’t be stored', wish(3, 'a\0b', { does: 'add' })],
    ['of a tenant that can’t be stored', of('a\0b')],
    ['of a tenant that is none', of('')],
    ['about a stream of another lane', wish(3, 'elsewhere', {}, { type: 'Wihs' })],
    ['about another stream than its key’s', wish(3, 's1', {}, { type: 'Wihs', key: 's2' })],
  ])('%s is told to nobody: it is no stream that this lane may write', (_, record) => {
    const result = inspector.inspect(record, marks());
    expect(result.kind === 'unreadable' && result.problem.envelope).toBeUndefined();
  });

  test('of a known type without a route, or on a topic that is none of ours, is skipped', () => {
    expect(inspector.inspect(wish(3, 's1', {}, { type: 'Ignored' }), marks())).toEqual({ kind: 'skip', because: 'not_routed' });
    expect(inspector.inspect(wish(3, 's1', {}, { topic: 'other' }), marks())).toEqual({ kind: 'skip', because: 'not_routed' });
  });
});

describe('in a turn', () => {
  test('what can’t be read goes to the dead letters with where it is and why; read again, it does not', async () => {
    const of = lane();
    const record = wish(5, 's1', {}, { value: '{' });
    const { rows } = await turn(of, [record]);
    expect(rows.map(({ topic, stream, type }) => [topic, stream, type])).toEqual([['dead.letters', 's1', 'DeadLetter']]);
    expect(parsed(rows[0])).toMatchObject({ topic: WISHES, partition: LANE, offset: 5, key: 's1', type: 'Wish', reason: 'not_json', excerpt: '{' });
    const again = await turn(of, [record]);
    expect(again.rows).toEqual([]);
    expect(again.counts).toEqual(['skipped: answered_before']);
  });

  test('a header without a value says nothing, and is no text of its own', async () => {
    const record = wish(5, 's1', { does: 'add' });
    const { rows } = await turn(lane(), [{ ...record, headers: { ...record.headers, traceparent: null } }, wish(6, 's1', {}, { headers: { ce_type: null } })]);
    expect(rows.map(({ type, trace }) => [type, trace])).toEqual([['Added', null], ['DeadLetter', null]]);
    expect(parsed(rows[1])).toMatchObject({ type: null, reason: 'no_type' });
  });

  test('what was refused for good is not decided anew', async () => {
    const of = lane();
    await turn(of, [wish(5, 's1', { does: 'refuse' })]);
    expect((await turn(of, [wish(4, 's1', { does: 'add' }), wish(5, 's1', { does: 'refuse' })])).counts).toEqual(['skipped: answered_before', 'skipped: answered_before']);
  });

  test('a halt ends the lane’s part before it; what came earlier is written', async () => {
    const of = lane();
    const { decided, rows } = await turn(of, [news(0, 1, 0), news(1, 5, 3), news(2, 6, 5)]);
    expect(decided.halted).toMatch(/gap/);
    expect(said(rows)).toEqual(['counter.events s1 Added {"n":1}']);
    expect(decided.write.progress).toMatchObject({ offsets: { [NEWS]: 1 }, seen: { [source()]: 1 } });
  });

  test('a service’s message read twice is decided once', async () => {
    const of = lane({ ...progress() });
    expect((await turn(of, [news(0, 1, 0)])).rows).toHaveLength(1);
    expect((await turn(of, [news(0, 1, 0), news(1, 1, 0), news(2, 2, 1)])).rows).toHaveLength(1);
    expect(of.stream('s1')?.state.n).toBe(2);
  });
});

test('the kit’s headers are those of the protocol', () => {
  expect(wish(0, 's1', {}).headers).toEqual(encodeHeaders({ id: 'i', type: 'Wish', source: 'someone', subject: 's1', time: NOW, tenant: 'acme' }));
});
