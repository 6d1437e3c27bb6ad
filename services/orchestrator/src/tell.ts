import {
  CancelRun,
  IntentRefused,
  ReportChild,
  RunDropped,
  runTasks,
  StartRun,
  StepSettled,
  topics,
  TryAnswered,
  WaitSettled,
  type Message,
  type Settled,
} from '@holdfast/protocol';
import type { Turn } from '@holdfast/runtime';
import { openWaits, type KnownRun, type Run, type RunEvent } from './domain/run.js';
import { grantPages } from './history.js';
import { generationOf } from './lanes.js';

type RunTurn = Turn<Run, RunEvent>;

const isKnown = (run: Run): run is KnownRun => run.status !== 'absent' && run.status !== 'lane';

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
      return send(RunDropped({ worker, fence, because: `${event.data.by.name} has cancelled it: ${event.data.reason}` }));
    case 'RunFinished':
      // Its own worker's word names its fence; an end that came from elsewhere is news to it.
      return event.data.fence === undefined && run.lease !== null ? send(RunDropped({ worker, fence, because: `it has ended: ${event.data.ending.status}` })) : undefined;
    default:
      return; // The worker has seen it itself, or need not know.
  }
}

/** Across lanes runs speak as outsiders do: under a key by which the same word, sent twice, is one. */
function tellRuns(stream: string, tenant: string, turn: RunTurn, run: KnownRun, event: RunEvent): void {
  switch (event.type) {
    case 'WaitStarted': {
      const { step, wait, deadline } = event.data;
      if (wait.kind !== 'child') return;
      const parent = { run: stream as NonNullable<KnownRun['parent']>['run'], step };
      const data = { agent: wait.agent, input: wait.input, parent, ...(wait.pool === undefined ? {} : { pool: wait.pool }), ...(deadline === undefined ? {} : { deadline }), ...(run.principal === null ? {} : { principal: run.principal }) };
      return turn.send(topics.agentIntents, wait.run, tenant, StartRun(data));
    }
    case 'RunFinished':
      if (run.parent !== null) turn.send(topics.agentIntents, run.parent.run, tenant, ReportChild({ step: run.parent.step, child: stream as NonNullable<KnownRun['parent']>['run'], ending: event.data.ending }));
      return;
    case 'RunCancelRequested': {
      const { by, reason, scope, manner, command } = event.data;
      if (scope !== 'tree') return;
      for (const { wait, step } of openWaits(run)) {
        if (wait.kind === 'child') turn.send(topics.operatorCommands, wait.run, tenant, CancelRun({ command: `${command}/${step}`.slice(0, 200), by, reason, scope, manner }));
      }
      return;
    }
    default:
      return;
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
