import type { SharedWord, Turn } from '@holdfast/runtime';
import { z } from 'zod';
import { nearedOf, spentOf, sumOf, unused, useOfEvent, type TenantBudget, type Use } from './domain/budget.js';
import type { KnownRun, Run, RunEvent } from './domain/run.js';
import type { Settings } from './settings.js';

type RunTurn = Turn<Run, RunEvent>;

const used = z.number().default(0);
const Spent = z.object({ steps: used, attempts: used, tokens: used, cost: used, wallTime: used });
const DAY_MS = 24 * 60 * 60 * 1000;

/** What a tenant's runs may use in a day together: a row that spans lanes, read under its lock, for tenants with such a budget alone. */
export class TenantBudgets {
  constructor(private readonly limits: Settings['limits']) {}

  /** What is spent, in words; null while there is something left. */
  spent(tenant: string, turn: RunTurn): string | null {
    const of = this.#of(tenant);
    const spent = of === undefined ? null : spentOf(of, this.#row(tenant, turn));
    return spent === null ? null : `${spent} of tenant ${tenant}`;
  }

  /** Counts what a run has used; what has to be said about it, each once a day. */
  use({ tenant }: KnownRun, use: Use, turn: RunTurn): RunEvent[] {
    const of = this.#of(tenant);
    if (of === undefined) return [];
    const before = this.#row(tenant, turn);
    const after = sumOf(before, use);
    turn.putShared(keyOf(tenant, turn.now), JSON.stringify(after));
    return nearedOf(of, before, after);
  }

  /** What an event of a run has used of this day: the row itself may be lost with its database. */
  words = (before: Run, event: RunEvent, after: Run, at: number, now: number): SharedWord[] => {
    if (!('tenant' in before) || !('tenant' in after) || this.#of(after.tenant) === undefined || dayOf(at) !== dayOf(now)) return [];
    const use = useOfEvent(before, after, event, at);
    return use === null ? [] : [{ key: keyOf(after.tenant, at), rank: 0, data: JSON.stringify(use), join: (row) => JSON.stringify(sumOf(Spent.parse(JSON.parse(row)), use)) }];
  };

  #of(tenant: string): TenantBudget | undefined {
    return (this.limits.tenants[tenant] ?? this.limits.tenants['*'])?.budget;
  }

  #row(tenant: string, turn: RunTurn): Use {
    const data = turn.shared(keyOf(tenant, turn.now));
    return data === null ? unused : Spent.parse(JSON.parse(data));
  }
}

const dayOf = (at: number): number => Math.floor(at / DAY_MS);
const keyOf = (tenant: string, at: number): string => `budget:${JSON.stringify([tenant, dayOf(at)])}`;
