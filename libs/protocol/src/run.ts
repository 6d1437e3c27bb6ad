import { z } from 'zod';
import { Attempt, Digest, Fence, Instant, Named, OperationKey, Pool, RunId, Step, Tenant, WorkerId } from './ids.js';
import { ResumePoint } from './contract.js';
import { Budgets, Ending, RecordKind, Usage } from './intent.js';
import { EffectClass, Failure, Fire, JsonValue, Outcome, Report, Stored, UnknownCause } from './outcome.js';
import { message } from './message.js';
import { BrakeTarget, Operator } from './operator.js';
import { Standing } from './plan.js';
import { OnDeadline, Wait, WaitEnd } from './wait.js';

/**
 * A report as it stands in a run's stream. For a call that its worker fired by itself it also says
 * what was called: this is how the ledger hears of it. `last`: no other attempt follows, since its run is
 * cancelled or has expired.
 */
export const Settled = Report.extend({
  local: z
    .object({ tool: Named, effect: EffectClass, key: OperationKey, digest: Digest, args: JsonValue.optional(), attemptsMax: z.number().int().optional(), repairs: Step.optional(), last: z.literal(true).optional() })
    .optional(),
});
export type Settled = z.infer<typeof Settled>;

const progress = {
  fence: Fence.optional(),
  settles: z.array(Settled).optional(),
  observed: z.array(Step).optional(),
};

export const Lease = z.object({
  fence: Fence,
  worker: WorkerId,
  /** Offset of the announcement under which the worker holds the run's lane: one that comes back holds it anew. */
  taken: z.number().int(),
  /** Life of the lane's record in which it was granted; absent in the first. */
  rebuilt: z.number().int().optional(),
  /** What its agent's contract declared then, by point. */
  facts: z.partialRecord(ResumePoint, z.string()).optional(),
});
export type Lease = z.infer<typeof Lease>;

export const RunAccepted = message(
  'RunAccepted',
  z.object({
    tenant: Tenant,
    agent: Named.nullable(),
    pool: Pool,
    input: JsonValue,
    inputDigest: Digest,
    goal: z.string().optional(),
    success: z.array(z.string()).optional(),
    principal: z.string().optional(),
    deadline: Instant.optional(),
    budgets: Budgets.optional(),
    onDeadline: OnDeadline.optional(),
    parent: z.object({ run: RunId, step: Step }).optional(),
    concurrencyKey: z.string().optional(),
    priority: z.number().int().optional(),
    /** What it was let through: each has one place less while it is open. */
    gates: z.array(z.string()).optional(),
    at: Instant.optional(),
    /** Present when a worker for it was there at once. */
    lease: Lease.optional(),
  }),
);

/** It waits to be let in: its conversation, tenant or agent has no room. `gates`: those that it has passed. */
export const RunQueued = message('RunQueued', z.object({ gate: z.string(), gates: z.array(z.string()), message: z.string(), since: Instant, expiresAt: Instant }));
export const RunAdmitted = message('RunAdmitted', z.object({ gates: z.array(z.string()), at: Instant }));
/** No run comes of this start; asked again from `retryAt` on, one may. */
export const StartRefused = message(
  'StartRefused',
  z.object({
    agent: Named.nullable(),
    reason: z.enum(['concurrent_run', 'limit_reached', 'rate_limited', 'queue_full']),
    message: z.string(),
    retryAt: Instant,
    /** The run that goes on. */
    holder: RunId.optional(),
    /** Of the start on `agent.intents`. */
    offset: z.number().int().nonnegative().optional(),
  }),
);

/** Another run waits for this one as its child as well. */
export const RunJoined = message('RunJoined', z.object({ parent: z.object({ run: RunId, step: Step }) }));

/** A queued run's first lease. */
export const LeaseGranted = message('LeaseGranted', z.object({ lease: Lease, because: z.enum(['worker_arrived', 'worker_changed']) }));

const Compared = z.enum(['none', 'same', 'changed']).optional();

/** What a resume looked at before it let the run go on; each point is a field. `history`: its chain was checked while it was folded; one that is damaged is never granted. */
export const Revalidation = z.object({
  history: z.literal('intact'),
  agentVersion: z.enum(['same', 'compatible']),
  deadline: z.enum(['none', 'open']),
  budgets: z.enum(['none', 'within', 'near', 'spent']),
  /** Tools whose calls or approvals are open. */
  tools: z.enum(['none', 'declared', 'missing']).optional(),
  /** Given and not used yet. */
  approvals: z.enum(['none', 'valid', 'expired']).optional(),
  /** Whether something came that no wait has taken: newer input, or a correction. */
  input: z.enum(['same', 'newer']).optional(),
  principal: z.enum(['none', 'named']).optional(),
  /** As the agent's contract declared when the run was last granted, and declares now. */
  policy: Compared,
  permissions: Compared,
  models: Compared,
  prompts: Compared,
  secrets: Compared,
  dataAccess: Compared,
  preconditions: Compared,
});

/** A run changed hands: the new lease, what was checked, what is replayed and what fires again. */
export const RunResumed = message(
  'RunResumed',
  z.object({
    lease: Lease,
    because: z.enum(['worker_changed', 'worker_returned', 'let_go_before']),
    revalidated: Revalidation,
    /** How many recorded steps the new worker replays instead of doing them. */
    replayed: z.number().int().nonnegative(),
    /** Local calls without a result: each counts one more attempt under the same operation key. */
    refired: z.array(z.object({ step: Step, attempt: Attempt })),
  }),
);

export const RequestedCall = z.object({
  step: Step,
  tool: Named,
  effect: EffectClass,
  keyScope: z.enum(['run', 'target']),
  args: JsonValue,
  target: z.string().optional(),
  key: OperationKey,
  digest: Digest,
  digestVersion: z.number().int(),
  /** The failed step whose arguments this one mends. */
  repairs: Step.optional(),
  /** The failed step for which this one takes over. */
  fallbackFor: Step.optional(),
  /** Attempts at effects that the run may make in all. */
  attemptsMax: z.number().int().optional(),
  /** How long one attempt may wait and take by its contract, where that is long. Milliseconds. */
  mayTakeMs: z.number().int().nonnegative().optional(),
  /** The approval that allows it, as it was decided: looked at again when it is sent. */
  approval: z.object({ step: Step, by: z.string(), digest: Digest, expiresAt: Instant.optional() }).optional(),
});
export type RequestedCall = z.infer<typeof RequestedCall>;

/** What keeps an effect from being sent although its intent is taken. */
export const Held = z.object({ brake: z.string(), by: z.string(), reason: z.string() });

/** An effect is intended: on the log before anything fires. */
export const EffectRequested = message('EffectRequested', z.object({ call: RequestedCall, fire: Fire, held: Held.optional(), ...progress }));
export const GroupRequested = message('GroupRequested', z.object({ step: Step, calls: z.array(RequestedCall), ...progress }));
export const StepRecorded = message(
  'StepRecorded',
  z.object({ step: Step, kind: RecordKind, name: z.string(), result: Stored, usage: Usage.optional(), ...progress }),
);
export const StepRetryScheduled = message(
  'StepRetryScheduled',
  z.object({ step: Step, kind: RecordKind, name: z.string(), attempt: Attempt, failure: Failure, retryAt: Instant, ...progress }),
);
export const StepFailed = message('StepFailed', z.object({ step: Step, kind: RecordKind, name: z.string(), attempt: Attempt, failure: Failure, ...progress }));
export const StepsReported = message('StepsReported', z.object({ ...progress }));

/** The ledger's word on an effect, where no worker had reported it before. */
export const EffectSettled = message('EffectSettled', z.object({ step: Step, attempt: Attempt, outcome: Outcome }));
/** It is proved that an attempt of unknown outcome was not applied: another one is under way. */
export const StepReleased = message('StepReleased', z.object({ step: Step, attempt: Attempt, because: z.string() }));
export const WaitStarted = message('WaitStarted', z.object({ step: Step, wait: Wait, since: Instant, deadline: Instant.optional(), onDeadline: OnDeadline, ...progress }));
export const WaitEnded = message('WaitEnded', z.object({ step: Step, end: WaitEnd, at: Instant }));
/** Whoever is asked was reminded, or others were asked as well. `nextAt`: when the deadline is looked at again. */
export const WaitReminded = message('WaitReminded', z.object({ step: Step, to: z.string().nullable(), nextAt: Instant.nullable(), times: z.number().int() }));
export const WaitEscalated = message('WaitEscalated', z.object({ step: Step, to: z.string(), expiresAt: Instant }));
/** Nobody awaits it any more. */
export const WaitAbandoned = message('WaitAbandoned', z.object({ step: Step, ...progress }));
/** The run's worker has let it go: nothing runs until a wait ends. */
export const RunReleased = message('RunReleased', z.object({ waits: z.array(Step), ...progress }));
/** Kept until a wait takes it. */
export const SignalReceived = message('SignalReceived', z.object({ signal: z.string(), name: z.string(), payload: JsonValue, at: Instant }));
/** A signal, callback, decision or command that could change nothing any more, kept with the reason. */
export const InputRefused = message(
  'InputRefused',
  z.object({
    input: z.string(),
    id: z.string(),
    step: Step.optional(),
    reason: z.enum(['run_ended', 'wait_unknown', 'wait_over', 'token_wrong', 'payload_invalid', 'role_missing', 'four_eyes', 'already_decided', 'other_scope', 'not_possible', 'too_many']),
    message: z.string(),
    by: Operator.optional(),
    command: z.string().optional(),
  }),
);
/** An approval was decided. What it allows stands in its wait. */
export const ApprovalDecided = message(
  'ApprovalDecided',
  z.object({ step: Step, decision: z.enum(['approved', 'rejected']), feedback: z.string().optional(), by: Operator, command: z.string(), expiresAt: Instant.optional(), at: Instant }),
);
export const RunCancelRequested = message(
  'RunCancelRequested',
  z.object({ by: Operator, reason: z.string(), scope: z.enum(['run', 'tree']), manner: z.enum(['graceful', 'immediate']), compensate: z.literal(true).optional(), command: z.string(), at: Instant }),
);
/** What holds a run still: an operator's word. `brake`: one on its tenant or agent, by name; others may hold it besides. */
export const RunPaused = message('RunPaused', z.object({ by: Operator, reason: z.string(), command: z.string(), at: Instant, brake: z.string().optional() }));
export const RunUnpaused = message('RunUnpaused', z.object({ by: Operator, command: z.string(), at: Instant, brake: z.string().optional() }));
/** About a lane, not a run: a tool, an agent or a tenant is held still, or let go again. */
export const BrakeSet = message('BrakeSet', z.object({ target: BrakeTarget, by: Operator, reason: z.string(), command: z.string(), at: Instant }));
export const BrakeReleased = message('BrakeReleased', z.object({ target: BrakeTarget, by: Operator, command: z.string(), at: Instant }));
/** It makes no progress, and no wait, hold or open case explains it. Any progress ends that. */
export const RunStuck = message('RunStuck', z.object({ since: Instant, on: z.string(), steps: z.array(Step) }));
/** Another run begins with what this one had recorded before a step. */
export const RunForked = message('RunForked', z.object({ run: RunId, from: Step, /** Instead of this run's. */ input: z.object({ value: JsonValue }).optional(), by: Operator, command: z.string() }));
/** A budget is nearly spent, or spent. Spent, it stops the run with its progress kept. */
export const BudgetNeared = message('BudgetNeared', z.object({ budget: z.enum(['steps', 'attempts', 'tokens', 'cost', 'wall_time']), used: z.number(), max: z.number(), reached: z.boolean(), /** Absent: of the run. */ scope: z.literal('tenant').optional() }));
/** Carried out by the compensation service. */
export const CompensationRequested = message('CompensationRequested', z.object({ because: z.string(), step: Step.optional() }));
/** What the run did is being answered. */
export const RunCompensating = message('RunCompensating', z.object({ plan: z.number().int().min(1), because: z.string() }));
/** Nothing more of it moves by itself: how each effect stands, what answered it, and who allowed that. */
export const RunCompensated = message(
  'RunCompensated',
  z.object({ plan: z.number().int().min(1), status: z.enum(['compensated', 'compensated_partially', 'compensation_failed']), effects: z.array(Standing) }),
);
/** A person let a quarantined run go on. */
export const RunUnquarantined = message('RunUnquarantined', z.object({ by: Operator, reason: z.string(), command: z.string() }));

/** A material outcome is unknown: the run can't complete until it is settled. */
export const RunBlocked = message('RunBlocked', z.object({ step: Step, attempt: Attempt, cause: UnknownCause, message: z.string(), since: Instant }));

export const RejectReason = z.enum([
  'invalid',
  'run_unknown',
  'run_exists_with_other_input',
  'run_ended',
  'run_quarantined',
  'operation_conflict',
  'stale_fence',
  'fence_required',
  'unknown_tool',
  'unknown_agent_version',
  'invalid_arguments',
  'local_not_allowed',
  'group_not_allowed',
  'too_large',
  'key_mismatch',
  'budget_exhausted',
  'deadline_passed',
  'outcome_unknown',
  'steps_open',
  'run_cancelled',
  'run_paused',
  'run_queued',
  'approval_required',
  'approval_invalid',
  'not_compensable',
]);
export type RejectReason = z.infer<typeof RejectReason>;

export const IntentRejected = message(
  'IntentRejected',
  z.object({
    intent: z.string(),
    step: Step.optional(),
    reason: RejectReason,
    message: z.string(),
    fence: z.number().optional(),
    /** What makes this refusal one and the same when its intent is read again. */
    token: z.string(),
    /** Offset of the refused intent on `agent.intents`: whoever rebuilds the journal does not decide it anew. */
    offset: z.number().int().nonnegative().optional(),
    settles: z.array(Settled).optional(),
    /** The order in which the code was told holds, whatever became of the wish. */
    observed: z.array(Step).optional(),
    /** A local call that was refused after it may have fired still binds its key. */
    bound: RequestedCall.optional(),
    /** The same of the idempotent calls of a refused group. */
    boundGroup: z.array(RequestedCall).optional(),
  }),
);

export const FinalEffect = z.object({
  step: Step,
  tool: Named,
  key: OperationKey,
  outcome: z.enum(['succeeded', 'rejected', 'failed', 'unknown']),
  evidence: z.string(),
  attempts: z.number().int(),
  /** Its result came from a tool that took over for this step's. */
  fallbackFor: Step.optional(),
});

export const RunFinished = message(
  'RunFinished',
  z.object({
    ending: Ending,
    effects: z.array(FinalEffect),
    /** Steps that the finishing worker did itself, and steps that it replayed from the record. */
    steps: z.object({ fresh: z.number().int(), replayed: z.number().int() }),
    ...progress,
  }),
);

export const RunQuarantined = message(
  'RunQuarantined',
  z.object({ reason: z.enum(['incompatible_history', 'poison', 'history_damaged', 'revalidation_failed']), message: z.string(), step: Step.optional(), /** What it was about; whoever releases the run takes it as it is. */ facts: z.partialRecord(ResumePoint, z.string()).optional() }),
);

/** About a lane, not a run: which worker now has it, and up to where former hosts had taken its tasks. */
export const LaneTaken = message(
  'LaneTaken',
  z.object({
    pool: Pool,
    lane: z.number().int(),
    worker: WorkerId,
    generation: z.number().int().optional(),
    /** When it was taken in. */
    at: Instant.optional(),
    agents: z.array(Named),
    taken: z.record(z.string(), z.number().int()),
    /** Offset of the announcement on `agent.intents`: one read again changes nothing. */
    offset: z.number().int(),
    /** How often the orchestrator's journal was rebuilt since: leases of an earlier life are granted anew, since their grants may be lost. */
    rebuilt: z.number().int().optional(),
  }),
);

/** Types on the topic `run.events`, but for copied steps. */
export const runEvents = [
  RunAccepted,
  RunJoined,
  RunQueued,
  RunAdmitted,
  StartRefused,
  LeaseGranted,
  RunResumed,
  EffectRequested,
  GroupRequested,
  StepRecorded,
  StepRetryScheduled,
  StepFailed,
  StepsReported,
  EffectSettled,
  RunBlocked,
  StepReleased,
  WaitStarted,
  WaitEnded,
  WaitReminded,
  WaitEscalated,
  WaitAbandoned,
  RunReleased,
  SignalReceived,
  InputRefused,
  ApprovalDecided,
  RunCancelRequested,
  RunPaused,
  RunUnpaused,
  BrakeSet,
  BrakeReleased,
  RunStuck,
  RunForked,
  BudgetNeared,
  CompensationRequested,
  RunCompensating,
  RunCompensated,
  RunUnquarantined,
  IntentRejected,
  RunFinished,
  RunQuarantined,
  LaneTaken,
] as const;

/** Stream id of a lane's own events. A run id can't collide: it holds no control characters, nor may it begin so. */
export const laneStream = (pool: Pool, lane: number): string => `~lane/${pool}/${lane}`;
