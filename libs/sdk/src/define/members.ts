import { InvalidDefinition } from '../errors.js';

/** The members that a declaration takes: the compiler sees to it that none is missing. */
export type MembersOf<Spec> = Readonly<Record<keyof Spec & string, true>>;

/**
 * Refuses what a declaration says and nobody would hear: a member that is misspelt is one that is missing. Objects of a
 * class are left alone, since they have members of their own.
 * @throws InvalidDefinition naming the member, and the one that may be meant
 */
export function refuseUnknown(what: string, given: unknown, known: Readonly<Record<string, true>>): void {
  if (!isPlain(given)) return;
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(known, name)) continue;
    const names = Object.keys(known);
    const meant = nearest(name, names);
    throw new InvalidDefinition(`${what} has no member "${name}"${meant === undefined ? `; it takes ${names.join(', ')}` : `: is "${meant}" meant?`}`);
  }
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** The name that is likely meant: one that begins alike, or has most of its letters. */
function nearest(name: string, known: readonly string[]): string | undefined {
  const given = name.toLowerCase();
  const [best] = known
    .map((each) => ({ each, distance: distanceOf(given, each.toLowerCase()) }))
    .filter(({ each, distance }) => distance < Math.max(given.length, each.length) / 2 || beginsAlike(given, each.toLowerCase()))
    .sort((a, b) => a.distance - b.distance);
  return best?.each;
}

const beginsAlike = (one: string, other: string): boolean => Math.min(one.length, other.length) > 2 && (one.startsWith(other) || other.startsWith(one));

/** How many letters are to be added, dropped or replaced (Levenshtein). */
function distanceOf(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (const [index, letter] of [...one].entries()) {
    const next = [index + 1];
    for (let at = 1; at <= other.length; at += 1) {
      next.push(Math.min((next[at - 1] ?? 0) + 1, (row[at] ?? 0) + 1, (row[at - 1] ?? 0) + (letter === other[at - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
