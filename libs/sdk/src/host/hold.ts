import type { Clock, LaneGroup, Membership } from '@holdfast/runtime';
import { messageOf } from '../errors.js';
import type { WorkerLog } from './log.js';

const MARGIN_LEAST_MS = 200;
const POLL_MS = 25;
const REJOIN_FIRST_MS = 500;
const REJOIN_MOST_MS = 5000;
/** How long a worker may be without lanes before it stops to trust that the group will call it. */
const SILENCE_MS = 60_000;

export interface HoldParts {
  readonly group: LaneGroup;
  readonly clock: Clock;
  readonly log: WorkerLog;
}

/**
 * The worker's hold on its lanes: the membership under which they were assigned, and whether it is
 * fresh enough for a local effect. Joins again where the membership can't be trusted any more.
 */
export class Hold {
  readonly #parts: HoldParts;
  /** Longest age of the last answered heartbeat, milliseconds: after it the group may have given the lanes away. */
  readonly #freshMs: number;
  #membership: Membership | null = null;
  #rejoining = false;
  #ended = false;
  #rejoins = 0;
  #waiting = new Set<() => boolean>();
  #cancelPoll: (() => void) | null = null;
  #cancelSilence: (() => void) | null = null;
  #cancelJoin: (() => void) | null = null;

  constructor(parts: HoldParts) {
    this.#parts = parts;
    const { sessionTimeoutMs } = parts.group;
    this.#freshMs = sessionTimeoutMs - Math.max(sessionTimeoutMs / 4, MARGIN_LEAST_MS);
  }

  get membership(): Membership | null {
    return this.#membership;
  }

  assigned(membership: Membership): void {
    this.#membership = membership;
    this.#cancelSilence?.();
    this.#cancelSilence = null;
    if (this.#cancelJoin === null) return;
    this.#cancelJoin(); // The group was first: a new generation is all that was wanted.
    this.#cancelJoin = null;
    this.#rejoining = false;
  }

  revoked(): void {
    this.#membership = null;
    if (this.#cancelSilence !== null || this.#ended) return;
    this.#cancelSilence = this.#parts.clock.after(SILENCE_MS, () => {
      this.#cancelSilence = null;
      this.rejoin('the group has assigned nothing since the last rebalance');
    });
  }

  /** Whether a local effect may fire this very moment. */
  fresh(): boolean {
    const ageMs = this.#parts.group.heartbeatAgeMs();
    return this.#membership !== null && ageMs !== null && ageMs < this.#freshMs;
  }

  /**
   * Waits until the hold is fresh (true) or the caller's claim is gone (false). A rebalance that
   * leaves a lane where it is passes within moments: giving its runs up at once would stop them
   * for good, since nothing is announced for a lane that stays. Where a member's heartbeats go
   * unanswered for the length of a session, the worker joins anew.
   */
  untilFresh(claimed: () => boolean): Promise<boolean> {
    if (!claimed()) return Promise.resolve(false);
    if (this.fresh()) return Promise.resolve(true);
    const { clock, group } = this.#parts;
    let giveUpAt = clock.now() + group.sessionTimeoutMs;
    return new Promise((resolve) => {
      this.#waiting.add(() => {
        if (this.#ended || !claimed()) {
          resolve(false);
          return true;
        }
        if (this.fresh()) {
          resolve(true);
          return true;
        }
        if (this.#membership === null) {
          giveUpAt = clock.now() + group.sessionTimeoutMs; // A rebalance takes its time; the silence has its own limit.
        } else if (clock.now() >= giveUpAt) {
          resolve(false);
          this.rejoin('no heartbeat was answered for the length of a session');
          return true;
        }
        return false;
      });
      this.#poll();
    });
  }

  /** Leaves and joins again, retried with growing pauses; lanes come back newly taken. */
  rejoin(because: string): void {
    if (this.#rejoining || this.#ended) return;
    this.#rejoining = true;
    this.#membership = null;
    const { clock, group, log } = this.#parts;
    const delayMs = this.#rejoins === 0 ? 0 : Math.min(REJOIN_MOST_MS, REJOIN_FIRST_MS * 2 ** (this.#rejoins - 1));
    this.#rejoins += 1;
    log.warn('leaving the group and joining it again', { because, inMs: delayMs });
    const join = async (): Promise<void> => {
      this.#cancelJoin = null;
      try {
        await group.rejoin();
        this.#rejoining = false;
      } catch (error) {
        log.warn('could not join the group again', { error: messageOf(error) });
        this.#rejoining = false;
        this.rejoin(because);
      }
    };
    if (delayMs === 0) void join();
    else this.#cancelJoin = clock.after(delayMs, () => void join());
  }

  /** A lane was taken: the next rejoin need not wait. */
  settled(): void {
    this.#rejoins = 0;
  }

  end(): void {
    this.#ended = true;
    this.#cancelSilence?.();
    this.#cancelPoll?.();
    this.#cancelJoin?.();
    this.#check();
  }

  #poll(): void {
    this.#cancelPoll ??= this.#parts.clock.after(POLL_MS, () => {
      this.#cancelPoll = null;
      this.#check();
      if (this.#waiting.size > 0) this.#poll();
    });
  }

  #check(): void {
    for (const done of [...this.#waiting]) if (done()) this.#waiting.delete(done);
  }
}

export const sameMembership = (a: Membership | null, b: Membership | null): boolean =>
  a !== null && b !== null && a.memberId === b.memberId && a.generation === b.generation;
