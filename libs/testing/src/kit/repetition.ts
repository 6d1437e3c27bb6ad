import type { Json } from '@holdfast/protocol';
import { nthAt, placeOf, type Deed, type Done, type Instead, type Insteads } from './users-code.js';

/** A step that was done several times, and how each of them went. */
export interface Repetition extends Deed {
  /** How often its code was called. */
  readonly times: number;
  /** How often that came to its end without an error. */
  readonly returned: number;
  readonly ends: readonly Done['end'][];
}

/** What was done at each step. */
export function endsOf(deeds: readonly Done[]): Repetition[] {
  const places = new Map<string, Done[]>();
  for (const deed of deeds) places.set(placeOf(deed), [...(places.get(placeOf(deed)) ?? []), deed]);
  return [...places.values()].flatMap((all) => {
    const [first] = all;
    if (first === undefined) return [];
    const { end: _, ...deed } = first;
    return [{ ...deed, times: all.length, returned: all.filter(({ end }) => end.how === 'returned').length, ends: all.map(({ end }) => end) }];
  });
}

/** Steps that were done more often than undisturbed: a tool that fails and is tried again does so without any crash. */
export function repeatedIn(undisturbed: readonly Done[], disturbed: readonly Done[]): Repetition[] {
  const before = new Map(endsOf(undisturbed).map((each) => [placeOf(each), each.times]));
  return endsOf(disturbed).filter((each) => each.times > Math.max(1, before.get(placeOf(each)) ?? 0));
}

/**
 * Whether a repetition shows in what the tools have left behind, where a blocked run keeps that from
 * being compared with the undisturbed world. The same world is played again without it in two ways:
 * with what came after the first time left out, and with what was cut short left out. Is what is left
 * the same in one of them, then either the target knew the operation key, or the time that was cut
 * short had not got as far as to change anything.
 */
export async function isVisible({ run, step, ends }: Repetition, observed: Json, playing: (instead: Insteads) => Promise<Json>): Promise<boolean> {
  const like = async (left: ReadonlyMap<number, Instead>): Promise<boolean> => {
    const instead = new Map([...left].map(([index, each]) => [nthAt({ run, step }, index + 1), each]));
    return JSON.stringify(await playing(instead)) === JSON.stringify(observed);
  };
  const began = ends.findIndex(({ how }) => how !== 'threw');
  // What only failed says of itself that it did nothing.
  if (began === -1) return false;
  const known = ends.find((end) => end.how === 'returned');
  const cut = ends.flatMap(({ how }, index) => (how === 'cut' ? [index] : []));
  if (known !== undefined && (await like(new Map(ends.flatMap((_, index) => (index > began ? [[index, known] as const] : [])))))) return false;
  return cut.length === 0 || !(await like(new Map(cut.map((index) => [index, null] as const))));
}
