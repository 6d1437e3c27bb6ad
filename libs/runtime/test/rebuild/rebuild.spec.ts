import { DeadLetter, encodeHeaders } from '@holdfast/protocol';
import { describe, expect, test } from '@jest/globals';
import { Added, Closed, NEWS, Opened, Said, SAID, WISHES } from '../kit.js';
import { Database, NOW, rebuild, SENT, told, Topics } from './kit.js';

const OWN = 'counter.events';

/** Two streams on two lanes; `b` is at rest. Numbers have gaps, where rows went to other topics. */
function written(): Topics {
  const topics = new Topics();
  topics.event(0, 'a', Opened({ tag: 't' }), 1);
  topics.event(1, 'b', Opened({ tag: 't' }), 1);
  topics.event(0, 'a', Added({ n: 2 }), 4);
  topics.event(1, 'b', Added({ n: 5 }), 3);
  topics.event(1, 'b', Closed({}), 4);
  return topics;
}
const own = (topics: Topics) => topics.records.get(OWN) ?? [];
const wishes = (topics: Topics, count: number): void => {
  for (let i = 0; i < count; i += 1) topics.add(WISHES, 0, 'a', '{}', { ce_type: 'Wish' });
};
const at = (database: Database, lane: number) => database.progress.get(lane);

describe('a new database', () => {
  test('gets every event, in the lane order of the topic, under another name', async () => {
    const database = new Database();
    const report = await rebuild(written(), database);
    expect(report).toMatchObject({ added: 5, known: 0, streams: 2, open: 1, foreign: 0, recovered: 0, missing: [] });
    expect(told(database)).toEqual(['0 a 1 Opened', '0 a 2 Added', '1 b 1 Opened', '1 b 2 Added', '1 b 3 Closed']);
    expect(database).toMatchObject({ rebuilding: false, id: report.incarnation });
  });

  test('has what is open on its agenda, and rows that span lanes from the strongest word', async () => {
    const database = new Database();
    const topics = written();
    topics.event(0, 'c', Closed({}), 5);
    await rebuild(topics, database);
    expect([...database.agenda.values()].map(({ stream, lane, open, tag }) => ({ stream, lane, open, tag }))).toEqual([{ stream: 'a', lane: 0, open: true, tag: 't' }]);
    expect(Object.fromEntries(database.shared)).toEqual({ most: 'b', all: '7', added: '7' });
  });

  test('looks at once at what is due some time, since a look that was asked for besides is lost', async () => {
    const database = new Database();
    const topics = written();
    topics.event(0, 'timed', Opened({ tag: 'timed' }), 5);
    await rebuild(topics, database);
    expect([...database.agenda.values()].map(({ stream, dueAt }) => ({ stream, dueAt }))).toEqual([{ stream: 'a', dueAt: null }, { stream: 'timed', dueAt: NOW }]);
  });

  test('publishes nothing of what it took, and numbers on above all that was ever given out', async () => {
    const topics = written();
    topics.sent(SENT, 1, 'b', Said({ what: '0' }), 9);
    const database = new Database();
    await rebuild(topics, database);
    expect(at(database, 1)).toMatchObject({ nextSeq: 10, published: 9 });
    // What is said to open streams is the one thing that is still to be published.
    const [row] = database.rows.filter(({ topic }) => topic === SAID);
    expect(row).toMatchObject({ lane: 0, seq: 5, stream: 'a', prev: 0 });
    expect(at(database, 0)).toMatchObject({ nextSeq: 6, published: 4 });
  });

  test('takes a republished event once, and leaves out what no service wrote', async () => {
    const topics = written();
    for (const record of own(topics).slice(0, 2)) topics.add(OWN, record.lane, record.key ?? '', record.value ?? '', record.headers as Record<string, string>);
    topics.add(OWN, 0, 'a', '{}', { ce_type: 'Closed' });
    topics.add(OWN, 0, 'a', '{}', encodeHeaders({ id: 'x', type: 'Closed', source: 'holdfast/other/1', subject: 'a', time: NOW, tenant: 'acme', lane: 0, seq: 9, prev: 0, version: 3, hash: 'x' }));
    const database = new Database();
    expect(await rebuild(topics, database)).toMatchObject({ added: 5, foreign: 2 });
  });

  test('folds what several lives have written, though they gave out equal numbers', async () => {
    const topics = written();
    topics.event(0, 'a', Added({ n: 1 }), 2, 'holdfast/counter/later');
    const database = new Database();
    expect(await rebuild(topics, database)).toMatchObject({ added: 6 });
    expect(database.rows.filter(({ lane, topic }) => lane === 0 && topic === OWN).map(({ seq }) => seq)).toEqual([1, 4, 5]);
  });

  test('is not made from a topic whose chain is broken', async () => {
    const topics = written();
    const [first] = own(topics);
    own(topics)[0] = { ...first, value: '{"tag":"u"}' } as typeof first & object;
    const database = new Database();
    await expect(rebuild(topics, database)).rejects.toThrow(/counter.events\/0 offset 0: version 1 of stream a does not chain.*audit verify/);
    expect(database.rebuilding).toBe(true);
  });

  test('records a message that was sent and whose decision is on no topic', async () => {
    const topics = written();
    topics.sent(SENT, 0, 'a', Said({ what: '2' }), 5);
    topics.sent(SENT, 0, 'a', Said({ what: '3' }), 7);
    topics.sent(SENT, 0, 'a', Said({ what: '9' }), 99, 'holdfast/other/1');
    const database = new Database();
    expect(await rebuild(topics, database)).toMatchObject({ recovered: 1 });
    expect(told(database)).toContain('0 a 3 Added');
    // Rows that span lanes are made when all is known.
    expect(database.shared.get('all')).toBe('8');
    const recovered = database.rows.find(({ version, stream }) => stream === 'a' && version === 3);
    expect(at(database, 0)?.published).toBeLessThan(recovered?.seq ?? 0);
  });
});

describe('an older copy', () => {
  async function copy(topics: Topics): Promise<Database> {
    const database = new Database();
    await rebuild(topics, database);
    database.rows = database.rows.filter(({ topic }) => topic === OWN);
    database.progress = new Map([...database.progress].map(([lane, progress]) => [lane, { ...progress, nextSeq: 5, published: 4 }]));
    return database;
  }

  test('gets what it lacks', async () => {
    const topics = written();
    const database = await copy(topics);
    topics.event(0, 'a', Added({ n: 1 }), 8);
    topics.event(0, 'c', Opened({ tag: 't' }), 9);
    expect(await rebuild(topics, database)).toMatchObject({ added: 2, known: 5, open: 2 });
    expect(database.rows.find(({ stream }) => stream === 'c')).toMatchObject({ seq: 9 });
  });

  test('first publishes what it had not, under the name that it was written under', async () => {
    const topics = written();
    const database = await copy(topics);
    database.progress.set(0, { lane: 0, epoch: 1, offsets: {}, seen: {}, parked: {}, last: {}, nextSeq: 5, published: 1 });
    const before = database.id;
    await rebuild(topics, database);
    expect(topics.published).toEqual([{ source: `holdfast/counter/${before}`, rows: [expect.objectContaining({ stream: 'a', seq: 4 })] }]);
  });

  test('that says otherwise than the topic is refused', async () => {
    const topics = written();
    const database = await copy(topics);
    database.rows = database.rows.map((row) => (row.stream === 'b' && row.version === 2 ? { ...row, hash: 'other' } : row));
    database.rows = database.rows.filter(({ stream, version }) => stream !== 'b' || version !== 3);
    topics.records.set(OWN, own(topics).filter(({ key, headers }) => key !== 'b' || headers['ce_streamversion'] !== '3'));
    await expect(rebuild(topics, database)).rejects.toThrow(/stream b on lane 1: the database and counter.events hold different events/);
  });

  test('gives the topic back what that has lost', async () => {
    const topics = written();
    const database = await copy(topics);
    topics.records.set(OWN, own(topics).filter(({ headers }) => headers['ce_type'] !== 'Closed'));
    expect(await rebuild(topics, database)).toMatchObject({ republished: 1 });
    expect(topics.published.at(-1)?.rows).toEqual([expect.objectContaining({ stream: 'b', type: 'Closed', version: 3 })]);
  });
});

describe('where it reads on', () => {
  test('from the first message when nothing says more', async () => {
    const topics = written();
    wishes(topics, 9);
    const database = new Database();
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [WISHES]: 0, [NEWS]: 0 }, seen: {}, parked: { [WISHES]: 0 } });
  });

  test('from what the group had committed, or the last answer that is on a topic, whichever is further', async () => {
    const topics = written();
    wishes(topics, 9);
    topics.marks.set(WISHES, new Map([[0, 4]]));
    const database = new Database();
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [WISHES]: 4 }, parked: { [WISHES]: 4 } });

    topics.event(0, 'a', { type: 'Closed', data: { offset: 5 } }, 12);
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [WISHES]: 6 } });

    topics.sent('dead.letters', 0, 'a', DeadLetter({ topic: WISHES, partition: 0, offset: 7, key: 'a', type: null, reason: 'x', message: 'x', excerpt: '' }), 13);
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [WISHES]: 8 }, parked: { [WISHES]: 8 } });
  });

  test('keeps what was seen only where it reads on at that very place', async () => {
    const topics = written();
    for (let i = 0; i < 6; i += 1) topics.sent(NEWS, 0, 'a', Added({ n: 1 }), i, 'holdfast/other/1');
    const database = new Database();
    const seen = { [`${NEWS}|holdfast/other/1|0`]: 3 };
    database.progress.set(0, { lane: 0, epoch: 1, offsets: { [NEWS]: 4 }, seen, parked: {}, last: {}, nextSeq: 1, published: 0 });
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [NEWS]: 4 }, seen });
    topics.marks.set(NEWS, new Map([[0, 5]]));
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [NEWS]: 5 } });
    expect(at(database, 0)?.seen).toEqual({});
  });

  test('not past messages that are gone, unless told to; then it says which', async () => {
    const topics = written();
    wishes(topics, 3);
    topics.firsts.set(WISHES, 7);
    topics.marks.set(WISHES, new Map([[0, 4]]));
    const database = new Database();
    await expect(rebuild(topics, database)).rejects.toThrow(/wishes\/0 offsets 4 to 6.*--skip-missing/);
    expect(database.rebuilding).toBe(true);
    expect(await rebuild(topics, database, true)).toMatchObject({ missing: [{ topic: WISHES, lane: 0, from: 4, to: 7 }] });
    expect(at(database, 0)).toMatchObject({ offsets: { [WISHES]: 7 } });
  });

  test('a mark beyond the end is of another topic that had the name', async () => {
    const topics = written();
    wishes(topics, 3);
    topics.marks.set(WISHES, new Map([[0, 400]]));
    const database = new Database();
    await rebuild(topics, database);
    expect(at(database, 0)).toMatchObject({ offsets: { [WISHES]: 0 } });
  });
});

test('killed at any of its writes and begun again, it comes to the same', async () => {
  const whole = new Database();
  await rebuild(written(), whole);
  for (let writes = 0; ; writes += 1) {
    const database = new Database();
    database.writesLeft = writes;
    const ended = await rebuild(written(), database).then(() => true, () => false);
    if (ended) break;
    expect(database.rebuilding).toBe(true);
    database.writesLeft = Infinity;
    await rebuild(written(), database);
    expect(told(database)).toEqual(told(whole));
    expect([...database.agenda.keys()]).toEqual([...whole.agenda.keys()]);
    expect(database.shared).toEqual(whole.shared);
  }
});

test('told to stop, it stops between two writes, says so, and can be begun again', async () => {
  const database = new Database();
  const stop = new AbortController();
  const topics = written();
  const { addRows } = database;
  database.addRows = (lane, rows) => {
    stop.abort();
    return addRows.call(database, lane, rows);
  };
  await expect(rebuild(topics, database, false, stop.signal)).rejects.toThrow(/nothing is lost: run `holdfast rebuild counter` again/);
  expect(database.rebuilding).toBe(true);
  expect(await rebuild(topics, database)).toMatchObject({ added: 0, known: 5 });
});
