import { describe, expect, it } from '@jest/globals';
import { encodeHeaders } from '@holdfast/protocol';
import { journalBehind } from '../src/nest/journal-check.js';

const record = (source: string, seq: number) => ({
  topic: 'run.events',
  lane: 2,
  offset: 9,
  key: 'r',
  value: '{}',
  time: 0,
  headers: encodeHeaders({ id: 'x', type: 'RunAccepted', source, subject: 'r', time: 0, tenant: 'default', lane: 2, seq, prev: 0 }),
});

describe('a journal and its own topic', () => {
  it.each([
    ['holds the last record', [record('me', 7)], 8, null],
    ['has rows that are not published yet', [record('me', 7)], 12, null],
    ['is new, as is the topic', [], 1, null],
    ['was restored from an older copy', [record('me', 8)], 8, /seq 8.*restored/],
    ['is new while the topic is not', [record('other', 3)], 1, /other seq 3/],
    ['has other numbers than the incarnation before', [record('other', 3)], 8, /does not hold/],
  ])('%s', (_, last, nextSeq, expected) => {
    const problem = journalBehind('me', last, new Map([[2, nextSeq]]));
    if (expected === null) expect(problem).toBeNull();
    else expect(problem).toMatch(expected);
  });
});
