import type { Json } from '@holdfast/protocol';
import type { Ground, RunPlan } from './ground.js';
import type { Arrival } from './sink.js';
import type { Row } from './table.js';

/** How runs ended, by the world's word. */
export interface Judgement {
  readonly duplicates: number;
  readonly lost: number;
  readonly unknownLeft: number;
  readonly amplification: number;
  readonly faults: readonly string[];
  /** Runs that were told that a call came too late, and nothing was fired: where that is an end that may be. */
  readonly expired: number;
}

const outputOf = (ending: Json): readonly Json[] | null => {
  const output = (ending as { status?: string; output?: { value?: Json } } | null)?.output?.value;
  return (ending as { status?: string } | null)?.status === 'completed' && Array.isArray(output) ? output : null;
};

/** The step at which a run failed because its call came too late; null where it ended otherwise. */
function expiredAt(ending: Json): number | null {
  const { status, failure } = (ending ?? {}) as { status?: string; failure?: { class?: string; message?: string } };
  const step = /at step (\d+) failed \(expired\)/.exec(failure?.message ?? '')?.[1];
  return status === 'failed' && failure?.class === 'expired' && step !== undefined ? Number(step) : null;
}

/** What one step shows in the world. */
function stepFaults(name: string, arrivals: readonly Arrival[]): { duplicates: number; lost: number; faults: string[] } {
  const accepted = arrivals.filter((arrival) => arrival.accepted);
  const keys = new Set(arrivals.map(({ key }) => key));
  const faults: string[] = [];
  const again = accepted[0]?.effect === 'irreversible' ? Math.max(0, accepted.length - 1) : 0;
  if (again > 0) faults.push(`${name} fired ${accepted.length} times (attempts ${accepted.map(({ attempt }) => attempt).join(', ')})`);
  if (keys.size > 1) faults.push(`${name} fired under ${keys.size} keys`);
  if (accepted.length === 0) faults.push(`${name} never came to the world`);
  return { duplicates: again + Math.max(0, keys.size - 1), lost: accepted.length === 0 ? 1 : 0, faults };
}

/**
 * Judges runs from the outside sink: every step there, irreversible ones once, each under one key, and so whatever answers them;
 * the run completed, and what it returned is what the world gave. Calls that the world itself refused,
 * because a probe had voided them, are no second effect.
 */
export function judge(ground: Ground, plans: readonly RunPlan[], { mayExpire = false } = {}): Judgement {
  let [duplicates, lost, unknownLeft, calls, steps, expired] = [0, 0, 0, 0, 0, 0];
  const faults: string[] = [];
  for (const { run, steps: wanted, answered = false } of plans) {
    const view = ground.view(run);
    const arrivals = ground.sink.arrivals.filter((arrival) => arrival.run === run);
    calls += arrivals.length;
    const output = outputOf(view.ending);
    const cut = mayExpire ? expiredAt(view.ending) : null;
    if (cut !== null) {
      expired += 1;
      if (arrivals.some(({ step }) => Number(step) >= cut)) faults.push(`${run} was told that nothing was fired at step ${cut}, and the world has seen it`);
    }
    const counted = cut === null ? wanted : cut - 1;
    steps += answered ? 2 * counted : counted;
    if (view.endedAt === null) {
      if (view.blocked) unknownLeft += 1;
      else lost += 1;
      faults.push(`${run} ${view.blocked ? 'stands before an unknown outcome' : 'has no end'}`);
    } else if (output === null && cut === null) faults.push(`${run} ended otherwise: ${JSON.stringify(view.ending)}`);
    for (let step = 1; step <= counted; step += 1) {
      const here = arrivals.filter((arrival) => arrival.step === String(step));
      if (view.endedAt === null && here.length === 0) continue; // Its run is counted as lost already.
      const found = stepFaults(`${run}/${step}`, here);
      duplicates += found.duplicates;
      lost += found.lost;
      faults.push(...found.faults);
      if (answered && view.endedAt !== null) {
        const found = stepFaults(`the answer to ${run}/${step}`, arrivals.filter((arrival) => arrival.step.startsWith(`${step}~`)));
        duplicates += found.duplicates;
        lost += found.lost;
        faults.push(...found.faults);
      }
      if (output !== null && !here.some(({ id, accepted }) => accepted && id === output[step - 1])) faults.push(`${run}/${step} returned ${JSON.stringify(output[step - 1])}, which the world did not give it`);
    }
  }
  return { duplicates, lost, unknownLeft, amplification: steps === 0 ? 0 : calls / steps, faults, expired };
}

/** A judgement as a line of the table. */
export function rowOf(name: string, { duplicates, lost, unknownLeft, amplification, faults, expired }: Judgement, more: { recoveredMs: number | null; manualActs?: number; faults?: readonly string[] }): Row {
  const all = [...(more.faults ?? []), ...faults];
  const said = all.slice(0, 3).join('; ') + (all.length > 3 ? `; and ${all.length - 3} more` : '');
  return { case: name, recoveredMs: more.recoveredMs, duplicates, lost, unknownLeft, amplification, manualActs: more.manualActs ?? 0, verdict: all.length === 0 ? 'ok' : 'failed', because: all.length > 0 ? said : expired > 0 ? `${expired} runs were told that a call came too late, and nothing was fired` : null };
}
