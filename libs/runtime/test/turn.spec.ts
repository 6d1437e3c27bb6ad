import { describe, expect, test } from '@jest/globals';
import { chainHash } from '../src/loop/chain.js';
import { Draft } from '../src/loop/draft.js';
import { Inspector } from '../src/loop/inbound.js';
import { decideTurn, type LaneWork } from '../src/loop/turn.js';
import type { JournalRow } from '../src/store/types.js';
import { Added, counter, LANE, lane, NEWS, news, NOW, OWN, parsed, said, SAID, turn, turns, wish, WISHES, type Counter, type CounterEvent } from './kit.js';

const open = (offset: number, stream: string) => wish(offset, stream, { does: 'open' });
const add = (offset: number, stream: string, n = 1) => wish(offset, stream, { does: 'add', n });

describe('a turn', () => {
  test('numbers its rows without a gap, and chains each topic and each stream', async () => {
    const of = lane({ nextSeq: 10, last: { [OWN]: 8 } });
    const { rows, decided } = await turn(of, [open(0, 's1'), wish(1, 's1', { does: 'list' }), add(2, 's1'), add(3, 's2'), wish(4, 's1', { does: 'list' })]);
    expect(rows.map(({ seq, topic, prev, stream, version }) => [seq, topic, prev, stream, version])).toEqual([
      [10, OWN, 8, 's1', 1],
      [11, SAID, 0, 's1', null],
      [12, OWN, 10, 's1', 2],
      [13, OWN, 12, 's2', 1],
      [14, SAID, 11, 's1', null],
    ]);
    const [first, , third] = rows;
    expect(third?.hash).toBe(chainHash(first?.hash ?? '', { stream: 's1', version: 2, type: 'Added', time: NOW, tenant: 'acme', data: '{"n":1}' }));
    expect(decided.write).toMatchObject({ expectedNextSeq: 10, progress: { nextSeq: 15, last: { [OWN]: 13, [SAID]: 14 }, offsets: { [WISHES]: 5 } } });
  });

  test('changes nothing of the lane before it is committed', async () => {
    const of = lane();
    const before = { ...of.progress };
    const service = counter();
    const [decided] = await decideTurn(
      {
        service,
        inspector: new Inspector(service, () => LANE),
        clock: { now: () => NOW, after: () => () => undefined, soon: () => undefined },
        random: { next: () => 0, uuid: () => 'u' },
        load: () => Promise.resolve(new Map()),
        lock: () => Promise.resolve(new Map()),
        halt: () => undefined,
      },
      [{ lane: of, records: [add(0, 's1', 5), news(0, 1, 0)], due: [] }],
    );
    expect(of.progress).toEqual(before);
    expect(of.stream('s1')?.state.n).toBe(0);
    decided?.apply();
    expect(of.progress).toMatchObject({ nextSeq: 3, seen: { [`${NEWS}|holdfast/other/1|${LANE}`]: 1 } });
    expect(of.stream('s1')?.state.n).toBe(6);
  });

  test('changes nothing of its lanes where it fails', async () => {
    const [one, other] = [lane(), lane({ lane: LANE + 1 })];
    const service = counter();
    const context = {
      service,
      inspector: new Inspector<Counter, CounterEvent>(service, () => LANE),
      clock: { now: () => NOW, after: () => () => undefined, soon: () => undefined },
      random: { next: () => 0, uuid: () => 'u' },
      load: (streams: readonly string[]) => (streams.includes('gone') ? Promise.reject(new Error('no database')) : Promise.resolve(new Map())),
      lock: () => Promise.resolve(new Map()),
      halt: () => undefined,
    };
    const works = [
      { lane: one, records: [open(0, 's1')], due: [] },
      { lane: other, records: [wish(0, 's2', { does: 'look', at: 'gone' })], due: [] },
    ];
    await expect(decideTurn(context, works)).rejects.toThrow('no database');
    expect(one.agenda.openCount()).toBe(0);
  });

  test('folds a stream from the journal when the lane does not hold it', async () => {
    const earlier = await turn(lane(), [open(0, 's1'), add(1, 's1', 4)]);
    const of = lane({ nextSeq: 3 });
    const { rows } = await turn(of, [add(2, 's1')], { journal: earlier.rows });
    expect(rows[0]).toMatchObject({ version: 3 });
    expect(of.stream('s1')).toMatchObject({ version: 3, tenant: 'acme', state: { n: 5 } });
  });

  test('stops on a history that was altered: it would fail again', async () => {
    const { rows } = await turn(lane(), [open(0, 's1'), add(1, 's1', 4)]);
    const altered = rows.map((row): JournalRow => (row.type === 'Added' ? { ...row, data: '{"n":400}' } : row));
    await expect(turn(lane(), [add(2, 's1')], { journal: altered })).rejects.toMatchObject({ name: 'Halted', lane: LANE, message: expect.stringContaining('altered outside Holdfast') });
  });

  test('passes on a trace, unless it is not printable', async () => {
    const { rows } = await turn(lane(), [
      { ...add(0, 's1'), headers: { ...add(0, 's1').headers, traceparent: '00-a-b-01' } },
      { ...add(1, 's1'), headers: { ...add(1, 's1').headers, traceparent: 'a\0b' } },
      add(2, 's1'),
    ]);
    expect(rows.map(({ trace }) => trace)).toEqual(['00-a-b-01', null, null]);
  });
});

describe('streams by tag', () => {
  test('what this very turn opened is found, what it closed is not', async () => {
    const of = lane();
    const { rows } = await turn(of, [open(0, 's1'), open(1, 's2'), wish(2, 's1', { does: 'list' }), wish(3, 's1', { does: 'close' }), wish(4, 's1', { does: 'list' })]);
    expect(rows.filter(({ topic }) => topic === SAID).map(parsed)).toEqual([{ what: 's1,s2' }, { what: 's2' }]);
  });

  test('what an earlier turn opened is found, and loaded when it is not held', async () => {
    const first = await turn(lane(), [open(0, 's1'), open(1, 's2'), add(2, 's2', 7)]);
    const of = lane({ nextSeq: 4 });
    for (const stream of ['s1', 's2']) of.agenda.load({ stream, open: true, dueAt: null, tag: 't' });
    const { rows } = await turn(of, [wish(3, 'x', { does: 'all', n: 1 })], { journal: first.rows });
    expect(said(rows)).toEqual([`${OWN} s1 Added {"n":1}`, `${OWN} s2 Added {"n":1}`]);
    expect(of.stream('s2')?.state.n).toBe(8);
  });
});

describe('a stream at rest', () => {
  test('is written as closed a second later, but not in the turn in which it opens again', async () => {
    const of = lane();
    const { decided } = await turn(of, [open(0, 's1'), open(1, 's2')]);
    expect(decided.write.agenda).toMatchObject([{ stream: 's1', open: true }, { stream: 's2', open: true }]);
    await turn(of, [wish(2, 's1', { does: 'close' }), wish(3, 's2', { does: 'close' })]);
    const later = await turn(of, [open(4, 's1')], { now: NOW + 1500 });
    expect(later.decided.write.agenda).toEqual([{ stream: 's2', open: false, dueAt: null, tag: 't' }]);
    expect(of.agenda.open('t')).toEqual(['s1']);
  });
});

describe('a handler that fails', () => {
  test('is undone whole, its stream alone is told, and the lane goes on', async () => {
    const of = lane();
    const { rows, counts, decided } = await turn(of, [add(0, 's1', 2), wish(1, 's1', { does: 'boom' }), add(2, 's2', 3)]);
    expect(said(rows.filter(({ topic }) => topic !== 'dead.letters'))).toEqual([`${OWN} s1 Added {"n":2}`, `${SAID} s1 Said {"what":"poison: boom"}`, `${OWN} s2 Added {"n":3}`]);
    expect(rows.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
    expect(counts).toContain('poison: TypeError');
    expect(of.stream('s1')?.state.n).toBe(2);
    expect(of.stream('s2')?.state.n).toBe(3);
    expect(decided.write.progress.offsets).toEqual({ [WISHES]: 3 });
    expect(decided.write.agenda).toEqual([]);
  });

  test('after it had parked its message leaves the one letter that says so', async () => {
    const { rows } = await turn(lane(), [wish(1, 's1', { does: 'boom' })]);
    const letters = rows.filter(({ topic }) => topic === 'dead.letters');
    expect(letters.map(parsed)).toMatchObject([{ reason: 'poison', message: 'boom' }]);
  });

  test('takes back its marks and the looks it asked for', async () => {
    const of = lane();
    await turn(of, [open(0, 's1')]);
    const draft = new Draft<Counter, CounterEvent>(of, { service: counter(), random: { next: () => 0, uuid: () => 'u' }, now: NOW, locked: new Map(), observer: undefined });
    draft.at(add(7, 's1'));
    const mark = draft.mark();
    draft.wake('s1', 1);
    draft.answered();
    draft.record('s1', 'acme', Added({ n: 1 }));
    draft.backTo(mark);
    const { rows, agenda, progress } = draft.finish(new Set());
    expect([rows, agenda]).toEqual([[], []]);
    expect(progress.parked[WISHES] ?? 0).toBe(0);
    expect(progress.offsets[WISHES]).toBe(8);
    expect(of.agenda.takeDue(NOW, 10)).toEqual([]);
  });

  test('leaves rows that span lanes as they were before it', async () => {
    const rows = new Map<string, string | null>([['row', 'a;']]);
    const { decided } = await turn(lane(), [wish(0, 's1', { does: 'share' }), wish(1, 's2', { does: 'boom' }), wish(2, 's3', { does: 'share' })], { rows });
    expect(decided.write.shared).toEqual([{ key: 'row', data: 'a;s1;s3;' }]);
  });
});

describe('a row that spans lanes', () => {
  test('is fetched under its lock when a handler asks for it, and each lane of a turn sees what the one before put', async () => {
    const one = lane();
    const other = lane({ lane: LANE + 1 });
    const both = await turns(
      [
        { lane: one, records: [wish(0, 's1', { does: 'share' })], due: [] },
        { lane: other, records: [wish(0, 's2', { does: 'share' })], due: [] },
      ],
      { rows: new Map([['row', 'a;']]) },
    );
    expect(both.map(({ decided }) => decided.write.shared)).toEqual([[{ key: 'row', data: 'a;s1;' }], [{ key: 'row', data: 'a;s1;s2;' }]]);
  });
});

describe('a stream that is due', () => {
  test('is looked at once, after the messages', async () => {
    const first = await turn(lane(), [open(0, 's1')]);
    const { rows } = await turn(lane({ nextSeq: 2 }), [add(1, 's1')], { due: ['s1', 's1'], journal: first.rows });
    expect(said(rows)).toEqual([`${OWN} s1 Added {"n":1}`, `${SAID} s1 Said {"what":"due"}`]);
  });
});

describe('a stream whose timer fails', () => {
  const failing = (times: number): Partial<ReturnType<typeof counter>> => {
    let left = times;
    return {
      agenda: ({ n, tag }) => ({ open: tag !== null, dueAt: n > 0 ? NOW : null, tag }),
      onDue: (stream, turn) => {
        if (stream === 's1' && (left -= 1) >= 0) throw new TypeError('no such state');
        turn.record(stream, 'acme', Added({ n: -turn.state(stream).n }));
      },
      onPoison: () => undefined,
    };
  };

  /** A turn whose transaction fails. */
  const unwritten = async (work: LaneWork<Counter>, more: Partial<ReturnType<typeof counter>>): Promise<void> => {
    const service = { ...counter(), ...more };
    const context = { service, inspector: new Inspector<Counter, CounterEvent>(service, () => LANE), clock: { now: () => NOW, after: () => () => undefined, soon: () => undefined }, random: { next: () => 0, uuid: () => 'u' }, load: () => Promise.resolve(new Map()), lock: () => Promise.resolve(new Map()), halt: () => undefined };
    const decided = await decideTurn(context, [work]);
    for (const each of decided) each.discard();
  };

  test('is looked at again later each time; others of its lane are on time, and success begins anew', async () => {
    const of = lane();
    const service = failing(3);
    await turn(of, [open(0, 's1'), open(1, 's2'), add(2, 's1'), add(3, 's2')], { service });
    const failed: unknown[] = [];
    let now = NOW;
    for (const [afterMs, expected] of [[0, ['s1', 's2']], [999, []], [1, ['s1']], [1999, []], [1, ['s1']], [4000, ['s1']], [4000, []]] as const) {
      now += afterMs;
      const due = of.agenda.takeDue(now, 10);
      expect(due).toEqual(expected);
      if (due.length > 0) failed.push(...(await turn(of, [], { due, service, now })).decided.failed.map(({ stream, tries, againMs }) => [stream, tries, againMs]));
    }
    expect(failed).toEqual([['s1', 1, 1000], ['s1', 2, 2000], ['s1', 3, 4000]]);
    expect(of.stream('s1')?.state.n).toBe(0);
    // It was mended: the next failure is the first one again.
    const again = await turn(of, [add(4, 's1')], { service, now });
    expect(again.decided.failed).toEqual([]);
    expect((await turn(of, [], { due: ['s1'], service: failing(1), now })).decided.failed).toMatchObject([{ stream: 's1', tries: 1, error: { message: 'no such state' } }]);
  });

  test('waits no less because messages come for it, which are taken at once', async () => {
    const of = lane();
    const service = failing(9);
    await turn(of, [open(0, 's1'), add(1, 's1')], { service });
    await turn(of, [], { due: of.agenda.takeDue(NOW, 10), service });
    const { rows } = await turn(of, [add(2, 's1', 5)], { service });
    expect(said(rows)).toEqual([`${OWN} s1 Added {"n":5}`]);
    expect(of.agenda.takeDue(NOW + 999, 10)).toEqual([]);
    expect(of.agenda.takeDue(NOW + 1000, 10)).toEqual(['s1']);
  });

  test('waits no less because a turn was not written that had only a message for it', async () => {
    const of = lane();
    const service = failing(9);
    await turn(of, [open(0, 's1'), add(1, 's1')], { service });
    await turn(of, [], { due: of.agenda.takeDue(NOW, 10), service });
    await unwritten({ lane: of, records: [add(2, 's1', 5)], due: [] }, service);
    expect(of.agenda.takeDue(NOW + 999, 10)).toEqual([]);
    expect(of.agenda.takeDue(NOW + 1000, 10)).toEqual(['s1']);
  });

  test('and is at rest by that is announced without a next look, for there is none', async () => {
    const of = lane();
    const service: Partial<ReturnType<typeof counter>> = {
      ...failing(9),
      agenda: ({ n, tag }) => ({ open: tag !== null && n < 9, dueAt: n > 0 ? NOW : null, tag }),
      onPoison: (stream, _, __, turn) => turn.record(stream, 'acme', Added({ n: 9 })),
    };
    await turn(of, [open(0, 's1'), add(1, 's1')], { service });
    const { decided } = await turn(of, [], { due: ['s1'], service });
    expect(decided.failed).toMatchObject([{ stream: 's1', tries: 1, againMs: null }]);
    expect(of.agenda.takeDue(NOW + 60_000, 10)).toEqual([]);
  });

  test('is looked at again where only a wake had asked for it', async () => {
    const of = lane();
    const service = failing(1);
    await turn(of, [open(0, 's1')], { service });
    await turn(of, [], { due: ['s1'], service });
    expect(of.agenda.takeDue(NOW + 1000, 10)).toEqual(['s1']);
  });

  test('waits a minute at most', async () => {
    const of = lane();
    const service = failing(99);
    await turn(of, [open(0, 's1'), add(1, 's1')], { service });
    let last: unknown;
    for (let i = 0; i < 15; i += 1) last = (await turn(of, [], { due: ['s1'], service })).decided.failed.map(({ againMs }) => againMs);
    expect(last).toEqual([60_000]);
  });

  test('changes nothing of its back-off before it is committed', async () => {
    const of = lane();
    const service = failing(9);
    await turn(of, [open(0, 's1'), add(1, 's1')], { service });
    await unwritten({ lane: of, records: [], due: ['s1'] }, service);
    expect(of.agenda.takeDue(NOW, 10)).toEqual(['s1']);
  });
});
