import type { Message } from '@holdfast/protocol';
import type { Service } from '../loop/service.js';
import type { Progress } from '../store/types.js';
import type { FoldedLane } from './fold-lanes.js';
import type { RebuildLog } from './ports.js';

/** A stretch of an input topic that is gone and was never decided on: offsets `from` up to, not including, `to`. */
export interface Missing {
  readonly topic: string;
  readonly lane: number;
  readonly from: number;
  readonly to: number;
}

type Positions = Pick<Progress, 'lane' | 'offsets' | 'seen' | 'parked'>;

/**
 * Where each lane goes on reading: at the furthest place of which something says that all before it
 * was decided and published. That is the database's own mark, what the group had committed, or an
 * event or dead letter that answers a message. Where nothing says anything, from the first message:
 * what was decided already is known by what it is.
 */
export async function placeInputs<State, Event extends Message>(
  service: Service<State, Event>,
  log: RebuildLog,
  progress: ReadonlyMap<number, Progress>,
  folded: ReadonlyMap<number, FoldedLane>,
): Promise<{ lanes: Map<number, Positions>; missing: Missing[] }> {
  const names = service.inbound.map(({ name }) => name);
  const committed = await log.committed(names);
  const bounds = new Map(await Promise.all(names.map(async (name) => [name, await log.bounds(name)] as const)));
  const lanes = new Map<number, Positions>();
  const missing: Missing[] = [];
  for (const before of progress.values()) {
    const { lane } = before;
    const offsets: Record<string, number> = {};
    const parked: Record<string, number> = {};
    const seen: Record<string, number> = {};
    for (const { name, writtenBy } of service.inbound) {
      const { first, next } = bounds.get(name)?.get(lane) ?? { first: 0, next: 0 };
      const answered = folded.get(lane)?.answered.get(name);
      // A mark beyond the end is of another topic that had this name.
      const marks = [before.offsets[name], committed.get(name)?.get(lane), answered].filter((mark): mark is number => mark !== undefined && mark <= next);
      const known = marks.length === 0 ? null : Math.max(...marks);
      if (known !== null && known < first) missing.push({ topic: name, lane, from: known, to: first });
      const at = Math.max(known ?? first, first);
      offsets[name] = at;
      if (writtenBy === 'outsider') parked[name] = at;
      // Marks of what was seen hold only where reading goes on at the very place that they are about.
      else if (at === before.offsets[name]) for (const [source, seq] of Object.entries(before.seen)) if (source.startsWith(`${name}|`)) seen[source] = seq;
    }
    lanes.set(lane, { lane, offsets, seen, parked });
  }
  return { lanes, missing };
}
