import type { Budgets, Digest, Ending, Instant, Json, MessageOf, Named, Pool, runMessages, Settled, Step, Tenant, UnknownCause } from '@holdfast/protocol';

export type RunEvent = MessageOf<(typeof runMessages)[number]>;

export interface UnknownStep {
  readonly step: Step;
  readonly attempt: number;
  readonly cause: UnknownCause;
  readonly message: string;
  readonly since: Instant;
}

/** A run as lists and pages show it: what its events amount to, without its steps. */
export interface RunView {
  readonly tenant: Tenant;
  readonly agent: Named | null;
  readonly pool: Pool;
  readonly input: Json;
  readonly inputDigest: Digest;
  readonly goal: string | null;
  readonly success: readonly string[];
  readonly principal: string | null;
  readonly deadline: Instant | null;
  readonly budgets: Budgets;
  readonly acceptedAt: Instant;
  readonly updatedAt: Instant;
  readonly version: number;
  readonly hash: string | null;
  readonly fence: number | null;
  readonly worker: string | null;
  readonly resumes: number;
  readonly rejected: number;
  readonly unknown: readonly UnknownStep[];
  readonly ending: Ending | null;
  readonly fresh: number | null;
  readonly replayed: number | null;
  readonly endedAt: Instant | null;
  readonly quarantine: string | null;
  /** Its worker has let it go: nothing runs until a wait ends. */
  readonly released: boolean;
  readonly waits: readonly OpenWait[];
  readonly paused: { readonly by: string; readonly reason: string } | null;
  /** Names of the brakes on its tenant or agent that hold it. */
  readonly brakes?: readonly string[];
  readonly cancel: { readonly by: string; readonly reason: string; readonly manner: string; readonly at: Instant } | null;
  readonly parent: { readonly run: string; readonly step: string } | null;
  readonly usage: { readonly tokens: number; readonly cost: number };
  /** Nothing on record explains that it stands still. */
  readonly stuck?: { readonly since: Instant; readonly on: string; readonly steps: readonly Step[] } | null;
  readonly origin?: { readonly run: string; readonly from: Step } | null;
  readonly compensation?: CompensationStatus | null;
  readonly trace?: string | null;
}

export interface OpenWait {
  readonly step: Step;
  readonly kind: string;
  /** Of a signal, or of the run that is waited for. */
  readonly name: string | null;
  readonly since: Instant;
  readonly deadline: Instant | null;
}

export const COMPENSATION_STATUSES = ['compensating', 'compensated', 'compensated_partially', 'compensation_failed'] as const;
export type CompensationStatus = (typeof COMPENSATION_STATUSES)[number];

export const RUN_STATUSES = ['queued', 'running', 'waiting', 'blocked', 'paused', 'stuck', 'cancelling', 'completed', 'completed_partially', 'failed', 'cancelled', 'expired', 'quarantined'] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** What people see. Derived, never stored apart from what it derives from. */
export function statusOf(run: RunView): RunStatus {
  if (run.ending !== null) return run.ending.status;
  if (run.quarantine !== null) return 'quarantined';
  if (run.cancel !== null) return 'cancelling';
  if (run.paused !== null || (run.brakes ?? []).length > 0) return 'paused';
  if (run.unknown.length > 0) return 'blocked';
  if ((run.stuck ?? null) !== null) return 'stuck';
  if (run.released) return 'waiting';
  return run.agent !== null && run.fence === null ? 'queued' : 'running';
}

/** Where an event stands in its stream. */
export interface Place {
  readonly at: Instant;
  readonly version: number;
  readonly hash: string | null;
  readonly trace?: string | null;
}

/** Events that bring a run no further by themselves: one that is stuck stays so. */
const NO_PROGRESS: ReadonlySet<RunEvent['type']> = new Set(['RunStuck', 'IntentRejected', 'InputRefused', 'BudgetNeared', 'SignalReceived', 'RunJoined', 'LeaseGranted', 'RunResumed', 'RunForked', 'WaitReminded'] as const);

export function evolveRun(before: RunView | null, event: RunEvent, place: Place): RunView | null {
  if (event.type === 'RunAccepted') return accepted(event.data, place);
  // A refusal of something about a run that never was makes no run.
  if (before === null || event.type === 'LaneTaken') return before;
  const settles = 'settles' in event.data ? (event.data.settles ?? []) : [];
  const known = { ...settled(before, settles), updatedAt: place.at, version: place.version, hash: place.hash };
  const run: RunView = NO_PROGRESS.has(event.type) ? known : { ...known, stuck: null };
  switch (event.type) {
    case 'LeaseGranted':
      return { ...run, fence: event.data.lease.fence, worker: event.data.lease.worker, released: false };
    case 'RunResumed':
      return { ...run, fence: event.data.lease.fence, worker: event.data.lease.worker, released: false, resumes: run.resumes + 1 };
    case 'EffectSettled':
      return settled(run, [event.data]);
    case 'RunBlocked': {
      const { step, attempt, cause, message, since } = event.data;
      return { ...run, unknown: [...run.unknown.filter((each) => each.step !== step), { step, attempt, cause, message, since }] };
    }
    case 'StepReleased':
      return { ...run, unknown: run.unknown.filter(({ step }) => step !== event.data.step) };
    case 'IntentRejected':
      return { ...run, rejected: run.rejected + 1 };
    case 'RunFinished':
      return { ...run, ending: event.data.ending, fresh: event.data.steps.fresh, replayed: event.data.steps.replayed, endedAt: place.at, waits: [] };
    case 'RunQuarantined':
      return { ...run, quarantine: event.data.message };
    case 'RunUnquarantined':
      return { ...run, quarantine: null };
    case 'RunStuck':
      return { ...run, stuck: event.data };
    case 'StepsCopied':
      return { ...run, origin: event.data.origin };
    case 'RunCompensating':
      return { ...run, compensation: 'compensating' };
    case 'RunCompensated':
      return { ...run, compensation: event.data.status };
    case 'StepRecorded': {
      const { tokensIn = 0, tokensOut = 0, cost = 0 } = event.data.usage ?? {};
      return { ...run, usage: { tokens: run.usage.tokens + tokensIn + tokensOut, cost: run.usage.cost + cost } };
    }
    case 'WaitStarted': {
      const { step, wait, since, deadline } = event.data;
      const name = wait.kind === 'signal' ? wait.name : wait.kind === 'child' ? wait.run : null;
      return { ...run, waits: [...run.waits, { step, kind: wait.kind, name, since, deadline: wait.kind === 'sleep' ? wait.until : (deadline ?? null) }] };
    }
    case 'WaitEnded':
      return { ...run, released: false, waits: run.waits.filter(({ step }) => step !== event.data.step) };
    case 'WaitAbandoned':
      return { ...run, waits: run.waits.filter(({ step }) => step !== event.data.step) };
    case 'RunReleased':
      return { ...run, released: true, worker: null };
    case 'RunPaused':
      if (event.data.brake !== undefined) return { ...run, brakes: [...(run.brakes ?? []), event.data.brake], worker: null };
      return { ...run, paused: { by: event.data.by.name, reason: event.data.reason }, worker: null };
    case 'RunUnpaused': {
      const { brake } = event.data;
      return brake === undefined ? { ...run, paused: null } : { ...run, brakes: (run.brakes ?? []).filter((name) => name !== brake) };
    }
    case 'RunCancelRequested': {
      const { by, reason, manner, at } = event.data;
      return { ...run, cancel: { by: by.name, reason, manner, at } };
    }
    default:
      return run;
  }
}

function accepted(data: Extract<RunEvent, { type: 'RunAccepted' }>['data'], { at, version, hash, trace }: Place): RunView {
  return {
    tenant: data.tenant,
    agent: data.agent,
    pool: data.pool,
    input: data.input,
    inputDigest: data.inputDigest,
    goal: data.goal ?? null,
    success: data.success ?? [],
    principal: data.principal ?? null,
    deadline: data.deadline ?? null,
    budgets: data.budgets ?? {},
    acceptedAt: at,
    updatedAt: at,
    version,
    hash,
    fence: data.lease?.fence ?? null,
    worker: data.lease?.worker ?? null,
    resumes: 0,
    rejected: 0,
    unknown: [],
    ending: null,
    fresh: null,
    replayed: null,
    endedAt: null,
    quarantine: null,
    released: false,
    waits: [],
    paused: null,
    cancel: null,
    parent: data.parent ?? null,
    usage: { tokens: 0, cost: 0 },
    stuck: null,
    origin: null,
    compensation: null,
    trace: trace ?? null,
  };
}

/** What has an end is not unknown any more. */
function settled(run: RunView, reports: readonly Pick<Settled, 'step' | 'outcome'>[]): RunView {
  const known = new Set(reports.filter(({ outcome }) => outcome.status !== 'unknown').map(({ step }) => step));
  return run.unknown.some(({ step }) => known.has(step)) ? { ...run, unknown: run.unknown.filter(({ step }) => !known.has(step)) } : run;
}
