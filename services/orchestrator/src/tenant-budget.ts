import { BudgetNeared, type MessageOf, type RecordStep, type Tenant } from '@holdfast/protocol';
import type { Turn } from '@holdfast/runtime';
import { z } from 'zod';
import { NEAR } from './domain/budget.js';
import type { KnownRun, Run, RunEvent } from './domain/run.js';
import type { Settings } from './settings.js';

type RunTurn = Turn<Run, RunEvent>;
type Usage = NonNullable<MessageOf<typeof RecordStep>['data']['usage']>;

const Spent = z.object({ tokens: z.number(), cost: z.number() });
const DAY_MS = 24 * 60 * 60 * 1000;

/** What a tenant's runs may use in a day together: a row that spans lanes, read under its lock, for tenants with such a budget alone. */
export class TenantBudgets {
  constructor(private readonly limits: Settings['limits']) {}

  /** What is spent, in words; null while there is something left. */
  spent(tenant: string, turn: RunTurn): string | null {
    const of = this.#of(tenant);
    if (of === undefined) return null;
    const { tokens, cost } = this.#row(tenant, turn);
    const { tokensPerDay, costPerDay } = of;
    if (tokensPerDay !== undefined && tokens >= tokensPerDay) return `${tokensPerDay} tokens a day of tenant ${tenant}`;
    return costPerDay !== undefined && cost >= costPerDay ? `cost ${costPerDay} a day of tenant ${tenant}` : null;
  }

  /** Counts what a recorded step used; what has to be said about it, each once a day. */
  use(run: KnownRun, usage: Usage, turn: RunTurn): RunEvent[] {
    const of = this.#of(run.tenant);
    if (of === undefined) return [];
    const before = this.#row(run.tenant, turn);
    const after = { tokens: before.tokens + (usage.tokensIn ?? 0) + (usage.tokensOut ?? 0), cost: before.cost + (usage.cost ?? 0) };
    turn.putShared(keyOf(run.tenant, turn.now), JSON.stringify(after));
    return (['tokens', 'cost'] as const).flatMap((budget) => {
      const max = budget === 'tokens' ? of.tokensPerDay : of.costPerDay;
      if (max === undefined) return [];
      const crossed = (share: number): boolean => before[budget] < max * share && after[budget] >= max * share;
      return crossed(1) || crossed(NEAR) ? [BudgetNeared({ budget, used: after[budget], max, reached: after[budget] >= max, scope: 'tenant' })] : [];
    });
  }

  #of(tenant: string): Settings['limits']['tenants'][string]['budget'] {
    return (this.limits.tenants[tenant] ?? this.limits.tenants['*'])?.budget;
  }

  #row(tenant: Tenant | string, turn: RunTurn): z.infer<typeof Spent> {
    const data = turn.shared(keyOf(tenant, turn.now));
    return data === null ? { tokens: 0, cost: 0 } : Spent.parse(JSON.parse(data));
  }
}

const keyOf = (tenant: string, at: number): string => `budget:${JSON.stringify([tenant, Math.floor(at / DAY_MS)])}`;
