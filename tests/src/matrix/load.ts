import type { Ground, RunPlan } from './ground.js';
import type { Victim } from './cells.js';
import { judge, rowOf } from './judge.js';
import type { Row } from './table.js';

export interface Case {
  readonly name: string;
  run(ground: Ground, name: string, short: boolean): Promise<Row>;
  /** Why it can't be run here. */
  readonly notRun?: string;
}

export interface Disturbed {
  /** When the fault was over, or came where it does not last; epoch milliseconds. */
  readonly since: number;
  readonly manualActs?: number;
  readonly faults?: readonly string[];
}

/** Makes a process's clock wrong by so many milliseconds. */
export const CLOCK = 'HOLDFAST_CLOCK_OFFSET_MS';
const RUNS = 16;
const STEPS = 3;
const TOOLS = ['irreversible-granted', 'idempotent-local', 'irreversible-granted', 'idempotent-granted', 'pure-local'] as const;
let loads = 0;

export function loadOf(kind: string, about: Partial<RunPlan> = {}, runs = RUNS): RunPlan[] {
  loads += 1;
  const prefix = `${kind}-${loads}`;
  return Array.from({ length: runs }, (_, n) => ({ run: `${prefix}-${n}`, tool: TOOLS[n % TOOLS.length] ?? TOOLS[0], steps: STEPS, ms: 100, ...about }));
}

/** Runs that give a service something to do. */
export const ofService = (service: Victim): Partial<RunPlan> => (service === 'gateway' ? { called: true } : service === 'compensation' ? { tool: 'irreversible-answered', back: true } : { doubt: service === 'reconciliation' });

export const prefixOf = (plans: readonly RunPlan[]): string => (plans[0]?.run ?? '').replace(/\d+$/, '');

/** Disturbs runs that are under way, and judges how they end. */
export async function underLoad(ground: Ground, name: string, plans: readonly RunPlan[], disturb: () => Promise<Disturbed>, { share = 0.15, withinMs = 150_000, mayExpire = false } = {}): Promise<Row> {
  const steps = plans.reduce((sum, plan) => sum + plan.steps, 0);
  await ground.begin(plans);
  await ground.until('effects are under way', () => ground.fired(prefixOf(plans)) >= steps * share);
  const { since, manualActs = 0, faults = [] } = await disturb();
  await ground.until('the runs end', () => ground.allEnded(plans), withinMs).catch((error: unknown) => {
    if (ground.options.signal.aborted) throw error;
  });
  const lastEnd = Math.max(...plans.map(({ run }) => ground.view(run).endedAt ?? 0));
  return rowOf(name, judge(ground, plans, { mayExpire }), { recoveredMs: lastEnd === 0 ? null : Math.max(0, lastEnd - since), manualActs, faults });
}
