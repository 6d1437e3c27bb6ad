import { z } from 'zod';
import { Attempt, Digest, EffectStep, Instant, Named, OperationKey, Pool, RunId, Step, WorkerId } from './ids.js';
import { EffectClass, Evidence, Failure, JsonValue, OperationId, Outcome, Stored, UnknownCause } from './outcome.js';
import { message } from './message.js';

const effect = { step: EffectStep, key: OperationKey };

/** An attempt is granted: committed before its task is published. */
export const EffectDispatched = message(
  'EffectDispatched',
  z.object({
    ...effect,
    tool: Named,
    effect: EffectClass,
    keyScope: z.enum(['run', 'target']),
    pool: Pool,
    digest: Digest,
    attempt: Attempt,
    fence: z.number().int(),
    /** Present with the first attempt: what later ones send again. */
    args: JsonValue.optional(),
    /** Why this attempt: the first, or the recovery decision that released it. */
    because: z.string(),
    /** Absolute: after it nothing of this attempt may fire. */
    notAfter: Instant,
    /** When the ledger stops waiting for the attempt's end. */
    deadline: Instant,
    /** `ce_seq` of the task that carries the attempt. */
    taskSeq: z.number().int(),
    /** When the first attempt was sent: what a limit on elapsed time counts from. */
    since: Instant.optional(),
    /** Without a sign of life by then the attempt is lost. */
    aliveUntil: Instant.optional(),
    /** Attempts at effects that the run may make in all. */
    attemptsMax: z.number().int().optional(),
    /** The step whose arguments this one mends. */
    repairs: Step.optional(),
    /** Until when the approval that allows it may be used: no attempt is sent, nor fires, after that. With the first attempt. */
    approvedUntil: Instant.optional(),
  }),
);

/** An effect that may not be sent yet: its tool's circuit is open, or all places are taken. It has not fired. */
export const EffectHeld = message(
  'EffectHeld',
  z.object({
    ...effect,
    tool: Named,
    effect: EffectClass,
    keyScope: z.enum(['run', 'target']),
    digest: Digest,
    fence: z.number().int(),
    /** The attempt that waits. */
    attempt: Attempt,
    /** Present with the first attempt. */
    args: JsonValue.optional(),
    because: z.enum(['circuit_open', 'no_free_place', 'paused']),
    message: z.string(),
    since: Instant,
    /** From then on it has failed, unfired. */
    until: Instant,
    attemptsMax: z.number().int().optional(),
    repairs: Step.optional(),
    /** Until when the approval that allows it may be used: no attempt is sent, nor fires, after that. With the first attempt. */
    approvedUntil: Instant.optional(),
  }),
);

/** Nothing more of this effect is sent while it is paused; what is under way ends as it ends. `by`: what holds it, its run or a brake; several may. */
export const EffectPaused = message('EffectPaused', z.object({ ...effect, attempt: Attempt, by: z.string(), because: z.string() }));
/** `until`: where it waits for its turn, from then on it has failed, unfired. */
export const EffectUnpaused = message('EffectUnpaused', z.object({ ...effect, attempt: Attempt, by: z.string(), until: Instant }));

/** A long attempt shows life. Recorded now and then, not each time. */
export const EffectProgressed = message('EffectProgressed', z.object({ ...effect, attempt: Attempt, progress: JsonValue.optional(), aliveUntil: Instant }));

/** Another run asked for the same operation (key scope `target`): this one waits for its outcome. */
export const EffectJoined = message('EffectJoined', z.object({ ...effect, tool: Named, digest: Digest, owner: z.object({ run: RunId, step: Step }) }));
/** Same key, other arguments, held by another run: nothing fires. */
export const EffectConflicted = message('EffectConflicted', z.object({ ...effect, tool: Named, digest: Digest, owner: z.object({ run: RunId, step: Step }) }));

/** What was called, for an effect that its worker fired by itself; the arguments where a later attempt may need them. */
const local = z
  .object({ tool: Named, effect: EffectClass, digest: Digest, args: JsonValue.optional(), since: Instant.optional(), attemptsMax: z.number().int().optional(), repairs: Step.optional() })
  .optional();

/** Set where a case, not the attempt's own report, settled the effect. */
const reconciled = z.object({ by: z.enum(['probe', 'person']), forced: z.boolean().optional() }).optional();

export const EffectSucceeded = message(
  'EffectSucceeded',
  z.object({
    ...effect,
    attempt: Attempt,
    result: Stored,
    evidence: Evidence,
    /** Present for an effect that its worker fired by itself: then this is the ledger's first word on it. */
    local,
    /** Set when the recorded outcome of another run's effect answers this one. */
    replayed: z.object({ run: RunId, step: Step }).optional(),
    reconciled,
  }),
);
export const EffectRejected = message('EffectRejected', z.object({ ...effect, attempt: Attempt, reason: z.string(), evidence: Evidence, local }));
export const EffectFailed = message('EffectFailed', z.object({ ...effect, attempt: Attempt, failure: Failure, evidence: Evidence, because: z.string(), local, reconciled }));
export const EffectRetryScheduled = message(
  'EffectRetryScheduled',
  z.object({ ...effect, attempt: Attempt, failure: Failure, because: z.string(), retryAt: Instant, local, reconciled }),
);
export const EffectOutcomeUnknown = message(
  'EffectOutcomeUnknown',
  z.object({
    ...effect,
    attempt: Attempt,
    cause: UnknownCause,
    message: z.string(),
    notAfter: Instant.optional(),
    owner: z.string().nullable(),
    local,
    operationId: OperationId.optional(),
    proved: JsonValue.optional(),
    /** No other attempt follows, whatever is found: its run is cancelled or has expired. */
    last: z.literal(true).optional(),
    /** What the effect is: all that settling it needs. */
    about: z.object({ tool: Named, effect: EffectClass, args: JsonValue, fence: z.number().int(), since: Instant.optional() }).optional(),
  }),
);
/** No attempt follows the one under way, or in doubt: its run is cancelled or has expired. */
export const EffectStopped = message('EffectStopped', z.object({ ...effect, attempt: Attempt, because: z.string() }));
/** An end that changed nothing, kept as evidence. */
export const LateResultRecorded = message('LateResultRecorded', z.object({ ...effect, attempt: Attempt, outcome: Outcome, because: z.string() }));
/** An end that says the opposite of what the effect was settled with. Both are kept; a person must look. */
export const VerdictContradicted = message(
  'VerdictContradicted',
  z.object({ ...effect, attempt: Attempt, recorded: z.object({ status: z.enum(['succeeded', 'rejected', 'failed', 'not_applied']), by: z.string() }), outcome: Outcome, message: z.string() }),
);
/** Two proofs that an irreversible effect happened, under one key. */
export const DuplicateEffectDetected = message('DuplicateEffectDetected', z.object({ ...effect, attempts: z.array(Attempt), message: z.string() }));

/** Types on the topic `effect.events`. */
export const effectMessages = [
  EffectDispatched,
  EffectHeld,
  EffectPaused,
  EffectUnpaused,
  EffectProgressed,
  EffectJoined,
  EffectConflicted,
  EffectSucceeded,
  EffectRejected,
  EffectFailed,
  EffectRetryScheduled,
  EffectOutcomeUnknown,
  EffectStopped,
  LateResultRecorded,
  VerdictContradicted,
  DuplicateEffectDetected,
] as const;

/** A task for a tool host: fire this attempt. */
export const FireEffect = message(
  'FireEffect',
  z.object({
    ...effect,
    tool: Named,
    effect: EffectClass,
    attempt: Attempt,
    fence: z.number().int(),
    args: JsonValue,
    notAfter: Instant,
    timeoutMs: z.number().int(),
    /** With these a task that outlived its event (a restored ledger) is accounted for from itself. */
    digest: Digest.optional(),
    keyScope: z.enum(['run', 'target']).optional(),
    attemptsMax: z.number().int().optional(),
    repairs: Step.optional(),
  }),
);
/** The attempt is not wanted any more: a host that has not fired it drops it. */
export const RevokeEffect = message('RevokeEffect', z.object({ ...effect, attempt: Attempt, because: z.string() }));
/** A task for a tool host: ask the tool's system of record what became of an attempt. */
export const ProbeEffect = message(
  'ProbeEffect',
  z.object({
    ...effect,
    tool: Named,
    attempt: Attempt,
    fence: z.number().int(),
    args: JsonValue,
    /** The how-manieth time the case is looked into. */
    probe: z.number().int().min(1),
    operationId: OperationId.optional(),
    /** When it was asked: what tells it from a question that a restored service has lost. */
    issuedAt: Instant.optional(),
    /** Absolute: an answer later than this is not waited for. */
    answerBy: Instant,
    timeoutMs: z.number().int(),
    /** Set where no case is behind it: a compensation that succeeded is looked for at the target. */
    purpose: z.literal('verify').optional(),
  }),
);
/** A task for a tool host: how is this effect answered? The tool's own code says it; nothing is fired. */
export const AskArguments = message('AskArguments', z.object({ ...effect, tool: Named, args: JsonValue, result: Stored, ask: z.number().int().min(1), answerBy: Instant }));
/** Types on `tool.tasks.<pool>`. */
export const toolTaskMessages = [FireEffect, RevokeEffect, ProbeEffect, AskArguments] as const;

/** A tool host's report of one attempt's end. Evidence: no fence refuses it. */
export const EffectReported = message('EffectReported', z.object({ ...effect, attempt: Attempt, outcome: Outcome, worker: WorkerId }));
/** A long tool shows life. */
export const EffectHeartbeat = message('EffectHeartbeat', z.object({ ...effect, attempt: Attempt, progress: JsonValue.optional(), worker: WorkerId }));
/** What a probe found out about one attempt. `pending`: the target works on it; `still_unknown`: it can't say yet. */
export const ProbeAnswer = z.discriminatedUnion('status', [
  z.object({ status: z.literal('applied'), result: Stored, evidence: Evidence }),
  z.object({ status: z.literal('not_applied'), evidence: Evidence }),
  z.object({ status: z.literal('pending'), message: z.string().max(4000).optional() }),
  z.object({ status: z.literal('still_unknown'), message: z.string().max(4000) }),
]);
export type ProbeAnswer = z.infer<typeof ProbeAnswer>;

export const ProbeReported = message('ProbeReported', z.object({ ...effect, attempt: Attempt, probe: z.number().int().min(1), /** Of the question that it answers. */ issuedAt: Instant.optional(), answer: ProbeAnswer, worker: WorkerId, purpose: z.literal('verify').optional() }));
/** The arguments of the compensating call, or why there are none. */
export const ArgumentsReported = message(
  'ArgumentsReported',
  z.object({ ...effect, ask: z.number().int().min(1), answer: z.discriminatedUnion('status', [z.object({ status: z.literal('known'), args: JsonValue }), z.object({ status: z.literal('failed'), message: z.string().max(2000) })]), worker: WorkerId }),
);
/** Types on `tool.results`. */
export const toolResultMessages = [EffectReported, EffectHeartbeat, ProbeReported, ArgumentsReported] as const;
