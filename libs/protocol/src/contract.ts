import { z } from 'zod';
import { DurationMs, Name, Named, Pool, Version } from './ids.js';
import { EffectClass, FailureClass, JsonValue } from './outcome.js';
import { message } from './message.js';

/** Who may try again, how often and how soon. The ledger alone acts on it. Times in milliseconds. */
export const RetryPolicy = z
  .object({
    attemptsMax: z.number().int().min(1).max(100),
    initialMs: DurationMs,
    maxMs: DurationMs,
    factor: z.number().min(1).max(10),
    /** Counted from the first attempt: no further one begins later than this. */
    elapsedMaxMs: DurationMs.optional(),
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

/** How an unknown outcome is looked into. Times in milliseconds. */
export const ProbePolicy = z.object({
  /** True when asking voids earlier attempts at the target, so that "not applied" is final. */
  sealing: z.boolean(),
  /** How long one answer may take. Default 10,000. */
  timeoutMs: DurationMs.min(1).optional(),
  /** Pause after the first answer that settles nothing; grows by `factor` up to `maxMs`, and stays there. Defaults 1,000, 2 and 300,000. */
  initialMs: DurationMs.min(1).optional(),
  factor: z.number().min(1).max(10).optional(),
  maxMs: DurationMs.min(1).optional(),
});
export type ProbePolicy = z.infer<typeof ProbePolicy>;

/** What happens to a case that grows old. It is never closed by that. Milliseconds since it was opened. */
export const AgeingPolicy = z.object({
  /** The owner is reminded then, and after each further such time. */
  remindAfterMs: DurationMs.min(1).optional(),
  escalateAfterMs: DurationMs.min(1).optional(),
  /** Whom an escalated case is brought to. */
  escalateTo: z.string().min(1).max(200).optional(),
  /** Role that a verdict needs. Default `operator`. */
  verdictRole: z.string().min(1).max(100).optional(),
});
export type AgeingPolicy = z.infer<typeof AgeingPolicy>;

/** When the ledger sends a target that fails no more than a trickle. Milliseconds. */
export const BreakerPolicy = z.object({
  /** Failures in a row that open the circuit. Default 5. */
  failures: z.number().int().min(1).max(1000).optional(),
  /** Pause before the first trial; doubles with each that fails, up to `maxMs`. Defaults 1,000 and 60,000. */
  initialMs: DurationMs.min(1).optional(),
  maxMs: DurationMs.min(1).optional(),
});
export type BreakerPolicy = z.infer<typeof BreakerPolicy>;

/**
 * What follows from a failed attempt.
 * `retry`: another attempt under the same key, by the contract's back-off, while its budget lasts.
 * `retry_if_not_applied`: only when whoever reports the failure knows that nothing was applied;
 *   else nobody knows, and the outcome is unknown.
 * `retry_once`: one more attempt, then fail.
 * `repair_once`: no attempt; the agent may mend its arguments once, as a new step.
 * `fail`: the effect did not happen; the agent decides what next.
 * `reject`: the business (or a person) said no.
 * `unknown`: nobody knows whether it happened; never tried again without evidence.
 */
export const Recovery = z.enum(['retry', 'retry_if_not_applied', 'retry_once', 'repair_once', 'fail', 'reject', 'unknown']);
export type Recovery = z.infer<typeof Recovery>;

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
  probe: ProbePolicy.nullable(),
  /** Who settles its unknowns when no probe can. */
  owner: z.string().max(200).nullable(),
  ageing: AgeingPolicy.optional(),
  /** A call needs an approval for exactly its arguments, by one of these roles. */
  approval: z.object({ approvers: z.array(z.string().min(1).max(100)).min(1).max(50), fourEyes: z.boolean() }).optional(),
  /** A running attempt that shows no life for longer than this is treated as lost. Absent: only its deadline counts. */
  heartbeatMs: DurationMs.min(1).optional(),
  /** How long the target remembers an operation key: no automatic retry goes beyond it. Absent: for ever. */
  targetRemembersKeysForMs: DurationMs.min(1).optional(),
  /** How many attempts may be under way at once, over all runs. Absent: as many as come. */
  concurrencyMax: z.number().int().min(1).max(100_000).optional(),
  breaker: BreakerPolicy.optional(),
  /** How long an effect may wait for a closed circuit or a free place before it fails, unfired. Default 600,000. */
  holdMs: DurationMs.min(1).optional(),
  /** Another tool that takes over when this one's attempts are spent. Its result is marked degraded. */
  fallback: Named.optional(),
  /** Overrides of the recovery policy, by failure class. None makes an irreversible effect fire again without evidence. */
  recovery: z.partialRecord(FailureClass, Recovery).optional(),
});
export type ToolContract = z.infer<typeof ToolContract>;

/** What an agent's runs rest on besides code, and may change while one waits. */
export const ResumePoint = z.enum(['policy', 'permissions', 'models', 'prompts', 'secrets', 'dataAccess', 'preconditions']);
export type ResumePoint = z.infer<typeof ResumePoint>;

export const AgentContract = z.object({
  name: Name,
  version: Version,
  pool: Pool,
  input: JsonValue,
  output: JsonValue,
  /** Versions whose runs this version can carry on. */
  compatibleWith: z.array(Version),
  /** What stands for each point now: a version, a reference, a hash; never the thing itself. `ask`: a run that waited over its change goes on only by a person's word. */
  resume: z.partialRecord(ResumePoint, z.object({ value: z.string().min(1).max(500), onChange: z.enum(['go_on', 'ask']) })).optional(),
});
export type AgentContract = z.infer<typeof AgentContract>;

export const ToolDeclared = message('ToolDeclared', ToolContract);
export const AgentDeclared = message('AgentDeclared', AgentContract);

/** Types on the topic `contracts`. */
export const contractMessages = [ToolDeclared, AgentDeclared] as const;

/** Key of a contract's record on the compacted topic. */
export const contractKey = (kind: 'tool' | 'agent', named: Named): string => `${kind}:${named.name}@${named.version}`;

/** Whether the worker that intends an effect may fire it by itself, without the ledger's grant: only where no limit has to be kept over all workers, and no approval is looked at when it is sent. */
export const mayFireLocally = (contract: Pick<ToolContract, 'effect' | 'keyScope' | 'concurrencyMax' | 'targetRemembersKeysForMs'> & { readonly approval?: object | undefined }): boolean =>
  contract.effect !== 'irreversible' &&
  contract.keyScope === 'run' &&
  contract.concurrencyMax === undefined &&
  contract.targetRemembersKeysForMs === undefined &&
  contract.approval === undefined;

/** Warnings that a worker logs at start and `contracts check` fails on. */
export function contractWarnings(contract: ToolContract): string[] {
  const { effect, probe, owner, settleDelayMs, heartbeatMs, timeoutMs, queueMs, targetRemembersKeysForMs } = contract;
  const tool = `tool ${contract.name}@${contract.version}`;
  const warnings: string[] = [];
  if (effect === 'irreversible' && probe === null && owner === null) {
    warnings.push(`${tool} is irreversible and has neither a probe nor an owner: nobody can settle an unknown outcome of it; declare probe or owner`);
  }
  if (effect === 'irreversible' && probe !== null && !probe.sealing && settleDelayMs === null) {
    warnings.push(`${tool} is irreversible and its probe neither seals nor comes with a settle delay: it can never prove that an attempt was not applied; declare settleDelay, or a probe that seals`);
  }
  if (heartbeatMs !== undefined && heartbeatMs >= timeoutMs) {
    warnings.push(`${tool} is to show life every ${heartbeatMs} ms, and an attempt ends after ${timeoutMs} ms: its heartbeats change nothing; declare a longer timeout or a shorter heartbeat`);
  }
  if (targetRemembersKeysForMs !== undefined && targetRemembersKeysForMs <= queueMs + timeoutMs) {
    warnings.push(`${tool}: its target forgets an operation key after ${targetRemembersKeysForMs} ms, while one attempt may wait and take ${queueMs + timeoutMs} ms: no second attempt will be made; declare a shorter queueTimeout or timeout`);
  }
  return warnings;
}

/** How far the clocks of hosts and services may differ. Milliseconds; NTP keeps them far closer. */
export const CLOCK_SKEW_MS = 5000;

/**
 * From when on a reading that finds nothing proves that an attempt was not applied: by then nothing
 * of it can fire any more, and nothing that fired can still take effect. Null where the contract
 * knows no such bound: then only a sealing probe proves it. `lastCheck`: the latest moment at which
 * the attempt's host can have decided to fire.
 */
export const readingFrom = (contract: Pick<ToolContract, 'settleDelayMs'> | null, lastCheck: number): number | null =>
  contract === null || contract.settleDelayMs === null ? null : lastCheck + CLOCK_SKEW_MS + contract.settleDelayMs;
