import { z } from 'zod';
import { DurationMs, Instant, Named, Pool, WorkerId } from './ids.js';
import { message } from './message.js';

/** A worker shows itself: at its start, now and then, and at its end. */
export const WorkerSeen = message(
  'WorkerSeen',
  z.object({
    worker: WorkerId,
    pool: Pool,
    state: z.enum(['started', 'serving', 'stopped']),
    agents: z.array(Named),
    tools: z.array(Named),
    /** Lanes of its pool that it has taken and announced. */
    lanes: z.array(z.number().int().nonnegative()),
    /** Of the pool's consumer group; null while it is no member. */
    generation: z.number().int().nullable(),
    /** Runs that it advances right now. */
    runs: z.number().int().nonnegative(),
    at: Instant,
    /** When the next one is due: a worker that is silent for a multiple of it is gone, or cut off. */
    everyMs: DurationMs,
  }),
);
/** Types on `worker.events`. */
export const workerMessages = [WorkerSeen] as const;
