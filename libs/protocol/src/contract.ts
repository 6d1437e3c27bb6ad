import { z } from 'zod';
import { DurationMs, Name, type Named, Pool, Version } from './ids.js';
import { JsonValue, EffectClass } from './outcome.js';
import { message } from './message.js';

/** Who may try again, how often and how soon. The ledger alone acts on it. Times in milliseconds. */
export const RetryPolicy = z
  .object({
    attemptsMax: z.number().int().min(1).max(100),
    initialMs: DurationMs,
    maxMs: DurationMs,
    factor: z.number().min(1).max(10),
  })
  .refine((retry) => retry.initialMs <= retry.maxMs, 'initialMs is above maxMs');
export type RetryPolicy = z.infer<typeof RetryPolicy>;

export const DEFAULT_RETRY: RetryPolicy = { attemptsMax: 5, initialMs: 200, maxMs: 30_000, factor: 2 };

/**
 * When to try again, in milliseconds from now: exponential back-off with full jitter (a share in
 * [0, 1) of `initialMs * factor^(attempt - 1)`, at most `maxMs`); a time that the target named is
 * the least.
 */
export function backoffMs(retry: RetryPolicy, attempt: number, jitter: number, retryAfterMs = 0): number {
  return Math.round(Math.max(retryAfterMs, Math.min(retry.maxMs, retry.initialMs * retry.factor ** (attempt - 1)) * jitter));
}

/** What a tool declares. Immutable for its name and version: a change is a new version. */
export const ToolContract = z.object({
  name: Name,
  version: Version,
  pool: Pool,
  effect: EffectClass,
  /** `run`: one key for one step. `target`: one key for one business thing, whoever asks. */
  keyScope: z.enum(['run', 'target']),
  /** JSON Schema (2020-12) of the arguments and of the result. */
  input: JsonValue,
  output: JsonValue,
  /** Members of the arguments that the digest covers; all when absent. */
  material: z.array(z.string().min(1).max(200)).optional(),
  retry: RetryPolicy,
  /** How long one attempt may take from its call on. */
  timeoutMs: DurationMs.min(1),
  /** How long a dispatched task may wait for a host before it must not fire any more. */
  queueMs: DurationMs.min(1),
  /** Bound on the pause from last check to bytes sent and on how long a sent request can still take effect; null: none known. */
  settleDelayMs: DurationMs.nullable(),
  probe: z.object({ sealing: z.boolean() }).nullable(),
  /** Who settles its unknowns when no probe can. */
  owner: z.string().max(200).nullable(),
});
export type ToolContract = z.infer<typeof ToolContract>;

export const AgentContract = z.object({
  name: Name,
  version: Version,
  pool: Pool,
  input: JsonValue,
  output: JsonValue,
  /** Versions whose runs this version can carry on. */
  compatibleWith: z.array(Version),
});
export type AgentContract = z.infer<typeof AgentContract>;

export const ToolDeclared = message('ToolDeclared', ToolContract);
export const AgentDeclared = message('AgentDeclared', AgentContract);

/** Types on the topic `contracts`. */
export const contractMessages = [ToolDeclared, AgentDeclared] as const;

/** Key of a contract's record on the compacted topic. */
export const contractKey = (kind: 'tool' | 'agent', named: Named): string => `${kind}:${named.name}@${named.version}`;

/** Warnings that a worker logs at start and `contracts check` fails on. */
export function contractWarnings(contract: ToolContract): string[] {
  if (contract.effect !== 'irreversible' || contract.probe !== null || contract.owner !== null) return [];
  return [`tool ${contract.name}@${contract.version} is irreversible and has neither a probe nor an owner: nobody can settle an unknown outcome of it; declare probe or owner`];
}
