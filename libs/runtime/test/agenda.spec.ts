import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Agenda } from '../src/loop/agenda.js';
import type { AgendaEntry } from '../src/store/types.js';

const open = (dueAt: number | null = null, tag: string | null = 't') => ({ open: true, dueAt, tag });
const rest = { open: false, dueAt: null, tag: 't' };

describe('what is written', () => {
  test('a stream that opens, and no second time while nothing changes', () => {
    const agenda = new Agenda();
    const entry = agenda.update('s', open(50), 0);
    expect(entry).toEqual({ stream: 's', open: true, dueAt: 50, tag: 't' });
    agenda.written([entry as AgendaEntry]);
    expect(agenda.update('s', open(50), 1)).toBeNull();
  });

  test('an earlier time and another tag, but not a later time: it only costs a look', () => {
    const agenda = new Agenda();
    agenda.load({ stream: 's', ...open(50) });
    expect(agenda.update('s', open(60), 0)).toBeNull();
    expect(agenda.update('s', open(null), 0)).toBeNull();
    expect(agenda.update('s', open(40), 0)).toMatchObject({ dueAt: 40 });
    expect(agenda.update('s', open(60, 'u'), 0)).toMatchObject({ tag: 'u' });
  });

  test('a stream that never was open costs nothing', () => {
    const agenda = new Agenda();
    expect(agenda.update('s', rest, 0)).toBeNull();
    expect(agenda.takeClosed(1e9, 10)).toEqual([]);
  });

  test('a stream at rest is written as closed a little later, unless it opens again', () => {
    const agenda = new Agenda();
    for (const stream of ['a', 'b']) agenda.load({ stream, ...open() });
    agenda.update('a', rest, 100);
    agenda.update('b', rest, 100);
    expect(agenda.takeClosed(1099, 10)).toEqual([]);
    agenda.update('b', open(), 500);
    const closed = agenda.takeClosed(1100, 10);
    expect(closed).toEqual([{ stream: 'a', open: false, dueAt: null, tag: 't' }]);
    // Not written yet: it comes again.
    expect(agenda.takeClosed(1100, 10)).toEqual(closed);
    agenda.written(closed);
    expect(agenda.takeClosed(1e9, 10)).toEqual([]);
  });

  test('a stream that opens again is, where nobody knows whether it was written as closed meanwhile', () => {
    const agenda = new Agenda();
    agenda.load({ stream: 's', ...open(50) });
    agenda.update('s', rest, 100);
    agenda.takeClosed(1100, 10); // Its answer was lost.
    expect(agenda.update('s', open(2000), 1200)).toEqual({ stream: 's', open: true, dueAt: 2000, tag: 't' });
    expect(agenda.wake('s', 1500)).toMatchObject({ open: true, dueAt: 1500 });
    agenda.written([{ stream: 's', ...open(1500) }]);
    expect(agenda.update('s', open(2000), 1300)).toBeNull();
  });
});

describe('alarms', () => {
  test('go off in time order, each once', () => {
    const agenda = new Agenda();
    agenda.update('late', open(30), 0);
    agenda.update('soon', open(10), 0);
    expect(agenda.nextAt()).toBe(10);
    expect(agenda.takeDue(9, 10)).toEqual([]);
    expect(agenda.takeDue(30, 10)).toEqual(['soon', 'late']);
    expect(agenda.takeDue(1e9, 10)).toEqual([]);
  });

  test('that are moved or no longer wanted do not go off', () => {
    const agenda = new Agenda();
    agenda.update('moved', open(10), 0);
    agenda.update('moved', open(20), 0);
    agenda.update('done', open(10), 0);
    agenda.update('done', rest, 0);
    agenda.update('calm', open(10), 0);
    agenda.update('calm', open(null), 0);
    expect(agenda.takeDue(15, 10)).toEqual([]);
    expect(agenda.takeDue(20, 10)).toEqual(['moved']);
  });

  test('beyond the limit wait for the next look', () => {
    const agenda = new Agenda();
    for (const stream of ['a', 'b', 'c']) agenda.update(stream, open(1), 0);
    expect(agenda.takeDue(1, 2)).toHaveLength(2);
    expect(agenda.takeDue(1, 2)).toHaveLength(1);
  });

  test('of the database go off after a take-over', () => {
    const agenda = new Agenda();
    agenda.load({ stream: 's', ...open(5) });
    expect(agenda.takeDue(5, 10)).toEqual(['s']);
  });
});

describe('a look asked for from outside', () => {
  test('is written, so that it outlives the process, and outlives a change of the stream’s own time', () => {
    const agenda = new Agenda();
    agenda.load({ stream: 's', ...open(100) });
    expect(agenda.wake('s', 10)).toEqual({ stream: 's', open: true, dueAt: 10, tag: 't' });
    agenda.update('s', open(200), 0);
    expect(agenda.takeDue(10, 10)).toEqual(['s']);
  });

  test('that is stored no later already costs nothing', () => {
    const agenda = new Agenda();
    agenda.load({ stream: 's', ...open(5) });
    expect(agenda.wake('s', 10)).toBeNull();
  });

  test('does not put off what is due before it, nor an earlier look', () => {
    const agenda = new Agenda();
    expect(agenda.update('s', open(5), 0)).toMatchObject({ dueAt: 5 });
    expect(agenda.wake('s', 10)).toMatchObject({ dueAt: 5 });
    agenda.written([{ stream: 's', ...open(5) }]);
    const other = new Agenda();
    other.load({ stream: 's', ...open(50) });
    other.wake('s', 10);
    expect(other.wake('s', 20)).toMatchObject({ dueAt: 10 });
  });

  test('at a stream at rest is none', () => {
    const agenda = new Agenda();
    expect(agenda.wake('s', 10)).toBeNull();
    agenda.load({ stream: 's', ...open() });
    agenda.update('s', rest, 0);
    expect(agenda.wake('s', 10)).toBeNull();
    expect(agenda.takeDue(1e9, 10)).toEqual([]);
  });
});

describe('what was missed', () => {
  const NOW = 100_000;
  const missed = (n: number): Agenda => {
    const agenda = new Agenda();
    for (let i = 0; i < n; i += 1) agenda.update(`m${i}`, open(NOW - 5000 + i, null), NOW - 9000);
    return agenda;
  };

  test('is taken a few at a time, the oldest first, behind what is on time', () => {
    const agenda = missed(5);
    agenda.update('on time', open(NOW), NOW);
    expect(agenda.overdue(NOW)).toBe(5);
    expect(agenda.takeDue(NOW, 10, 2)).toEqual(['on time', 'm0', 'm1']);
    expect(agenda.takeDue(NOW, 10, 0)).toEqual([]);
    expect(agenda.nextAt()).toBeNull();
    expect(agenda.overdue(NOW)).toBe(3);
    expect(agenda.takeDue(NOW, 2, 9)).toEqual(['m2', 'm3']);
    expect(agenda.takeDue(NOW, 9, 9)).toEqual(['m4']);
    expect(agenda.overdue(NOW)).toBe(0);
  });

  test('is what is late by more than a second: less is no outage', () => {
    const agenda = new Agenda();
    agenda.update('a', open(NOW), NOW);
    expect(agenda.overdue(NOW + 1000)).toBe(0);
    expect(agenda.overdue(NOW + 1001)).toBe(1);
  });

  test('does not go off once the stream has moved on, and can be woken before its turn', () => {
    const agenda = missed(4);
    expect(agenda.overdue(NOW)).toBe(4);
    agenda.update('m0', open(NOW + 50, null), NOW);
    agenda.update('m1', { ...rest, tag: null }, NOW);
    agenda.wake('m3', NOW + 10);
    expect(agenda.takeDue(NOW + 10, 10, 0)).toEqual(['m3']);
    expect(agenda.takeDue(NOW + 10, 10, 9)).toEqual(['m2']);
    expect(agenda.takeDue(NOW + 50, 10, 9)).toEqual(['m0']);
  });

  test('is never a look that was asked for: of these there may be too many for a moment', () => {
    const agenda = missed(1);
    for (const [i, stream] of ['a', 'b', 'c'].entries()) {
      agenda.update(stream, open(NOW + 90_000, null), NOW);
      agenda.wake(stream, NOW + i);
    }
    expect(agenda.takeDue(NOW + 5000, 2, 0)).toEqual(['a', 'b']);
    agenda.update('c', open(NOW + 90_000, null), NOW + 5000);
    expect(agenda.nextAt()).toBeLessThanOrEqual(NOW + 5000);
    expect(agenda.overdue(NOW + 5000)).toBe(1);
    expect(agenda.takeDue(NOW + 5000, 9, 0)).toEqual(['c']);
    expect(agenda.takeDue(NOW + 5000, 9, 9)).toEqual(['m0']);
    expect(agenda.takeDue(NOW + 5000, 9, 9)).toEqual([]);
  });

  test('keeps its place when something else happens to the stream, and its look when one was asked for', () => {
    const agenda = missed(2);
    agenda.wake('m1', NOW + 10);
    agenda.update('m0', open(NOW - 5000, null), NOW);
    agenda.update('m1', open(NOW - 4999, null), NOW);
    expect(agenda.overdue(NOW)).toBe(2);
    expect(agenda.takeDue(NOW + 10, 10, 0)).toEqual(['m1']);
    expect(agenda.takeDue(NOW + 10, 10, 9)).toEqual(['m0']);
    expect(agenda.takeDue(1e9, 10, 9)).toEqual([]);
  });
});

test('what was missed while nobody held the lane is looked at later still where it has a new time, and on time for that', () => {
  const agenda = new Agenda();
  agenda.load({ stream: 's', ...open(10) });
  agenda.update('s', open(50_000), 20_000);
  expect(agenda.takeDue(50_000, 10, 0)).toEqual(['s']);
  expect(agenda.takeDue(50_000, 10, 9)).toEqual([]);
});

test('the tag finds the open streams', () => {
  const agenda = new Agenda();
  agenda.update('a', open(null, 't'), 0);
  agenda.update('b', open(null, 'u'), 0);
  agenda.update('c', open(null, 't'), 0);
  agenda.update('c', rest, 0);
  expect(agenda.open('t')).toEqual(['a']);
});

test('whatever happens, what the database has comes due no later than the streams do', () => {
  const change = fc.record({ stream: fc.constantFrom('a', 'b', 'c'), open: fc.boolean(), dueAt: fc.option(fc.integer({ min: 0, max: 5000 })), wake: fc.option(fc.integer({ min: 0, max: 5000 })), quietly: fc.constantFrom('heard', 'lost', 'refused', null), passes: fc.integer({ min: 0, max: 800 }) });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 30 }), (changes) => {
      const agenda = new Agenda();
      const database = new Map<string, AgendaEntry>();
      const wanted = new Map<string, { open: boolean; dueAt: number | null; wakeAt: number }>();
      let now = 0;
      for (const { stream, open: isOpen, dueAt: at, wake, quietly, passes } of changes) {
        now += passes;
        // Between turns what is at rest is written by itself; its answer may be lost, or the write.
        const closed = quietly === null ? [] : agenda.takeClosed(now, 10);
        if (quietly !== 'refused') for (const one of closed) database.set(one.stream, one);
        if (quietly === 'heard') agenda.written(closed);
        const dueAt = isOpen && at !== null ? now + at : null;
        const entry = agenda.update(stream, { open: isOpen, dueAt, tag: 't' }, now);
        // In the order in which a turn does it.
        const entries = [...(entry === null ? [] : [entry]), ...agenda.takeClosed(now, 10)];
        const woken = wake === null ? null : agenda.wake(stream, now + wake);
        if (woken !== null) entries.push(woken);
        // One row a stream, as the loop writes them: the last word counts.
        const written = [...new Map(entries.map((one) => [one.stream, one])).values()];
        for (const one of written) database.set(one.stream, one);
        agenda.written(written);
        const wakeAt = isOpen ? Math.min(wanted.get(stream)?.wakeAt ?? Infinity, wake === null ? Infinity : now + wake) : Infinity;
        wanted.set(stream, { open: isOpen, dueAt, wakeAt });
        for (const [name, want] of wanted) {
          if (!want.open) continue;
          const stored = database.get(name);
          expect(stored?.open).toBe(true);
          expect(stored?.dueAt ?? Infinity).toBeLessThanOrEqual(Math.min(want.dueAt ?? Infinity, want.wakeAt));
        }
        expect([...agenda.open('t')].sort()).toEqual([...wanted].filter(([, want]) => want.open).map(([name]) => name).sort());
      }
    }),
  );
});
