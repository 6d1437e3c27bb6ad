import {
  AssignCase,
  EffectFailed,
  effectMessages,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectSucceeded,
  operatorMessages,
  ProbeEffect,
  ProbeReported,
  ResolveCase,
  toolResultMessages,
  toolTasks,
  topics,
  type Pool,
} from '@holdfast/protocol';
import { on, type Inbound, type Service } from '@holdfast/runtime';
import { dueAt, evolve, noCases, type CaseEvent, type RunCases } from './domain/case.js';
import type { CaseHandlers } from './handlers.js';
import { marks } from './marks.js';

/** Which message goes to which handler: the whole of it. */
export const routes = (handle: CaseHandlers) => [
  on<RunCases, CaseEvent, typeof EffectOutcomeUnknown.schema._output>(topics.effectEvents, EffectOutcomeUnknown, handle.unknown),
  on<RunCases, CaseEvent, typeof EffectSucceeded.schema._output>(topics.effectEvents, EffectSucceeded, handle.ended('succeeded')),
  on<RunCases, CaseEvent, typeof EffectRejected.schema._output>(topics.effectEvents, EffectRejected, handle.ended('rejected')),
  on<RunCases, CaseEvent, typeof EffectFailed.schema._output>(topics.effectEvents, EffectFailed, handle.ended('failed')),
  on<RunCases, CaseEvent, typeof EffectRetryScheduled.schema._output>(topics.effectEvents, EffectRetryScheduled, handle.ended('failed')),
  on<RunCases, CaseEvent, typeof ProbeReported.schema._output>(topics.toolResults, ProbeReported, handle.answered),
  on<RunCases, CaseEvent, typeof ResolveCase.schema._output>(topics.operatorCommands, ResolveCase, handle.resolve),
  on<RunCases, CaseEvent, typeof AssignCase.schema._output>(topics.operatorCommands, AssignCase, handle.assign),
];

export const reconciliation = (handle: CaseHandlers): Service<RunCases, CaseEvent> => ({
  name: 'reconciliation',
  ownTopic: topics.reconciliationEvents,
  inbound: [
    { name: topics.effectEvents, writtenBy: 'service', types: effectMessages },
    { name: topics.toolResults, writtenBy: 'outsider', types: toolResultMessages },
    { name: topics.operatorCommands, writtenBy: 'outsider', types: operatorMessages },
  ],
  routes: routes(handle),
  initial: noCases,
  evolve,
  agenda: ({ cases }) => {
    let open = false;
    let next: number | null = null;
    for (const each of cases.values()) {
      if (each.status !== 'open') continue;
      open = true;
      const at = dueAt(each);
      if (at !== null && (next === null || at < next)) next = at;
    }
    return { open, dueAt: next, tag: null };
  },
  prepare: (inbounds) => handle.prepare(inbounds),
  onDue: handle.due,
  // Nothing is sent again: a question without an answer is over at its time, and the next one is asked.
  rebuild: {
    sent: [{ topic: (name) => name.startsWith(toolTasks('' as Pool)), message: ProbeEffect, handle: (inbound, turn) => handle.sent(inbound as Inbound<typeof ProbeEffect.schema._output>, turn) }],
  },
  marks,
  onUnreadable: handle.unreadable,
  onPoison: handle.poison,
});
