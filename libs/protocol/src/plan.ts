import { z } from 'zod';
import { ProbeAnswer } from './effect.js';
import { Attempt, Digest, EffectStep, Instant, Named, OperationKey, Step } from './ids.js';
import { EffectClass, Evidence, Fire, JsonValue, Stored } from './outcome.js';
import { CompensationContract, PlanScope } from './compensation.js';
import { message } from './message.js';
import { Operator } from './operator.js';

/** Plans of one run are numbered from 1; one at a time is open. */
const Plan = z.number().int().min(1);
const ofItem = { plan: Plan, of: Step };
const Text = z.string().max(2000);

/** What a plan was made for. */
export const PlanCause = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('run_ended'), ending: z.enum(['failed', 'cancelled', 'expired']), message: Text }),
  /** A deadline of which it was said that it leads to this. */
  z.object({ kind: z.literal('deadline'), step: Step.optional(), message: Text }),
  /** The agent itself, by the wait at `step`. */
  z.object({ kind: z.literal('agent'), step: Step, message: Text }),
  z.object({ kind: z.literal('operator'), by: Operator, command: z.string(), message: Text }),
  /** An effect that counted as not having happened, or had no end yet, turned out to have happened. */
  z.object({ kind: z.literal('landed_late'), step: Step, message: Text }),
]);
export type PlanCause = z.infer<typeof PlanCause>;


/** An effect is intended, and this is how it will be answered if it must be: known before it can fire. */
export const CompensationRegistered = message(
  'CompensationRegistered',
  z.object({
    step: Step,
    key: OperationKey,
    tool: Named,
    effect: EffectClass,
    args: JsonValue,
    digest: Digest,
    fire: Fire,
    fence: z.number().int().nonnegative(),
    /** Null: it is a point of no return, and nothing answers it. */
    how: CompensationContract.nullable(),
    pointOfNoReturn: z.literal(true).optional(),
    /** Heard of from the ledger before the orchestrator: recorded once more, in its place, when that has told of it. */
    early: z.literal(true).optional(),
  }),
);
/** What the ledger says of an effect that may have to be answered. `version`: of the effect's stream that says so. `not_ours`: another run's effect answered it. */
export const EffectNoted = message(
  'EffectNoted',
  z.object({ step: Step, status: z.enum(['succeeded', 'rejected', 'failed', 'unknown', 'not_ours']), attempt: Attempt, version: z.number().int(), message: Text.optional(), result: Stored.optional(), evidence: Evidence.optional() }),
);
/** How the run ended, and its effects that nothing answers. */
export const RunEndNoted = message(
  'RunEndNoted',
  z.object({
    ending: z.enum(['completed', 'completed_partially', 'failed', 'cancelled', 'expired']),
    others: z.array(z.object({ step: Step, tool: Named, key: OperationKey, outcome: z.enum(['succeeded', 'rejected', 'failed', 'unknown']) })),
  }),
);
export const PlanOpened = message('PlanOpened', z.object({ plan: Plan, cause: PlanCause, scope: PlanScope, at: Instant }));
/** Another cause, while a plan is open: it is the same plan. */
export const PlanWidened = message('PlanWidened', z.object({ plan: Plan, cause: PlanCause, scope: PlanScope, at: Instant }));
/** An earlier answer had failed, or left a rest: it is taken up again. */
export const CompensationReopened = message('CompensationReopened', z.object({ ...ofItem, because: Text }));
/** Nobody may ever say what became of an effect that its worker fired by itself: the ledger is asked to have it settled. */
export const EffectDoubted = message('EffectDoubted', z.object({ step: Step, key: OperationKey, tool: Named, effect: EffectClass, args: JsonValue, digest: Digest, because: Text }));
/** A host of the tool is asked what the compensating call's arguments are. */
export const ArgumentsAsked = message('ArgumentsAsked', z.object({ ...ofItem, ask: z.number().int().min(1), answerBy: Instant }));
/** The host could not say, or did not in time. */
export const ArgumentsMissing = message('ArgumentsMissing', z.object({ ...ofItem, ask: z.number().int(), message: Text, nextAskAt: Instant }));
/** Exactly what would be called. */
export const ArgumentsKnown = message('ArgumentsKnown', z.object({ ...ofItem, part: z.number().int().min(1), args: JsonValue, digest: Digest, by: z.enum(['contract', 'host']), amount: z.number().int().optional() }));
export const CompensationApprovalAsked = message('CompensationApprovalAsked', z.object({ ...ofItem, approvers: z.array(z.string()), tool: Named, args: JsonValue, digest: Digest }));
export const CompensationDecided = message('CompensationDecided', z.object({ ...ofItem, decision: z.enum(['approved', 'rejected']), digest: Digest, reason: Text.optional(), by: Operator, command: z.string(), at: Instant }));
/** The ledger is to fire it: its key is the effect's, for ever. `after`: attempts that were made before, and are known to have changed nothing. */
export const CompensationOrdered = message(
  'CompensationOrdered',
  z.object({
    ...ofItem,
    step: EffectStep,
    part: z.number().int().min(1),
    key: OperationKey,
    tool: Named,
    effect: EffectClass,
    args: JsonValue,
    digest: Digest,
    fence: z.number().int().nonnegative(),
    after: z.number().int().nonnegative(),
    authorisedBy: z.string(),
    because: Text,
  }),
);
/** What the ledger says of a compensation. */
export const CompensationNoted = message(
  'CompensationNoted',
  z.object({ ...ofItem, step: EffectStep, status: z.enum(['succeeded', 'rejected', 'failed', 'unknown']), attempt: Attempt, version: z.number().int(), message: Text.optional(), result: Stored.optional(), evidence: Evidence.optional(), changedSince: z.boolean().optional() }),
);
/** The compensating tool's probe is asked whether it is at the target. */
export const VerificationAsked = message('VerificationAsked', z.object({ ...ofItem, step: EffectStep, attempt: Attempt, probe: z.number().int().min(1), issuedAt: Instant, answerBy: Instant }));
export const VerificationConcluded = message(
  'VerificationConcluded',
  z.object({ ...ofItem, step: EffectStep, probe: z.number().int(), answer: z.union([ProbeAnswer, z.object({ status: z.literal('no_answer') })]), nextLookAt: Instant.nullable() }),
);
/** Brought to people. Nothing is given up by it. */
export const CompensationEscalated = message('CompensationEscalated', z.object({ ...ofItem, to: z.string().nullable(), reason: z.enum(['failed', 'overdue', 'arguments', 'not_found', 'no_host']), message: Text }));

/** How one effect stands in the end. */
export const Standing = z.object({
  step: Step,
  tool: Named,
  key: OperationKey,
  /** `compensated`: in full. `in_part`: the rest stands. `never_happened`: there is nothing to answer. `stands`: by contract or by decision. `failed`: it should not stand, and does. */
  standing: z.enum(['compensated', 'in_part', 'never_happened', 'stands', 'failed']),
  /** What stands, and why; or what answered it. */
  why: Text,
  answers: z.array(z.object({ step: EffectStep, tool: Named, key: OperationKey, amount: z.number().int().optional(), evidence: z.string().max(2000), verified: z.boolean(), authorisedBy: z.string() })),
  /** Of the whole amount, where the contract names one. */
  amount: z.object({ whole: z.number().int(), answered: z.number().int() }).optional(),
  residual: z.array(z.object({ what: z.string(), amount: JsonValue.optional() })).optional(),
});
export type Standing = z.infer<typeof Standing>;

export const CompensationSettled = message('CompensationSettled', z.object({ ...ofItem, standing: Standing }));
/** Nothing of the plan can move by itself any more. `compensated` is said only when nothing is open and nothing stands. */
export const PlanConcluded = message('PlanConcluded', z.object({ plan: Plan, status: z.enum(['compensated', 'compensated_partially', 'compensation_failed']), effects: z.array(Standing), /** Waits of the agent that this ends. */ waits: z.array(Step) }));
export const PlanCommandRefused = message(
  'PlanCommandRefused',
  z.object({ command: z.string(), by: Operator, step: Step.optional(), reason: z.enum(['run_open', 'nothing_registered', 'nothing_to_do', 'step_unknown', 'not_compensable', 'no_return', 'role_missing', 'not_asked', 'other_arguments', 'amount_exceeded']), message: Text }),
);

/** Types on the topic `compensation.events`. */
export const planMessages = [
  CompensationRegistered,
  EffectNoted,
  RunEndNoted,
  PlanOpened,
  PlanWidened,
  CompensationReopened,
  EffectDoubted,
  ArgumentsAsked,
  ArgumentsMissing,
  ArgumentsKnown,
  CompensationApprovalAsked,
  CompensationDecided,
  CompensationOrdered,
  CompensationNoted,
  VerificationAsked,
  VerificationConcluded,
  CompensationEscalated,
  CompensationSettled,
  PlanConcluded,
  PlanCommandRefused,
] as const;
