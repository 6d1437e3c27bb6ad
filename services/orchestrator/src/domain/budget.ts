import { BudgetNeared } from '@holdfast/protocol';
import type { Refusal } from './commands.js';
import type { KnownRun, RunEvent } from './run.js';

/** From this share on a budget is said to be nearly spent. */
const NEAR = 0.8;

type Counted = 'steps' | 'tokens' | 'cost';

const useOf = (run: KnownRun): Record<Counted, { used: number; max: number | undefined }> => ({
  steps: { used: run.steps.size, max: run.budgets.stepsMax },
  tokens: { used: run.usage.tokens, max: run.budgets.tokensMax },
  cost: { used: run.usage.cost, max: run.budgets.costMax },
});

/** Why nothing more may be asked for; null while every budget holds. `more`: steps that would be added. */
export function overBudget(run: KnownRun, more: number, place: Pick<Refusal, 'intent' | 'step' | 'fence'>): Refusal | null {
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
    const reached = used >= max;
    if (used < max * NEAR || after.neared.has(`${budget}!`) || (!reached && after.neared.has(budget))) return [];
    return [BudgetNeared({ budget, used, max, reached })];
  });
}
