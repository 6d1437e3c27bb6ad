import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { Envelope } from '@holdfast/protocol';
import { arrive, decodeSeen, encodeSeen, NOTHING_SEEN, type Seen } from '../../src/host/seen.js';

const envelope = (source: string, seq: number, prev: number, lane = 0): Envelope => ({ id: '', type: 'T', source, subject: 'r', time: 0, tenant: 'default', lane, seq, prev });

test('metadata comes back as it was', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string({ minLength: 1, maxLength: 30 }).filter((name) => name !== '__proto__'), fc.nat(), { maxKeys: 20 }), (entries) => {
      const seen: Seen = new Map(Object.entries(entries));
      expect(decodeSeen(encodeSeen(seen))).toEqual(seen);
    }),
  );
});

test('metadata stays below the broker\'s limit of 4096 bytes; the sources not heard for longest go first', () => {
  let seen = NOTHING_SEEN;
  for (let n = 0; n < 200; n += 1) {
    const arrival = arrive(seen, 0, envelope(`holdfast/ledger/${String(n).padStart(36, '0')}`, 1, 0));
    if (arrival.kind === 'new') seen = arrival.seen;
  }
  const again = arrive(seen, 0, envelope(`holdfast/ledger/${'0'.repeat(36)}`, 2, 1));
  if (again.kind === 'new') seen = again.seen;
  const text = encodeSeen(seen);
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(4096);
  const kept = decodeSeen(text);
  expect(kept?.get(`holdfast/ledger/${'0'.repeat(36)}`)).toBe(2);
  expect(kept?.has(`holdfast/ledger/${'1'.padStart(36, '0')}`)).toBe(false);
  expect(kept?.size).toBeGreaterThan(50);
});

test('each message is taken once in whatever way a prefix is published again, and only a missing one is a gap', () => {
  const history = fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 30 });
  fc.assert(
    fc.property(history, (backs) => {
      // A publisher that goes back at times, as after a crash, and then on in order.
      const published: number[] = [];
      let next = 1;
      for (const back of backs) {
        next = Math.max(1, next - back);
        for (let count = 0; count <= back + 1; count += 1) published.push(next++);
      }
      let seen = NOTHING_SEEN;
      const taken: number[] = [];
      for (const seq of published) {
        const arrival = arrive(seen, 0, envelope('s', seq, seq - 1));
        expect(arrival.kind).not.toBe('gap');
        if (arrival.kind !== 'new') continue;
        seen = arrival.seen;
        taken.push(seq);
      }
      expect(taken).toEqual([...new Set(published)].sort((a, b) => a - b));
    }),
  );
});

test('another lane of a source is counted apart', () => {
  const first = arrive(NOTHING_SEEN, 0, envelope('s', 5, 4));
  expect(first.kind).toBe('new');
  expect(arrive(first.kind === 'new' ? first.seen : NOTHING_SEEN, 0, envelope('s', 5, 4, 3)).kind).toBe('new');
});

test('a number beyond what a gap allows is told with both ends', () => {
  expect(arrive(new Map([['s', 3]]), 0, envelope('s', 9, 8))).toEqual({ kind: 'gap', source: 's', last: 3, prev: 8 });
});
