import { z } from 'zod';
import { Digest, DurationMs, Instant, Named, Pool, RunId } from './ids.js';
import { Failure, JsonValue, Stored } from './outcome.js';

/** What happens when a wait's deadline passes. It is decided where the wait's end is: in the run's stream. */
export const OnDeadline = z.discriminatedUnion('action', [
  /** The wait ends as expired; the agent decides. */
  z.object({ action: z.literal('expire') }),
  /** Whoever is asked is reminded, at most `times` times, `everyMs` apart; then it expires. */
  z.object({ action: z.literal('remind'), everyMs: DurationMs.min(1), times: z.number().int().min(1).max(1000) }),
  /** Brought to others, who get `graceMs`; then it expires. */
  z.object({ action: z.literal('escalate'), to: z.string().min(1).max(200), graceMs: DurationMs.min(1) }),
  /** The run ends as failed, and what it did is to be compensated. */
  z.object({ action: z.literal('compensate') }),
  /** The run ends as completed in part, without an output. */
  z.object({ action: z.literal('complete_partially'), because: z.string().min(1).max(2000) }),
]);
export type OnDeadline = z.infer<typeof OnDeadline>;

/** Exactly what an approval allows: another tool, target, argument or contract version needs another one. */
export const ApprovalScope = z.object({
  tool: Named,
  target: z.string().min(1).max(500).optional(),
  /** Of the material arguments. */
  digest: Digest,
  /** Shown to whoever decides, as it will be called. */
  args: JsonValue,
  amount: z.object({ value: z.string().max(100), currency: z.string().max(20).optional() }).optional(),
});
export type ApprovalScope = z.infer<typeof ApprovalScope>;

/** What a run waits for. None of it holds a process. */
export const Wait = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('sleep'), until: Instant }),
  z.object({ kind: z.literal('signal'), name: z.string().min(1).max(200), schema: JsonValue.optional() }),
  z.object({
    kind: z.literal('approval'),
    what: z.string().min(1).max(4000),
    scope: ApprovalScope,
    /** Roles of which whoever decides must have one. */
    approvers: z.array(z.string().min(1).max(100)).min(1).max(50),
    /** True: not whoever the run acts for. */
    fourEyes: z.boolean(),
    remindEveryMs: DurationMs.min(1).optional(),
  }),
  /** `tokenHash`: SHA-256 of the token that the third party sends with its answer. */
  z.object({ kind: z.literal('callback'), tokenHash: Digest, schema: JsonValue.optional() }),
  z.object({ kind: z.literal('child'), run: RunId, agent: Named, pool: Pool.optional(), input: JsonValue }),
]);
export type Wait = z.infer<typeof Wait>;

/** How a wait ended. */
export const WaitEnd = z.discriminatedUnion('status', [
  /** Slept long enough, signalled, called back, approved, or the child completed. */
  z.object({ status: z.literal('satisfied'), value: Stored, by: z.string().max(300) }),
  /** A person said no. */
  z.object({ status: z.literal('rejected'), feedback: z.string().max(4000), by: z.string().max(300) }),
  z.object({ status: z.literal('expired'), deadline: Instant }),
  /** The child ended otherwise than completed. */
  z.object({ status: z.literal('failed'), failure: Failure }),
]);
export type WaitEnd = z.infer<typeof WaitEnd>;
