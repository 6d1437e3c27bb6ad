import type { Progress } from '../store/types.js';
import { mend } from './faults.js';
import { Lane } from './lane.js';

/** A lane just taken, as it is to be read on, and what keeps it from that. `ends`: bounds of each topic's lanes. */
export function laneFrom<State>(service: string, mine: Progress, ends: ReadonlyMap<string, ReadonlyMap<number, { readonly first: number; readonly next: number }>>): { readonly lane: Lane<State>; readonly missing: string | null } {
  const offsets = { ...mine.offsets };
  const parked = { ...mine.parked };
  const backlog = new Map<string, number>();
  let missing: string | null = null;
  for (const [topic, byLane] of ends) {
    const bounds = byLane.get(mine.lane) ?? { first: 0, next: 0 };
    const known = offsets[topic];
    // A topic never read before is read from its first message on.
    offsets[topic] = known ?? bounds.first;
    backlog.set(topic, bounds.next);
    // A mark beyond the topic's end is of another topic that had its name.
    if ((parked[topic] ?? 0) > bounds.next) parked[topic] = 0;
    if (known !== undefined && (known < bounds.first || known > bounds.next)) {
      missing = `${topic}/${mine.lane} is to be read from offset ${known} and has ${bounds.first} to ${bounds.next}: ${mend(service)}`;
    }
  }
  return { lane: new Lane<State>({ ...mine, offsets, parked }, backlog), missing };
}
