import { randomUUID } from 'node:crypto';
import type { Clock, Random } from './ports.js';

/** For tests alone: `HOLDFAST_CLOCK_OFFSET_MS` makes this process's clock wrong by so many milliseconds. Nothing else reads it. */
const offsetMs = Number(process.env['HOLDFAST_CLOCK_OFFSET_MS'] ?? 0);
if (!Number.isSafeInteger(offsetMs)) throw new Error('HOLDFAST_CLOCK_OFFSET_MS takes a whole number of milliseconds');

/** The longest delay that a timer of Node takes: with a longer one it fires at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: offsetMs === 0 ? Date.now : () => Date.now() + offsetMs,
  after: (delayMs, callback) => {
    let timer: NodeJS.Timeout;
    const wait = (leftMs: number): void => {
      timer = leftMs > TIMER_MS_MAX ? setTimeout(() => wait(leftMs - TIMER_MS_MAX), TIMER_MS_MAX) : setTimeout(callback, leftMs);
    };
    wait(delayMs);
    return () => clearTimeout(timer);
  },
  soon: (callback) => void setImmediate(callback),
};

/** One moment on two clocks: one may be set, the other stands still while the machine sleeps. */
export interface Moment {
  readonly wall: number;
  readonly steady: number;
}
export const systemMoment = (): Moment => ({ wall: systemClock.now(), steady: performance.now() });

/** Milliseconds from a moment to a later one, as the clock has it that says more: an age never looks less than it is. */
export const ageMs = (then: Moment, now: Moment): number => Math.max(now.wall - then.wall, now.steady - then.steady);

export const systemRandom: Random = { next: Math.random, uuid: randomUUID };

/** Resolves after a time (milliseconds). */
export const pause = (clock: Clock, ms: number): Promise<void> =>
  new Promise((resolve) => {
    clock.after(ms, resolve);
  });
