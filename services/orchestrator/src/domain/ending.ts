import type { FinalEffect } from '@holdfast/protocol';
import type { z } from 'zod';
import type { CallStep, RunFacts } from './run.js';

type Final = z.infer<typeof FinalEffect>;

/** Every effect of a run with its outcome and what shows it. A pure call changes nothing and is not one. */
export function finalEffects(run: RunFacts): Final[] {
  const effects: Final[] = [];
  for (const step of run.steps.values()) {
    if (step.kind !== 'call' || step.call.effect === 'pure') continue;
    effects.push({
      step: step.call.step,
      tool: step.call.tool,
      key: step.call.key,
      outcome: step.outcome?.status ?? 'unknown',
      evidence: evidenceOf(step),
      attempts: step.attempt,
      ...(step.call.fallbackFor === undefined ? {} : { fallbackFor: step.call.fallbackFor }),
    });
  }
  return effects;
}

function evidenceOf({ outcome }: CallStep): string {
  if (outcome === null) return 'none: it had no end when the run ended';
  if (outcome.status === 'unknown') return `none: ${outcome.message}`;
  return outcome.evidence.note === undefined ? outcome.evidence.kind : `${outcome.evidence.kind}: ${outcome.evidence.note}`;
}

/** Steps of the present fence are fresh; those of earlier ones were replayed by whoever ended the run. */
export function stepCounts(run: RunFacts): { fresh: number; replayed: number } {
  let fresh = 0;
  let replayed = 0;
  for (const step of run.steps.values()) {
    const copied = run.origin?.copied.has(step.kind === 'call' ? step.call.step : step.step) === true;
    if (copied) replayed += 1;
    else if (step.fence === null || run.lease === null || step.fence === run.lease.fence) fresh += 1;
    else replayed += 1;
  }
  return { fresh, replayed };
}
