import { unreachable } from '@holdfast/kernel';
import type {
  Attempt,
  Digest,
  EffectClass,
  effectMessages,
  Evidence,
  Failure,
  Instant,
  Json,
  MessageOf,
  Named,
  OperationKey,
  Outcome,
  Pool,
  RunId,
  Step,
  Stored,
  UnknownCause,
} from '@holdfast/protocol';

export type EffectEvent = MessageOf<(typeof effectMessages)[number]>;

/** What an effect is, whatever became of it. */
export interface EffectFacts {
  readonly step: Step;
  readonly key: OperationKey;
  readonly tool: Named;
  readonly effect: EffectClass;
  readonly keyScope: 'run' | 'target';
  readonly digest: Digest;
  /** Null for an effect that needs no further attempt sent (fired locally, and ended). */
  readonly args: Json;
  readonly fence: number;
}

export interface Dispatched {
  readonly attempt: Attempt;
  readonly pool: Pool;
  readonly notAfter: Instant;
  readonly deadline: Instant;
  readonly taskSeq: number;
}

/** `late`: ends that are in the stream already, by their token, so that each is recorded once. */
export type Effect = EffectFacts & { readonly late: ReadonlySet<string> } & (
    | ({ readonly status: 'dispatched' } & Dispatched)
    | { readonly status: 'retry_scheduled'; readonly attempt: Attempt; readonly retryAt: Instant; readonly failure: Failure }
    | { readonly status: 'unknown'; readonly attempt: Attempt; readonly cause: UnknownCause; readonly notAfter: Instant | null }
    /** Waits for the outcome of another run's effect under the same key. */
    | { readonly status: 'joined'; readonly owner: { readonly run: RunId; readonly step: Step }; readonly attempt: Attempt }
    | { readonly status: 'succeeded'; readonly attempt: Attempt; readonly result: Stored; readonly evidence: Evidence; /** By the outcome of another run's effect under the same key. */ readonly replayed: boolean }
    | { readonly status: 'rejected'; readonly attempt: Attempt; readonly reason: string; readonly evidence: Evidence }
    | { readonly status: 'failed'; readonly attempt: Attempt; readonly failure: Failure; readonly evidence: Evidence }
    | { readonly status: 'conflicted'; readonly attempt: Attempt; readonly owner: { readonly run: RunId; readonly step: Step } }
  );

/** All effects of one run, by step. */
export type RunEffects = ReadonlyMap<Step, Effect>;

export const noEffects: RunEffects = new Map();

export const isOpen = (effect: Effect): boolean => {
  switch (effect.status) {
    case 'dispatched':
    case 'retry_scheduled':
    case 'unknown':
    case 'joined':
      return true;
    case 'succeeded':
    case 'rejected':
    case 'failed':
    case 'conflicted':
      return false;
    default:
      return unreachable(effect);
  }
};

/** When an effect next needs the ledger's attention by itself; null when only news can move it. */
export function dueAt(effect: Effect): Instant | null {
  switch (effect.status) {
    case 'dispatched':
      return effect.deadline;
    case 'retry_scheduled':
      return effect.retryAt;
    case 'joined':
      return 0; // Looked at again and again, until the owner's effect has an end.
    default:
      return null;
  }
}

export function evolve(effects: RunEffects, event: EffectEvent): RunEffects {
  const next = evolveOne(effects.get(event.data.step), event);
  return next === undefined ? effects : new Map(effects).set(event.data.step, next);
}

function evolveOne(before: Effect | undefined, event: EffectEvent): Effect | undefined {
  switch (event.type) {
    case 'EffectDispatched': {
      const { step, key, tool, effect, keyScope, digest, args, fence, attempt, pool, notAfter, deadline, taskSeq } = event.data;
      const facts = { step, key, tool, effect, keyScope, digest, fence, args: args ?? before?.args ?? null, late: before?.late ?? new Set<string>() };
      return { ...facts, status: 'dispatched', attempt, pool, notAfter, deadline, taskSeq };
    }
    case 'EffectJoined': {
      const { step, key, tool, digest, owner } = event.data;
      return { step, key, tool, effect: 'irreversible', keyScope: 'target', digest, args: null, fence: 0, late: new Set(), status: 'joined', owner, attempt: 1 };
    }
    case 'EffectConflicted': {
      const { step, key, tool, digest, owner } = event.data;
      return { step, key, tool, effect: 'irreversible', keyScope: 'target', digest, args: null, fence: 0, late: new Set(), status: 'conflicted', owner, attempt: 1 };
    }
    case 'EffectSucceeded': {
      const facts = factsOf(before, event.data);
      return facts && { ...facts, status: 'succeeded', attempt: event.data.attempt, result: event.data.result, evidence: event.data.evidence, replayed: event.data.replayed !== undefined };
    }
    case 'EffectRejected': {
      const facts = withEnd(factsOf(before, event.data), event);
      return facts && { ...facts, status: 'rejected', attempt: event.data.attempt, reason: event.data.reason, evidence: event.data.evidence };
    }
    case 'EffectFailed': {
      const facts = withEnd(factsOf(before, event.data), event);
      return facts && { ...facts, status: 'failed', attempt: event.data.attempt, failure: event.data.failure, evidence: event.data.evidence };
    }
    case 'EffectRetryScheduled': {
      const facts = withEnd(factsOf(before, event.data), event);
      return facts && { ...facts, status: 'retry_scheduled', attempt: event.data.attempt, retryAt: event.data.retryAt, failure: event.data.failure };
    }
    case 'EffectOutcomeUnknown': {
      const facts = withEnd(factsOf(before, event.data), event);
      return facts && { ...facts, status: 'unknown', attempt: event.data.attempt, cause: event.data.cause, notAfter: event.data.notAfter ?? null };
    }
    case 'LateResultRecorded':
      return before && { ...before, late: new Set(before.late).add(lateToken(event.data.attempt, event.data.outcome)) };
    case 'DuplicateEffectDetected':
      return before && { ...before, late: new Set(before.late).add(duplicateToken(event.data.attempts)) };
    default:
      return unreachable(event);
  }
}

/** One end of one attempt: the same, told twice, is one piece of evidence. */
export const lateToken = (attempt: Attempt, outcome: Outcome): string => `${attempt}:${JSON.stringify(outcome)}`;
export const duplicateToken = (attempts: readonly Attempt[]): string => `duplicate:${[...attempts].sort((a, b) => a - b).join(',')}`;

/** What an attempt's end came to, in the words of its event: whoever reports it again says nothing new. Null for a success, which is told apart by its attempt. */
export function endToken(event: EffectEvent): string | null {
  switch (event.type) {
    case 'EffectRetryScheduled':
    case 'EffectFailed':
      return `end:${event.data.attempt}:${JSON.stringify(event.data.failure)}`;
    case 'EffectRejected':
      return `end:${event.data.attempt}:rejected:${event.data.reason}`;
    case 'EffectOutcomeUnknown':
      return `end:${event.data.attempt}:${event.data.cause}:${event.data.message}`;
    default:
      return null;
  }
}

function withEnd(facts: Facts | undefined, event: EffectEvent): Facts | undefined {
  const token = endToken(event);
  return facts === undefined || token === null ? facts : { ...facts, late: new Set(facts.late).add(token) };
}

type Facts = EffectFacts & { readonly late: ReadonlySet<string> };

/** The facts so far, or those that the first word on a locally fired effect brings. */
function factsOf(
  before: Effect | undefined,
  data: { step: Step; key: OperationKey; local?: { tool: Named; effect: EffectClass; digest: Digest; args?: Json | undefined } | undefined },
): Facts | undefined {
  if (before !== undefined) {
    const { step, key, tool, effect, keyScope, digest, args, fence, late } = before;
    return { step, key, tool, effect, keyScope, digest, args, fence, late };
  }
  const { local } = data;
  if (local === undefined) return undefined;
  return { step: data.step, key: data.key, tool: local.tool, effect: local.effect, keyScope: 'run', digest: local.digest, args: local.args ?? null, fence: 0, late: new Set() };
}
