import { ignore, record } from '@holdfast/kernel';
import { EffectSettled, RunBlocked, StepReleased } from '@holdfast/protocol';
import { attemptsNeared } from './budget.js';
import type { Command, RunDecision } from './commands.js';
import type { CallStep, KnownRun } from './run.js';

/** What the ledger tells of a call's end. */
export function settle({ step, attempt, outcome }: Command<'settle'>, run: KnownRun): RunDecision {
  const state = run.steps.get(step);
  if (state?.kind !== 'call') return ignore('step_unknown');
  if (state.outcome !== null && state.outcome.status !== 'unknown') return ignore('already_settled');
  return record(EffectSettled({ step, attempt, outcome }));
}

/** A word of the ledger on an attempt after which another one was released already: it has been read before. */
const isPast = ({ fire, attempt }: CallStep, told: number): boolean => fire === 'granted' && told < attempt;

export function block({ step, attempt, cause, message, at }: Command<'block'>, run: KnownRun): RunDecision {
  const state = run.steps.get(step);
  if (state?.kind !== 'call') return ignore('step_unknown');
  if (state.outcome !== null || isPast(state, attempt)) return ignore('already_settled');
  return record(RunBlocked({ step, attempt, cause, message, since: at }));
}

export function release({ step, attempt, because }: Command<'release'>, run: KnownRun): RunDecision {
  const state = run.steps.get(step);
  if (state?.kind !== 'call') return ignore('step_unknown');
  if (state.outcome?.status === 'unknown' && !isPast(state, attempt)) return record(StepReleased({ step, attempt, because }));
  // A retry that nobody doubted is no news to the run, but for what it costs.
  const [near] = state.outcome === null ? attemptsNeared(run, state, attempt + 1) : [];
  return near === undefined ? ignore('already_settled') : record(near);
}
