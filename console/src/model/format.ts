const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
] as const;

/** A length of time in its two largest units: `2 d 3 h`, `41 s`, `350 ms`. */
export function duration(ms: number): string {
  const whole = Math.round(Math.abs(ms));
  if (whole < 1000) return `${whole} ms`;
  const parts: string[] = [];
  let rest = whole;
  for (const [name, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count > 0 || parts.length > 0) {
      if (count > 0) parts.push(`${count} ${name}`);
      if (parts.length === 2 || count === 0) break;
      rest -= count * size;
    }
  }
  return parts.join(' ');
}

/** How long ago, or in how long. */
export function away(at: string, now: number): string {
  const ms = Date.parse(at) - now;
  if (Math.abs(ms) < 1000) return 'now';
  return ms < 0 ? `${duration(ms)} ago` : `in ${duration(ms)}`;
}

/** A point in time, to the second, in the reader's own zone; the zone is said, since at night nobody remembers it. */
export const moment = (at: string, locale?: string, timeZone?: string): string =>
  new Intl.DateTimeFormat(locale, { year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short', ...(timeZone === undefined ? {} : { timeZone }) }).format(new Date(at));

/** How long from one to the other; null while there is no other. */
export const took = (from: string, to: string | null): string | null => (to === null ? null : duration(Date.parse(to) - Date.parse(from)));

export const money = (amount: { readonly value: string; readonly currency: string | null } | null): string | null => (amount === null ? null : [amount.value, amount.currency].filter((part) => part !== null).join(' '));

/** A share as a percentage; nothing to share is a dash, not a zero. */
export const percent = (share: number | null): string => (share === null ? '–' : `${new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 }).format(share * 100)} %`);

export const count = (n: number | null): string => (n === null ? '–' : new Intl.NumberFormat().format(n));

/** A name from the protocol in words: `completed_partially` is `completed partially`. */
export const words = (name: string): string => name.replaceAll('_', ' ');

/** A message type in words: `RunCancelRequested` is `run cancel requested`. */
export const eventWords = (type: string): string => type.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase();

export const tool = ({ name, version }: { readonly name: string; readonly version: string }): string => `${name}@${version}`;

/** Trace link by the template that the gateway gives; null without one. */
export const traceLink = (template: string | null, trace: string | null): string | null => (template === null || trace === null ? null : template.replace('{trace}', encodeURIComponent(trace)));
