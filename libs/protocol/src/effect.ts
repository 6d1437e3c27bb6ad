import { z } from 'zod';
import { Attempt, Digest, Instant, Named, OperationKey, Pool, RunId, Step, WorkerId } from './ids.js';
import { EffectClass, Evidence, Failure, JsonValue, Outcome, Stored, UnknownCause } from './outcome.js';
import { message } from './message.js';

const effect = { step: Step, key: OperationKey };

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
  }),
);

/** Another run asked for the same operation (key scope `target`): this one waits for its outcome. */
export const EffectJoined = message('EffectJoined', z.object({ ...effect, tool: Named, digest: Digest, owner: z.object({ run: RunId, step: Step }) }));
/** Same key, other arguments, held by another run: nothing fires. */
export const EffectConflicted = message('EffectConflicted', z.object({ ...effect, tool: Named, digest: Digest, owner: z.object({ run: RunId, step: Step }) }));

/** What was called, for an effect that its worker fired by itself; the arguments where a later attempt may need them. */
const local = z.object({ tool: Named, effect: EffectClass, digest: Digest, args: JsonValue.optional() }).optional();

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
  }),
);
export const EffectRejected = message('EffectRejected', z.object({ ...effect, attempt: Attempt, reason: z.string(), evidence: Evidence, local }));
export const EffectFailed = message('EffectFailed', z.object({ ...effect, attempt: Attempt, failure: Failure, evidence: Evidence, because: z.string(), local }));
export const EffectRetryScheduled = message(
  'EffectRetryScheduled',
  z.object({ ...effect, attempt: Attempt, failure: Failure, because: z.string(), retryAt: Instant, local }),
);
export const EffectOutcomeUnknown = message(
  'EffectOutcomeUnknown',
  z.object({ ...effect, attempt: Attempt, cause: UnknownCause, message: z.string(), notAfter: Instant.optional(), owner: z.string().nullable(), local }),
);
/** An end that changed nothing, kept as evidence. */
export const LateResultRecorded = message('LateResultRecorded', z.object({ ...effect, attempt: Attempt, outcome: Outcome, because: z.string() }));
/** Two proofs that an irreversible effect happened, under one key. */
export const DuplicateEffectDetected = message('DuplicateEffectDetected', z.object({ ...effect, attempts: z.array(Attempt), message: z.string() }));

/** Types on the topic `effect.events`. */
export const effectMessages = [
  EffectDispatched,
  EffectJoined,
  EffectConflicted,
  EffectSucceeded,
  EffectRejected,
  EffectFailed,
  EffectRetryScheduled,
  EffectOutcomeUnknown,
  LateResultRecorded,
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
  }),
);
/** Types on `tool.tasks.<pool>`. */
export const toolTaskMessages = [FireEffect] as const;

/** A tool host's report of one attempt's end. Evidence: no fence refuses it. */
export const EffectReported = message('EffectReported', z.object({ ...effect, attempt: Attempt, outcome: Outcome, worker: WorkerId }));
/** A long tool shows life. */
export const EffectHeartbeat = message('EffectHeartbeat', z.object({ ...effect, attempt: Attempt, progress: JsonValue.optional(), worker: WorkerId }));
/** Types on `tool.results`. */
export const toolResultMessages = [EffectReported, EffectHeartbeat] as const;
