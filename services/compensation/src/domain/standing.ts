import type { MessageOf, PlanConcluded, Standing } from '@holdfast/protocol';
import { residuals, wholeAmount } from './arguments.js';
import { covers } from './order.js';
import { answeredParts, type Item, type Known, type Ordered, type Plan, type Registered, type RunPlans } from './plan.js';

/** Found at the target by a probe, or by a person. A receipt is the tool's own word. */
export const isVerified = ({ known, verification }: Ordered): boolean => verification.found !== null || known?.evidence?.kind === 'probe' || known?.evidence?.kind === 'person';

/** The sum of the parts that succeeded, of all plans or of one. */
export const answeredAmount = (item: Item, plan?: number): number => answeredParts(item).reduce((sum, part) => sum + (plan === undefined || part.plan === plan ? (part.amount ?? 0) : 0), 0);

/** The whole amount of an effect; null where its contract names none. */
export const wholeOf = ({ how, args }: Registered, known: Known | undefined): number | null => (how === null ? null : wholeAmount(how, { args, result: known?.result ?? null }));

/** How much of an effect a plan has yet to answer; null where its contract names no amount. */
export function wantedOf(plan: Plan, effect: Registered, item: Item, known: Known | undefined): number | null {
  const whole = wholeOf(effect, known);
  if (whole === null) return null;
  const left = whole - answeredAmount(item);
  const named = plan.scopes.filter((scope) => covers(scope, effect.step)).map((scope) => (scope.kind === 'steps' ? (scope.amount ?? null) : null));
  if (named.includes(null)) return left;
  const wanted = named.reduce<number>((sum, amount) => sum + (amount ?? 0), 0);
  return Math.max(0, Math.min(left, wanted - answeredAmount(item, plan.number)));
}

function evidenceOf({ known, verification }: Ordered): string {
  const evidence = verification.found ?? known?.evidence;
  if (evidence === undefined || evidence === null) return 'none';
  return evidence.note === undefined ? evidence.kind : `${evidence.kind}: ${evidence.note}`.slice(0, 2000);
}

export function standingOf(effect: Registered, item: Item, known: Known | undefined, standing: Standing['standing'], why: string): Standing {
  const { step, tool, key, how } = effect;
  const parts = answeredParts(item);
  const whole = wholeOf(effect, known);
  const left = how === null || parts.length === 0 ? [] : residuals(how, parts.map((part) => part.known?.result ?? null));
  return {
    step,
    tool,
    key,
    standing,
    why: why.slice(0, 2000),
    answers: parts.map((part) => ({ step: part.step, tool: part.tool, key: part.key, ...(part.amount === null ? {} : { amount: part.amount }), evidence: evidenceOf(part), verified: isVerified(part), authorisedBy: part.authorisedBy })),
    ...(whole === null ? {} : { amount: { whole, answered: answeredAmount(item) } }),
    ...(left.length === 0 ? {} : { residual: left }),
  };
}

type Conclusion = MessageOf<typeof PlanConcluded>['data'];

/** How every effect stands that any plan of the run has meant so far, and what that comes to. */
export function conclusionOf(run: RunPlans, plan: Plan): Conclusion {
  const scopes = run.plans.flatMap((each) => each.scopes);
  const effects: Standing[] = [];
  for (const { step } of run.effects.values()) {
    const settled = run.items.get(step)?.settled ?? null;
    if (settled !== null && scopes.some((scope) => covers(scope, step))) effects.push(settled);
  }
  if (scopes.some(({ kind }) => kind === 'run')) {
    for (const { step, tool, key, outcome } of run.ending?.others ?? []) {
      if (run.effects.has(step) || outcome === 'rejected' || outcome === 'failed') continue;
      effects.push({ step, tool, key, standing: 'stands', why: outcome === 'succeeded' ? 'its contract names no compensation' : 'nobody knows whether it happened, and its contract names no compensation', answers: [] });
    }
  }
  const has = (...standings: Standing['standing'][]): boolean => effects.some(({ standing }) => standings.includes(standing));
  const status = has('failed') ? 'compensation_failed' : has('stands', 'in_part') ? 'compensated_partially' : 'compensated';
  return { plan: plan.number, status, effects, waits: plan.causes.flatMap((cause) => (cause.kind === 'agent' ? [cause.step] : [])) };
}
