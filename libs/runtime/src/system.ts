import { randomUUID } from 'node:crypto';
import type { Clock, Random } from './ports.js';

export const systemClock: Clock = {
  now: Date.now,
  after: (delayMs, callback) => {
    const timer = setTimeout(callback, delayMs);
    return () => clearTimeout(timer);
  },
  soon: (callback) => void setImmediate(callback),
};

export const systemRandom: Random = { next: Math.random, uuid: randomUUID };

/** Resolves after a time (milliseconds). */
export const pause = (clock: Clock, ms: number): Promise<void> =>
  new Promise((resolve) => {
    clock.after(ms, resolve);
  });
