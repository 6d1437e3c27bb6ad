import { ignore, record, refuse } from '@holdfast/kernel';
import { StepsReported, type Fence, type Named, type Report, type RequestedCall, type Settled, type Step } from '@holdfast/protocol';
import type { Holder, Hosted, IgnoreReason, Refusal, RunDecision } from './commands.js';
import { holdOf, isCopying, type KnownRun } from './run.js';

/**
 * One refusal is recorded once, however often its intent is read. What the intent reported is kept all
 * the same. A run that has a new holder asks again for what was refused before: the answer is told again.
 */
export function refusal(run: KnownRun, because: Refusal, reported: Progressing = {}): RunDecision {
  const settles = news(run, reported.settles);
  const { fence = because.fence, observed = [] } = reported;
  const holds = run.status === 'open' && fence !== undefined && fence === run.lease?.fence;
  const told = { ...(fence === undefined ? {} : { fence }), ...because, ...(settles.length === 0 ? {} : { settles }) };
  if (!run.refused.has(because.token)) return refuse({ ...told, ...(holds && observed.length > 0 ? { observed } : {}) });
  if (holds && run.refused.get(because.token) !== fence) return refuse({ ...told, again: true as const });
  return settles.length === 0 ? ignore('already_refused') : record(StepsReported({ settles }));
}

export const sameNamed = (a: Named | null, b: Named | null): boolean => a?.name === b?.name && a?.version === b?.version;
/** Whether a holder can advance runs of an agent's version, and by which code; null when it can't. */
export function hosts(holder: Holder, agent: Named): 'same' | 'compatible' | null {
  const hosted = hostedAs(holder, agent);
  return hosted === undefined ? null : sameNamed(hosted, agent) ? 'same' : 'compatible';
}

/** The agent of a holder that a run of a version goes to. */
export const hostedAs = (holder: Holder, agent: Named): Hosted | undefined => holder.agents.find((hosted) => sameNamed(hosted, agent)) ?? holder.agents.find(({ name, compatibleWith }) => name === agent.name && compatibleWith?.includes(agent.version) === true);

/** Whether an intent may still change the run; null when it may. Asked after the test for a duplicate. */
export function closed(run: KnownRun, intent: string, data: { fence?: Fence | undefined; step?: Step }, at: number): Refusal | null {
  const place = { intent, ...(data.step === undefined ? {} : { step: data.step }), ...(data.fence === undefined ? {} : { fence: data.fence }) };
  const token = (reason: string): string => `${intent}:${data.step ?? ''}:${data.fence ?? ''}:${reason}`;
  if (run.status === 'quarantined') return { ...place, reason: 'run_quarantined', message: `the run is in quarantine (${run.because}); a person must release it`, token: token('quarantined') };
  if (run.status === 'ended') return { ...place, reason: 'run_ended', message: `the run has ended (${run.ending.status}); nothing more is taken for it`, token: token('ended') };
  if (run.cancel !== null) return { ...place, reason: 'run_cancelled', message: `${run.cancel.by} has cancelled the run: nothing new is taken for it`, token: token('cancelled') };
  const hold = holdOf(run);
  if (hold !== null) return { ...place, reason: 'run_paused', message: `${hold.by} has paused the run: ${hold.reason}`, token: token('paused') };
  if (run.queued !== null) return { ...place, reason: 'run_queued', message: `the run waits to be let in: ${run.queued.message}`, token: token('queued') };
  if (isCopying(run)) return { ...place, reason: 'run_queued', message: 'what it has from the run that it was forked off is still being copied', token: token('copying') };
  if (data.fence === undefined && run.lease !== null) {
    return { ...place, reason: 'fence_required', message: `worker ${run.lease.worker} holds the run; only intents with its fence are taken`, token: token('no-fence') };
  }
  // A run that was let go is held by nobody: whoever held it last has nothing to say any more.
  if (data.fence !== undefined && (run.lease === null ? data.fence <= run.lastFence : data.fence !== run.lease.fence)) {
    return { ...place, reason: 'stale_fence', message: `fence ${data.fence} is not the run’s fence ${run.lease?.fence ?? run.lastFence}: the run has changed hands`, token: token('stale') };
  }
  if (run.deadline !== null && at > run.deadline && intent !== 'FinishRun') {
    return { ...place, reason: 'deadline_passed', message: 'the run’s deadline has passed', token: token('deadline') };
  }
  return null;
}

/** What is news in a worker's reports, as it will stand in the stream. */
export function news(run: KnownRun, reports: readonly Report[] | undefined): Settled[] {
  const fresh: Settled[] = [];
  for (const report of reports ?? []) {
    const step = run.steps.get(report.step);
    if (step?.kind !== 'call' || (step.outcome !== null && step.outcome.status !== 'unknown')) continue;
    if (step.fire === 'granted') {
      // The ledger judges every end but one that was seen to succeed.
      if (report.outcome.status === 'succeeded') fresh.push(report);
      continue;
    }
    fresh.push({ ...report, local: localFacts(run, step.call, report.outcome.status !== 'succeeded') });
  }
  return fresh;
}

/** What the ledger needs to know of a local call. `whole`: it may have to do something about it. */
export function localFacts(run: KnownRun, { tool, effect, key, digest, args, attemptsMax, repairs }: RequestedCall, whole: boolean): NonNullable<Settled['local']> {
  const over = run.cancel !== null || (run.status === 'ended' && run.ending.status === 'expired');
  return { tool, effect, key, digest, ...(whole ? { args, ...defined({ attemptsMax, repairs }), ...(over ? { last: true as const } : {}) } : {}) };
}

export interface Progressing {
  readonly fence?: Fence | undefined;
  readonly settles?: readonly Report[] | undefined;
  readonly observed?: readonly Step[] | undefined;
}

export function progressOf(run: KnownRun, { fence, settles, observed }: Progressing): { fence?: Fence; settles?: Settled[]; observed?: Step[] } {
  const fresh = news(run, settles);
  return { ...defined({ fence }), ...(fresh.length === 0 ? {} : { settles: fresh }), ...(observed === undefined || observed.length === 0 ? {} : { observed: [...observed] }) };
}

/** A duplicate's wish is not granted twice, but what it reports may still be news. */
export function onlyReports(run: KnownRun, data: Progressing, because: IgnoreReason): RunDecision {
  const settles = news(run, data.settles);
  return settles.length === 0 ? ignore(because) : record(StepsReported({ settles }));
}

/** Leaves out members without a value, so that they don't stand as `undefined`. */
export function defined<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
