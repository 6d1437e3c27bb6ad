import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { Failed } from '../src/errors.js';
import { retryAfterMs } from '../src/retry-after.js';

const now = Date.UTC(2026, 10, 6, 8, 49, 7);

describe('the time for which a target asks to be left alone', () => {
  it.each<[unknown, number]>([
    [2, 2000],
    [0.0015, 2],
    ['120', 120_000],
    [' 0 ', 0],
    ['1.5', 1500],
    ['Fri, 06 Nov 2026 08:49:37 GMT', 30_000],
    ['Friday, 06-Nov-26 08:49:37 GMT', 30_000],
    ['Fri Nov  6 08:49:37 2026', 30_000],
    ['Mon Nov 16 08:49:07 2026', 10 * 24 * 60 * 60 * 1000],
    [new Date(now + 1234), 1234],
    ['Sun, 06 Nov 1994 08:49:37 GMT', 0],
    ['Sunday, 06-Nov-94 08:49:37 GMT', 0],
    [new Date(0), 0],
    [-5, 0],
  ])('%j', (value, ms) => {
    expect(retryAfterMs(value, now)).toBe(ms);
  });

  it.each([undefined, null, '', 'soon', '2 minutes', '-5', '1e3', '0x10', '2026-11-06T08:49:37Z', 'Fri, 06 Nov 2026 08:49:37', 'Fri, 06 Nov 2026 08:49:37 CET', 'Fri, 06 Now 2026 08:49:37 GMT', NaN, Infinity, new Date(NaN), {}, true])('%p is none: it is ignored', (value) => {
    expect(retryAfterMs(value, now)).toBeUndefined();
  });

  it('is a year at most', () => {
    for (const value of ['9'.repeat(30), 1e300, 'Fri, 06 Nov 9026 08:49:37 GMT']) expect(retryAfterMs(value, now)).toBe(365 * 24 * 60 * 60 * 1000);
  });

  it('reads two digits of a year as the one that is no more than 50 years ahead', () => {
    const at = (year: number): number => Date.UTC(year, 0, 1);
    expect(retryAfterMs('Thursday, 02-Jan-76 00:00:00 GMT', at(2026))).toBe(365 * 24 * 60 * 60 * 1000);
    expect(retryAfterMs('Sunday, 02-Jan-77 00:00:00 GMT', at(2026))).toBe(0);
    expect(retryAfterMs('Sunday, 02-Jan-50 00:00:00 GMT', at(2050))).toBe(24 * 60 * 60 * 1000);
  });

  it('is the same in each of the three forms, wherever the worker stands', () => {
    const names = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 300 * 24 * 60 * 60 }), (seconds) => {
        const text = new Date(now + seconds * 1000).toUTCString();
        const [, day = '', month, year = '', time] = /, (\d\d) (\w{3}) (\d{4}) (\S+) GMT/.exec(text) ?? [];
        const weekday = names[new Date(now + seconds * 1000).getUTCDay()] ?? '';
        const forms = [text, `${weekday}, ${day}-${month}-${year.slice(2)} ${time} GMT`, `${weekday.slice(0, 3)} ${month} ${day.replace(/^0/, ' ')} ${time} ${year}`];
        expect(forms.map((form) => retryAfterMs(form, now))).toEqual([seconds * 1000, seconds * 1000, seconds * 1000]);
      }),
    );
  });
});

describe('a failure', () => {
  it.each<[object, number | undefined]>([
    [{}, undefined],
    [{ retryAfter: '3' }, 3000],
    [{ retryAfter: 'soon' }, undefined],
    [{ retryAfter: null }, undefined],
    [{ retryAfter: '3', retryAfterMs: 4000 }, 4000],
    [{ retryAfter: '3', retryAfterMs: 2000 }, 3000],
    [{ retryAfter: '3', retryAfterMs: NaN }, 3000],
  ])('takes %j', (spec, ms) => {
    expect(new Failed({ class: 'overloaded', message: '503', ...spec }).failure).toEqual({ class: 'overloaded', message: '503', ...(ms === undefined ? {} : { retryAfterMs: ms }) });
  });
});
