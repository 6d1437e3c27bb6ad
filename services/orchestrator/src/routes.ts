import {
  AnnounceLane,
  CallGroup,
  CallTool,
  DEFAULT_POOL,
  EffectConflicted,
  EffectFailed,
  effectMessages,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectSucceeded,
  FinishRun,
  intentMessages,
  IntentRejected,
  LaneTaken,
  laneStream,
  RecordStep,
  ReportDivergence,
  ReportSteps,
  ReportTry,
  RunGranted,
  runTasks,
  StartRun,
  topics,
  type Json,
  type Pool,
} from '@holdfast/protocol';
import { on, type Inbound, type Service } from '@holdfast/runtime';
import { absent, evolve, type Run, type RunEvent } from './domain/run.js';
import type { RunHandlers } from './handlers.js';

/** Which message goes to which handler: the whole of it. */
export const routes = (handle: RunHandlers) => [
  on<Run, RunEvent, typeof StartRun.schema._output>(topics.agentIntents, StartRun, handle.start, {
    streams: ({ envelope, data, record }) => [envelope.subject, laneStream(data.pool ?? DEFAULT_POOL, record.lane)],
  }),
  on(topics.agentIntents, CallTool, handle.call),
  on(topics.agentIntents, CallGroup, handle.group),
  on(topics.agentIntents, RecordStep, handle.recordStep),
  on(topics.agentIntents, ReportTry, handle.reportTry),
  on(topics.agentIntents, ReportSteps, handle.reportSteps),
  on(topics.agentIntents, FinishRun, handle.finish),
  on(topics.agentIntents, ReportDivergence, handle.diverged),
  on(topics.agentIntents, AnnounceLane, handle.announceLane),
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

export const orchestrator = (handle: RunHandlers): Service<Run, RunEvent> => ({
  name: 'orchestrator',
  ownTopic: topics.runEvents,
  inbound: [
    { name: topics.agentIntents, writtenBy: 'outsider', types: intentMessages },
    { name: topics.effectEvents, writtenBy: 'service', types: effectMessages },
  ],
  routes: routes(handle),
  initial: absent,
  evolve,
  agenda: (run) => (run.status === 'open' ? { open: true, dueAt: null, tag: run.agent === null ? null : run.pool } : { open: run.status === 'lane', dueAt: null, tag: null }),
  prepare: (inbounds) => handle.prepare(inbounds),
  onDue: handle.due,
  rebuild: {
    answers: { [LaneTaken.type]: answered, [IntentRejected.type]: answered },
    reopen: handle.reopen,
    sent: [{ topic: (name) => name.startsWith(runTasks('' as Pool)), message: RunGranted, handle: (inbound, turn) => handle.sent(inbound as Inbound<typeof RunGranted.schema._output>, turn) }],
  },
  onUnreadable: handle.unreadable,
  onPoison: handle.poison,
});
