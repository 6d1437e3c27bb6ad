import type {
  Attempt,
  Budgets,
  Digest,
  Ending,
  Failure,
  Fence,
  Fire,
  Instant,
  Json,
  Lease,
  MessageOf,
  Named,
  OnDeadline,
  Origin,
  Outcome,
  Pool,
  RecordKind,
  RequestedCall,
  RunId,
  Settled,
  Standing,
  Step,
  Stored,
  Tenant,
  WaitEnd,
  WorkerId,
  runMessages,
} from '@holdfast/protocol';
import { unreachable } from '@holdfast/kernel';
import { copiedStep } from './copied.js';
import { evolveBrakes, noBrakes, type Brakes } from './brakes.js';
import { evolveWait, isOpenWait, startedWait, type KeptSignal, type WaitStep } from './wait.js';

export type RunEvent = MessageOf<(typeof runMessages)[number]>;

export interface CallStep {
  readonly kind: 'call';
  readonly call: RequestedCall;
  readonly fire: Fire;
  readonly attempt: Attempt;
  /** How many workers were lost while it was under way there. One that is granted its runs anew was not. */
  readonly lost: number;
  /** The group that recorded it, if one did. */
  readonly group: Step | null;
  /** Absent while nobody knows an end; `unknown` is an outcome that only evidence replaces. */
  readonly outcome: Outcome | null;
  /** Fence under which it was asked for: tells fresh from replayed steps at the run's end. */
  readonly fence: Fence | null;
  /** A refused local call that may have fired all the same: it holds its key, and may be asked again with equal arguments. */
  readonly bound: boolean;
}

export interface RecordedStep {
  readonly kind: 'record';
  readonly step: Step;
  readonly as: RecordKind;
  readonly name: string;
  readonly result: Stored;
  readonly fence: Fence | null;
}

/** Recorded work that failed and is not done yet. */
export interface TriedStep {
  readonly kind: 'try';
  readonly step: Step;
  readonly as: RecordKind;
  readonly name: string;
  readonly attempt: Attempt;
  readonly failure: Failure;
  /** Null: the budget is spent. */
  readonly retryAt: Instant | null;
  readonly fence: Fence | null;
}

/** A run that nothing new is taken for, and what was asked. */
export interface Cancel {
  readonly by: string;
  readonly roles: readonly string[];
  readonly command: string;
  readonly reason: string;
  readonly scope: 'run' | 'tree';
  readonly manner: 'graceful' | 'immediate';
  readonly at: Instant;
  /** Under which its worker held it until then. */
  readonly lease: Lease | null;
}

export type StepState = CallStep | RecordedStep | TriedStep | WaitStep;

/** What every run has from its acceptance on. */
export interface RunFacts {
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
  readonly lease: Lease | null;
  /** What its agent's contract declared when it was last granted. */
  readonly facts: NonNullable<Lease['facts']>;
  /** In the order in which they were asked for. */
  readonly steps: ReadonlyMap<Step, StepState>;
  /** Steps that groups hold for themselves, besides those of their members. */
  readonly groups: ReadonlySet<Step>;
  /** Order in which completions were handed to the agent's code. */
  readonly observed: readonly Step[];
  /** Refusals already spoken, with the fence that heard them (null: none): the same intent read again gets no second one. */
  readonly refused: ReadonlyMap<string, number | null>;
  readonly resumes: number;
  readonly acceptedAt: Instant | null;
  /** When it last made progress, as far as whoever folded it knew the time. */
  readonly movedAt: Instant | null;
  /** Since when a worker has held it, or, where that is later, when it last moved: what the wall time of its tenant is counted from. */
  readonly heldSince: Instant | null;
  readonly stuck: { readonly since: Instant; readonly on: string } | null;
  readonly onDeadline: OnDeadline;
  readonly concurrencyKey: string | null;
  readonly priority: number;
  /** What it was let through, and gives back at its end. */
  readonly gates: readonly string[];
  /** The run that it was forked off, the steps that it has from there, and how many pages of these are still to come. */
  readonly origin: (Origin & { readonly copied: ReadonlySet<Step>; readonly more: number }) | null;
  /** Where it waits to be let in. */
  readonly queued: { readonly gate: string; readonly message: string; readonly since: Instant; readonly expiresAt: Instant } | null;
  /** Runs that wait for this one as their child. */
  readonly parents: readonly { readonly run: RunId; readonly step: Step }[];
  /** The last fence that was given out; 0: none. */
  readonly lastFence: number;
  /** Let go by its worker until one of its waits ends. */
  readonly released: boolean;
  /** Signals that no wait has taken, in the order in which they came. */
  readonly signals: readonly KeptSignal[];
  /** Inputs from outside that have had their answer: signal ids, command ids, callbacks. */
  readonly inputs: ReadonlySet<string>;
  readonly cancel: Cancel | null;
  readonly paused: { readonly by: string; readonly reason: string } | null;
  /** The latest plan by which what it did is answered, since its end. */
  readonly compensation: { readonly plan: number; readonly status: CompensationPhase; readonly effects: readonly Standing[] } | null;
  /** Brakes on its tenant or agent that hold it, by name. */
  readonly brakes: ReadonlyMap<string, { readonly by: string; readonly reason: string }>;
  readonly usage: { readonly tokens: number; readonly cost: number };
  /** Budgets of which it was said that they are nearly spent (`steps`) or spent (`steps!`). */
  readonly neared: ReadonlySet<string>;
}

/** A lane's own stream uses the same machinery: which worker of a pool holds it. */
export interface LaneHolder {
  readonly worker: WorkerId;
  readonly agents: readonly Named[];
  readonly offset: number;
  /** Of the workers' consumer group; null when the announcement named none. */
  readonly generation: number | null;
  readonly at: Instant;
  /** How often the journal was rebuilt since the announcement. */
  readonly rebuilt: number;
}

export type Run =
  | { readonly status: 'absent' }
  | ({ readonly status: 'open' } & RunFacts)
  | ({ readonly status: 'ended'; readonly ending: Ending } & RunFacts)
  | ({ readonly status: 'quarantined'; readonly because: string } & RunFacts)
  | ({ readonly status: 'lane' } & LaneHolder)
  | ({ readonly status: 'brakes' } & Brakes);

export const absent: Run = { status: 'absent' };

export type KnownRun = Extract<Run, RunFacts>;

export type CompensationPhase = 'compensating' | 'compensated' | 'compensated_partially' | 'compensation_failed';

/** What people see. Derived, never stored. */
export type RunPhase = CompensationPhase | 'queued' | 'running' | 'waiting' | 'blocked' | 'paused' | 'stuck' | 'cancelling' | 'completed' | 'completed_partially' | 'failed' | 'cancelled' | 'expired' | 'quarantined';

export function phaseOf(run: KnownRun): RunPhase {
  switch (run.status) {
    case 'quarantined':
      return 'quarantined';
    case 'ended':
      return run.compensation?.status ?? run.ending.status;
    case 'open':
      if (run.cancel !== null) return 'cancelling';
      if (holdOf(run) !== null) return 'paused';
      if (unknownSteps(run).length > 0) return 'blocked';
      if (run.stuck !== null) return 'stuck';
      if (run.released) return 'waiting';
      if (run.queued !== null) return 'queued';
      return run.agent !== null && run.lease === null ? 'queued' : 'running';
    default:
      return unreachable(run);
  }
}

/** Whether steps that a fork has from its origin are still to come: before, there is nothing to go on with. */
export const isCopying = ({ origin }: RunFacts): boolean => origin !== null && origin.more > 0;

/** Who holds a run still, and why; null when nobody does. */
export function holdOf({ paused, brakes }: RunFacts): { readonly by: string; readonly reason: string } | null {
  const [brake] = brakes.values();
  return paused ?? brake ?? null;
}

/** Waits that somebody still awaits, in the order in which they were asked for. */
export function openWaits(run: RunFacts): WaitStep[] {
  const found: WaitStep[] = [];
  for (const step of run.steps.values()) if (step.kind === 'wait' && isOpenWait(step)) found.push(step);
  return found;
}

export const unknownSteps = (run: RunFacts): CallStep[] => callsWhere(run, (step) => step.outcome?.status === 'unknown');
/** Calls that nobody has seen end. */
export const openSteps = (run: RunFacts): CallStep[] => callsWhere(run, (step) => step.outcome === null && !step.bound);

function callsWhere(run: RunFacts, test: (step: CallStep) => boolean): CallStep[] {
  const found: CallStep[] = [];
  for (const step of run.steps.values()) if (step.kind === 'call' && test(step)) found.push(step);
  return found;
}

/** Events that bring a run no further by themselves. */
const NO_PROGRESS: ReadonlySet<RunEvent['type']> = new Set(['RunStuck', 'IntentRejected', 'InputRefused', 'BudgetNeared', 'SignalReceived', 'RunJoined', 'LeaseGranted', 'RunResumed', 'RunForked', 'WaitReminded'] as const);

export function evolve(run: Run, event: RunEvent): Run {
  const next = evolveOne(run, event);
  return 'stuck' in next && next.stuck !== null && !NO_PROGRESS.has(event.type) ? { ...next, stuck: null } : next;
}

/** The same, where it is known when the event was recorded. */
export function evolveAt(run: Run, event: RunEvent, at: Instant): Run {
  const next = evolve(run, event);
  if (!('movedAt' in next)) return next;
  const moved = !NO_PROGRESS.has(event.type);
  const heldSince = next.status !== 'open' || next.lease === null ? null : moved || next.heldSince === null ? at : next.heldSince;
  return moved ? { ...next, movedAt: at, heldSince } : next.heldSince === heldSince ? next : { ...next, heldSince };
}

function evolveOne(run: Run, event: RunEvent): Run {
  if (event.type === 'LaneTaken') {
    return { status: 'lane', worker: event.data.worker, agents: event.data.agents, offset: event.data.offset, generation: event.data.generation ?? null, at: event.data.at ?? 0, rebuilt: event.data.rebuilt ?? 0 };
  }
  if (event.type === 'RunAccepted') {
    const { data } = event;
    return {
      status: 'open',
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
      lease: data.lease ?? null,
      facts: data.lease?.facts ?? {},
      steps: new Map(),
      groups: new Set(),
      observed: [],
      refused: new Map(),
      resumes: 0,
      acceptedAt: data.at ?? null,
      movedAt: null,
      heldSince: null,
      stuck: null,
      onDeadline: data.onDeadline ?? { action: 'expire' },
      concurrencyKey: data.concurrencyKey ?? null,
      priority: data.priority ?? 0,
      gates: data.gates ?? [],
      origin: null,
      queued: null,
      parents: data.parent === undefined ? [] : [data.parent],
      lastFence: data.lease?.fence ?? 0,
      released: false,
      signals: [],
      inputs: new Set(),
      cancel: null,
      paused: null,
      compensation: null,
      brakes: new Map(),
      usage: { tokens: 0, cost: 0 },
      neared: new Set(),
    };
  }
  // A stream begins with its acceptance, but for the refusal of something about a run that never was.
  if (event.type === 'BrakeSet' || event.type === 'BrakeReleased' || run.status === 'brakes' || (run.status === 'absent' && event.type === 'InputRefused')) return evolveBrakes(run.status === 'brakes' ? run : noBrakes, event);
  if (run.status === 'absent' || run.status === 'lane') return run;
  const known = withProgress(run, event);
  switch (event.type) {
    case 'LeaseGranted':
      return { ...known, lease: event.data.lease, facts: event.data.lease.facts ?? known.facts, lastFence: event.data.lease.fence, released: false };
    case 'RunResumed':
      return { ...known, lease: event.data.lease, facts: event.data.lease.facts ?? known.facts, lastFence: event.data.lease.fence, released: false, resumes: known.resumes + 1, steps: refired(known.steps, event.data) };
    case 'EffectRequested':
      return withSteps(known, [...used(known, event.data.call), requested(known, event.data.call, event.data.fire, null, event.data.fence)]);
    case 'GroupRequested':
      return withSteps({ ...known, groups: new Set(known.groups).add(event.data.step) }, event.data.calls.map((call) => requested(known, call, 'local', event.data.step, event.data.fence)));
    case 'StepRecorded': {
      const { step, kind, name, result, fence, usage } = event.data;
      const spent = usage === undefined ? known : { ...known, usage: { tokens: known.usage.tokens + (usage.tokensIn ?? 0) + (usage.tokensOut ?? 0), cost: known.usage.cost + (usage.cost ?? 0) } };
      return withSteps(spent, [[step, { kind: 'record', step, as: kind, name, result, fence: fence ?? null }]]);
    }
    case 'StepRetryScheduled':
    case 'StepFailed': {
      const { step, kind, name, attempt, failure, fence } = event.data;
      const retryAt = event.type === 'StepFailed' ? null : event.data.retryAt;
      return withSteps(known, [[step, { kind: 'try', step, as: kind, name, attempt, failure, retryAt, fence: fence ?? null }]]);
    }
    case 'EffectSettled':
      return withSteps(known, settle(known, event.data));
    case 'RunBlocked': {
      const { step, attempt, cause, message } = event.data;
      return withSteps(known, settle(known, { step, attempt, outcome: { status: 'unknown', cause, message } }));
    }
    case 'StepReleased':
      return withSteps(known, released(known, event.data));
    case 'IntentRejected': {
      const refused = new Map(known.refused).set(event.data.token, event.data.fence ?? null);
      const { bound, boundGroup = [] } = event.data;
      const steps = new Map(known.steps);
      const fired = bound === undefined ? boundGroup.map((call) => boundStep(call, groupOf(call.step))) : [boundStep(bound, null)];
      for (const state of fired) if (!steps.has(state.call.step)) steps.set(state.call.step, state);
      return { ...known, refused, steps };
    }
    case 'RunFinished':
      return { ...known, status: 'ended', ending: event.data.ending };
    case 'RunQuarantined':
      return { ...known, status: 'quarantined', because: event.data.message, facts: event.data.facts ?? known.facts };
    case 'StepsReported':
    case 'CompensationRequested':
      return known;
    case 'RunCompensating':
      return { ...known, compensation: { plan: event.data.plan, status: 'compensating', effects: known.compensation?.effects ?? [] } };
    case 'RunCompensated':
      return { ...known, compensation: event.data };
    case 'RunQueued': {
      const { gate, gates, message, since, expiresAt } = event.data;
      return { ...known, gates, queued: { gate, message, since, expiresAt } };
    }
    case 'RunAdmitted':
      return { ...known, gates: event.data.gates, queued: null };
    case 'StartRefused':
      return known;
    case 'RunForked':
      return { ...known, inputs: new Set(known.inputs).add(event.data.command) };
    case 'StepsCopied': {
      const { origin, steps, observed, more = 0 } = event.data;
      const entries = steps.map(copiedStep);
      const copied = new Set([...(known.origin?.copied ?? []), ...entries.map(([step]) => step)]);
      return withSteps({ ...known, origin: { ...origin, copied, more }, observed: [...known.observed, ...observed] }, entries);
    }
    case 'RunJoined':
      return { ...known, parents: [...known.parents, event.data.parent] };
    case 'WaitStarted':
      return withSteps(known, [[event.data.step, startedWait(event.data)]]);
    case 'WaitEnded':
      return withWait({ ...takenSignal(known, event.data.end), released: false }, event);
    case 'WaitReminded':
    case 'WaitEscalated':
    case 'WaitAbandoned':
      return withWait(known, event);
    case 'RunReleased':
      return { ...known, lease: null, released: true };
    case 'SignalReceived': {
      const { signal, name, payload } = event.data;
      return { ...known, signals: [...known.signals, { signal, name, payload }], inputs: new Set(known.inputs).add(signal) };
    }
    case 'InputRefused':
      return { ...known, inputs: new Set(known.inputs).add(event.data.id) };
    case 'ApprovalDecided':
      return withWait({ ...known, inputs: new Set(known.inputs).add(event.data.command) }, event);
    case 'RunCancelRequested': {
      const { by, reason, scope, manner, command, at } = event.data;
      return { ...known, cancel: { by: by.name, roles: by.roles, command, reason, scope, manner, at, lease: known.lease ?? known.cancel?.lease ?? null }, lease: null, inputs: new Set(known.inputs).add(command) };
    }
    case 'RunPaused':
      if (event.data.brake !== undefined) return { ...known, brakes: new Map(known.brakes).set(event.data.brake, { by: event.data.by.name, reason: event.data.reason }), lease: null };
      return { ...known, paused: { by: event.data.by.name, reason: event.data.reason }, lease: null, inputs: new Set(known.inputs).add(event.data.command) };
    case 'RunUnpaused':
      if (event.data.brake !== undefined) return { ...known, brakes: new Map([...known.brakes].filter(([name]) => name !== event.data.brake)) };
      return { ...known, paused: null, inputs: new Set(known.inputs).add(event.data.command) };
    case 'RunUnquarantined':
      return { ...known, status: 'open', lease: null, inputs: new Set(known.inputs).add(event.data.command) };
    case 'RunStuck':
      return { ...known, stuck: { since: event.data.since, on: event.data.on } };
    case 'BudgetNeared':
      if (event.data.scope === 'tenant') return known;
      return { ...known, neared: new Set(known.neared).add(`${event.data.budget}${event.data.reached ? '!' : ''}`) };
    default:
      return unreachable(event);
  }
}

/** Takes in what an intent reported besides its wish. */
function withProgress(run: KnownRun, event: RunEvent): KnownRun {
  const settles = 'settles' in event.data ? event.data.settles : undefined;
  const observed = 'observed' in event.data ? event.data.observed : undefined;
  if (settles === undefined && observed === undefined) return run;
  const settled = (settles ?? []).reduce<KnownRun>((known, report) => withSteps(known, settle(known, report)), run);
  return observed === undefined ? settled : { ...settled, observed: [...settled.observed, ...observed] };
}

type Entry = readonly [Step, StepState];

function withSteps(run: KnownRun, entries: readonly Entry[]): KnownRun {
  if (entries.length === 0) return run;
  const steps = new Map(run.steps);
  for (const [step, state] of entries) steps.set(step, state);
  return { ...run, steps };
}

function requested(run: KnownRun, call: RequestedCall, fire: Fire, group: Step | null, fence: Fence | undefined): Entry {
  const before = run.steps.get(call.step);
  const attempt = before?.kind === 'call' ? before.attempt + 1 : 1;
  return [call.step, { kind: 'call', call, fire, attempt, lost: 0, group, outcome: null, fence: fence ?? null, bound: false }];
}

/** A call of a group stands one level below it. */
const groupOf = (step: Step): Step => step.slice(0, step.lastIndexOf('.')) as Step;

const boundStep = (call: RequestedCall, group: Step | null): CallStep => ({ kind: 'call', call, fire: 'local', attempt: 1, lost: 0, group, outcome: null, fence: null, bound: true });

function refired(steps: ReadonlyMap<Step, StepState>, { because, refired: again }: Extract<RunEvent, { type: 'RunResumed' }>['data']): ReadonlyMap<Step, StepState> {
  const next = new Map(steps);
  for (const { step, attempt } of again) {
    const state = next.get(step);
    if (state?.kind === 'call') next.set(step, { ...state, attempt, lost: because === 'worker_changed' ? state.lost + 1 : state.lost });
  }
  return next;
}

const withWait = (run: KnownRun, event: RunEvent & { data: { step: Step } }): KnownRun => {
  const wait = run.steps.get(event.data.step);
  return wait?.kind === 'wait' ? withSteps(run, [[wait.step, evolveWait(wait, event)]]) : run;
};

/** A signal is used up by the wait that it satisfies. */
const takenSignal = (run: KnownRun, end: WaitEnd): KnownRun =>
  end.status === 'satisfied' && run.signals.some(({ signal }) => signal === end.by) ? { ...run, signals: run.signals.filter(({ signal }) => signal !== end.by) } : run;

/** An approval is used up with the call that it allows. */
function used(run: RunFacts, { step, approval }: RequestedCall): Entry[] {
  const wait = approval === undefined ? undefined : run.steps.get(approval.step);
  return wait?.kind === 'wait' && wait.approval !== null ? [[wait.step, { ...wait, approval: { ...wait.approval, usedBy: step } }]] : [];
}

/** Nobody doubts the attempt before any more: the step is under way again. */
function released(run: RunFacts, { step, attempt }: { readonly step: Step; readonly attempt: Attempt }): Entry[] {
  const state = run.steps.get(step);
  return state?.kind === 'call' && state.outcome?.status === 'unknown' ? [[step, { ...state, attempt: attempt + 1, outcome: null }]] : [];
}

/** An end that is known stays; unknown gives way to anything proved. A local failure is the ledger's to judge, not an end. */
function settle(run: RunFacts, { step, attempt, outcome, local }: Settled): Entry[] {
  const state = run.steps.get(step);
  if (state?.kind !== 'call') return [];
  // What has fired is recorded, though it was refused; and of what was recorded as one, all of it.
  const others = state.bound && state.group !== null ? callsWhere(run, (other) => other.bound && other.group === state.group).map((other): Entry => [other.call.step, { ...other, bound: false }]) : [];
  // From here on the ledger alone tries again: were its worker lost now, the next one must not fire as well.
  if (local !== undefined && outcome.status !== 'succeeded') return [...others, [step, { ...state, attempt, fire: 'granted', bound: false }]];
  if (state.outcome !== null && (state.outcome.status !== 'unknown' || outcome.status === 'unknown')) return [];
  return [...others, [step, { ...state, attempt, outcome, bound: false }]];
}
