import { describe, expect, test } from '@jest/globals';
import { DamagedHistory, foldRows } from '../src/loop/streams.js';
import type { JournalRow } from '../src/store/types.js';
import { counter, lane, OWN, turn, wish } from './kit.js';

const history = async (): Promise<JournalRow[]> => {
  const { rows } = await turn(lane(), [wish(0, 's1', { does: 'open' }), ...[1, 2, 3].map((n) => wish(n, 's1', { does: 'add', n }))]);
  return rows.filter(({ topic }) => topic === OWN);
};
const fold = (rows: readonly JournalRow[]) => foldRows(counter(), rows);

describe('a stream’s history', () => {
  test('that is whole folds to its state', async () => {
    const rows = await history();
    expect(fold(rows)).toEqual({ version: 4, hash: rows.at(-1)?.hash, tenant: 'acme', state: { open: true, tag: 't', n: 6 } });
    expect(fold([])).toEqual({ version: 0, hash: '', tenant: 'default', state: counter().initial });
  });

  const changed = (at: number, over: Partial<JournalRow>) => (rows: JournalRow[]): JournalRow[] => rows.map((row, i) => (i === at ? { ...row, ...over } : row));

  test.each<[string, (rows: JournalRow[]) => JournalRow[]]>([
    ['changed data', changed(2, { data: '{"n":20}' })],
    ['changed spelling of the same data', changed(2, { data: '{ "n": 2 }' })],
    ['a changed type', changed(2, { type: 'Closed' })],
    ['a changed time', changed(2, { time: 1 })],
    ['a changed tenant', changed(2, { tenant: 'other' })],
    ['a changed hash', changed(2, { hash: '0'.repeat(64) })],
    ['a lost hash', changed(2, { hash: null })],
    ['a changed version', changed(2, { version: 4 })],
    ['another stream’s row', changed(2, { stream: 's2' })],
    ['a row cut out of its middle', (rows) => rows.filter((_, i) => i !== 1)],
    ['its first row cut off', (rows) => rows.slice(1)],
    ['a row twice', (rows) => rows.flatMap((row, i) => (i === 1 ? [row, row] : [row]))],
    ['two rows in the wrong order', (rows) => [...rows.slice(0, 1), ...rows.slice(1, 3).reverse(), ...rows.slice(3)]],
  ])('with %s is found to be damaged', async (_, damage) => {
    const rows = damage(await history());
    expect(() => fold(rows)).toThrow(DamagedHistory);
    expect(() => fold(rows)).toThrow(/stream s[12]: row 2\/\d .*altered outside Holdfast/);
  });

  test('whose tail was cut off can’t be told by itself: its head must be known elsewhere', async () => {
    const rows = await history();
    expect(fold(rows.slice(0, 2)).hash).not.toBe(fold(rows).hash);
  });
});
