import { BudgetNeared, type Instant } from '@holdfast/protocol';
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

/** What runs of a tenant use up together. Milliseconds for `wallTime`. */
export interface Use {
  readonly steps: number;
  readonly attempts: number;
  readonly tokens: number;
  readonly cost: number;
  readonly wallTime: number;
}
export type TenantBudget = { readonly [Kind in keyof Use as Kind extends 'wallTime' ? 'wallTimePerDayMs' : `${Kind}PerDay`]?: number | undefined };

export const unused: Use = { steps: 0, attempts: 0, tokens: 0, cost: 0, wallTime: 0 };
const maxOf = (of: TenantBudget): Record<keyof Use, number | undefined> => ({ steps: of.stepsPerDay, attempts: of.attemptsPerDay, tokens: of.tokensPerDay, cost: of.costPerDay, wallTime: of.wallTimePerDayMs });
const KINDS = ['steps', 'attempts', 'tokens', 'cost', 'wallTime'] as const satisfies readonly (keyof Use)[];

/** What one event of a run has used; null when it is nothing. What a fork has copied was used by its origin. */
export function useOfEvent(before: KnownRun | null, after: KnownRun, event: RunEvent, at: Instant): Use | null {
  if (before === null || event.type === 'StepsCopied') return null;
  const use = {
    steps: after.steps.size - before.steps.size,
    attempts: attemptsOf(after) - attemptsOf(before),
    tokens: after.usage.tokens - before.usage.tokens,
    cost: after.usage.cost - before.usage.cost,
    // Held by a worker until now; how long it waits, is queued or is held still costs nothing.
    wallTime: before.heldSince === null || after.heldSince === before.heldSince ? 0 : Math.max(0, at - before.heldSince),
  };
  return KINDS.some((kind) => use[kind] > 0) ? use : null;
}

export const sumOf = (a: Use, b: Use): Use => ({ steps: a.steps + b.steps, attempts: a.attempts + b.attempts, tokens: a.tokens + b.tokens, cost: a.cost + b.cost, wallTime: a.wallTime + b.wallTime });

/** What of a tenant's budget is spent, in words; null while there is something left of each. */
export function spentOf(budget: TenantBudget, used: Use): string | null {
  const max = maxOf(budget);
  const spent = KINDS.find((kind) => used[kind] >= (max[kind] ?? Infinity));
  if (spent === undefined) return null;
  const words = { steps: `${max.steps} steps`, attempts: `${max.attempts} attempts`, tokens: `${max.tokens} tokens`, cost: `cost ${max.cost}`, wallTime: `${max.wallTime} ms` };
  return `${words[spent]} a day`;
}

/** What has to be said of a tenant's budget once more of it is used, each once a day. */
export function nearedOf(budget: TenantBudget, before: Use, after: Use): RunEvent[] {
  return KINDS.flatMap((kind) => {
    const max = maxOf(budget)[kind];
    if (max === undefined) return [];
    const crossed = (share: number): boolean => before[kind] < max * share && after[kind] >= max * share;
    return crossed(1) || crossed(NEAR) ? [BudgetNeared({ budget: kind === 'wallTime' ? 'wall_time' : kind, used: after[kind], max, reached: after[kind] >= max, scope: 'tenant' })] : [];
  });
}
