import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { decodeHeaders, encodeHeaders, serviceSource, type Envelope } from '../src/index.js';

const whole: Envelope = {
  id: 'i-1',
  type: 'RunAccepted',
  source: serviceSource('orchestrator', '3f2'),
  subject: 'run-ä-😀',
  time: Date.UTC(2026, 1, 3, 4, 5, 6, 789),
  tenant: 'acme',
  lane: 0,
  seq: 12,
  prev: 0,
  version: 1,
  hash: 'a'.repeat(64),
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
};
const counters = fc.option(fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }), { nil: undefined });

describe('an envelope', () => {
  test('comes back as it was sent', () => {
    expect(decodeHeaders(encodeHeaders(whole), 'other', 0)).toEqual(whole);
  });

  test('comes back from bytes, as Kafka gives them', () => {
    const bytes = Object.fromEntries(Object.entries(encodeHeaders(whole)).map(([name, value]) => [name, Buffer.from(value)]));
    expect(decodeHeaders(bytes, null, 0)).toEqual(whole);
    const repeated = Object.fromEntries(Object.entries(bytes).map(([name, value]) => [name, [value, Buffer.from('later')]]));
    expect(decodeHeaders(repeated, null, 0)).toEqual(whole);
  });

  test('comes back whatever it holds', () => {
    const texts = fc.string({ unit: 'grapheme', minLength: 1 });
    fc.assert(
      fc.property(texts, texts, texts, fc.integer({ min: 0, max: 8.64e15 }), counters, counters, counters, (id, subject, tenant, time, seq, prev, version) => {
        const sent: Envelope = { ...whole, id, subject, tenant, time, ...(seq === undefined ? {} : { seq }), ...(prev === undefined ? {} : { prev }), ...(version === undefined ? {} : { version }) };
        const bytes = Object.fromEntries(Object.entries(encodeHeaders(sent)).map(([name, value]) => [name, Buffer.from(value)]));
        expect(decodeHeaders(bytes, null, 0)).toEqual(sent);
      }),
    );
  });

  test('from an outsider needs a type alone', () => {
    expect(decodeHeaders({ ce_type: 'StartRun' }, 'run-1', 77)).toEqual({ id: '', type: 'StartRun', source: 'unknown', subject: 'run-1', time: 77, tenant: 'default' });
    expect(decodeHeaders({ ce_type: 'StartRun' }, null, 77)?.subject).toBe('');
  });

  test.each([{}, { ce_type: '' }, { ce_type: undefined }, { ce_type: [] }, { ce_type: null }])('without a type is none: %j', (headers) => {
    expect(decodeHeaders(headers, 'run-1', 0)).toBeUndefined();
  });

  test.each(['', '-1', '1.5', '1e3', ' 1', '0x1', '9007199254740993', '99999999999999999', 'NaN'])('takes %j for no number', (text) => {
    expect(decodeHeaders({ ce_type: 'T', ce_seq: text, ce_lane: text, ce_prevseq: text, ce_streamversion: text }, 'k', 5)).not.toHaveProperty('seq');
  });

  test('with a time nobody can read has the record’s', () => {
    expect(decodeHeaders({ ce_type: 'T', ce_time: 'yesterday' }, 'k', 5)?.time).toBe(5);
  });

  test('is CloudEvents 1.0, binary mode', () => {
    expect(encodeHeaders(whole)).toMatchObject({ ce_specversion: '1.0', ce_time: '2026-02-03T04:05:06.789Z', 'content-type': 'application/json' });
  });
});
