import { describe, expect, test } from '@jest/globals';
import { encodeHeaders } from '@holdfast/protocol';
import { chainHash } from '../src/loop/chain.js';
import { Lane } from '../src/loop/lane.js';
import { SHELF_MAX } from '../src/loop/shelf.js';
import { fromShelf, toShelf } from '../src/store/shelf-text.js';
import type { JournalRow, Shelved } from '../src/store/types.js';
import { LANE, lane, NEWS, news, NOW, OWN, parsed, progress, said, SAID, turn, turns, wish, WISHES, type Counter } from './kit.js';

/** A stream that a newer version has written to. */
const painted = (stream: string): JournalRow => {
  const row = { lane: LANE, seq: 1, topic: OWN, prev: 0, stream, type: 'Painted', version: 1, time: NOW, tenant: 'acme', trace: null, data: '{"colour":"red"}' };
  return { ...row, hash: chainHash('', row) };
};
const opened = (stream: string): JournalRow => {
  const row = { lane: LANE, seq: 1, topic: OWN, prev: 0, stream, type: 'Opened', version: 1, time: NOW, tenant: 'acme', trace: null, data: '{"tag":"t"}' };
  return { ...row, hash: chainHash('', row) };
};
const open = { open: true, dueAt: null, tag: 't' };

/** The lane as the next instance finds it. */
const taken = (before: Lane<Counter>, shelf: readonly Shelved[], entries: readonly string[] = []): Lane<Counter> => {
  const next = new Lane<Counter>(before.progress, new Map());
  next.load(entries.map((stream) => ({ stream, ...open })), shelf, NOW);
  return next;
};

describe('a run that a newer version has written to', () => {
  test('rests: what comes for it is kept in its order, its timers wait, and the lane’s other runs go on', async () => {
    const of = lane();
    of.agenda.load({ stream: 'new', open: true, dueAt: NOW, tag: 't' });
    const { decided, rows, counts } = await turn(of, [news(0, 1, 0, { stream: 'new' }), wish(0, 'fine', { does: 'open' }), wish(1, 'new', { does: 'add' })], { journal: [painted('new')], due: ['new', 'fine'] });
    expect(said(rows)).toEqual([`${OWN} fine Opened {"tag":"t"}`, `${SAID} fine Said {"what":"due"}`]);
    expect(decided.write.shelf?.put.map(({ id, stream, record: { topic, offset } }) => [id, stream, topic, offset])).toEqual([[1, 'new', NEWS, 0], [2, 'new', WISHES, 1]]);
    expect(decided.halted).toBeNull();
    expect(counts).toEqual(['shelved: run_not_readable', 'shelved: run_not_readable']);
    expect(of.progress).toMatchObject({ offsets: { [NEWS]: 1, [WISHES]: 2 } });
    expect(decided.write.agenda.map(({ stream }) => stream)).not.toContain('new'); // It stands as open and due for whoever takes the lane.
    expect(of.shelf.takeNews()).toEqual([{ stream: 'new', reason: expect.stringMatching(/stream new: this version can’t take in its Painted/) }]);
    expect(of.shelf.streams()).toEqual([{ stream: 'new', reason: expect.stringContaining('Painted'), messages: 2 }]);
  });

  test('goes on in order where a version that can read it takes the lane, before anything newer', async () => {
    const of = lane();
    const { decided } = await turn(of, [wish(0, 'new', { does: 'add', n: 1 }), news(0, 1, 0, { stream: 'new' })], { journal: [painted('new')] });
    const next = taken(of, decided.write.shelf?.put ?? [], ['new']);
    // To it the stream is readable.
    const [again] = await turns([{ lane: next, again: next.shelf.takeAgain(), records: [wish(1, 'new', { does: 'add', n: 3 })], due: ['new'] }], { journal: [opened('new')] });
    expect(again === undefined ? [] : said(again.rows)).toEqual([`${OWN} new Added {"n":1}`, `${OWN} new Added {"n":1}`, `${OWN} new Added {"n":3}`, `${SAID} new Said {"what":"due"}`]);
    expect(again?.decided.write.shelf).toEqual({ put: [], taken: [1, 2] });
    expect(next.shelf.isEmpty).toBe(true);
    expect(next.shelf.takeAgain()).toEqual([]);
    // The marks of what has been read stay where they were.
    expect(next.progress).toMatchObject({ offsets: { [NEWS]: 1, [WISHES]: 2 }, seen: { [`${NEWS}|holdfast/other/1|${LANE}`]: 1 } });
  });

  test('stays where it is with another instance that can’t read it either', async () => {
    const of = lane();
    const { decided } = await turn(of, [wish(0, 'new', { does: 'add', n: 1 })], { journal: [painted('new')] });
    const next = taken(of, decided.write.shelf?.put ?? []);
    const [again] = await turns([{ lane: next, again: next.shelf.takeAgain(), records: [wish(1, 'new', { does: 'add', n: 3 }), wish(2, 'fine', { does: 'open' })], due: [] }], { journal: [painted('new')] });
    expect(again?.decided.write.shelf).toMatchObject({ put: [{ id: 2, stream: 'new', record: { offset: 1 } }], taken: [] });
    expect(again === undefined ? [] : said(again.rows)).toEqual([`${OWN} fine Opened {"tag":"t"}`]);
    expect(next.shelf.streams()).toMatchObject([{ stream: 'new', messages: 2 }]);
  });

  test('does not hear what concerns all runs of its lane, and hears it alone later', async () => {
    const of = lane();
    for (const stream of ['new', 'fine']) of.agenda.load({ stream, ...open });
    const { decided, rows } = await turn(of, [wish(0, '~lane', { n: 5 }, { type: 'ToAll' })], { journal: [painted('new'), opened('fine')] });
    expect(said(rows)).toEqual([`${OWN} fine Added {"n":5}`]);
    expect(decided.write.shelf?.put).toMatchObject([{ stream: 'new', record: { key: '~lane' } }]);
    const next = taken(of, decided.write.shelf?.put ?? [], ['new', 'fine']);
    const [again] = await turns([{ lane: next, again: next.shelf.takeAgain(), records: [], due: [] }], { journal: [opened('new'), opened('fine')] });
    expect(again === undefined ? [] : said(again.rows)).toEqual([`${OWN} new Added {"n":5}`]);
    expect(next.shelf.isEmpty).toBe(true);
  });

  test('is passed over by what looks at all open runs by itself', async () => {
    const of = lane();
    for (const stream of ['new', 'fine']) of.agenda.load({ stream, ...open });
    const { rows } = await turn(of, [wish(0, 'x', { does: 'all' })], { journal: [painted('new'), opened('fine')] });
    expect(said(rows)).toEqual([`${OWN} fine Added {"n":1}`]);
  });

  test('an outsider’s message for it that can’t be read waits too, whatever was answered meanwhile', async () => {
    const of = lane();
    const { decided, rows } = await turn(of, [wish(3, 'new', { does: 'fly' }), wish(4, 'other', { does: 'refuse' })], { journal: [painted('new')] });
    expect([rows, decided.write.progress.parked]).toEqual([[], { [WISHES]: 5 }]);
    const next = taken(of, decided.write.shelf?.put ?? []);
    const [again] = await turns([{ lane: next, again: next.shelf.takeAgain(), records: [], due: [] }], { journal: [opened('new')] });
    expect(again?.rows.map(parsed)).toMatchObject([{ topic: WISHES, offset: 3, reason: 'invalid' }]);
    expect(again?.decided.write).toMatchObject({ progress: { parked: { [WISHES]: 5 } }, shelf: { taken: [1] } });
  });

  test('stops the lane where it is the lane’s own stream, or where another run’s decision needs it', async () => {
    await expect(turn(lane(), [wish(0, '~lane', { does: 'add' })], { journal: [painted('~lane')] })).rejects.toMatchObject({ name: 'Halted', message: expect.stringContaining('Painted') });
    await expect(turn(lane(), [wish(0, 'fine', { does: 'look', at: 'new' })], { journal: [painted('new')] })).rejects.toMatchObject({ name: 'Halted', message: expect.stringContaining('stream new') });
  });
});

describe('a service’s message that only a newer version can read', () => {
  test.each([
    ['of a new type', { type: 'Later' }, /type "Later".*not known to this version/],
    ['with data of a new shape', { data: { n: 'one' } }, /can't be read by this version: n:/],
  ])('%s sets its run on the shelf; the lane goes on', async (_, over, reason) => {
    const of = lane();
    const { decided, rows } = await turn(of, [news(0, 1, 0, { stream: 'a' }), news(1, 2, 1, { stream: 'a', ...over }), news(2, 3, 2, { stream: 'a' }), news(3, 4, 3, { stream: 'b' }), wish(0, 'a', { does: 'open' })]);
    expect(said(rows)).toEqual([`${OWN} a Added {"n":1}`, `${OWN} b Added {"n":1}`]);
    expect(decided.write.shelf?.put.map(({ stream, record: { topic, offset } }) => [stream, topic, offset])).toEqual([['a', NEWS, 1], ['a', NEWS, 2], ['a', WISHES, 0]]);
    expect(of.progress.seen).toEqual({ [`${NEWS}|holdfast/other/1|${LANE}`]: 4 });
    expect(of.shelf.takeNews()).toEqual([{ stream: 'a', reason: expect.stringMatching(reason) }]);

    // The next one can't read it either: nothing moves, and nothing is kept twice.
    const next = taken(of, decided.write.shelf?.put ?? []);
    const [same] = await turns([{ lane: next, again: next.shelf.takeAgain(), records: [news(1, 2, 1, { stream: 'a', ...over })], due: [] }], { journal: rows });
    expect([same?.rows, same?.decided.write.shelf]).toEqual([[], undefined]);
    expect(next.shelf.streams()).toMatchObject([{ stream: 'a', messages: 3 }]);
  });
});

test('of what rests nothing is told as decided to the consumer group', async () => {
  const of = lane();
  await turn(of, [wish(0, 'fine', { does: 'open' }), wish(1, 'new', { does: 'add' }), wish(2, 'fine', { does: 'add' })], { journal: [painted('new')] });
  of.published = of.progress.nextSeq - 1;
  expect(of.progress.offsets).toEqual({ [WISHES]: 3 });
  expect(of.tellable()).toEqual({ [WISHES]: 1 });
});

test('a shelf that is full stops its lane, with the reason and what to do; nothing is passed over', async () => {
  const of = lane();
  const many = Array.from({ length: SHELF_MAX + 1 }, (_, offset) => wish(offset, 'new', { does: 'add' }));
  await expect(turn(of, many, { journal: [painted('new')] })).rejects.toMatchObject({ name: 'Halted', message: expect.stringMatching(/1000 messages wait.*Painted.*start a version that can/) });
  expect(of.progress).toEqual(progress());
});

test('a message comes back from the shelf as it was', () => {
  const record = { ...wish(7, 'r', {}, { value: '{"a":"\\u0000 \0 é"}' }), headers: { ...encodeHeaders({ id: 'i', type: 'Wish', source: 's', subject: 'r', time: NOW, tenant: 't' }), many: ['a', new TextEncoder().encode('b')], bytes: Buffer.from('é'), gone: undefined } };
  const text = toShelf(record);
  expect(text).not.toContain('\0');
  expect(fromShelf(text)).toEqual({ ...record, headers: { ...encodeHeaders({ id: 'i', type: 'Wish', source: 's', subject: 'r', time: NOW, tenant: 't' }), many: ['a', 'b'], bytes: 'é' } });
});
