import { describe, expect, it } from '@jest/globals';
import { away, duration, eventWords, moment, money, percent, took, traceLink, words } from '../src/model/format.js';
import { tick } from '../src/model/board.js';

describe('times', () => {
  it.each([
    [0, '0 ms'],
    [999.4, '999 ms'],
    [1000, '1 s'],
    [61_000, '1 min 1 s'],
    [3_600_000, '1 h'],
    [3_661_000, '1 h 1 min'],
    [90_061_000, '1 d 1 h'],
    [86_400_000 + 1000, '1 d'],
    [-5000, '5 s'],
  ])('%d ms are %s', (ms, said) => expect(duration(ms)).toBe(said));

  it('are told from now', () => {
    const now = Date.parse('2026-01-31T12:00:00Z');
    expect(['2026-01-31T11:58:00Z', '2026-01-31T12:00:00.500Z', '2026-01-31T13:00:00Z'].map((at) => away(at, now))).toEqual(['2 min ago', 'now', 'in 1 h']);
    expect([took('2026-01-31T12:00:00Z', '2026-01-31T12:00:02.500Z'), took('2026-01-31T12:00:00Z', null)]).toEqual(['2 s', null]);
  });

  it('say their zone', () => expect(moment('2026-01-31T12:00:00Z', 'en-GB', 'UTC')).toMatch(/31 Jan 2026.*12:00:00 UTC/));
  it('are short on an axis', () => expect(tick('2026-01-31T12:00:00Z', 86_400_000 * 7, 'en-GB')).toMatch(/31 Jan|30 Jan|1 Feb/));
});

it('numbers and names are as people say them', () => {
  expect([percent(null), percent(0), percent(0.12345)].map((said) => said.replaceAll(',', '.'))).toEqual(['–', '0 %', '12.35 %']);
  expect([words('completed_partially'), eventWords('RunCancelRequested')]).toEqual(['completed partially', 'run cancel requested']);
  expect([money({ value: '120.50', currency: 'EUR' }), money({ value: '7', currency: null }), money(null)]).toEqual(['120.50 EUR', '7', null]);
  expect([traceLink('https://traces/{trace}', 'a/b'), traceLink(null, 'a'), traceLink('https://traces/{trace}', null)]).toEqual(['https://traces/a%2Fb', null, null]);
});
