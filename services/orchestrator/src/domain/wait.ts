import type { Fence, Instant, Json, MessageOf, OnDeadline, Step, Wait, WaitEnd, runMessages } from '@holdfast/protocol';

type RunEvent = MessageOf<(typeof runMessages)[number]>;
type Data<Type extends RunEvent['type']> = Extract<RunEvent, { type: Type }>['data'];

/** A named pause of a run: a step like any other, that holds no process. */
export interface WaitStep {
  readonly kind: 'wait';
  readonly step: Step;
  readonly wait: Wait;
  readonly since: Instant;
  readonly deadline: Instant | null;
  readonly onDeadline: OnDeadline;
  /** When it is looked at by itself: it has slept enough, someone is reminded, its time is up; null: never. */
  readonly nextAt: Instant | null;
  readonly reminded: number;
  readonly escalated: boolean;
  /** Null while it is open. */
  readonly end: WaitEnd | null;
  /** Nobody awaits it any more. */
  readonly abandoned: boolean;
  /** For an approval: until when it may be used, and by which step it was. */
  readonly approval: { readonly by: string; readonly expiresAt: Instant | null; readonly usedBy: Step | null } | null;
  readonly fence: Fence | null;
}

/** A signal that no wait has taken yet. */
export interface KeptSignal {
  readonly signal: string;
  readonly name: string;
  readonly payload: Json;
}

export const isOpenWait = (wait: WaitStep): boolean => wait.end === null && !wait.abandoned;

/** The latest moment of a wait at which it can still be satisfied; null: there is none. */
export function lastMoment({ wait, deadline, onDeadline }: Pick<WaitStep, 'wait' | 'deadline' | 'onDeadline'>): Instant | null {
  if (wait.kind === 'sleep' || deadline === null) return null;
  switch (onDeadline.action) {
    case 'remind':
      return deadline + onDeadline.everyMs * onDeadline.times;
    case 'escalate':
      return deadline + onDeadline.graceMs;
    default:
      return deadline;
  }
}

export function startedWait({ step, wait, since, deadline, onDeadline, fence }: Data<'WaitStarted'>): WaitStep {
  return {
    kind: 'wait',
    step,
    wait,
    since,
    deadline: deadline ?? null,
    onDeadline,
    nextAt: wait.kind === 'sleep' ? wait.until : earliest(deadline ?? null, wait.kind === 'approval' && wait.remindEveryMs !== undefined ? since + wait.remindEveryMs : null),
    reminded: 0,
    escalated: false,
    end: null,
    abandoned: false,
    approval: null,
    fence: fence ?? null,
  };
}

export const earliest = (...times: readonly (Instant | null)[]): Instant | null => times.reduce((first, at) => (first === null || (at !== null && at < first) ? at : first), null);

/** What one event makes of a wait. */
export function evolveWait(wait: WaitStep, event: RunEvent): WaitStep {
  switch (event.type) {
    case 'WaitEnded':
      return { ...wait, end: event.data.end, nextAt: null };
    case 'WaitReminded':
      return { ...wait, reminded: event.data.times, nextAt: event.data.nextAt };
    case 'WaitEscalated':
      return { ...wait, escalated: true, nextAt: event.data.expiresAt };
    case 'WaitAbandoned':
      return { ...wait, abandoned: true, nextAt: null };
    case 'ApprovalDecided': {
      const { decision, by, expiresAt } = event.data;
      return decision === 'approved' ? { ...wait, approval: { by: by.name, expiresAt: expiresAt ?? null, usedBy: null } } : wait;
    }
    default:
      return wait;
  }
}
