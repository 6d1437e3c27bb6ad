import type { EffectClass, Failure, HistoryStep, Instant, Json, Named, OnDeadline, Outcome, RecordKind, RequestedCall, Settled, Step, Stored, Wait, WaitEnd } from '@holdfast/protocol';
import type { RunEvent } from './run-view.js';

interface AnyStep {
  readonly step: Step;
  readonly askedAt: Instant;
  readonly endedAt: Instant | null;
  /** Fence under which it was asked for; below the run's own, it is replayed after a resume, not done again. */
  readonly fence: number | null;
}

export type StepView =
  | (AnyStep & {
      readonly kind: 'call';
      readonly tool: Named;
      readonly effect: EffectClass;
      readonly fire: 'local' | 'granted';
      readonly key: string;
      readonly digest: string;
      readonly args: Json;
      readonly target: string | null;
      readonly group: Step | null;
      readonly repairs: Step | null;
      readonly fallbackFor: Step | null;
      readonly attempt: number;
      readonly outcome: Outcome | null;
    })
  | (AnyStep & { readonly kind: 'record'; readonly as: RecordKind; readonly name: string; readonly result: Stored; readonly usage: { tokensIn?: number | undefined; tokensOut?: number | undefined; cost?: number | undefined } | null })
  | (AnyStep & { readonly kind: 'try'; readonly as: RecordKind; readonly name: string; readonly attempt: number; readonly failure: Failure; readonly retryAt: Instant | null })
  | WaitView;

export type WaitView = AnyStep & {
  readonly kind: 'wait';
  readonly wait: Wait;
  readonly deadline: Instant | null;
  readonly onDeadline: OnDeadline;
  readonly reminded: number;
  readonly escalatedTo: string | null;
  readonly end: WaitEnd | null;
  readonly abandoned: boolean;
  /** Of an approval. */
  readonly decided: { readonly by: string; readonly feedback: string | null; readonly expiresAt: Instant | null } | null;
};

/** Steps that an event says something of. */
export function stepsOf(event: RunEvent): Step[] {
  const { data } = event;
  const steps: Step[] = event.type === 'StepsCopied' ? event.data.steps.map((copy) => (copy.kind === 'call' ? copy.call.step : copy.step)) : [];
  if ('settles' in data) for (const { step } of data.settles ?? []) steps.push(step);
  if ('call' in data) steps.push(data.call.step);
  if ('calls' in data) for (const { step } of data.calls) steps.push(step);
  if ('refired' in data) for (const { step } of data.refired) steps.push(step);
  if ('bound' in data && data.bound !== undefined) steps.push(data.bound.step);
  if ('boundGroup' in data) for (const { step } of data.boundGroup ?? []) steps.push(step);
  if ('step' in data && data.step !== undefined) steps.push(data.step);
  return [...new Set(steps)];
}

/** Changes to the steps of a run, given those that the event names. */
export function evolveSteps(before: ReadonlyMap<Step, StepView>, event: RunEvent, at: Instant): StepView[] {
  const after = new Map<Step, StepView>();
  const known = (step: Step): StepView | undefined => after.get(step) ?? before.get(step);
  const put = (step: StepView | null): void => void (step !== null && after.set(step.step, step));
  if ('settles' in event.data) for (const report of event.data.settles ?? []) put(settled(known(report.step), report, at));
  switch (event.type) {
    case 'EffectRequested':
      put(requested(known(event.data.call.step), event.data.call, event.data.fire, null, event.data.fence, at));
      break;
    case 'GroupRequested':
      for (const call of event.data.calls) put(requested(known(call.step), call, 'local', event.data.step, event.data.fence, at));
      break;
    case 'StepRecorded': {
      const { step, kind, name, result, usage, fence } = event.data;
      put({ kind: 'record', step, as: kind, name, result, usage: usage ?? null, fence: fence ?? null, askedAt: known(step)?.askedAt ?? at, endedAt: at });
      break;
    }
    case 'StepRetryScheduled':
    case 'StepFailed': {
      const { step, kind, name, attempt, failure, fence } = event.data;
      const retryAt = event.type === 'StepFailed' ? null : event.data.retryAt;
      put({ kind: 'try', step, as: kind, name, attempt, failure, retryAt, fence: fence ?? null, askedAt: known(step)?.askedAt ?? at, endedAt: retryAt === null ? at : null });
      break;
    }
    case 'StepsCopied':
      for (const copy of event.data.steps) put(copied(copy, at));
      break;
    case 'EffectSettled':
      put(settled(known(event.data.step), event.data, at));
      break;
    case 'RunBlocked': {
      const { step, attempt, cause, message } = event.data;
      put(settled(known(step), { step, attempt, outcome: { status: 'unknown', cause, message } }, at));
      break;
    }
    case 'StepReleased': {
      const step = known(event.data.step);
      if (step?.kind === 'call' && step.outcome?.status === 'unknown') put({ ...step, attempt: event.data.attempt + 1, outcome: null, endedAt: null });
      break;
    }
    case 'RunResumed':
      for (const { step, attempt } of event.data.refired) {
        const state = known(step);
        if (state?.kind === 'call') put({ ...state, attempt });
      }
      break;
    case 'WaitStarted': {
      const { step, wait, since, deadline, onDeadline, fence } = event.data;
      put({ kind: 'wait', step, wait, askedAt: since, endedAt: null, fence: fence ?? null, deadline: deadline ?? null, onDeadline, reminded: 0, escalatedTo: null, end: null, abandoned: false, decided: null });
      break;
    }
    case 'WaitEnded':
    case 'WaitReminded':
    case 'WaitEscalated':
    case 'WaitAbandoned':
    case 'ApprovalDecided': {
      const step = known(event.data.step);
      if (step?.kind === 'wait') put(waited(step, event, at));
      break;
    }
    default:
      break;
  }
  return [...after.values()];
}

function requested(before: StepView | undefined, call: RequestedCall, fire: 'local' | 'granted', group: Step | null, fence: number | undefined, at: Instant): StepView {
  const { step, tool, effect, key, digest, args, target, repairs, fallbackFor } = call;
  const attempt = before?.kind === 'call' ? before.attempt + 1 : 1;
  return { kind: 'call', step, tool, effect, fire, key, digest, args, target: target ?? null, group, repairs: repairs ?? null, fallbackFor: fallbackFor ?? null, attempt, outcome: null, fence: fence ?? null, askedAt: before?.askedAt ?? at, endedAt: null };
}

/** What a forked run has from its origin: done under no fence of its own, so it is replayed whoever has the run. */
function copied(copy: HistoryStep, at: Instant): StepView {
  const common = { fence: 0, askedAt: at, endedAt: at };
  switch (copy.kind) {
    case 'call': {
      const { call, fire, attempt, group = null, outcome = null } = copy;
      const { step, tool, effect, key, digest, args, target = null, repairs = null, fallbackFor = null } = call;
      return { ...common, kind: 'call', step, tool, effect, fire, key, digest, args, target, group, repairs, fallbackFor, attempt, outcome, endedAt: outcome === null || outcome.status === 'unknown' ? null : at };
    }
    case 'record':
      return { ...common, kind: 'record', step: copy.step, as: copy.as, name: copy.name, result: copy.result, usage: null };
    case 'try':
      return { ...common, kind: 'try', step: copy.step, as: copy.as, name: copy.name, attempt: copy.attempt, failure: copy.failure, retryAt: copy.retryAt };
    case 'wait': {
      const { step, wait, end = null, abandoned = false } = copy;
      return { ...common, kind: 'wait', step, wait, end, abandoned, deadline: null, onDeadline: { action: 'expire' }, reminded: 0, escalatedTo: null, decided: null, endedAt: end === null && !abandoned ? null : at };
    }
  }
}

/** An end that is known stays; unknown gives way to anything proved. A local failure is the ledger's to judge, not an end. */
function settled(before: StepView | undefined, { attempt, outcome, local }: Settled, at: Instant): StepView | null {
  if (before?.kind !== 'call') return null;
  if (local !== undefined && outcome.status !== 'succeeded') return { ...before, attempt, fire: 'granted' };
  if (before.outcome !== null && (before.outcome.status !== 'unknown' || outcome.status === 'unknown')) return null;
  return { ...before, attempt, outcome, endedAt: outcome.status === 'unknown' ? null : at };
}

type WaitEvent = Extract<RunEvent, { type: 'WaitEnded' | 'WaitReminded' | 'WaitEscalated' | 'WaitAbandoned' | 'ApprovalDecided' }>;

function waited(before: WaitView, event: WaitEvent, at: Instant): WaitView {
  switch (event.type) {
    case 'WaitEnded':
      return { ...before, end: event.data.end, endedAt: event.data.at };
    case 'WaitReminded':
      return { ...before, reminded: event.data.times };
    case 'WaitEscalated':
      return { ...before, escalatedTo: event.data.to, deadline: event.data.expiresAt };
    case 'WaitAbandoned':
      return { ...before, abandoned: true, endedAt: at };
    case 'ApprovalDecided':
      return { ...before, decided: { by: event.data.by.name, feedback: event.data.feedback ?? null, expiresAt: event.data.expiresAt ?? null } };
  }
}

export const APPROVAL_STATUSES = ['open', 'approved', 'rejected', 'expired', 'over'] as const;
export type ApprovalStatus = (typeof APPROVAL_STATUSES)[number];

/** How an approval stands; `over`: nobody waits for it any more. */
export function approvalStatus({ end, abandoned }: Pick<WaitView, 'end' | 'abandoned'>, runOver: boolean): ApprovalStatus {
  switch (end?.status) {
    case 'satisfied':
      return 'approved';
    case 'rejected':
      return 'rejected';
    case 'expired':
      return 'expired';
    default:
      return abandoned || runOver || end !== null ? 'over' : 'open';
  }
}

/** An `int[]` by which steps sort: `3`, then `3~1`, which answers it, then `3.1`. As text, since arrays of arrays can't be passed as one parameter. */
export const placeOfStep = (step: string): string => `{${step.replace('~', ',0,').replaceAll('.', ',')}}`;
