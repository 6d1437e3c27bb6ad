import type { Lane } from './lane.js';
import { shareOut, type Pace } from './pace.js';
import type { LaneWork } from './turn.js';

/** Messages and timers taken in one turn, over all lanes. */
const TURN_MESSAGES_MAX = 4000;
const TURN_TIMERS_MAX = 2000;

/**
 * Takes what a turn is about: of each lane what has arrived and what is due. A lane with much to do, after an
 * outage, leaves the others their share; timers that were missed are taken at their pace, over all lanes.
 */
export function collect<State>(lanes: readonly Lane<State>[], pace: Pace, now: number, turn: number): LaneWork<State>[] {
  const records = shareOut(TURN_MESSAGES_MAX, lanes.map(({ inbox }) => inbox.length), turn);
  // Old deadlines must not fire before what has arrived meanwhile is read: else they look like unknowns.
  const overdue = lanes.map((lane) => (lane.caughtUp() ? lane.agenda.overdue(now) : 0));
  const allowed = pace.allows(overdue.reduce((sum, each) => sum + each, 0), now);
  pace.take(allowed);
  const missed = shareOut(allowed, overdue, turn);
  const works: LaneWork<State>[] = [];
  let timers = TURN_TIMERS_MAX;
  for (const [i, lane] of lanes.entries()) {
    const taken = lane.inbox.splice(0, records[i]);
    const due = lane.caughtUp() ? lane.agenda.takeDue(now, timers, missed[i]) : [];
    timers -= due.length;
    const again = lane.shelf.takeAgain();
    if (taken.length > 0 || due.length > 0 || again.length > 0) works.push({ lane, records: taken, again, due });
  }
  return works;
}
