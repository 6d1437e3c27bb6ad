import { z } from 'zod';
import { Attempt, Instant, Named, OperationKey, Step } from './ids.js';
import { EffectClass, Evidence, JsonValue, OperationId, Stored, UnknownCause } from './outcome.js';
import { ProbeAnswer } from './effect.js';
import { message } from './message.js';
import { Operator } from './operator.js';

/** A case is one attempt of unknown outcome; with its run's id these name it. */
const ofCase = { step: Step, key: OperationKey, attempt: Attempt };

/** What is known of an attempt in the end. */
export const Verdict = z.discriminatedUnion('status', [
  z.object({ status: z.literal('applied'), result: Stored }),
  z.object({ status: z.literal('not_applied') }),
  /** Nobody could tell, and the target is declared idempotent: the same key is sent again. */
  z.object({ status: z.literal('same_key_again') }),
  /** The attempt's own end came late, or another attempt settled the effect. */
  z.object({ status: z.literal('ended'), outcome: z.enum(['succeeded', 'rejected', 'failed']) }),
]);
export type Verdict = z.infer<typeof Verdict>;

export const CaseOpened = message(
  'CaseOpened',
  z.object({
    ...ofCase,
    /** Version of the effect's stream that says so: the same, read again, opens nothing. */
    of: z.number().int(),
    tool: Named,
    effect: EffectClass,
    args: JsonValue,
    fence: z.number().int(),
    cause: UnknownCause,
    message: z.string(),
    operationId: OperationId.optional(),
    proved: JsonValue.optional(),
    /** The effect is not sent again, under the same key neither. */
    last: z.literal(true).optional(),
    since: Instant,
    owner: z.string().nullable(),
    remindAt: Instant.nullable(),
    escalateAt: Instant.nullable(),
    /** A reading issued earlier than this does not prove "not applied"; null: no reading does, only a sealing probe. */
    readingFrom: Instant.nullable(),
    /** Until when the target knows the key again; null: for ever. */
    keyKnownUntil: Instant.nullable(),
    /** When it is looked into next; null: only a person or a late result can move it. */
    nextLookAt: Instant.nullable(),
    because: z.string(),
  }),
);
/** A probe is on its way to the tool's pool. `issuedAt`: no reading of it is older. */
export const ProbeSent = message('ProbeSent', z.object({ ...ofCase, probe: z.number().int(), issuedAt: Instant, answerBy: Instant }));
/** An answer that settled nothing, or none by the time it was due; with what follows. */
export const ProbeConcluded = message(
  'ProbeConcluded',
  z.object({
    ...ofCase,
    probe: z.number().int(),
    answer: z.union([ProbeAnswer, z.object({ status: z.literal('no_answer') })]),
    nextLookAt: Instant.nullable(),
    because: z.string(),
  }),
);
export const CaseSettled = message(
  'CaseSettled',
  z.object({
    ...ofCase,
    verdict: Verdict,
    by: z.enum(['late_result', 'probe', 'person', 'policy']),
    evidence: Evidence,
    because: z.string(),
    /** When the reading that it rests on was issued; null where it rests on none. */
    readAt: Instant.nullable(),
    /** The reading voided the attempt at the target. */
    sealing: z.boolean(),
    /** A person overruled a probe's proof, or settled without a reading that proves it. */
    forced: z.boolean(),
    person: Operator.optional(),
    command: z.string().optional(),
  }),
);
export const CaseReminded = message('CaseReminded', z.object({ ...ofCase, owner: z.string().nullable(), openForMs: z.number().int(), remindAt: Instant.nullable() }));
/** Brought to whom the contract names, or to whoever watches: nothing that Holdfast may do by itself settles it, or it is too old. */
export const CaseEscalated = message('CaseEscalated', z.object({ ...ofCase, to: z.string().nullable(), reason: z.enum(['too_old', 'nothing_helps', 'contradictory']), message: z.string(), nextLookAt: Instant.nullable().optional() }));
export const CaseAssigned = message('CaseAssigned', z.object({ ...ofCase, owner: z.string().nullable(), by: Operator, command: z.string() }));
/** A probe's answer that came after its case was settled, kept. */
export const CaseEvidenceAdded = message('CaseEvidenceAdded', z.object({ ...ofCase, probe: z.number().int(), answer: ProbeAnswer, contradicts: z.boolean() }));
export const CaseCommandRefused = message(
  'CaseCommandRefused',
  z.object({
    step: Step,
    attempt: Attempt,
    command: z.string(),
    reason: z.enum(['case_unknown', 'already_settled', 'role_missing', 'other_attempt', 'too_early', 'against_proof', 'invalid_result']),
    message: z.string(),
    by: Operator,
  }),
);

/** Types on the topic `reconciliation.events`. */
export const caseMessages = [CaseOpened, ProbeSent, ProbeConcluded, CaseSettled, CaseReminded, CaseEscalated, CaseAssigned, CaseEvidenceAdded, CaseCommandRefused] as const;
