import { describeIssues, parseJson } from '@holdfast/protocol';
import { given } from '@holdfast/runtime';
import { z } from 'zod';
import { GateLimit } from './domain/admission.js';
import type { TenantBudget as Budget } from './domain/budget.js';
import { STUCK_AFTER_MS } from './domain/stuck.js';

/** What an operator sets for the whole service; every instance must be given the same. */
export interface Settings {
  /** How long a run may stand still unexplained before it is shown as stuck. Milliseconds. */
  readonly stuckAfterMs: number;
  /** Limits on open runs and starts, by name; `*`: every other one. */
  readonly limits: Limits;
}

const perDay = z.number().positive().optional();
const TenantBudget: z.ZodType<Budget> = z.strictObject({ stepsPerDay: perDay, attemptsPerDay: perDay, tokensPerDay: perDay, costPerDay: perDay, wallTimePerDayMs: perDay });
const Limits = z.strictObject({ tenants: z.record(z.string(), GateLimit.extend({ budget: TenantBudget.optional() }).strict()).default({}), agents: z.record(z.string(), GateLimit.strict()).default({}) });
type Limits = z.infer<typeof Limits>;

export const DEFAULT_SETTINGS: Settings = { stuckAfterMs: STUCK_AFTER_MS, limits: { tenants: {}, agents: {} } };

/**
 * Reads `HOLDFAST_STUCK_AFTER_MS` and `HOLDFAST_LIMITS`, JSON such as `{"tenants": {"*": {"openMax": 500, "startsPerMinute": 600}}, "agents": {"refund-desk": {"openMax": 20}}}`.
 * @throws Error that names the variable and what is wrong with it
 */
export function readSettings(env: Readonly<Record<string, string | undefined>>): Settings {
  const { HOLDFAST_STUCK_AFTER_MS: stuckAfter = STUCK_AFTER_MS, HOLDFAST_LIMITS: limitsText = '{}' } = given(env);
  const after = z.coerce.number().int().min(1000).safeParse(stuckAfter);
  if (!after.success) throw new Error(`HOLDFAST_STUCK_AFTER_MS is "${stuckAfter}": whole milliseconds, at least 1000, are needed`);
  const json = parseJson(limitsText);
  const limits = Limits.safeParse(json.ok ? json.value : null);
  if (!limits.success) throw new Error(`HOLDFAST_LIMITS: ${json.ok ? describeIssues(limits.error) : json.message}`);
  return { stuckAfterMs: after.data, limits: limits.data };
}
