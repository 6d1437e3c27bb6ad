import { isoTime, RunStuck, type Instant } from '@holdfast/protocol';
import { holdOf, openSteps, type KnownRun, type RunEvent } from './run.js';
import { isOpenWait } from './wait.js';

/** How long a run may stand still without a reason that is on record. Milliseconds. */
export const STUCK_AFTER_MS = 15 * 60 * 1000;
/** Progress is looked at by the minute, or by the time after which a run is stuck where that is less, so that a busy run sets no timer with each step. */
const GRAIN_MS = 60_000;
/** From here on the time that a call may take by its contract is recorded with it. */
export const LONG_CALL_MS = 5 * 60 * 1000;

/** From when on a run is stuck unless it moves; null while something on record explains that it stands still. */
export function stuckAt(run: KnownRun, afterMs: number): Instant | null {
  // Whoever owns its loop may take whatever time they like.
  if (run.status !== 'open' || run.agent === null || run.movedAt === null || run.stuck !== null) return null;
  if (holdOf(run) !== null || run.queued !== null) return null;
  let since = run.movedAt;
  let longest = 0;
  let calls = 0;
  let waits = 0;
  // Once over all steps: this is asked with every event.
  for (const step of run.steps.values()) {
    if (step.kind === 'try' && step.retryAt !== null) since = Math.max(since, step.retryAt);
    if (step.kind === 'wait' && isOpenWait(step)) waits += 1;
    if (step.kind !== 'call' || step.bound) continue;
    if (step.outcome?.status === 'unknown') return null;
    if (step.outcome !== null) continue;
    calls += 1;
    longest = Math.max(longest, step.call.mayTakeMs ?? 0);
  }
  if (calls === 0 && waits > 0) return null;
  const grain = Math.min(GRAIN_MS, afterMs);
  return Math.ceil(since / grain) * grain + afterMs + longest;
}

/** What a run hangs on, as far as it is known. */
export function stuck(run: KnownRun): RunEvent {
  const open = openSteps(run);
  const since = run.movedAt ?? 0;
  const on =
    open.length > 0
      ? `${open.map(({ call, fire }) => `step ${call.step} (${call.tool.name}, ${fire})`).join(', ')}: no end since ${isoTime(since)}`
      : run.lease === null
        ? `no worker of ${run.agent?.name ?? ''}@${run.agent?.version ?? ''} in pool ${run.pool} holds its lane`
        : `its worker ${run.lease.worker} has asked for nothing since ${isoTime(since)}`;
  return RunStuck({ since, on: on.slice(0, 2000), steps: open.map(({ call }) => call.step) });
}
