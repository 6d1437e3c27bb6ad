const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, second: 1000, m: 60_000, min: 60_000, minute: 60_000, h: 3_600_000, hour: 3_600_000, d: 86_400_000, day: 86_400_000, week: 604_800_000 };

/** Milliseconds of `'2 days'`, `'1h 30m'` or a number of milliseconds. Throws a TypeError naming what it can't read. */
export function milliseconds(duration: number | string): number {
  if (typeof duration === 'number') return duration;
  const parts = [...duration.matchAll(/(\d+(?:\.\d+)?)\s*([a-z]+)/gi)];
  const sum = parts.reduce((total, [, amount = '', unit = '']) => total + Number(amount) * (UNITS[unit.toLowerCase()] ?? UNITS[unit.toLowerCase().replace(/s$/, '')] ?? Number.NaN), 0);
  if (parts.length === 0 || Number.isNaN(sum)) throw new TypeError(`'${duration}' is no duration; write '2 days', '90 min', '1h 30m' or a number of milliseconds`);
  return sum;
}
