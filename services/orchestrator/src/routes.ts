import {
  AbandonWait,
  AdmitRun,
  AnnounceLane,
  CallGroup,
  CallTool,
  CancelRun,
  DecideApproval,
  DeliverCallback,
  DEFAULT_POOL,
  EffectConflicted,
  EffectFailed,
  effectMessages,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectSucceeded,
  FinishRun,
  CopySteps,
  ForkRun,
  intentMessages,
  IntentRejected,
  LaneTaken,
  laneStream,
  operatorMessages,
  PauseRun,
  PlanConcluded,
  planMessages,
  PlanOpened,
  RecordStep,
  ReleaseBrake,
  ReleaseRun,
  ReportChild,
  ReportDivergence,
  ReportSteps,
  ReportTry,
  RunGranted,
  runTasks,
  SetBrake,
  SignalRun,
  StartFork,
  StartRefused,
  StartRun,
  StartWait,
  topics,
  UnpauseRun,
  UnquarantineRun,
  type Json,
  type Pool,
} from '@holdfast/protocol';
import { on, type Inbound, type Service } from '@holdfast/runtime';
import { absent, evolveAt, holdOf, isCopying, type Run, type RunEvent } from './domain/run.js';
import { localSteps } from './domain/unheard.js';
import { dueAt } from './domain/waiting.js';
import { Gates } from './gates.js';
import type { RunHandlers } from './handlers.js';
import { HELD_TAG, LANES_TAG } from './lanes.js';
import type { WaitHandlers } from './wait-handlers.js';
import { marks } from './marks.js';

/** Which message goes to which handler: the whole of it. */
export const routes = (handle: RunHandlers, wait: WaitHandlers) => [
  on<Run, RunEvent, typeof StartRun.schema._output>(topics.agentIntents, StartRun, handle.start, {
    streams: ({ envelope, data, record }) => [envelope.subject, laneStream(data.pool ?? DEFAULT_POOL, record.lane)],
  }),
  on<Run, RunEvent, typeof StartFork.schema._output>(topics.agentIntents, StartFork, handle.startFork, {
    streams: ({ envelope, data, record }) => [envelope.subject, laneStream(data.start.pool ?? DEFAULT_POOL, record.lane)],
  }),
  on<Run, RunEvent, typeof CopySteps.schema._output>(topics.agentIntents, CopySteps, handle.copySteps),
  on(topics.agentIntents, AdmitRun, handle.admit),
  on(topics.agentIntents, CallTool, handle.call),
  on(topics.agentIntents, CallGroup, handle.group),
  on(topics.agentIntents, RecordStep, handle.recordStep),
  on(topics.agentIntents, ReportTry, handle.reportTry),
  on(topics.agentIntents, ReportSteps, handle.reportSteps),
  on(topics.agentIntents, FinishRun, handle.finish),
  on(topics.agentIntents, ReportDivergence, handle.diverged),
  on(topics.agentIntents, AnnounceLane, handle.announceLane),
  on(topics.agentIntents, StartWait, wait.startWait),
  on(topics.agentIntents, ReleaseRun, wait.release),
  on(topics.agentIntents, AbandonWait, wait.abandon),
  on(topics.agentIntents, SignalRun, wait.signal),
  on(topics.agentIntents, DeliverCallback, wait.callback),
  on(topics.agentIntents, ReportChild, wait.child),
  on(topics.operatorCommands, DecideApproval, wait.approve),
  on(topics.operatorCommands, CancelRun, wait.cancel),
  on(topics.operatorCommands, PauseRun, wait.pause),
  on(topics.operatorCommands, UnpauseRun, wait.unpause),
  on(topics.operatorCommands, UnquarantineRun, wait.unquarantine),
  on(topics.compensationEvents, PlanOpened, wait.planOpened),
  on(topics.compensationEvents, PlanConcluded, wait.planConcluded),
  on(topics.operatorCommands, ForkRun, wait.fork),
  on(topics.operatorCommands, SetBrake, wait.setBrake),
  on(topics.operatorCommands, ReleaseBrake, wait.releaseBrake),
  on(topics.effectEvents, EffectSucceeded, handle.succeeded),
  on(topics.effectEvents, EffectRejected, handle.rejected),
  on(topics.effectEvents, EffectFailed, handle.failed),
  on(topics.effectEvents, EffectConflicted, handle.conflicted),
  on(topics.effectEvents, EffectOutcomeUnknown, handle.unknown),
  on(topics.effectEvents, EffectRetryScheduled, handle.retried),
];

/** Both name the offset of the message on `agent.intents` that they answer. */
function answered(data: Json): { topic: string; offset: number } | null {
  const offset = data !== null && typeof data === 'object' && 'offset' in data ? data.offset : null;
  return typeof offset === 'number' ? { topic: topics.agentIntents, offset } : null;
}

export const orchestrator = (handle: RunHandlers, wait: WaitHandlers): Service<Run, RunEvent> => ({
  name: 'orchestrator',
  ownTopic: topics.runEvents,
  inbound: [
    { name: topics.agentIntents, writtenBy: 'outsider', types: intentMessages },
    { name: topics.effectEvents, writtenBy: 'service', types: effectMessages },
    { name: topics.operatorCommands, writtenBy: 'outsider', types: operatorMessages },
    { name: topics.compensationEvents, writtenBy: 'service', types: planMessages },
  ],
  routes: routes(handle, wait),
  initial: absent,
  evolve: evolveAt,
  agenda: (run) => {
    if (run.status === 'lane') return { open: true, dueAt: null, tag: LANES_TAG };
    if (run.status === 'brakes') return { open: run.set.size > 0, dueAt: null, tag: null };
    if (run.status !== 'open') return { open: false, dueAt: null, tag: null };
    // A run that is let go or held back needs no worker when its lane changes hands, unless ends of local calls may be lost with one.
    const wanted = run.agent !== null && !run.released && run.queued === null && !isCopying(run) && holdOf(run) === null && (run.cancel === null || localSteps(run).length > 0);
    return { open: true, dueAt: dueAt(run, handle.settings.stuckAfterMs), tag: wanted ? run.pool : run.released ? null : HELD_TAG };
  },
  prepare: (inbounds) => handle.prepare(inbounds),
  onDue: handle.due,
  rebuild: {
    shared: Gates.words,
    added: handle.budgets.words,
    answers: { [LaneTaken.type]: answered, [IntentRejected.type]: answered, [StartRefused.type]: answered },
    reopen: handle.reopen,
    sent: [{ topic: (name) => name.startsWith(runTasks('' as Pool)), message: RunGranted, handle: (inbound, turn) => handle.sent(inbound as Inbound<typeof RunGranted.schema._output>, turn) }],
  },
  marks,
  onUnreadable: handle.unreadable,
  onPoison: handle.poison,
});
