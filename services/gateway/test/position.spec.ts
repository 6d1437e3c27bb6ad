import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { formatPosition, inOrder, parsePosition, placeOf, STREAM_TOPICS, type Placed } from '../src/domain/position.js';

const topic = fc.constantFrom(...Object.values(STREAM_TOPICS));
const lane = fc.integer({ min: 0, max: 20 });
const position = fc.array(fc.tuple(topic, lane, fc.nat({ max: 1_000_000 }))).map((places) => new Map(places.map(([of, at, next]) => [placeOf(of, at), next])));

/** What a stream holds: each lane numbered without a gap, at any times. */
const stream = fc
  .array(fc.tuple(topic, fc.integer({ min: 0, max: 3 }), fc.nat({ max: 50 })), { maxLength: 40 })
  .map((entries) => {
    const next = new Map<string, number>();
    return entries.map(([of, at, time]): Placed => {
      const offset = next.get(placeOf(of, at)) ?? 0;
      next.set(placeOf(of, at), offset + 1);
      return { topic: of, lane: at, offset, time };
    });
  });

describe('places in the event stream', () => {
  it('come back from their names', () => {
    fc.assert(fc.property(position, (of) => expect(parsePosition(formatPosition(of))).toEqual(of)));
  });

  it('have names that may stand in a header and a URL', () => {
    fc.assert(fc.property(position, (of) => expect(formatPosition(of)).toMatch(/^[a-z0-9._-]+$/)));
  });

  it.each(['', 'x1.2', 'r', 'r1', 'r1.2.3', 'r1.-2', 'r1.2_', 'r12345.1', 'r1.1234567890123456', 'r1.2 '])('"%s" names none', (text) => {
    expect(parsePosition(text)).toBeNull();
  });
});

describe('the order of several lanes', () => {
  it('keeps each lane’s own, and loses nothing', () => {
    fc.assert(
      fc.property(stream, (events) => {
        const ordered = inOrder(new Map(), events).map(({ event }) => event);
        expect(ordered).toHaveLength(events.length);
        const last = new Map<string, number>();
        for (const { topic: of, lane: at, offset } of ordered) {
          expect(offset).toBe((last.get(placeOf(of, at)) ?? -1) + 1);
          last.set(placeOf(of, at), offset);
        }
      }),
    );
  });

  it('lets whoever goes on from any event get exactly the rest', () => {
    fc.assert(
      fc.property(stream, fc.nat({ max: 39 }), (events, cut) => {
        const ordered = inOrder(new Map(), events);
        const seen = ordered.slice(0, cut);
        const from = parsePosition(seen.at(-1)?.after ?? '0') ?? new Map<string, number>();
        const rest = events.filter(({ topic: of, lane: at, offset }) => offset >= (from.get(placeOf(of, at)) ?? 0));
        expect(new Set([...seen.map(({ event }) => event), ...rest]).size).toBe(events.length);
        expect(seen.length + rest.length).toBe(events.length);
      }),
    );
  });
});
