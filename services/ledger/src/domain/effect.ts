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
  /** When the first attempt was sent, as far as is known: what a limit on elapsed time counts from. */
  readonly since: Instant | null;
  /** Attempts at effects that the run may make in all. */
  readonly attemptsMax: number | null;
  /** The step whose arguments this one mends. */
  readonly repairs: Step | null;
  /** Until when what allows it may be used; null where it needs no approval, or one without an end. */
  readonly approvedUntil: Instant | null;
  /** What holds it still, by name: nothing more of it is sent until all have let go. */
  readonly paused: ReadonlySet<string>;
  /** Why no further attempt follows, in words; null while one may. */
  readonly stopped: string | null;
  /** What was acted upon, by attempt: a later end may say the opposite. */
  readonly words: ReadonlyMap<Attempt, Word>;
}

/** A word on what became of one attempt, and whose it is. */
export interface Word {
  readonly applied: boolean;
  readonly status: 'succeeded' | 'rejected' | 'failed' | 'not_applied';
  readonly by: string;
}

/** The attempt before, where another one waits for its turn: nothing it may have done is forgotten. */
export interface Before {
  readonly failure: Failure;
  /** The latest moment at which its host can have decided to fire; null where nobody knows. */
  readonly notAfter: Instant | null;
}

export interface Dispatched {
  readonly attempt: Attempt;
  readonly pool: Pool;
  readonly notAfter: Instant;
  readonly deadline: Instant;
  /** Without a sign of life by then it is lost; null: only its deadline counts. */
  readonly aliveUntil: Instant | null;
  readonly taskSeq: number;
}

/** `late`: ends that are in the stream already, by their token, so that each is recorded once. */
export type Effect = EffectFacts & { readonly late: ReadonlySet<string> } & (
    | ({ readonly status: 'dispatched' } & Dispatched)
    /** May not be sent yet; has not fired. */
    | { readonly status: 'held'; readonly attempt: Attempt; readonly until: Instant; readonly because: string; readonly before: Before | null }
    | ({ readonly status: 'retry_scheduled'; readonly attempt: Attempt; readonly retryAt: Instant } & Before)
    | { readonly status: 'unknown'; readonly attempt: Attempt; readonly cause: UnknownCause; readonly notAfter: Instant | null; readonly operationId: string | undefined }
    /** Waits for the outcome of another run's effect under the same key. `joinedAt`: null where its stream was folded without its times. */
    | { readonly status: 'joined'; readonly owner: { readonly run: RunId; readonly step: Step }; readonly attempt: Attempt; readonly joinedAt: Instant | null }
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
    case 'held':
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

const LOOK_LEAST_MS = 100;
const LOOK_MOST_MS = 30_000;

/** When an effect next needs the ledger's attention by itself; null when only news can move it. */
export function dueAt(effect: Effect): Instant | null {
  switch (effect.status) {
    case 'dispatched':
      return lostAt(effect);
    case 'held':
      return effect.paused.size > 0 ? null : effect.until;
    case 'retry_scheduled':
      return effect.paused.size > 0 ? null : effect.retryAt;
    default:
      return null;
  }
}

/**
 * When an effect that has joined another's is looked at next: nothing tells it that this one has an end. After a tenth
 * of the time that it has waited, since an owner whose outcome nobody knows may be open for days.
 */
export function lookAgainAt({ joinedAt }: Extract<Effect, { status: 'joined' }>, now: Instant): Instant {
  const waited = now - (joinedAt ?? now);
  return now + Math.round(Math.min(LOOK_MOST_MS, Math.max(LOOK_LEAST_MS, waited / 10)));
}

/** The latest attempt that a host was given. */
export const lastSent = ({ status, attempt }: Effect): number => (status === 'held' ? attempt - 1 : attempt);

/** When the ledger gives an attempt up if it hears nothing. */
export const lostAt = ({ deadline, aliveUntil }: Dispatched): Instant => Math.min(deadline, aliveUntil ?? deadline);

/** Attempts made in the whole run. */
export function attemptsOf(effects: RunEffects): number {
  let sum = 0;
  for (const effect of effects.values()) sum += effect.status === 'joined' || effect.status === 'conflicted' ? 0 : effect.status === 'held' ? effect.attempt - 1 : effect.attempt;
  return sum;
}

export function evolve(effects: RunEffects, event: EffectEvent): RunEffects {
  const next = evolveOne(effects.get(event.data.step), event);
  return next === undefined ? effects : new Map(effects).set(event.data.step, next);
}

/** With when the event was recorded. */
export function evolveAt(effects: RunEffects, event: EffectEvent, at: Instant): RunEffects {
  const after = evolve(effects, event);
  const effect = after.get(event.data.step);
  return event.type === 'EffectJoined' && effect?.status === 'joined' ? new Map(after).set(effect.step, { ...effect, joinedAt: at }) : after;
}

function evolveOne(before: Effect | undefined, event: EffectEvent): Effect | undefined {
  switch (event.type) {
    case 'EffectDispatched': {
      const { attempt, pool, notAfter, deadline, taskSeq, aliveUntil } = event.data;
      return { ...sent(before, event.data), status: 'dispatched', attempt, pool, notAfter, deadline, taskSeq, aliveUntil: aliveUntil ?? null };
    }
    case 'EffectHeld': {
      // Its time counts from when it is sent, not from when it begins to wait.
      const { since: _, ...facts } = event.data;
      return { ...sent(before, facts), status: 'held', attempt: facts.attempt, until: facts.until, because: facts.message, before: beforeOf(before) };
    }
    case 'EffectProgressed':
      return before?.status === 'dispatched' && before.attempt === event.data.attempt ? { ...before, aliveUntil: event.data.aliveUntil } : before;
    case 'EffectJoined':
      return { ...shared(event.data), status: 'joined', owner: event.data.owner, attempt: 1, joinedAt: null };
    case 'EffectConflicted':
      return { ...shared(event.data), status: 'conflicted', owner: event.data.owner, attempt: 1 };
    case 'EffectSucceeded': {
      const facts = factsOf(before, event.data);
      return facts && { ...withWord(facts, event.data, { applied: true, status: 'succeeded', by: event.data.evidence.kind }), status: 'succeeded', attempt: event.data.attempt, result: event.data.result, evidence: event.data.evidence, replayed: event.data.replayed !== undefined };
    }
    case 'EffectRejected': {
      const facts = withEnd(factsOf(before, event.data), event);
      return facts && { ...withWord(facts, event.data, { applied: false, status: 'rejected', by: event.data.evidence.kind }), status: 'rejected', attempt: event.data.attempt, reason: event.data.reason, evidence: event.data.evidence };
    }
    case 'EffectFailed': {
      const facts = withEnd(factsOf(before, event.data), event);
      const { attempt, failure, evidence } = event.data;
      // A failed attempt at what may fire again is no word on whether it was applied.
      const said = facts !== undefined && (facts.effect === 'irreversible' || failure.notApplied === true);
      return facts && { ...(said ? withWord(facts, event.data, { applied: false, status: 'failed', by: evidence.kind }) : facts), status: 'failed', attempt, failure, evidence };
    }
    case 'EffectRetryScheduled': {
      const facts = withEnd(factsOf(before, event.data), event);
      const { attempt, failure, retryAt } = event.data;
      const notAfter = before !== undefined && 'notAfter' in before ? before.notAfter : null;
      return facts && { ...(failure.notApplied === true ? withWord(facts, event.data, { applied: false, status: 'failed', by: 'host' }) : facts), status: 'retry_scheduled', attempt, retryAt, failure, notAfter };
    }
    case 'EffectOutcomeUnknown': {
      const facts = withEnd(factsOf(before, event.data), event);
      const stopped = facts?.stopped ?? (event.data.last ? event.data.message : null);
      return facts && { ...facts, stopped, status: 'unknown', attempt: event.data.attempt, cause: event.data.cause, notAfter: event.data.notAfter ?? null, operationId: event.data.operationId };
    }
    case 'EffectPaused':
      return before && { ...before, paused: new Set(before.paused).add(event.data.by) };
    case 'EffectUnpaused': {
      const paused = before && { ...before, paused: new Set([...before.paused].filter((by) => by !== event.data.by)) };
      return paused?.status === 'held' ? { ...paused, until: event.data.until } : paused;
    }
    case 'EffectStopped':
      return before && { ...before, stopped: event.data.because };
    case 'LateResultRecorded':
      return before && { ...before, late: new Set(before.late).add(lateToken(event.data.attempt, event.data.outcome)) };
    case 'VerdictContradicted':
      return before && { ...before, late: new Set(before.late).add(contradictionToken(event.data.attempt, event.data.outcome)) };
    case 'DuplicateEffectDetected':
      return before && { ...before, late: new Set(before.late).add(duplicateToken(event.data.attempts)) };
    default:
      return unreachable(event);
  }
}

/** One end of one attempt: the same, told twice, is one piece of evidence. */
export const lateToken = (attempt: Attempt, outcome: Outcome): string => `${attempt}:${JSON.stringify(outcome)}`;
export const contradictionToken = (attempt: Attempt, outcome: Outcome): string => `contradiction:${lateToken(attempt, outcome)}`;
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

type Sent = { step: Step; key: OperationKey; tool: Named; effect: EffectClass; keyScope: 'run' | 'target'; digest: Digest; fence: number } & {
  args?: Json | undefined;
  since?: Instant | undefined;
  attemptsMax?: number | undefined;
  repairs?: Step | undefined;
  approvedUntil?: Instant | undefined;
};

/** Facts of an effect that is sent, or waits to be: what its first event said holds. */
function sent(before: Effect | undefined, { step, key, tool, effect, keyScope, digest, fence, args, since, attemptsMax, repairs, approvedUntil }: Sent): Facts {
  return {
    step,
    key,
    tool,
    effect,
    keyScope,
    digest,
    fence,
    args: args ?? before?.args ?? null,
    since: before?.since ?? since ?? null,
    attemptsMax: before?.attemptsMax ?? attemptsMax ?? null,
    repairs: before?.repairs ?? repairs ?? null,
    approvedUntil: before?.approvedUntil ?? approvedUntil ?? null,
    paused: before?.paused ?? new Set<string>(),
    stopped: before?.stopped ?? null,
    words: before?.words ?? new Map<Attempt, Word>(),
    late: before?.late ?? new Set<string>(),
  };
}

/** Facts of an effect whose key another run holds. */
const shared = ({ step, key, tool, digest }: Pick<Sent, 'step' | 'key' | 'tool' | 'digest'>): Facts => sent(undefined, { step, key, tool, digest, effect: 'irreversible', keyScope: 'target', fence: 0 });

const factsIn = ({ step, key, tool, effect, keyScope, digest, args, fence, since, attemptsMax, repairs, approvedUntil, paused, stopped, words, late }: Facts): Facts => ({
  step,
  key,
  tool,
  effect,
  keyScope,
  digest,
  args,
  fence,
  since,
  attemptsMax,
  repairs,
  approvedUntil,
  paused,
  stopped,
  words,
  late,
});

/** The facts so far, or those that the first word on a locally fired effect brings. */
function factsOf(before: Effect | undefined, data: { step: Step; key: OperationKey; local?: Omit<Sent, 'step' | 'key' | 'keyScope' | 'fence'> | undefined }): Facts | undefined {
  if (before !== undefined) return factsIn(before);
  const { local, step, key } = data;
  return local === undefined ? undefined : sent(undefined, { ...local, step, key, keyScope: 'run', fence: 0 });
}

/** `said` by the attempt's own end; where a case settled it, that is whose word it is. */
function withWord(facts: Facts, { attempt, reconciled }: { attempt: Attempt; reconciled?: { by: string } | undefined }, said: Word): Facts {
  const word = reconciled === undefined ? said : { ...said, status: said.applied ? said.status : ('not_applied' as const), by: reconciled.by };
  return { ...facts, words: new Map(facts.words).set(attempt, word) };
}

function beforeOf(before: Effect | undefined): Before | null {
  if (before?.status === 'held') return before.before;
  return before?.status === 'retry_scheduled' ? { failure: before.failure, notAfter: before.notAfter } : null;
}
