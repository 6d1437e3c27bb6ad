import { unreachable } from '@holdfast/kernel';
import type { Attempt, CompensationContract, Digest, EffectClass, Evidence, Fire, Instant, Json, MessageOf, Named, OperationKey, PlanCause, planMessages, PlanScope, ProbeAnswer, Standing, Step, Stored } from '@holdfast/protocol';

export type PlanEvent = MessageOf<(typeof planMessages)[number]>;
type DataOf<Type extends PlanEvent['type']> = Extract<PlanEvent, { type: Type }>['data'];

/** The ledger's word on an effect. */
export interface Known {
  readonly status: 'succeeded' | 'rejected' | 'failed' | 'unknown' | 'not_ours';
  readonly attempt: Attempt;
  /** Version of the effect's stream that says so: an older one, read again, says nothing. */
  readonly version: number;
  readonly message: string;
  readonly result: Stored | null;
  readonly evidence: Evidence | null;
}

/** An effect of the run that may have to be answered, or that closes the way back. */
export interface Registered {
  readonly step: Step;
  readonly key: OperationKey;
  readonly tool: Named;
  readonly effect: EffectClass;
  readonly args: Json;
  readonly digest: Digest;
  readonly fire: Fire;
  readonly how: CompensationContract | null;
  readonly pointOfNoReturn: boolean;
  /** The ledger told of it first: its place among the others is not known yet. */
  readonly early?: boolean | undefined;
}

/** A compensation as it was handed to the ledger. */
export interface Ordered {
  readonly plan: number;
  readonly step: Step;
  readonly part: number;
  readonly key: OperationKey;
  readonly tool: Named;
  readonly effect: EffectClass;
  readonly args: Json;
  readonly fence: number;
  readonly amount: number | null;
  readonly authorisedBy: string;
  readonly after: number;
  readonly known: (Known & { readonly changedSince: boolean }) | null;
  readonly verification: Verification;
}

export interface Verification {
  /** When each question was asked, by its number. */
  readonly asked: ReadonlyMap<number, Instant>;
  readonly answerBy: Instant | null;
  readonly nextLookAt: Instant | null;
  readonly found: Evidence | null;
  readonly answers: ReadonlySet<string>;
  readonly lastAnswer: ProbeAnswer['status'] | 'no_answer' | null;
}

export interface Arguments {
  readonly part: number;
  readonly value: Json;
  readonly digest: Digest;
  readonly amount: number | null;
}

export type Approval = { readonly status: 'asked' } | { readonly status: 'approved' | 'rejected'; readonly by: string; readonly reason: string };

/** One effect, as far as answering it has come. */
export interface Item {
  readonly plan: number;
  readonly asks: number;
  readonly answerBy: Instant | null;
  readonly nextAskAt: Instant | null;
  readonly args: Arguments | null;
  readonly approval: Approval | null;
  /** By the number of the part. Parts of the past stay. */
  readonly parts: ReadonlyMap<number, Ordered>;
  readonly settled: Standing | null;
  readonly escalated: ReadonlySet<string>;
  readonly doubted: boolean;
}

export interface Plan {
  readonly number: number;
  readonly causes: readonly PlanCause[];
  readonly scopes: readonly PlanScope[];
  readonly openedAt: Instant;
  readonly status: 'open' | 'compensated' | 'compensated_partially' | 'compensation_failed';
}

export interface RunPlans {
  /** In the order in which they were asked for. */
  readonly effects: ReadonlyMap<Step, Registered>;
  readonly known: ReadonlyMap<Step, Known>;
  readonly items: ReadonlyMap<Step, Item>;
  readonly plans: readonly Plan[];
  readonly ending: DataOf<'RunEndNoted'> | null;
  /** The highest that was seen; a compensation of a run that is over carries one more. */
  readonly fence: number;
  readonly commands: ReadonlySet<string>;
}

export const noPlans: RunPlans = { effects: new Map(), known: new Map(), items: new Map(), plans: [], ending: null, fence: 0, commands: new Set() };

export const openPlan = ({ plans }: RunPlans): Plan | null => {
  const last = plans.at(-1);
  return last?.status === 'open' ? last : null;
};

const nothingAsked: Verification = { asked: new Map(), answerBy: null, nextLookAt: null, found: null, answers: new Set(), lastAnswer: null };
export const newItem = (plan: number): Item => ({ plan, asks: 0, answerBy: null, nextAskAt: null, args: null, approval: null, parts: new Map(), settled: null, escalated: new Set(), doubted: false });

/** The part that is being worked on, or was last. */
export const lastPart = ({ parts }: Item): Ordered | null => [...parts.values()].at(-1) ?? null;
/** What answers the effect for sure. */
export const answeredParts = ({ parts }: Item): Ordered[] => [...parts.values()].filter(({ known }) => known?.status === 'succeeded');

export function evolve(run: RunPlans, event: PlanEvent): RunPlans {
  switch (event.type) {
    case 'CompensationRegistered': {
      const { fence, pointOfNoReturn = false, ...effect } = event.data;
      const effects = new Map(run.effects);
      // What is told of in its order takes its place in it.
      effects.delete(effect.step);
      return { ...run, effects: effects.set(effect.step, { ...effect, pointOfNoReturn }), fence: Math.max(run.fence, fence) };
    }
    case 'EffectNoted': {
      const { step, message = '', result = null, evidence = null, ...known } = event.data;
      return { ...run, known: new Map(run.known).set(step, { ...known, message, result, evidence }) };
    }
    case 'RunEndNoted':
      return { ...run, ending: event.data };
    case 'PlanOpened': {
      const { plan, cause, scope, at } = event.data;
      return withCommand({ ...run, plans: [...run.plans, { number: plan, causes: [cause], scopes: [scope], openedAt: at, status: 'open' }] }, cause);
    }
    case 'PlanWidened': {
      const { cause, scope } = event.data;
      return withCommand(withPlan(run, (plan) => ({ ...plan, causes: [...plan.causes, cause], scopes: [...plan.scopes, scope] })), cause);
    }
    case 'CompensationReopened': {
      const { plan, of } = event.data;
      const before = run.items.get(of) ?? newItem(plan);
      // What was ordered goes on under its key; what had not got so far begins anew.
      return withItem(run, of, { ...newItem(plan), parts: before.parts, doubted: before.doubted });
    }
    case 'PlanConcluded':
      return withPlan(run, (plan) => ({ ...plan, status: event.data.status }));
    case 'PlanCommandRefused':
      return { ...run, commands: new Set(run.commands).add(event.data.command) };
    case 'EffectDoubted':
      return withItem(run, event.data.step, { ...itemOf(run, event.data.step), doubted: true });
    case 'CompensationDecided': {
      const { of, decision: status, by, reason = '', command } = event.data;
      return { ...withItem(run, of, { ...itemOf(run, of), approval: { status, by: by.name, reason } }), commands: new Set(run.commands).add(command) };
    }
    case 'ArgumentsAsked':
    case 'ArgumentsMissing':
    case 'ArgumentsKnown':
    case 'CompensationApprovalAsked':
    case 'CompensationOrdered':
    case 'CompensationNoted':
    case 'VerificationAsked':
    case 'VerificationConcluded':
    case 'CompensationEscalated':
    case 'CompensationSettled':
      return withItem(run, event.data.of, evolveItem(itemOf(run, event.data.of), event));
    default:
      return unreachable(event);
  }
}

type ItemEvent = Extract<PlanEvent, { data: { of: Step } }>;

function evolveItem(item: Item, event: Exclude<ItemEvent, { type: 'CompensationReopened' | 'CompensationDecided' }>): Item {
  switch (event.type) {
    case 'ArgumentsAsked':
      return { ...item, asks: event.data.ask, answerBy: event.data.answerBy, nextAskAt: null };
    case 'ArgumentsMissing':
      return { ...item, answerBy: null, nextAskAt: event.data.nextAskAt };
    case 'ArgumentsKnown': {
      const { part, args: value, digest, amount = null } = event.data;
      // Whatever was approved before was another part.
      return { ...item, answerBy: null, nextAskAt: null, args: { part, value, digest, amount }, approval: null };
    }
    case 'CompensationApprovalAsked':
      return { ...item, approval: { status: 'asked' } };
    case 'CompensationOrdered': {
      const { plan, step, part, key, tool, effect, args, fence, authorisedBy, after } = event.data;
      const amount = item.args?.part === part ? item.args.amount : (item.parts.get(part)?.amount ?? null);
      return { ...item, parts: new Map(item.parts).set(part, { plan, step, part, key, tool, effect, args, fence, amount, authorisedBy, after, known: null, verification: nothingAsked }) };
    }
    case 'CompensationNoted': {
      const { status, attempt, version, message = '', result = null, evidence = null, changedSince = false } = event.data;
      return withPart(item, event.data.step, (part) => ({ ...part, known: { status, attempt, version, message, result, evidence, changedSince } }));
    }
    case 'VerificationAsked': {
      const { probe, issuedAt, answerBy, step } = event.data;
      return withPart(item, step, (part) => ({ ...part, verification: { ...part.verification, asked: new Map(part.verification.asked).set(probe, issuedAt), answerBy, nextLookAt: null } }));
    }
    case 'VerificationConcluded': {
      const { step, probe, answer, nextLookAt } = event.data;
      const found = answer.status === 'applied' ? answer.evidence : null;
      return withPart(item, step, (part) => ({ ...part, verification: { ...part.verification, answerBy: null, nextLookAt, found, lastAnswer: answer.status, answers: new Set(part.verification.answers).add(`${probe}:${answer.status}`) } }));
    }
    case 'CompensationEscalated':
      return { ...item, escalated: new Set(item.escalated).add(event.data.reason) };
    case 'CompensationSettled':
      return { ...item, settled: event.data.standing };
    default:
      return unreachable(event);
  }
}

const itemOf = (run: RunPlans, of: Step): Item => run.items.get(of) ?? newItem(run.plans.at(-1)?.number ?? 1);
const withItem = (run: RunPlans, of: Step, item: Item): RunPlans => ({ ...run, items: new Map(run.items).set(of, item) });

function withPart(item: Item, step: Step, change: (part: Ordered) => Ordered): Item {
  const found = [...item.parts.values()].find((part) => part.step === step);
  return found === undefined ? item : { ...item, parts: new Map(item.parts).set(found.part, change(found)) };
}

function withPlan(run: RunPlans, change: (plan: Plan) => Plan): RunPlans {
  const last = run.plans.at(-1);
  return last === undefined ? run : { ...run, plans: [...run.plans.slice(0, -1), change(last)] };
}

const withCommand = (run: RunPlans, cause: PlanCause): RunPlans => (cause.kind === 'operator' ? { ...run, commands: new Set(run.commands).add(cause.command) } : run);
