import type { Json } from '@holdfast/protocol';
import { callsOf, type Ground, type RunPlan, type RunView } from './ground.js';
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

/** What is said of a run that went back: each of its effects is answered, and nothing else is counted. */
function standingFaults(run: string, steps: number, { ending, standing }: RunView): string[] {
  const { status } = (ending ?? {}) as { status?: string };
  const all = Array.from({ length: steps }, (_, n) => `${n + 1} compensated`).join(', ');
  const said = standing?.effects.map((effect) => `${effect.step} ${effect.standing}`).join(', ');
  return [...(status === 'failed' ? [] : [`${run} ended otherwise: ${JSON.stringify(ending)}`]), ...(standing?.status === 'compensated' && said === all ? [] : [`${run} is ${standing?.status ?? 'nowhere'}: ${said ?? ''}`])];
}

/** No step in the world but the run's own and the one answer to each; and none is answered before what came after it. */
function orderFaults(run: string, steps: number, arrivals: readonly Arrival[]): string[] {
  const known = new Set(Array.from({ length: steps }, (_, n) => [`${n + 1}`, `${n + 1}~1`]).flat());
  const faults = [...new Set(arrivals.map(({ step }) => step))].filter((step) => !known.has(step)).map((step) => `${run}/${step} is no step of it`);
  const first = (step: number): number => arrivals.findIndex((arrival) => arrival.accepted && arrival.step === `${step}~1`);
  for (let step = 2; step <= steps; step += 1) if (first(step) > first(step - 1) && first(step - 1) >= 0) faults.push(`${run}/${step - 1} was answered before ${run}/${step}`);
  return faults;
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
 * Judges runs from the outside sink: every step there, irreversible ones once, each under one key;
 * the run completed, and what it returned is what the world gave. Calls that the world itself refused,
 * because a probe had voided them, are no second effect. A run that goes back has failed, each of its steps has one answer
 * there, the last first, and it says so.
 */
export function judge(ground: Ground, plans: readonly RunPlan[], { mayExpire = false } = {}): Judgement {
  let [duplicates, lost, unknownLeft, calls, steps, expired] = [0, 0, 0, 0, 0, 0];
  const faults: string[] = [];
  for (const plan of plans) {
    const { run, steps: wanted, back = false, waits = null } = plan;
    const view = ground.view(run);
    const arrivals = ground.sink.arrivals.filter((arrival) => arrival.run === run);
    calls += arrivals.length;
    const output = outputOf(view.ending);
    const cut = mayExpire ? expiredAt(view.ending) : null;
    if (cut !== null) {
      expired += 1;
      if (arrivals.some(({ step }) => Number(step) >= cut)) faults.push(`${run} was told that nothing was fired at step ${cut}, and the world has seen it`);
    }
    const counted = callsOf(plan).filter((step) => cut === null || step < cut);
    steps += counted.length;
    if (!ground.hasEnded(plan)) {
      if (view.blocked) unknownLeft += 1;
      else lost += 1;
      faults.push(`${run} ${view.blocked ? 'stands before an unknown outcome' : 'has no end'}`);
    } else if (back) faults.push(...standingFaults(run, wanted, view));
    else if (waits === 'cancelled') faults.push(...((view.ending as { status?: string } | null)?.status === 'cancelled' ? [] : [`${run} was cancelled, and ended otherwise: ${JSON.stringify(view.ending)}`]));
    else if (output === null && cut === null) faults.push(`${run} ended otherwise: ${JSON.stringify(view.ending)}`);
    for (const [index, step] of counted.entries()) {
      const here = arrivals.filter((arrival) => arrival.step === String(step));
      if (!ground.hasEnded(plan) && here.length === 0) continue; // Its run is counted as lost already.
      const found = stepFaults(`${run}/${step}`, here);
      duplicates += found.duplicates;
      lost += found.lost;
      faults.push(...found.faults);
      if (output !== null && !here.some(({ id, accepted }) => accepted && id === output[index])) faults.push(`${run}/${step} returned ${JSON.stringify(output[index])}, which the world did not give it`);
      if (!back) continue;
      const answers = arrivals.filter((arrival) => arrival.step === `${step}~1`);
      const gone = stepFaults(`the answer to ${run}/${step}`, answers);
      duplicates += gone.duplicates;
      lost += gone.lost;
      faults.push(...gone.faults);
      steps += 1;
      if (answers.some(({ of }) => !here.some(({ id, accepted }) => accepted && id === of))) faults.push(`what answers ${run}/${step} names another effect`);
    }
    if (back) faults.push(...orderFaults(run, wanted, arrivals));
  }
  return { duplicates, lost, unknownLeft, amplification: steps === 0 ? 0 : calls / steps, faults, expired };
}

/** A judgement as a line of the table. */
export function rowOf(name: string, { duplicates, lost, unknownLeft, amplification, faults, expired }: Judgement, more: { recoveredMs: number | null; manualActs?: number; faults?: readonly string[] }): Row {
  const all = [...(more.faults ?? []), ...faults];
  const said = all.slice(0, 3).join('; ') + (all.length > 3 ? `; and ${all.length - 3} more` : '');
  return { case: name, recoveredMs: more.recoveredMs, duplicates, lost, unknownLeft, amplification, manualActs: more.manualActs ?? 0, verdict: all.length === 0 ? 'ok' : 'failed', because: all.length > 0 ? said : expired > 0 ? `${expired} runs were told that a call came too late, and nothing was fired` : null };
}
