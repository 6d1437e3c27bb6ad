import { LeaseGranted, RunResumed, type Lease, type MessageOf, type RunGranted } from '@holdfast/protocol';
import { revalidated } from './revalidate.js';
import { openSteps, type Run, type RunEvent } from './run.js';

/** The event that a grant shows to have been decided, where the stream does not hold it: its fence must not be given out again. */
export function grantedBefore({ worker, fence }: MessageOf<typeof RunGranted>['data'], run: Run): RunEvent | null {
  if (run.status !== 'open' || fence <= run.lastFence) return null;
  // Under no announcement: whoever holds the lane gets the next fence.
  const lease: Lease = { fence, worker, taken: -1 };
  if (run.lastFence === 0) return LeaseGranted({ lease, because: 'worker_arrived' });
  return RunResumed({
    lease,
    because: 'worker_changed',
    revalidated: revalidated(run, 'same', null, run.facts),
    replayed: 0,
    refired: openSteps(run).flatMap(({ fire, call: { step }, attempt }) => (fire === 'local' ? [{ step, attempt: attempt + 1 }] : [])),
  });
}
