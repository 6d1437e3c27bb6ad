import { BudgetNeared } from '@holdfast/protocol';
import type { Refusal } from './commands.js';
import type { CallStep, KnownRun, RunEvent } from './run.js';

/** From this share on a budget is said to be nearly spent. */
export const NEAR = 0.8;

type Counted = 'steps' | 'attempts' | 'tokens' | 'cost';

const useOf = (run: KnownRun): Record<Counted, { used: number; max: number | undefined }> => ({
  steps: { used: run.steps.size, max: run.budgets.stepsMax },
  attempts: { used: run.budgets.attemptsMax === undefined ? 0 : attemptsOf(run), max: run.budgets.attemptsMax },
  tokens: { used: run.usage.tokens, max: run.budgets.tokensMax },
  cost: { used: run.usage.cost, max: run.budgets.costMax },
});

const attemptsOf = (run: KnownRun): number => [...run.steps.values()].reduce((sum, step) => sum + (step.kind === 'call' ? step.attempt : 0), 0);

/** How much of a run's budgets is left, in one word. */
export function budgetState(run: KnownRun): 'none' | 'within' | 'near' | 'spent' {
  const counted = Object.values(useOf(run)).flatMap(({ used, max }) => (max === undefined ? [] : [used / max]));
  if (counted.length === 0) return run.budgets.wallTimeMaxMs === undefined ? 'none' : 'within';
  const most = Math.max(...counted);
  return most >= 1 ? 'spent' : most >= NEAR ? 'near' : 'within';
}

/** What has to be said of the budget of attempts once the ledger sends the `attempt`-th of a step. */
export function attemptsNeared(run: KnownRun, step: CallStep, attempt: number): RunEvent[] {
  const max = run.budgets.attemptsMax;
  const used = attemptsOf(run) - step.attempt + attempt;
  return max === undefined || attempt <= step.attempt ? [] : sayOnce(run, 'attempts', used, max);
}

/** Why nothing more may be asked for; null while every budget holds. `more`: steps that would be added. */
export function overBudget(run: KnownRun, more: number, place: Pick<Refusal, 'intent' | 'step' | 'fence'>, ofTenant?: string): Refusal | null {
  if (ofTenant !== undefined) return { ...place, reason: 'budget_exhausted', message: `the budget of ${ofTenant} is spent`, token: `budget:${place.step ?? ''}:tenant` };
  const { stepsMax, tokensMax, costMax } = run.budgets;
  const spent =
    stepsMax !== undefined && run.steps.size + more > stepsMax
      ? `${stepsMax} steps`
      : tokensMax !== undefined && run.usage.tokens >= tokensMax
        ? `${tokensMax} tokens`
        : costMax !== undefined && run.usage.cost >= costMax
          ? `cost ${costMax}`
          : null;
  return spent === null ? null : { ...place, reason: 'budget_exhausted', message: `the run’s budget of ${spent} is spent`, token: `budget:${place.step ?? ''}` };
}

/** What has to be said of budgets that the last events have brought near their end, each once. */
export function neared(before: KnownRun, after: KnownRun): RunEvent[] {
  const was = useOf(before);
  return Object.entries(useOf(after)).flatMap(([name, { used, max }]) => {
    const budget = name as Counted;
    if (max === undefined || used === was[budget].used) return [];
    return sayOnce(after, budget, used, max);
  });
}

function sayOnce(run: KnownRun, budget: Counted, used: number, max: number): RunEvent[] {
  const reached = used >= max;
  if (used < max * NEAR || run.neared.has(`${budget}!`) || (!reached && run.neared.has(budget))) return [];
  return [BudgetNeared({ budget, used, max, reached })];
}
