import { ignore, record, type Decision } from '@holdfast/kernel';
import { BudgetNeared, CompensationRequested, InputRefused, isoTime, RunFinished, RunReleased, SignalReceived, WaitAbandoned, WaitEnded, WaitEscalated, WaitReminded, WaitStarted, type Ending, type Instant, type Step } from '@holdfast/protocol';
import { closed, defined, onlyReports, progressOf, refusal } from './accept.js';
import { NEAR, overBudget } from './budget.js';
import type { Command, IgnoreReason, Refusal, RunDecision } from './commands.js';
import { finalEffects, stepCounts } from './ending.js';
import { evolve, openSteps, openWaits, type KnownRun, type RunEvent } from './run.js';
import { stuck, STUCK_AFTER_MS, stuckAt } from './stuck.js';
import { LOCAL_ENDS_MAX_MS, localSteps, unheard } from './unheard.js';
import { earliest, isOpenWait, lastMoment, type WaitStep } from './wait.js';

/** Every wait ends: one that names no deadline has this one. Milliseconds. */
export const DEFAULT_WAIT_MS = 30 * 24 * 60 * 60 * 1000;
/** Signals that a run keeps for waits to come. */
export const KEPT_SIGNALS_MAX = 20_000;

/** The run ends, by whatever but its agent's word. */
export function ended(run: KnownRun, ending: Ending): RunEvent {
  return RunFinished({ ending, effects: finalEffects(run), steps: stepCounts(run) });
}

/** What time alone has brought about by `at`. In one place with what competes with it: the run's stream. */
export function dueEvents(run: KnownRun, at: Instant): RunEvent[] {
  const events: RunEvent[] = [];
  let now: KnownRun = run;
  const add = (...more: RunEvent[]): void => {
    for (const event of more) {
      events.push(event);
      now = evolve(now, event) as KnownRun;
    }
  };
  if (run.status !== 'open') return events;
  for (const wait of duringLife(run)) {
    if (wait.nextAt !== null && at >= wait.nextAt) add(...waitDue(now, wait, at));
    if (now.status !== 'open') return events;
  }
  const unheardFrom = unheardAt(now);
  if (unheardFrom !== null && at >= unheardFrom) add(...unheard(now, 'its worker has told no end in time'));
  const { queued } = now;
  if (queued !== null && at >= queued.expiresAt) add(ended(now, { status: 'expired', deadline: queued.expiresAt }));
  if (now.status !== 'open') return events;
  const { acceptedAt, budgets } = now;
  const nearAt = wallTimeNearAt(now);
  if (nearAt !== null && at >= nearAt && at < (runOverAt(now) ?? Infinity) && acceptedAt !== null && budgets.wallTimeMaxMs !== undefined) add(BudgetNeared({ budget: 'wall_time', used: nearAt - acceptedAt, max: budgets.wallTimeMaxMs, reached: false }));
  const overAt = runOverAt(now);
  if (overAt !== null && at >= overAt) add(...runDue(now, overAt));
  return events;
}

/** When the run as a whole runs out of time; null: never. */
export function runOverAt({ deadline, onDeadline, budgets, acceptedAt }: KnownRun): Instant | null {
  const graceMs = onDeadline.action === 'escalate' ? onDeadline.graceMs : onDeadline.action === 'remind' ? onDeadline.everyMs * onDeadline.times : 0;
  const wall = budgets.wallTimeMaxMs === undefined || acceptedAt === null ? null : acceptedAt + budgets.wallTimeMaxMs;
  return earliest(deadline === null ? null : deadline + graceMs, wall);
}

/** From when on its budget of time is said to be nearly spent; null: there is none, or it was said. */
function wallTimeNearAt({ budgets, acceptedAt, neared }: KnownRun): Instant | null {
  return budgets.wallTimeMaxMs === undefined || acceptedAt === null || neared.has('wall_time') || neared.has('wall_time!') ? null : acceptedAt + Math.ceil(budgets.wallTimeMaxMs * NEAR);
}

/** Being cancelled, with nothing in flight any more. */
export const isCancelledOut = (run: KnownRun): boolean => run.status !== 'ended' && run.cancel !== null && openSteps(run).length === 0;

/** From when on nobody is waited for any more to tell the ends of a cancelled run's local calls. */
const unheardAt = (run: KnownRun): Instant | null => (run.cancel !== null && localSteps(run).length > 0 ? run.cancel.at + LOCAL_ENDS_MAX_MS : null);

/** Waits that time may end: once a run is cancelled only what is in flight ends, and no deadline of a wait ends the run otherwise. */
const duringLife = (run: KnownRun): WaitStep[] => (run.cancel === null ? openWaits(run) : []);

/** When the run needs attention by itself. */
export function dueAt(run: KnownRun, stuckAfterMs: number = STUCK_AFTER_MS): Instant | null {
  if (run.status !== 'open') return null;
  // Only a rebuild leaves it so: what ended it was lost with the old journal.
  if (isCancelledOut(run)) return 0;
  return earliest(run.queued?.expiresAt ?? null, runOverAt(run), wallTimeNearAt(run), unheardAt(run), stuckAt(run, stuckAfterMs), ...duringLife(run).map(({ nextAt }) => nextAt));
}

function waitDue(run: KnownRun, wait: WaitStep, at: Instant): RunEvent[] {
  const { step } = wait;
  if (wait.wait.kind === 'sleep') return [WaitEnded({ step, end: { status: 'satisfied', value: { value: null }, by: 'clock' }, at })];
  const { deadline, onDeadline } = wait;
  const last = lastMoment(wait);
  const everyMs = wait.wait.kind === 'approval' ? wait.wait.remindEveryMs : undefined;
  if (deadline === null || at < deadline) return [WaitReminded({ step, to: null, times: wait.reminded + 1, nextAt: earliest(everyMs === undefined ? null : at + everyMs, deadline) })];
  if (last !== null && at < last) {
    if (onDeadline.action === 'remind') return [WaitReminded({ step, to: null, times: wait.reminded + 1, nextAt: Math.min(at + onDeadline.everyMs, last) })];
    if (onDeadline.action === 'escalate' && !wait.escalated) return [WaitEscalated({ step, to: onDeadline.to, expiresAt: last })];
  }
  const expired = WaitEnded({ step, end: { status: 'expired', deadline: last ?? deadline }, at });
  const after = evolve(run, expired) as KnownRun;
  switch (onDeadline.action) {
    case 'compensate':
      return [expired, CompensationRequested({ step, because: `the wait at step ${step} expired` }), ended(after, { status: 'failed', failure: { class: 'expired', message: `the wait at step ${step} expired at ${isoTime(last ?? deadline)}` } })];
    case 'complete_partially':
      return [expired, ended(after, { status: 'completed_partially', because: onDeadline.because })];
    default:
      return [expired];
  }
}

function runDue(run: KnownRun, at: Instant): RunEvent[] {
  const { wallTimeMaxMs } = run.budgets;
  if (wallTimeMaxMs !== undefined && run.acceptedAt !== null && at === run.acceptedAt + wallTimeMaxMs) {
    return [BudgetNeared({ budget: 'wall_time', used: wallTimeMaxMs, max: wallTimeMaxMs, reached: true }), ended(run, { status: 'failed', failure: { class: 'policy_denied', message: `the run’s budget of ${wallTimeMaxMs} ms is spent` } })];
  }
  const deadline = run.deadline ?? at;
  switch (run.onDeadline.action) {
    case 'complete_partially':
      return [ended(run, { status: 'completed_partially', because: run.onDeadline.because })];
    case 'compensate':
      return [CompensationRequested({ because: 'the run’s deadline passed' }), ended(run, { status: 'expired', deadline })];
    default:
      return [ended(run, { status: 'expired', deadline })];
  }
}

/** Decides on a run as it is at that moment: what time has brought about comes first. */
export function afterDue(run: KnownRun, at: Instant, next: (run: KnownRun) => Decision<RunEvent, IgnoreReason, never>): RunDecision {
  const due = dueEvents(run, at);
  const now = due.reduce<KnownRun>((known, event) => evolve(known, event) as KnownRun, run);
  const decision = next(now);
  const [first, ...rest] = [...due, ...(decision.kind === 'record' ? decision.events : [])];
  return first === undefined ? decision : record(first, ...rest);
}

export function due({ at, stuckAfterMs }: Command<'due'>, run: KnownRun): RunDecision {
  const events = dueEvents(run, at);
  const now = events.reduce<KnownRun>((known, event) => evolve(known, event) as KnownRun, run);
  const stuckFrom = stuckAt(now, stuckAfterMs ?? STUCK_AFTER_MS);
  const [first, ...rest] = stuckFrom !== null && at >= stuckFrom ? [...events, stuck(now)] : events;
  return first === undefined ? ignore('not_due') : record(first, ...rest);
}

export function startWait({ data, at, scopeProblem, fitting, spent }: Command<'wait'>, run: KnownRun): RunDecision {
  const { step, fence, wait } = data;
  const place = { intent: 'StartWait', step, ...defined({ fence }) };
  const before = run.steps.get(step);
  if (before?.kind === 'wait' && JSON.stringify(before.wait) === JSON.stringify(wait)) return onlyReports(run, data, 'duplicate');
  const no = (because: Refusal): RunDecision => refusal(run, because, data);
  if (before !== undefined || run.groups.has(step)) return no(closed(run, 'StartWait', data, at) ?? { ...place, reason: 'operation_conflict', message: `step ${step} is recorded otherwise; a wait needs a step of its own`, token: `conflict:${step}:wait` });
  const bad = closed(run, 'StartWait', data, at) ?? overBudget(run, 1, place, spent);
  if (bad !== null) return no(bad);
  if (scopeProblem !== null) return no({ ...place, reason: wait.kind === 'compensation' ? 'not_compensable' : 'invalid', message: scopeProblem, token: `scope:${step}` });
  const deadline = wait.kind === 'sleep' ? undefined : (data.deadline ?? at + DEFAULT_WAIT_MS);
  const started = WaitStarted({ step, wait, since: at, onDeadline: data.onDeadline ?? { action: 'expire' }, ...defined({ deadline }), ...progressOf(run, data) });
  if (wait.kind === 'sleep' && wait.until <= at) return record<RunEvent>(started, WaitEnded({ step, end: { status: 'satisfied', value: { value: null }, by: 'clock' }, at }));
  const kept = wait.kind === 'signal' ? run.signals.find(({ signal, name }) => name === wait.name && fitting.has(signal)) : undefined;
  if (kept === undefined) return record(started);
  return record<RunEvent>(started, WaitEnded({ step, end: { status: 'satisfied', value: { value: kept.payload }, by: kept.signal }, at }));
}

/** A run is let go when all that its worker waits for is waits that are still open. */
export function releaseRun({ data, at }: Command<'let_go'>, run: KnownRun): RunDecision {
  const shut = closed(run, 'ReleaseRun', data, at);
  if (shut !== null) return refusal(run, shut, data);
  const open = new Set(openWaits(run).map(({ step }) => step));
  if (run.agent === null || !data.waits.every((step) => open.has(step))) return onlyReports(run, data, 'moved_on');
  return record(RunReleased({ waits: data.waits, ...progressOf(run, data) }));
}

export function abandonWait({ data, at }: Command<'abandon'>, run: KnownRun): RunDecision {
  const shut = closed(run, 'AbandonWait', data, at);
  if (shut !== null) return refusal(run, shut, data);
  const wait = run.steps.get(data.step);
  if (wait?.kind !== 'wait' || !isOpenWait(wait)) return onlyReports(run, data, 'duplicate');
  return record(WaitAbandoned({ step: data.step, ...progressOf(run, data) }));
}

type InputReason = Parameters<typeof InputRefused>[0]['reason'];
type InputDecision = Decision<RunEvent, IgnoreReason, never>;

/** An input that changes nothing any more is kept, with the reason, once. */
const kept = (input: string, id: string, reason: InputReason, message: string, step?: Step): InputDecision => record(InputRefused({ input, id, reason, message, ...(step === undefined ? {} : { step }) }));

/** A signal is kept before it is matched, so that one that comes before its wait is not lost. */
export const signal = ({ data, at, problems }: Command<'signal'>, run: KnownRun): RunDecision =>
  afterDue(run, at, (now) => {
    const { signal: id, name, payload } = data;
    if (now.inputs.has(id)) return ignore('duplicate');
    if (now.status !== 'open') return kept('SignalRun', id, 'run_ended', `the run is over: signal "${name}" is kept as evidence, and moves nothing`);
    if (now.cancel !== null) return kept('SignalRun', id, 'wait_over', `${now.cancel.by} has cancelled the run: signal "${name}" is kept as evidence, and moves nothing`);
    if (now.signals.length >= KEPT_SIGNALS_MAX) return kept('SignalRun', id, 'too_many', `${KEPT_SIGNALS_MAX} signals wait for the run to take them`);
    const waits = openWaits(now).filter(({ wait }) => wait.kind === 'signal' && wait.name === name);
    const taker = waits.find(({ step }) => (problems.get(step) ?? null) === null);
    const received = SignalReceived({ signal: id, name, payload, at });
    if (taker !== undefined) return record<RunEvent>(received, WaitEnded({ step: taker.step, end: { status: 'satisfied', value: { value: payload }, by: id }, at }));
    const [first] = waits;
    return first === undefined ? record(received) : kept('SignalRun', id, 'payload_invalid', `the payload of signal "${name}" doesn’t fit what step ${first.step} waits for: ${problems.get(first.step) ?? ''}`, first.step);
  });

export const callback = ({ data, at, id, tokenHash, problem }: Command<'callback'>, run: KnownRun): RunDecision =>
  afterDue(run, at, (now) => {
    const { step } = data;
    if (now.inputs.has(id)) return ignore('duplicate');
    const wait = now.steps.get(step);
    if (wait?.kind !== 'wait' || wait.wait.kind !== 'callback') return kept('DeliverCallback', id, 'wait_unknown', `step ${step} waits for no callback`, step);
    if (wait.wait.tokenHash !== tokenHash) return kept('DeliverCallback', id, 'token_wrong', `the token is not the one of step ${step}`, step);
    if (now.status !== 'open' || !isOpenWait(wait)) return kept('DeliverCallback', id, 'wait_over', `step ${step} doesn’t wait any more: the token is used or expired`, step);
    if (now.cancel !== null) return kept('DeliverCallback', id, 'wait_over', `${now.cancel.by} has cancelled the run: step ${step} doesn’t wait any more`, step);
    if (problem !== null) return kept('DeliverCallback', id, 'payload_invalid', `the payload doesn’t fit what step ${step} waits for: ${problem}`, step);
    return record(WaitEnded({ step, end: { status: 'satisfied', value: { value: data.payload }, by: 'callback' }, at }));
  });

export const child = ({ data, at }: Command<'child'>, run: KnownRun): RunDecision =>
  afterDue(run, at, (now) => {
    const { step, ending } = data;
    const wait = now.steps.get(step);
    if (now.status !== 'open' || now.cancel !== null || wait?.kind !== 'wait' || wait.wait.kind !== 'child' || wait.wait.run !== data.child || !isOpenWait(wait)) return ignore('already_settled');
    const by = `run ${data.child}`;
    switch (ending.status) {
      case 'completed':
        return record(WaitEnded({ step, end: { status: 'satisfied', value: ending.output, by }, at }));
      case 'completed_partially':
        if (ending.output !== undefined) return record(WaitEnded({ step, end: { status: 'satisfied', value: ending.output, by }, at }));
        return record(WaitEnded({ step, end: { status: 'failed', failure: { class: 'expired', message: `${by} ran out of time before it had an output: ${ending.because}`.slice(0, 4000) } }, at }));
      case 'failed':
        return record(WaitEnded({ step, end: { status: 'failed', failure: ending.failure }, at }));
      case 'cancelled':
        return record(WaitEnded({ step, end: { status: 'failed', failure: { class: 'cancelled', message: `${by} was cancelled by ${ending.by}: ${ending.reason}` } }, at }));
      case 'expired':
        return record(WaitEnded({ step, end: { status: 'failed', failure: { class: 'expired', message: `${by} expired at ${isoTime(ending.deadline)}` } }, at }));
    }
  });
