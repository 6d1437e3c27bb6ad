import {
  ArgumentsReported,
  CompensateRun,
  CompensationRequested,
  DecideCompensation,
  EffectConflicted,
  EffectDispatched,
  EffectFailed,
  EffectHeld,
  effectMessages,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectRequested,
  EffectSucceeded,
  GroupRequested,
  IntentRejected,
  operatorMessages,
  ProbeReported,
  RunFinished,
  runMessages,
  toolResultMessages,
  topics,
  WaitStarted,
} from '@holdfast/protocol';
import { on, type Service } from '@holdfast/runtime';
import { dueAt } from './domain/advance.js';
import { evolve, noPlans, openPlan, type PlanEvent, type RunPlans } from './domain/plan.js';
import type { PlanHandlers } from './handlers.js';
import { marks } from './marks.js';

/** Which message goes to which handler: the whole of it. */
export const routes = (handle: PlanHandlers) => [
  on<RunPlans, PlanEvent, typeof EffectRequested.schema._output>(topics.runEvents, EffectRequested, handle.requested),
  on<RunPlans, PlanEvent, typeof GroupRequested.schema._output>(topics.runEvents, GroupRequested, handle.group),
  on<RunPlans, PlanEvent, typeof IntentRejected.schema._output>(topics.runEvents, IntentRejected, handle.refused),
  on<RunPlans, PlanEvent, typeof RunFinished.schema._output>(topics.runEvents, RunFinished, handle.finished),
  on<RunPlans, PlanEvent, typeof CompensationRequested.schema._output>(topics.runEvents, CompensationRequested, handle.deadline),
  on<RunPlans, PlanEvent, typeof WaitStarted.schema._output>(topics.runEvents, WaitStarted, handle.waits),
  on<RunPlans, PlanEvent, typeof EffectDispatched.schema._output>(topics.effectEvents, EffectDispatched, handle.dispatched),
  on<RunPlans, PlanEvent, typeof EffectHeld.schema._output>(topics.effectEvents, EffectHeld, handle.dispatched),
  on<RunPlans, PlanEvent, typeof EffectRetryScheduled.schema._output>(topics.effectEvents, EffectRetryScheduled, handle.retried),
  on<RunPlans, PlanEvent, typeof EffectSucceeded.schema._output>(topics.effectEvents, EffectSucceeded, handle.succeeded),
  on<RunPlans, PlanEvent, typeof EffectRejected.schema._output>(topics.effectEvents, EffectRejected, handle.rejected),
  on<RunPlans, PlanEvent, typeof EffectFailed.schema._output>(topics.effectEvents, EffectFailed, handle.failed),
  on<RunPlans, PlanEvent, typeof EffectOutcomeUnknown.schema._output>(topics.effectEvents, EffectOutcomeUnknown, handle.unknown),
  on<RunPlans, PlanEvent, typeof EffectConflicted.schema._output>(topics.effectEvents, EffectConflicted, handle.conflicted),
  on<RunPlans, PlanEvent, typeof ArgumentsReported.schema._output>(topics.toolResults, ArgumentsReported, handle.argued),
  on<RunPlans, PlanEvent, typeof ProbeReported.schema._output>(topics.toolResults, ProbeReported, handle.verified),
  on<RunPlans, PlanEvent, typeof CompensateRun.schema._output>(topics.operatorCommands, CompensateRun, handle.compensate),
  on<RunPlans, PlanEvent, typeof DecideCompensation.schema._output>(topics.operatorCommands, DecideCompensation, handle.decideOn),
];

export const compensation = (handle: PlanHandlers): Service<RunPlans, PlanEvent> => ({
  name: 'compensation',
  ownTopic: topics.compensationEvents,
  inbound: [
    { name: topics.runEvents, writtenBy: 'service', types: runMessages },
    { name: topics.effectEvents, writtenBy: 'service', types: effectMessages },
    { name: topics.toolResults, writtenBy: 'outsider', types: toolResultMessages },
    { name: topics.operatorCommands, writtenBy: 'outsider', types: operatorMessages },
  ],
  routes: routes(handle),
  initial: noPlans,
  evolve,
  agenda: (run) => ({ open: openPlan(run) !== null, dueAt: dueAt(run), tag: null }),
  prepare: (inbounds) => handle.prepare(inbounds),
  onDue: handle.due,
  // Nothing is sent again: a question without an answer is over at its time, and the next one is asked; the ledger knows an order by its step.
  rebuild: {},
  marks,
  onUnreadable: handle.unreadable,
  onPoison: handle.poison,
});
