import type { Run, RunEvent } from '@holdfast/orchestrator';
import type { Budgets } from '@holdfast/protocol';
import type { JournalRow } from '@holdfast/runtime';
import { dataOf } from './folds.js';
import type { Expected } from './oracle.js';

/** What a step comes to that was refused since the run's budget was spent. */
const REFUSED = 'refused: budget_exhausted';

type Known = Extract<Run, { steps: unknown }>;

/** Events that take a step. What was refused, and had fired all the same, is told of by others. */
const TAKES: ReadonlySet<string> = new Set<RunEvent['type']>(['EffectRequested', 'GroupRequested', 'StepRecorded', 'StepRetryScheduled', 'WaitStarted']);

/** I1: nothing new is taken once a budget is spent. */
export function overspent(budgets: Budgets | undefined, type: string, before: Known, after: Known): string | null {
  const { stepsMax = Infinity, tokensMax = Infinity } = budgets ?? {};
  if (!TAKES.has(type) || after.steps.size === before.steps.size) return null;
  if (after.steps.size > stepsMax) return `step no. ${after.steps.size} was taken, its budget is ${stepsMax}`;
  return before.usage.tokens >= tokensMax ? `a step was taken after ${before.usage.tokens} tokens, its budget is ${tokensMax}` : null;
}

/** Whether something was refused to a run since its budget was spent: a group counts as one. */
export const isSpent = (rows: readonly JournalRow[]): boolean => rows.some((row) => row.type === 'IntentRejected' && (dataOf(row) as { reason: string }).reason === 'budget_exhausted');

/**
 * Whether what came of a run with a spent budget is what can come of it: each step as uninterrupted,
 * or refused; or the failure of code that did not expect that, or that had heard of a local call
 * before it was refused.
 */
export function mayComeTo(run: Known, { output, fails }: Expected): boolean {
  if (run.status !== 'ended') return false;
  const { ending } = run;
  if (ending.status === 'failed') return fails || ending.failure.class === 'policy_denied';
  if (ending.status !== 'completed' || !('value' in ending.output)) return false;
  const got = ending.output.value as string[];
  return got.includes(REFUSED) && (output === null || got.every((said, index) => said === REFUSED || output[index]?.split('|').includes(said) === true));
}
