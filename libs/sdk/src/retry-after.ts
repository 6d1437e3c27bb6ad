/** More than this is not waited for: a year, milliseconds. */
export const RETRY_AFTER_MS_MAX = 365 * 24 * 60 * 60 * 1000;

const SECONDS = /^\s*\d+(\.\d+)?\s*$/;
const TIME = '\\d\\d:\\d\\d:\\d\\d';
const IMF_FIXDATE = new RegExp(`^[A-Z][a-z]{2}, \\d\\d [A-Z][a-z]{2} \\d{4} ${TIME} GMT$`);
const RFC_850 = new RegExp(`^[A-Z][a-z]{5,8}, (\\d\\d-[A-Z][a-z]{2})-(\\d\\d) (${TIME}) GMT$`);
const ASCTIME = new RegExp(`^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \\d]\\d ${TIME} \\d{4}$`);

/**
 * How long a target asks to be left alone, in whole milliseconds from `now` on (epoch milliseconds):
 * `Retry-After` as a number of seconds, as text (seconds, or one of the three HTTP dates of RFC 9110),
 * or as a date. Undefined for anything else; 0 for a time that is over.
 */
export function retryAfterMs(value: unknown, now: number): number | undefined {
  const ms = value instanceof Date ? value.getTime() - now : typeof value === 'number' ? value * 1000 : typeof value === 'string' ? fromHeader(value, now) : NaN;
  return Number.isFinite(ms) ? Math.min(RETRY_AFTER_MS_MAX, Math.max(0, Math.ceil(ms))) : undefined;
}

function fromHeader(text: string, now: number): number {
  if (SECONDS.test(text)) return Number(text) * 1000;
  return httpDate(text.trim(), now) - now;
}

/** `Date.parse` alone would read any text that looks like a date, asctime's in local time, and two digits of a year by a fixed rule. */
function httpDate(text: string, now: number): number {
  if (IMF_FIXDATE.test(text)) return Date.parse(text);
  if (ASCTIME.test(text)) return Date.parse(`${text} GMT`);
  const [, day, year, time] = RFC_850.exec(text) ?? [];
  if (day === undefined || year === undefined) return NaN;
  // More than 50 years ahead means the past century (RFC 9110, 5.6.7).
  const thisYear = new Date(now).getUTCFullYear();
  const full = thisYear - (thisYear % 100) + Number(year);
  return Date.parse(`${day.replace('-', ' ')} ${full > thisYear + 50 ? full - 100 : full} ${time} GMT`);
}
