import type { EffectClass, effectMessages, Failure, Instant, Json, MessageOf, Named, OperationKey, Outcome, Step } from '@holdfast/protocol';

export type EffectEvent = MessageOf<(typeof effectMessages)[number]>;

export const EFFECT_STATUSES = ['held', 'dispatched', 'joined', 'conflicted', 'succeeded', 'rejected', 'failed', 'retry_scheduled', 'unknown'] as const;
export type EffectStatus = (typeof EFFECT_STATUSES)[number];

export interface AttemptView {
  readonly attempt: number;
  readonly because: string | null;
  readonly sentAt: Instant | null;
  readonly notAfter: Instant | null;
  readonly endedAt: Instant | null;
  readonly end: string | null;
  readonly message: string | null;
}

/** An effect with its attempts, as the ledger has told. */
export interface EffectView {
  readonly step: Step;
  readonly key: OperationKey;
  readonly tool: Named | null;
  readonly effect: EffectClass | null;
  readonly status: EffectStatus;
  readonly args: Json;
  readonly attempts: readonly AttemptView[];
  readonly outcome: Outcome | null;
  /** Another run's step that owns the operation. */
  readonly owner: { readonly run: string; readonly step: string } | null;
  readonly reconciled: { readonly by: string; readonly forced: boolean } | null;
  readonly alarm: string | null;
  readonly retryAt: Instant | null;
  /** What holds it: its run, or brakes of its tool, agent or tenant. */
  readonly pausedBy: readonly string[];
  readonly since: Instant;
  readonly updatedAt: Instant;
}

const blank = ({ step, key }: { step: Step; key: OperationKey }, at: Instant): EffectView => ({
  ...{ step, key, tool: null, effect: null, status: 'dispatched', args: null, attempts: [], outcome: null },
  ...{ owner: null, reconciled: null, alarm: null, retryAt: null, pausedBy: [], since: at, updatedAt: at },
});

export function evolveEffect(before: EffectView | null, event: EffectEvent, at: Instant): EffectView {
  const known: EffectView = { ...(before ?? blank(event.data, at)), updatedAt: at };
  const local = 'local' in event.data ? event.data.local : undefined;
  const effect = local === undefined ? known : { ...known, tool: local.tool, effect: local.effect, args: local.args ?? known.args };
  switch (event.type) {
    case 'EffectDispatched': {
      const { tool, effect: klass, args, attempt, because, notAfter } = event.data;
      return { ...effect, tool, effect: klass, args: args ?? effect.args, status: 'dispatched', outcome: null, retryAt: null, attempts: withAttempt(effect.attempts, attempt, { because, sentAt: at, notAfter }) };
    }
    case 'EffectHeld':
      return { ...effect, tool: event.data.tool, effect: event.data.effect, args: event.data.args ?? effect.args, status: 'held', retryAt: event.data.until };
    case 'EffectPaused':
      return { ...effect, pausedBy: [...effect.pausedBy.filter((by) => by !== event.data.by), event.data.by] };
    case 'EffectUnpaused':
      return { ...effect, pausedBy: effect.pausedBy.filter((by) => by !== event.data.by) };
    case 'EffectProgressed':
    case 'EffectStopped':
    case 'LateResultRecorded':
      return effect;
    case 'EffectJoined':
      return { ...effect, tool: event.data.tool, status: 'joined', owner: event.data.owner };
    case 'EffectConflicted':
      return { ...effect, tool: event.data.tool, status: 'conflicted', owner: event.data.owner };
    case 'EffectSucceeded': {
      const { attempt, result, evidence, replayed } = event.data;
      return ended({ ...effect, owner: replayed ?? effect.owner }, attempt, 'succeeded', { status: 'succeeded', result, evidence }, null, at, event.data.reconciled);
    }
    case 'EffectRejected':
      return ended(effect, event.data.attempt, 'rejected', { status: 'rejected', reason: event.data.reason, evidence: event.data.evidence }, event.data.reason, at);
    case 'EffectFailed':
      return ended(effect, event.data.attempt, 'failed', failed(event.data.failure, event.data.evidence), event.data.failure.message, at, event.data.reconciled);
    case 'EffectRetryScheduled': {
      const { attempt, failure, retryAt, reconciled } = event.data;
      return { ...ended(effect, attempt, 'retry_scheduled', null, failure.message, at, reconciled), retryAt };
    }
    case 'EffectOutcomeUnknown': {
      const { attempt, cause, message, about } = event.data;
      const named = about === undefined ? effect : { ...effect, tool: about.tool, effect: about.effect, args: about.args };
      return ended(named, attempt, 'unknown', { status: 'unknown', cause, message }, message, at);
    }
    case 'VerdictContradicted':
    case 'DuplicateEffectDetected':
      return { ...effect, alarm: event.type };
  }
}

const failed = (failure: Failure, evidence: Extract<Outcome, { status: 'failed' }>['evidence']): Outcome => ({ status: 'failed', failure, evidence });

function ended(effect: EffectView, attempt: number, status: EffectStatus, outcome: Outcome | null, message: string | null, at: Instant, reconciled?: { by: string; forced?: boolean | undefined }): EffectView {
  return {
    ...effect,
    status,
    outcome,
    retryAt: null,
    attempts: withAttempt(effect.attempts, attempt, { endedAt: at, end: status === 'retry_scheduled' ? 'failed' : status, message }),
    reconciled: reconciled === undefined ? effect.reconciled : { by: reconciled.by, forced: reconciled.forced === true },
  };
}

function withAttempt(attempts: readonly AttemptView[], attempt: number, news: Partial<AttemptView>): AttemptView[] {
  const before = attempts.find((each) => each.attempt === attempt) ?? { attempt, because: null, sentAt: null, notAfter: null, endedAt: null, end: null, message: null };
  return [...attempts.filter((each) => each.attempt !== attempt), { ...before, ...news }].sort((a, b) => a.attempt - b.attempt);
}
