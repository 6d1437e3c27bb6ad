import type { TurnFacts } from './observer.js';
import type { Decided, LaneWork } from './turn.js';

/** What a turn came to, of the lanes that were still held when it was written. */
export function factsOf<State>(times: Pick<TurnFacts, 'startedAt' | 'decidedAt' | 'committedAt'>, works: readonly LaneWork<State>[], turn: readonly Decided<State>[], held: ReadonlySet<number>): TurnFacts {
  return {
    ...times,
    messages: works.reduce((sum, { records }) => sum + records.length, 0),
    timers: works.reduce((sum, { due }) => sum + due.length, 0),
    lanes: turn.filter(({ lane }) => held.has(lane.id)).map(({ write, marks, handled }) => ({
      // Looked up only by who wants it.
      get handled() {
        return handled();
      },
      rows: write.rows,
      marks,
    })),
  };
}
