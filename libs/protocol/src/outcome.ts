import { z } from 'zod';
import { Attempt, DURATION_MAX_MS, Instant, Named, Step } from './ids.js';
import type { Json } from './json.js';

/** Any JSON value. The border has parsed the text already, so only presence is checked. */
export const JsonValue = z.custom<Json>((value) => value !== undefined, 'a JSON value is missing');

export const EffectClass = z.enum(['pure', 'idempotent', 'irreversible']);
export type EffectClass = z.infer<typeof EffectClass>;

/** How an effect may fire: at once by the worker that intends it, or only when the ledger grants it. */
export const Fire = z.enum(['local', 'granted']);
export type Fire = z.infer<typeof Fire>;

export const FailureClass = z.enum([
  'invalid_request',
  'invalid_output',
  'permission_denied',
  'policy_denied',
  'business_rejected',
  'human_rejected',
  'transient',
  'overloaded',
  'partial_effect',
  'unknown_outcome',
  'concurrency_conflict',
  'cancelled',
  'expired',
  'incompatible_state',
]);
export type FailureClass = z.infer<typeof FailureClass>;

/** A reference to a value kept in the artifact store under the SHA-256 of its bytes. */
export const ArtifactRef = z.object({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.number().int().nonnegative(),
  mediaType: z.string().max(200),
  scope: z.string().max(300),
});
export type ArtifactRef = z.infer<typeof ArtifactRef>;

/** A value as it is recorded: in the event, by reference, or named as unreadable (never a reason to fire again). */
export const Stored = z.union([
  z.object({ value: JsonValue }),
  z.object({ artifact: ArtifactRef }),
  z.object({ unreadable: z.string().max(2000) }),
]);
export type Stored = z.infer<typeof Stored>;

/** What shows an outcome. */
export const Evidence = z.object({
  kind: z.enum(['receipt', 'probe', 'person', 'host', 'ledger']),
  note: z.string().max(2000).optional(),
  at: Instant.optional(),
});
export type Evidence = z.infer<typeof Evidence>;

export const Failure = z.object({
  class: FailureClass,
  message: z.string().max(4000),
  /** What a target says is no reason to lose what it did: a longer time counts as the longest. Milliseconds. */
  retryAfterMs: z
    .number()
    .overwrite((ms) => Math.min(ms, DURATION_MAX_MS))
    .int()
    .nonnegative()
    .optional(),
  /** True when whoever reports it knows that nothing was applied at the target. */
  notApplied: z.boolean().optional(),
  /** Set by the ledger where the contract lets another tool take over: call it as a new step. */
  fallback: Named.optional(),
  /** Set by the ledger where the agent may mend its arguments once: call the tool as a new step that names this one. */
  repairable: z.boolean().optional(),
});
export type Failure = z.infer<typeof Failure>;

/**
 * Why nobody knows. `accepted`: the target works on it and has no end yet. `partial_effect`: a part is
 * proved, the rest is not. `heartbeat_lost`: a long attempt showed no life for longer than its contract allows.
 */
export const UnknownCause = z.enum(['deadline', 'host_lost', 'heartbeat_lost', 'may_have_applied', 'accepted', 'partial_effect', 'refused_after_firing', 'contradiction']);
export type UnknownCause = z.infer<typeof UnknownCause>;

/** The target's own name for a piece of work that it has accepted. */
export const OperationId = z.string().min(1).max(500);

export const Outcome = z.discriminatedUnion('status', [
  z.object({ status: z.literal('succeeded'), result: Stored, evidence: Evidence }),
  z.object({ status: z.literal('rejected'), reason: z.string().max(4000), evidence: Evidence }),
  z.object({ status: z.literal('failed'), failure: Failure, evidence: Evidence }),
  z.object({
    status: z.literal('unknown'),
    cause: UnknownCause,
    message: z.string().max(4000),
    /** With `accepted`. */
    operationId: OperationId.optional(),
    /** With `partial_effect`: what is certain so far. */
    proved: JsonValue.optional(),
  }),
]);
export type Outcome = z.infer<typeof Outcome>;

/** How one attempt at one step ended, as its host saw it. */
export const Report = z.object({ step: Step, attempt: Attempt, outcome: Outcome });
export type Report = z.infer<typeof Report>;
