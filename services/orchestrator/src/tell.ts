import {
  AdmitRun,
  CancelRun,
  IntentRefused,
  ReportChild,
  RunDropped,
  runTasks,
  CopySteps,
  StartFork,
  StartRun,
  StepSettled,
  topics,
  TryAnswered,
  WaitSettled,
  type Ending,
  type Lease,
  type Message,
  type MessageOf,
  type RunForked,
  type RunId,
  type Settled,
} from '@holdfast/protocol';
import type { Turn } from '@holdfast/runtime';
import { openWaits, type Cancel, type KnownRun, type Run, type RunEvent } from './domain/run.js';
import type { WaitStep } from './domain/wait.js';
import { isBefore, stepsBefore } from './domain/fork.js';
import { grantPages, historyStep, PAGE_BYTES, pagesOf } from './domain/history.js';
import { generationOf } from './lanes.js';

type RunTurn = Turn<Run, RunEvent>;
type Parent = KnownRun['parents'][number];

const isKnown = (run: Run): run is KnownRun => run.status !== 'absent' && run.status !== 'lane' && run.status !== 'brakes';

/** Who has to hear of an event: the worker that holds the run, or held it until then, and runs that hang on this one. */
export function tell(stream: string, tenant: string, turn: RunTurn, before: Run, event: RunEvent): void {
  const run = turn.state(stream);
  if (!isKnown(run)) return;
  tellWorker(stream, tenant, turn, before, run, event);
  tellRuns(stream, tenant, turn, run, event);
}

function tellWorker(stream: string, tenant: string, turn: RunTurn, before: Run, run: KnownRun, event: RunEvent): void {
  const lease = run.lease ?? (isKnown(before) ? before.lease : null);
  if (lease === null) return;
  const { worker, fence } = lease;
  const send = (message: Message): void => turn.send(runTasks(run.pool), stream, tenant, message);
  if ('settles' in event.data) tellEnds(stream, tenant, turn, event.data.fence, event.data.settles ?? []);
  switch (event.type) {
    case 'RunAccepted':
    case 'LeaseGranted':
    case 'RunResumed':
      for (const page of grantPages(run, lease, generationOf(turn, run.pool))) send(page);
      return;
    case 'EffectSettled': {
      const { step, attempt, outcome } = event.data;
      return send(StepSettled({ worker, fence, step, attempt, outcome }));
    }
    case 'WaitEnded':
      return send(WaitSettled({ worker, fence, step: event.data.step, end: event.data.end }));
    case 'StepRetryScheduled':
      return send(TryAnswered({ worker, fence, step: event.data.step, attempt: event.data.attempt, retryAt: event.data.retryAt }));
    case 'StepFailed':
      return send(TryAnswered({ worker, fence, step: event.data.step, attempt: event.data.attempt, retryAt: null }));
    case 'RunQuarantined':
      return send(IntentRefused({ worker, intent: 'any', fence, reason: 'run_quarantined', message: event.data.message }));
    case 'RunReleased':
      return send(RunDropped({ worker, fence, because: 'it waits' }));
    case 'RunPaused':
      return send(RunDropped({ worker, fence, because: `${event.data.by.name} has paused it: ${event.data.reason}` }));
    case 'RunCancelRequested':
      return send(cancelledDrop(lease, run.cancel));
    case 'RunFinished':
      // Its worker holds it until then: its word might have been refused.
      return run.lease === null ? undefined : send(RunDropped({ worker, fence, because: `it has ended: ${event.data.ending.status}` }));
    default:
      return; // The worker has seen it itself, or need not know.
  }
}

/** Across lanes runs speak as outsiders do: under a key by which the same word, sent twice, is one. */
function tellRuns(stream: string, tenant: string, turn: RunTurn, run: KnownRun, event: RunEvent): void {
  switch (event.type) {
    case 'WaitStarted': {
      const wait = run.steps.get(event.data.step);
      return wait?.kind === 'wait' ? startChild(stream, tenant, turn, run, wait) : undefined;
    }
    case 'RunFinished':
      for (const parent of run.parents) tellParent(stream, tenant, turn, parent, event.data.ending);
      return;
    case 'RunCancelRequested':
      return cancelChildren(tenant, turn, run);
    case 'RunForked':
      return startFork(stream, tenant, turn, run, event.data);
    default:
      return;
  }
}

/**
 * What a run has said to others may be lost with an old journal: it is said again. Each of it, read
 * twice, is one.
 */
export function tellAgain(stream: string, tenant: string, turn: RunTurn): void {
  const run = turn.state(stream);
  if (run.status !== 'open') return;
  // A place that was handed over to it may be free again: whoever looks finds out.
  if (run.queued !== null) turn.send(topics.agentIntents, stream, tenant, AdmitRun({ gate: run.queued.gate }));
  for (const wait of openWaits(run)) startChild(stream, tenant, turn, run, wait);
  cancelChildren(tenant, turn, run);
  const lease = run.cancel?.lease ?? null;
  if (lease !== null) turn.send(runTasks(run.pool), stream, tenant, cancelledDrop(lease, run.cancel));
}

/** Its worker says what has not fired, and the end of what has. */
const cancelledDrop = ({ worker, fence }: Lease, cancel: Cancel | null): Message => RunDropped({ worker, fence, because: `${cancel?.by ?? 'somebody'} has cancelled it: ${cancel?.reason ?? ''}`, cancelled: true });

/** A run that has ended already answers whoever wants it as a child: its first answer may be lost. */
export function answerParent(stream: string, tenant: string, turn: RunTurn, parent: Parent | undefined): void {
  const run = turn.state(stream);
  if (parent !== undefined && run.status === 'ended' && run.tenant === tenant) tellParent(stream, tenant, turn, parent, run.ending);
}

/** No such child comes about: whoever waits for it hears so. */
export const refuseParent = (child: string, tenant: string, turn: RunTurn, parent: Parent, because: string): void =>
  tellParent(child, tenant, turn, parent, { status: 'failed', failure: { class: 'concurrency_conflict', message: `run ${child} was not started: ${because}`, notApplied: true } });

function startChild(stream: string, tenant: string, turn: RunTurn, run: KnownRun, { step, wait, deadline }: WaitStep): void {
  if (wait.kind !== 'child') return;
  const parent = { run: stream as RunId, step };
  const data = { agent: wait.agent, input: wait.input, parent, ...(wait.pool === undefined ? {} : { pool: wait.pool }), ...(deadline === null ? {} : { deadline }), ...(run.principal === null ? {} : { principal: run.principal }) };
  turn.send(topics.agentIntents, wait.run, tenant, StartRun(data));
}

function startFork(stream: string, tenant: string, turn: RunTurn, { agent, pool, goal, success, principal, budgets, onDeadline, ...run }: KnownRun, { run: other, from, input }: MessageOf<typeof RunForked>['data']): void {
  const start = { agent, pool, input: input === undefined ? run.input : input.value, budgets, onDeadline, success: [...success], ...(goal === null ? {} : { goal }), ...(principal === null ? {} : { principal }) };
  const observed = run.observed.filter((step) => isBefore(step, from));
  const [first = [], ...rest] = pagesOf(stepsBefore(turn.state(stream) as KnownRun, from).map(historyStep));
  const origin = { run: stream as RunId, from };
  // A run's input may be as large as a message: steps that don't fit beside it come behind it.
  const fits = Buffer.byteLength(JSON.stringify([start, first])) <= PAGE_BYTES;
  const pages = fits ? rest : [first, ...rest];
  turn.send(topics.agentIntents, other, tenant, StartFork({ start, origin, steps: fits ? first : [], observed, ...(pages.length === 0 ? {} : { more: pages.length }) }));
  for (const [i, steps] of pages.entries()) turn.send(topics.agentIntents, other, tenant, CopySteps({ origin, steps, more: pages.length - i - 1 }));
}

const tellParent = (child: string, tenant: string, turn: RunTurn, parent: Parent, ending: Ending): void =>
  turn.send(topics.agentIntents, parent.run, tenant, ReportChild({ step: parent.step, child: child as RunId, ending }));

function cancelChildren(tenant: string, turn: RunTurn, run: KnownRun): void {
  const { cancel } = run;
  if (cancel?.scope !== 'tree') return;
  const { by, roles, reason, scope, manner, command } = cancel;
  for (const { wait, step } of openWaits(run)) {
    if (wait.kind === 'child') turn.send(topics.operatorCommands, wait.run, tenant, CancelRun({ command: `${command}/${step}`.slice(0, 200), by: { name: by, roles: [...roles] }, reason, scope, manner }));
  }
}

/** Ends that a former holder reported: the present one has not seen them, and the ledger's word on them will be no news. */
export function tellEnds(stream: string, tenant: string, turn: RunTurn, reporter: number | undefined, settles: readonly Settled[]): void {
  const run = turn.state(stream);
  if (run.status !== 'open' || run.lease === null || reporter === run.lease.fence) return;
  const { worker, fence } = run.lease;
  for (const { step } of settles) {
    const state = run.steps.get(step);
    if (state?.kind !== 'call' || state.outcome === null || state.outcome.status === 'unknown') continue;
    turn.send(runTasks(run.pool), stream, tenant, StepSettled({ worker, fence, step, attempt: state.attempt, outcome: state.outcome }));
  }
}
