import { StepsReported, type Settled } from '@holdfast/protocol';
import { localFacts } from './accept.js';
import { openSteps, type CallStep, type KnownRun, type RunEvent } from './run.js';

/** A run that is being cancelled waits so long for ends of local calls from a worker that is still there. Milliseconds. */
export const LOCAL_ENDS_MAX_MS = 15 * 60 * 1000;

/** Local calls whose end only the worker that fires them can tell. */
export const localSteps = (run: KnownRun): CallStep[] => openSteps(run).filter(({ fire }) => fire === 'local');

/**
 * Whoever could have told the end of a local call is gone. The ledger judges what that means: a read that
 * nobody heard of did not happen; a change may have, and is a case. A late success settles it all the same.
 */
export function unheard(run: KnownRun, because: string): RunEvent[] {
  const settles = localSteps(run).map(({ call, attempt }): Settled => {
    const local = localFacts(run, call, true);
    const message = `${because}: nobody can tell any more whether attempt ${attempt} of ${call.tool.name} was made`;
    if (call.effect === 'pure') return { step: call.step, attempt, local, outcome: { status: 'failed', failure: { class: 'cancelled', message, notApplied: true }, evidence: { kind: 'host' } } };
    return { step: call.step, attempt, local, outcome: { status: 'unknown', cause: 'host_lost', message } };
  });
  return settles.length === 0 ? [] : [StepsReported({ settles })];
}
