import { unreachable } from '@holdfast/kernel';
import { isAfter, type CompensationContract, type EffectClass, type Instant, type Json, type MessageOf, type Named, type PlanCause, type planMessages, type PlanScope, type Standing, type Step } from '@holdfast/protocol';

export type PlanEvent = MessageOf<(typeof planMessages)[number]>;

export const PLAN_STATUSES = ['open', 'compensated', 'compensated_partially', 'compensation_failed'] as const;
export type PlanStatus = (typeof PLAN_STATUSES)[number];

interface Known {
  readonly status: 'succeeded' | 'rejected' | 'failed' | 'unknown' | 'not_ours';
  readonly attempt: number;
  readonly message: string;
  readonly at: Instant;
}

/** A compensation as it was handed to the ledger. */
export interface PartView {
  readonly plan: number;
  readonly step: Step;
  readonly part: number;
  readonly tool: Named;
  readonly args: Json;
  readonly authorisedBy: string;
  readonly because: string;
  readonly orderedAt: Instant;
  readonly known: (Known & { readonly changedSince: boolean }) | null;
  /** What the compensating tool's probe last found. */
  readonly verified: string | null;
}

export interface ApprovalOfPart {
  readonly status: 'asked' | 'approved' | 'rejected';
  readonly approvers: readonly string[];
  readonly askedAt: Instant | null;
  readonly by: string | null;
  readonly reason: string | null;
}

/** One effect of a run that may have to be answered, and how far that has come. */
export interface AnswerView {
  readonly step: Step;
  readonly tool: Named;
  readonly effect: EffectClass;
  readonly args: Json;
  readonly how: CompensationContract | null;
  readonly pointOfNoReturn: boolean;
  /** The ledger's word on the effect itself. */
  readonly known: Known | null;
  readonly next: { readonly part: number; readonly args: Json; readonly digest: string; readonly by: string; readonly amount: number | null } | null;
  readonly approval: ApprovalOfPart | null;
  readonly parts: readonly PartView[];
  readonly settled: Standing | null;
  readonly escalated: readonly { readonly to: string | null; readonly reason: string; readonly message: string; readonly at: Instant }[];
}

export interface OnePlan {
  readonly number: number;
  readonly status: PlanStatus;
  readonly causes: readonly { readonly kind: PlanCause['kind']; readonly message: string; readonly by: string | null; readonly at: Instant }[];
  readonly scopes: readonly PlanScope[];
  readonly openedAt: Instant;
  readonly concludedAt: Instant | null;
}

/** What a run did that can be answered, and the plans by which it was or is. */
export interface PlanView {
  /** In the order in which they were asked for. */
  readonly effects: readonly AnswerView[];
  readonly plans: readonly OnePlan[];
  readonly ending: string | null;
  /** Effects that nothing answers. */
  readonly others: readonly { readonly step: Step; readonly tool: Named; readonly outcome: string }[];
  readonly updatedAt: Instant;
}

export const noPlan: PlanView = { effects: [], plans: [], ending: null, others: [], updatedAt: 0 };
export const latestPlan = ({ plans }: PlanView): OnePlan | null => plans.at(-1) ?? null;

const blank = { next: null, approval: null, settled: null, escalated: [] } as const;

export function evolvePlan(before: PlanView, event: PlanEvent, at: Instant): PlanView {
  const run: PlanView = { ...before, updatedAt: at };
  switch (event.type) {
    case 'CompensationRegistered': {
      const { step, tool, effect, args, how, pointOfNoReturn = false } = event.data;
      const known = run.effects.find((each) => each.step === step);
      const registered: AnswerView = { ...(known ?? { known: null, parts: [], ...blank }), step, tool, effect, args, how, pointOfNoReturn };
      return known === undefined ? { ...run, effects: [...run.effects, registered] } : withEffect(run, step, () => registered);
    }
    case 'EffectNoted': {
      const { status, attempt, message = '' } = event.data;
      return withEffect(run, event.data.step, (effect) => ({ ...effect, known: { status, attempt, message, at } }));
    }
    case 'RunEndNoted':
      return { ...run, ending: event.data.ending, others: event.data.others.map(({ step, tool, outcome }) => ({ step, tool, outcome })) };
    case 'PlanOpened': {
      const { plan, scope, at: openedAt } = event.data;
      return { ...run, plans: [...run.plans, { number: plan, status: 'open', causes: [causeOf(event.data.cause, openedAt)], scopes: [scope], openedAt, concludedAt: null }] };
    }
    case 'PlanWidened': {
      const { cause, scope, at: widenedAt } = event.data;
      return withLatest(run, (plan) => ({ ...plan, causes: [...plan.causes, causeOf(cause, widenedAt)], scopes: [...plan.scopes, scope] }));
    }
    case 'PlanConcluded':
      return withLatest(run, (plan) => ({ ...plan, status: event.data.status, concludedAt: at }));
    case 'CompensationReopened':
      // What was ordered stays; what had not got so far begins anew.
      return withEffect(run, event.data.of, (effect) => ({ ...effect, ...blank }));
    case 'PlanCommandRefused':
    case 'EffectDoubted':
    case 'ArgumentsAsked':
    case 'ArgumentsMissing':
    case 'VerificationAsked':
      return run;
    default:
      return withEffect(run, event.data.of, (effect) => answered(effect, event, at));
  }
}

type AnswerEvent = Extract<PlanEvent, { type: 'ArgumentsKnown' | 'CompensationApprovalAsked' | 'CompensationDecided' | 'CompensationOrdered' | 'CompensationNoted' | 'VerificationConcluded' | 'CompensationEscalated' | 'CompensationSettled' }>;

function answered(effect: AnswerView, event: AnswerEvent, at: Instant): AnswerView {
  switch (event.type) {
    case 'ArgumentsKnown': {
      const { part, args, digest, by, amount = null } = event.data;
      return { ...effect, next: { part, args, digest, by, amount }, approval: null };
    }
    case 'CompensationApprovalAsked':
      return { ...effect, approval: { status: 'asked', approvers: event.data.approvers, askedAt: at, by: null, reason: null } };
    case 'CompensationDecided': {
      const { decision: status, by, reason = null } = event.data;
      return { ...effect, approval: { approvers: effect.approval?.approvers ?? [], askedAt: effect.approval?.askedAt ?? null, status, by: by.name, reason } };
    }
    case 'CompensationOrdered': {
      const { plan, step, part, tool, args, authorisedBy, because } = event.data;
      const made: PartView = { plan, step, part, tool, args, authorisedBy, because, orderedAt: at, known: null, verified: null };
      return { ...effect, parts: [...effect.parts.filter((each) => each.part !== part), made] };
    }
    case 'CompensationNoted': {
      const { step, status, attempt, message = '', changedSince = false } = event.data;
      return { ...effect, parts: effect.parts.map((part) => (part.step === step ? { ...part, known: { status, attempt, message, at, changedSince } } : part)) };
    }
    case 'VerificationConcluded':
      return { ...effect, parts: effect.parts.map((part) => (part.step === event.data.step ? { ...part, verified: event.data.answer.status } : part)) };
    case 'CompensationEscalated': {
      const { to, reason, message } = event.data;
      return { ...effect, escalated: [...effect.escalated, { to, reason, message, at }] };
    }
    case 'CompensationSettled':
      return { ...effect, settled: event.data.standing };
    default:
      return unreachable(event);
  }
}

const causeOf = (cause: PlanCause, at: Instant): OnePlan['causes'][number] => ({ kind: cause.kind, message: cause.message, by: cause.kind === 'operator' ? cause.by.name : null, at });
const withEffect = (run: PlanView, step: Step, change: (effect: AnswerView) => AnswerView): PlanView => ({ ...run, effects: run.effects.map((effect) => (effect.step === step ? change(effect) : effect)) });
const withLatest = (run: PlanView, change: (plan: OnePlan) => OnePlan): PlanView => ({ ...run, plans: run.plans.map((plan, index) => (index === run.plans.length - 1 ? change(plan) : plan)) });

/** What is being waited for, or how the effect stands in the end. */
export const STANDS = ['compensated', 'in_part', 'never_happened', 'stands', 'failed', 'not_meant', 'settle_first', 'in_case', 'answering', 'verifying', 'approval', 'arguments', 'turn', 'no_answer'] as const;
export type Stands = (typeof STANDS)[number];

export function standsOf(run: PlanView, effect: AnswerView): Stands {
  const { settled, known, how, parts, approval, next } = effect;
  if (settled !== null) return settled.standing;
  if (known !== null && known.status !== 'succeeded' && known.status !== 'unknown') return 'never_happened';
  const isOpenPoint = effect.pointOfNoReturn && isUnclear(effect);
  if (how === null && !isOpenPoint) return 'no_answer';
  if (latestPlan(run)?.status !== 'open' || !isMeant(run, effect.step)) return how === null ? 'no_answer' : 'not_meant';
  if (isUnclear(effect) || (parts.length === 0 && run.effects.slice(run.effects.indexOf(effect)).some((later) => later.pointOfNoReturn && isUnclear(later)))) return 'settle_first';
  const last = parts.at(-1);
  if (last !== undefined && last.known === null) return 'answering';
  if (last?.known?.status === 'unknown') return 'in_case';
  if (last?.known?.status === 'succeeded') return 'verifying';
  if (approval?.status === 'asked') return 'approval';
  return next === null ? 'arguments' : 'turn';
}

/** Nobody knows yet whether it has happened. */
const isUnclear = ({ known }: AnswerView): boolean => known === null || known.status === 'unknown';

/** Whether the latest plan's scope names a step. */
function isMeant(run: PlanView, step: Step): boolean {
  return (latestPlan(run)?.scopes ?? []).some((scope) => {
    switch (scope.kind) {
      case 'run':
        return true;
      case 'steps':
        return scope.steps.includes(step);
      case 'after':
        return isAfter(step, scope.step);
    }
  });
}

/** How many compensations wait for somebody's yes. */
export const awaiting = (run: PlanView): number => (latestPlan(run)?.status === 'open' ? run.effects.filter((effect) => standsOf(run, effect) === 'approval').length : 0);

export interface Forecast {
  readonly would: readonly { readonly step: Step; readonly tool: Named; readonly args: Json; readonly approvers: readonly string[] | null }[];
  /** They are settled first, and answered if they happened; what a point of no return may have closed the way back from waits for that to be known. */
  readonly unsettled: readonly { readonly step: Step; readonly tool: Named }[];
  readonly stand: readonly { readonly step: Step; readonly tool: Named; readonly why: string }[];
}

/**
 * What asking for a compensation would lead to, by what is known now: which effects would be answered,
 * in which order (latest first; contracts may name another), and what would stand. The service that owns
 * plans decides anew when it is asked.
 */
export function forecast(run: PlanView, steps: readonly Step[] | null): Forecast {
  const hasHappened = ({ known }: AnswerView): boolean => known?.status === 'succeeded';
  const stood = (effect: AnswerView): boolean => hasHappened(effect) || isUnclear(effect);
  const lastPoint = (is: (effect: AnswerView) => boolean): number => run.effects.findLastIndex((effect) => effect.pointOfNoReturn && is(effect));
  const [closed, unclear] = [lastPoint(hasHappened), lastPoint(isUnclear)];
  const would: Forecast['would'][number][] = [];
  const unsettled: Forecast['unsettled'][number][] = [];
  const stand: Forecast['stand'][number][] = [];
  [...run.effects.entries()].reverse().forEach(([index, effect]) => {
    const { step, tool, how, known, settled, next } = effect;
    if (!stood(effect) || settled?.standing === 'compensated' || settled?.standing === 'never_happened') return;
    if (steps !== null && !steps.includes(step)) stand.push({ step, tool, why: 'it is not among the steps that were named' });
    else if (index <= closed) stand.push({ step, tool, why: 'a point of no return was passed: the run only goes forward from there' });
    else if (index <= unclear) unsettled.push({ step, tool });
    else if (how === null) stand.push({ step, tool, why: 'its contract names no compensation' });
    else if (known?.status !== 'succeeded') unsettled.push({ step, tool });
    else would.push({ step, tool: how.tool, args: next?.args ?? null, approvers: how.authority === 'automatic' ? null : how.authority.approvers });
  });
  for (const { step, tool, outcome } of run.others) if (outcome === 'succeeded' || outcome === 'unknown') stand.push({ step, tool, why: 'its contract names no compensation' });
  return { would, unsettled, stand };
}
