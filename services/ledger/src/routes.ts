import {
  BrakeReleased,
  BrakeSet,
  caseMessages,
  CaseSettled,
  CompensationOrdered,
  EffectDoubted,
  EffectHeartbeat,
  EffectReported,
  EffectRequested,
  FireEffect,
  GroupRequested,
  IntentRejected,
  LaneTaken,
  planMessages,
  RunCancelRequested,
  RunFinished,
  runMessages,
  RunReleased,
  RunPaused,
  RunUnpaused,
  StepFailed,
  StepRecorded,
  StepRetryScheduled,
  StepsReported,
  toolResultMessages,
  toolTasks,
  topics,
  WaitAbandoned,
  WaitStarted,
  type MessageType,
  type Pool,
  type Settled,
  type Step,
} from '@holdfast/protocol';
import { on, type Inbound, type Service } from '@holdfast/runtime';
import { dueAt, evolveAt, isOpen, noEffects, type EffectEvent, type RunEffects } from './domain/effect.js';
import { claimKey, EFFECTS_TAG, type EffectHandlers } from './handlers.js';
import { marks } from './marks.js';

type WithSettles = MessageType<string, { settles?: Settled[] | undefined }>;

/** Locks for ends of effects whose key spans runs, or whose tool is watched. */
const endLocks = (handle: EffectHandlers, steps: readonly Step[], effects: RunEffects): string[] =>
  steps.flatMap((step) => {
    const effect = effects.get(step);
    return effect === undefined ? [] : [...(effect.keyScope === 'target' ? [claimKey(effect.key)] : []), ...(isOpen(effect) ? handle.locksFor(effect.tool) : [])];
  });

/** The same, with effects that the ledger hears of by their end. */
const settleLocks = (handle: EffectHandlers, settles: readonly Settled[] | undefined, effects: RunEffects): string[] => [
  ...endLocks(handle, (settles ?? []).map(({ step }) => step), effects),
  ...(settles ?? []).flatMap(({ local }) => (local === undefined ? [] : handle.locksFor(local.tool))),
];

/** A run event of which only what it reports concerns the ledger. */
const onSettles = (message: WithSettles, handle: EffectHandlers) =>
  on<RunEffects, EffectEvent, { settles?: Settled[] | undefined }>(topics.runEvents, message, handle.settles, {
    locks: ({ data, envelope }, state) => settleLocks(handle, data.settles, state(envelope.subject)),
  });

/** Which message goes to which handler: the whole of it. */
export const routes = (handle: EffectHandlers) => [
  on<RunEffects, EffectEvent, typeof EffectRequested.schema._output>(topics.runEvents, EffectRequested, handle.requested, {
    locks: ({ data, envelope }, state) => [
      ...(data.fire === 'granted' && data.call.keyScope === 'target' ? [claimKey(data.call.key)] : []),
      ...(data.fire === 'granted' ? handle.locksFor(data.call.tool) : []),
      ...settleLocks(handle, data.settles, state(envelope.subject)),
    ],
  }),
  onSettles(GroupRequested, handle),
  onSettles(StepRecorded, handle),
  onSettles(StepRetryScheduled, handle),
  onSettles(StepFailed, handle),
  onSettles(StepsReported, handle),
  onSettles(WaitStarted, handle),
  onSettles(WaitAbandoned, handle),
  onSettles(RunReleased, handle),
  onSettles(IntentRejected, handle),
  on<RunEffects, EffectEvent, typeof RunFinished.schema._output>(topics.runEvents, RunFinished, handle.ended, {
    locks: ({ data, envelope }, state) => [...settleLocks(handle, data.settles, state(envelope.subject)), ...endLocks(handle, [...state(envelope.subject).keys()], state(envelope.subject))],
  }),
  on<RunEffects, EffectEvent, typeof RunCancelRequested.schema._output>(topics.runEvents, RunCancelRequested, handle.cancelled, {
    locks: ({ envelope }, state) => endLocks(handle, [...state(envelope.subject).keys()], state(envelope.subject)),
  }),
  on(topics.runEvents, RunPaused, handle.paused),
  on(topics.runEvents, RunUnpaused, handle.unpaused),
  on<RunEffects, EffectEvent, typeof BrakeSet.schema._output>(topics.runEvents, BrakeSet, handle.braked, { streams: ({ data }, open) => (data.target.kind === 'tool' ? open(EFFECTS_TAG) : []) }),
  on<RunEffects, EffectEvent, typeof BrakeReleased.schema._output>(topics.runEvents, BrakeReleased, handle.unbraked, { streams: ({ data }, open) => (data.target.kind === 'tool' ? open(EFFECTS_TAG) : []) }),
  on<RunEffects, EffectEvent, typeof LaneTaken.schema._output>(topics.runEvents, LaneTaken, handle.laneTaken, { streams: (_, open) => open(EFFECTS_TAG) }),
  on<RunEffects, EffectEvent, typeof EffectReported.schema._output>(topics.toolResults, EffectReported, handle.reported, {
    locks: ({ data, envelope }, state) => endLocks(handle, [data.step], state(envelope.subject)),
  }),
  on(topics.toolResults, EffectHeartbeat, handle.alive),
  on<RunEffects, EffectEvent, typeof CompensationOrdered.schema._output>(topics.compensationEvents, CompensationOrdered, handle.ordered, { locks: ({ data }) => handle.locksFor(data.tool) }),
  on<RunEffects, EffectEvent, typeof EffectDoubted.schema._output>(topics.compensationEvents, EffectDoubted, handle.doubted),
  on<RunEffects, EffectEvent, typeof CaseSettled.schema._output>(topics.reconciliationEvents, CaseSettled, handle.caseSettled, {
    locks: ({ data, envelope }, state) => endLocks(handle, [data.step], state(envelope.subject)),
  }),
];

export const ledger = (handle: EffectHandlers): Service<RunEffects, EffectEvent> => ({
  name: 'ledger',
  ownTopic: topics.effectEvents,
  inbound: [
    { name: topics.runEvents, writtenBy: 'service', types: runMessages },
    { name: topics.toolResults, writtenBy: 'outsider', types: toolResultMessages },
    { name: topics.reconciliationEvents, writtenBy: 'service', types: caseMessages },
    { name: topics.compensationEvents, writtenBy: 'service', types: planMessages },
  ],
  routes: routes(handle),
  initial: noEffects,
  evolve: evolveAt,
  agenda: (effects) => {
    let open = false;
    let next: number | null = null;
    for (const effect of effects.values()) {
      if (!isOpen(effect)) continue;
      open = true;
      const at = dueAt(effect);
      if (at !== null && (next === null || at < next)) next = at;
    }
    return { open, dueAt: next, tag: EFFECTS_TAG };
  },
  prepare: (inbounds) => handle.prepare(inbounds),
  onDue: handle.due,
  dueLocks: (_, effects) => [...effects.values()].flatMap((effect) => (effect.status === 'joined' ? [claimKey(effect.key)] : [])),
  rebuild: {
    shared: (run, effects) => [...effects.values()].flatMap((effect) => handle.shared(run, effect)),
    sent: [{ topic: (name) => name.startsWith(toolTasks('' as Pool)), message: FireEffect, handle: (inbound, turn) => handle.sent(inbound as Inbound<typeof FireEffect.schema._output>, turn) }],
  },
  marks,
  onUnreadable: handle.unreadable,
  onPoison: handle.poison,
});
