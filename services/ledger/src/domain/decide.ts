import { ignore, record, unreachable, type Decider } from '@holdfast/kernel';
import {
  DEFAULT_RETRY,
  digestOf,
  EffectConflicted,
  EffectDispatched,
  EffectFailed,
  EffectHeld,
  EffectJoined,
  EffectPaused,
  EffectProgressed,
  EffectRetryScheduled,
  EffectStopped,
  EffectSucceeded,
  EffectUnpaused,
  type Attempt,
  type Failure,
  type FireEffect,
  type Instant,
  type MessageOf,
  type Pool,
  type RequestedCall,
  type ToolContract,
  type UnknownCause,
} from '@holdfast/protocol';
import type { Command, EffectCommand, EffectDecision, IgnoreReason, Sending } from './commands.js';
import { evolve, isOpen, lastSent, lostAt, noEffects, type Before, type Effect, type EffectEvent, type EffectFacts, type RunEffects } from './effect.js';
import { exhausted, fallbackOf, forgotten, report, spentBudget, unknown } from './ended.js';
import type { Gate } from './health.js';
import { leavesDoubt } from './recovery-policy.js';
import { verdict } from './verdict.js';

/** How long after an attempt's last moment its end may still be under way to us. Milliseconds. */
export const REPORT_GRACE_MS = 2000;
const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_QUEUE_MS = 60_000;
const DEFAULT_HOLD_MS = 600_000;

export function decide(command: EffectCommand, effects: RunEffects): EffectDecision {
  switch (command.type) {
    case 'request':
      return request(command, effects);
    case 'order':
      return order(command, effects);
    case 'doubt':
      return doubted(command, effects);
    case 'report':
      return report(command, effects);
    case 'cancel':
      return cancelled(command, effects.get(command.step));
    case 'pause':
    case 'unpause':
      return pause(command, effects.get(command.step));
    case 'alive':
      return alive(command, effects.get(command.step));
    case 'host_lost':
      return hostLost(command, effects);
    case 'verdict':
      return verdict(command, effects);
    case 'due':
      return due(command, effects);
    default:
      return unreachable(command);
  }
}

export const effectDecider: Decider<EffectCommand, RunEffects, EffectEvent, IgnoreReason, never> = { initial: noEffects, decide, evolve };

function request(command: Command<'request'>, effects: RunEffects): EffectDecision {
  const { call, claim } = command;
  if (effects.has(call.step)) return ignore('duplicate');
  const { step, key, tool, digest } = call;
  if (claim.held === 'by_other') {
    if (claim.digest !== digest) return record(EffectConflicted({ step, key, tool, digest, owner: claim.owner }));
    if (claim.outcome === null) return record(EffectJoined({ step, key, tool, digest, owner: claim.owner }));
    const { result, evidence } = claim.outcome;
    return record<EffectEvent>(EffectJoined({ step, key, tool, digest, owner: claim.owner }), EffectSucceeded({ step, key, attempt: 1, result, evidence, replayed: claim.owner }));
  }
  const { approval } = call;
  // Looked at again here, against what is about to be sent.
  if (approval !== undefined && (approval.digest !== digest || isOver(approval.expiresAt ?? null, command.at))) {
    const failure: Failure = { class: 'policy_denied', message: approval.digest === digest ? `the approval by ${approval.by} has expired` : `the approval by ${approval.by} is for other arguments`, notApplied: true };
    const local = { tool, effect: call.effect, digest, args: call.args };
    return record(EffectFailed({ step, key, attempt: 1, failure, evidence: { kind: 'ledger', at: command.at }, because: 'what was approved is not what would be sent', local }));
  }
  const first = { ...call, fence: command.fence, since: null };
  if (command.held === undefined) return send(first, 1, 'first attempt', command, call);
  const { brake, by, reason } = command.held;
  const because = `${by} holds ${brake} still: ${reason}`;
  const held = send(first, 1, because, { ...command, gate: { open: false, because: 'paused', message: because, lookAgainAt: command.at } }, call);
  return held.kind === 'record' ? record(...held.events, EffectPaused({ step, key, attempt: 1, by: brake, because })) : held;
}

/** A compensation is an effect like any other, under a key of its own for ever. One that is known to have changed nothing may be sent again under it, once for each time that this is asked for. */
function order(command: Command<'order'>, effects: RunEffects): EffectDecision {
  const { call, fence, after, because } = command;
  const before = effects.get(call.step);
  if (before === undefined) return send({ ...call, fence, since: null }, 1, because, command, call);
  const ended = before.status === 'failed' || before.status === 'rejected';
  return ended && before.attempt === after && before.key === call.key ? send({ ...before, fence }, after + 1, because, command) : ignore('duplicate');
}

/** Where the ledger has heard nothing of an effect that may have fired, a case settles it. */
function doubted(command: Command<'doubt'>, effects: RunEffects): EffectDecision {
  const { call, because, at } = command;
  if (effects.has(call.step)) return ignore('duplicate');
  const { step, key, tool, effect, args, digest } = call;
  const doubt = unknown(command, { step, key, tool, effect, args, attempt: 1, fence: 0, since: null, stopped: null, local: { tool, effect, digest, args } }, { cause: 'host_lost', message: because, notAfter: at });
  // Its run is over: proved not to have happened, it is not made to happen.
  return doubt.kind === 'record' ? record<EffectEvent>(...doubt.events, EffectStopped({ step, key, attempt: 1, because })) : doubt;
}

type ToSend = Pick<EffectFacts, 'step' | 'key' | 'tool' | 'effect' | 'keyScope' | 'digest' | 'fence' | 'since'> & Partial<Pick<EffectFacts, 'approvedUntil'>>;

const isOver = (approvedUntil: Instant | null, at: Instant): boolean => approvedUntil !== null && at > approvedUntil;

/** Sends an attempt, or holds it back where the tool's circuit is open or all its places are taken. */
function send(effect: ToSend, attempt: Attempt, because: string, sending: Sending & { readonly gate: Gate }, first?: RequestedCall): EffectDecision {
  const { step, key, tool, digest, keyScope, fence } = effect;
  const { gate, at, contract, taskSeq } = sending;
  const firstOnly = first === undefined ? {} : { args: first.args, ...(first.attemptsMax === undefined ? {} : { attemptsMax: first.attemptsMax }), ...(first.repairs === undefined ? {} : { repairs: first.repairs }), ...(first.approval?.expiresAt === undefined ? {} : { approvedUntil: first.approval.expiresAt }) };
  const facts = { step, key, tool, effect: effect.effect, keyScope, digest, fence, attempt, ...firstOnly };
  if (!gate.open) return record(EffectHeld({ ...facts, because: gate.because, message: gate.message, since: at, until: at + (contract?.holdMs ?? DEFAULT_HOLD_MS) }));
  const approvedUntil = first?.approval?.expiresAt ?? effect.approvedUntil ?? Infinity;
  const notAfter = Math.min(at + (contract?.queueMs ?? DEFAULT_QUEUE_MS), approvedUntil);
  const since = attempt === 1 ? at : effect.since;
  return record(
    // Committed before its task is published.
    EffectDispatched({
      ...facts,
      pool: contract?.pool ?? ('default' as Pool),
      because,
      notAfter,
      deadline: notAfter + (contract?.timeoutMs ?? DEFAULT_TIMEOUT_MS) + REPORT_GRACE_MS,
      taskSeq,
      ...(since === null ? {} : { since }),
      // It may wait for a host until `notAfter`, and shows life from then on.
      ...(contract?.heartbeatMs === undefined ? {} : { aliveUntil: notAfter + contract.heartbeatMs }),
    }),
  );
}

/** What waits to be sent is not sent any more. What is under way, or in doubt, ends as it ends, and is not tried again. */
function cancelled(command: Command<'cancel'>, effect: Effect | undefined): EffectDecision {
  const { because, at } = command;
  const failure = (notApplied: boolean): Failure => ({ class: 'cancelled', message: because, ...(notApplied ? { notApplied } : {}) });
  switch (effect?.status) {
    case 'dispatched':
    case 'unknown':
      return effect.stopped === null ? record(EffectStopped({ step: effect.step, key: effect.key, attempt: effect.attempt, because })) : ignore('recorded_before');
    case 'held':
    case 'joined':
    case 'retry_scheduled': {
      const before = effect.status === 'joined' ? null : effect.status === 'held' ? effect.before : effect;
      // The attempt before may have been applied, where nobody said that it was not.
      if (before !== null && leavesDoubt(before.failure, effect.effect)) return exhausted(command, { ...attemptBefore(effect, before, effect.attempt + (effect.status === 'held' ? 0 : 1)), stopped: because }, before.failure, { kind: 'ledger', at }, because);
      return record(EffectFailed({ step: effect.step, key: effect.key, attempt: effect.attempt, failure: failure(before === null || before.failure.notApplied === true), evidence: { kind: 'ledger', at }, because: 'its run is cancelled' }));
    }
    default:
      return ignore('not_under_way');
  }
}

/** What waits to be sent waits longer; what is under way ends as it ends, and what follows from that waits. */
function pause({ type, by, because, at, contract }: Command<'pause'> | Command<'unpause'>, effect: Effect | undefined): EffectDecision {
  if (effect === undefined || !isOpen(effect)) return ignore('not_under_way');
  const { step, key, attempt } = effect;
  if (effect.paused.has(by) === (type === 'pause')) return ignore('recorded_before');
  return record(type === 'pause' ? EffectPaused({ step, key, attempt, by, because }) : EffectUnpaused({ step, key, attempt, by, until: at + (contract?.holdMs ?? DEFAULT_HOLD_MS) }));
}

/** A task of this ledger as it is found on a topic. */
export interface FoundTask {
  readonly pool: Pool;
  /** Its `ce_seq`. */
  readonly taskSeq: number;
  readonly sentAt: Instant;
  /** The tool's contract; null when no worker declares it any more. */
  readonly contract: ToolContract | null;
}

/** The event that a task shows to have been decided, where the stream does not hold it; null when it does. */
export function sentBefore(task: MessageOf<typeof FireEffect>['data'], effect: Effect | undefined, { pool, taskSeq, sentAt, contract }: FoundTask): EffectEvent | null {
  const { step, key, tool, attempt, fence, args, notAfter, timeoutMs, attemptsMax, repairs } = task;
  if (effect !== undefined && (lastSent(effect) >= attempt || !isOpen(effect))) return null;
  return EffectDispatched({
    step,
    key,
    tool,
    effect: task.effect,
    keyScope: task.keyScope ?? effect?.keyScope ?? 'run',
    pool,
    digest: task.digest ?? effect?.digest ?? digestOf(args),
    attempt,
    fence,
    ...(effect === undefined ? { args } : {}),
    because: 'its task was found sent when the journal was rebuilt',
    notAfter,
    deadline: notAfter + timeoutMs + REPORT_GRACE_MS,
    taskSeq,
    since: effect?.since ?? sentAt,
    ...(contract?.heartbeatMs === undefined ? {} : { aliveUntil: notAfter + contract.heartbeatMs }),
    ...(attemptsMax === undefined ? {} : { attemptsMax }),
    ...(repairs === undefined ? {} : { repairs }),
  });
}

/** A sign of life prolongs the attempt; it is recorded when it prolongs it by a third of what is allowed or more. */
function alive({ step, attempt, progress, at, contract }: Command<'alive'>, effect: Effect | undefined): EffectDecision {
  if (effect?.status !== 'dispatched' || effect.attempt !== attempt) return ignore('not_under_way');
  if (contract?.heartbeatMs === undefined || effect.aliveUntil === null) return ignore('not_due');
  const aliveUntil = at + contract.heartbeatMs;
  // The first one ends the wait for a host, whether or not that brings the time forward.
  const first = effect.aliveUntil === effect.notAfter + contract.heartbeatMs;
  if (!first && aliveUntil - effect.aliveUntil < contract.heartbeatMs / 3) return ignore('not_due');
  return record(EffectProgressed({ step, key: effect.key, attempt, aliveUntil, ...(progress === undefined ? {} : { progress }) }));
}

function hostLost(command: Command<'host_lost'>, effects: RunEffects): EffectDecision {
  const effect = effects.get(command.step);
  if (effect === undefined || effect.status !== 'dispatched') return ignore('already_settled');
  if (effect.pool !== command.pool) return ignore('other_pool');
  // A task after the last one taken reaches the new host by itself.
  if (effect.taskSeq > command.takenSeq) return ignore('not_taken');
  return attemptLost(command, effect, effects, 'host_lost', `the host of attempt ${effect.attempt} lost its lane before it reported an end`);
}

function attemptLost(sending: Sending, effect: Extract<Effect, { status: 'dispatched' }>, effects: RunEffects, cause: UnknownCause, message: string): EffectDecision {
  const { step, key, attempt } = effect;
  if (effect.effect === 'irreversible') return unknown(sending, effect, { cause, message, notAfter: effect.notAfter });
  const failure: Failure = { class: 'unknown_outcome', message };
  const spent = spentBudget(sending.contract, effect, sending.at, (sending.contract?.retry ?? DEFAULT_RETRY).attemptsMax, effects);
  if (spent === null) return record(EffectRetryScheduled({ step, key, attempt, failure, because: message, retryAt: sending.at }));
  // A read that never came back did not happen; a change that may have is not called failed.
  if (effect.effect === 'idempotent') return unknown(sending, effect, { cause, message: `${message}; ${spent}`, notAfter: effect.notAfter });
  return record(EffectFailed({ step, key, attempt, failure: { ...failure, ...fallbackOf(sending.contract, failure) }, evidence: { kind: 'ledger' }, because: spent }));
}

function due(command: Command<'due'>, effects: RunEffects): EffectDecision {
  const effect = effects.get(command.step);
  switch (effect?.status) {
    case 'dispatched':
      if (command.at < lostAt(effect)) return ignore('not_due');
      if (command.at < effect.deadline) return attemptLost(command, effect, effects, 'heartbeat_lost', `attempt ${effect.attempt} showed no life until its time was up`);
      return attemptLost(command, effect, effects, 'deadline', `attempt ${effect.attempt} reported no end by its deadline`);
    case 'retry_scheduled':
      if (effect.paused.size > 0) return ignore('paused');
      return command.at < effect.retryAt ? ignore('not_due') : sendAgain(command, effect, effect, effect.attempt + 1, `retry after ${effect.failure.class}`);
    case 'held':
      return held(command, effect);
    case 'joined':
      return joined(command, effect);
    default:
      return ignore('not_due');
  }
}

/** However long it had to wait for its turn, no attempt goes to a target that may have forgotten its key by then, nor without the approval that it needs. */
function sendAgain(command: Command<'due'>, effect: Extract<Effect, { status: 'retry_scheduled' | 'held' }>, before: Before, attempt: Attempt, because: string): EffectDecision {
  const late = isOver(effect.approvedUntil, command.at) ? 'its approval has expired' : forgotten(command.contract, effect, command.at);
  return late === null ? send(effect, attempt, because, command) : exhausted(command, attemptBefore(effect, before, attempt), before.failure, { kind: 'ledger' }, late);
}

const attemptBefore = ({ step, key, tool, effect, args, fence, since, stopped }: EffectFacts, { notAfter }: Before, attempt: Attempt) => ({ step, key, tool, effect, args, fence, since, stopped, attempt: attempt - 1, ...(notAfter === null ? {} : { notAfter }) });

/** An effect that waits for its tool: sent as soon as that is allowed; failed, where no attempt may have been applied, when it has waited too long. */
function held(command: Command<'due'>, effect: Extract<Effect, { status: 'held' }>): EffectDecision {
  const { step, key, attempt, before } = effect;
  if (effect.paused.size > 0) return ignore('paused');
  if (command.gate.open && before === null && isOver(effect.approvedUntil, command.at)) {
    const failure: Failure = { class: 'policy_denied', message: 'its approval expired before its turn had come; nothing was fired', notApplied: true };
    return record(EffectFailed({ step, key, attempt, failure, evidence: { kind: 'ledger' }, because: 'what allowed it is over' }));
  }
  if (command.gate.open) return before === null ? send(effect, attempt, 'its turn has come', command) : sendAgain(command, effect, before, attempt, 'its turn has come');
  if (command.at < effect.until) return ignore('still_held');
  const message = `attempt ${attempt} was not sent in time: ${command.gate.message}`;
  if (before !== null && leavesDoubt(before.failure, effect.effect)) return exhausted(command, attemptBefore(effect, before, attempt), before.failure, { kind: 'ledger' }, message);
  const failure: Failure = { class: 'expired', message: `${message}; nothing was fired`, notApplied: true };
  return record(EffectFailed({ step, key, attempt, failure: { ...failure, ...fallbackOf(command.contract, failure) }, evidence: { kind: 'ledger' }, because: 'it waited longer than its contract allows' }));
}

/** Another run's effect holds the key: its outcome is this one's. */
function joined(command: Command<'due'>, effect: Extract<Effect, { status: 'joined' }>): EffectDecision {
  const { claim } = command;
  const { step, key, owner } = effect;
  // With other arguments it is held by somebody who came once the owner had let it go.
  if (claim.held === 'by_other' && claim.digest === effect.digest) {
    if (claim.outcome === null) return ignore('still_joined');
    return record(EffectSucceeded({ step, key, attempt: 1, result: claim.outcome.result, evidence: claim.outcome.evidence, replayed: claim.owner }));
  }
  const message = `run ${owner.run} step ${owner.step}, which held this operation key, ended without the effect; a new try is a new step`;
  return record(EffectFailed({ step, key, attempt: 1, failure: { class: 'concurrency_conflict', message, notApplied: true }, evidence: { kind: 'ledger' }, because: message }));
}
