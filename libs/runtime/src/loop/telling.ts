import type { Clock, LaneGroup, Membership } from '../ports.js';
import type { Lane } from './lane.js';

/** Milliseconds. */
const TELL_EVERY_MS = 5000;

/**
 * Commits to the group, now and then, how far each lane has read, once all that this led to is
 * published. No instance reads on from there: positions come from the database. It shows true lag
 * to any tool, and a rebuild after the loss of the database reads on from it.
 */
export class Telling {
  readonly #clock: Clock;
  readonly #onEnd: (end: string) => void;
  #membership: Membership | null = null;
  #toldAt = -Infinity;

  constructor(clock: Clock, onEnd: (end: string) => void) {
    this.#clock = clock;
    this.#onEnd = onEnd;
  }

  /** Under which membership to commit; none while a rebalance is under way. */
  hold(membership: Membership | null): void {
    this.#membership = membership;
  }

  tell(group: LaneGroup | null, lanes: readonly Pick<Lane<unknown>, 'id' | 'gone' | 'tellable'>[]): void {
    const now = this.#clock.now();
    const membership = this.#membership;
    if (group === null || membership === null || now < this.#toldAt + TELL_EVERY_MS) return;
    this.#toldAt = now;
    const offsets = lanes.filter(({ gone }) => !gone).flatMap((lane) => Object.entries(lane.tellable()).map(([topic, offset]) => ({ topic, lane: lane.id, offset, metadata: '' })));
    if (offsets.length === 0) return;
    // Information only: what could not be told now is told next time.
    group.commit(membership, offsets).then(this.#onEnd, () => this.#onEnd('failed'));
  }
}
