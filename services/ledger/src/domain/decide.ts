import { ignore, record, unreachable, type Decider, type Decision } from '@holdfast/kernel';
import {
  backoffMs,
  DEFAULT_RETRY,
  digestOf,
  DuplicateEffectDetected,
  EffectConflicted,
  EffectDispatched,
  EffectFailed,
  EffectJoined,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectSucceeded,
  LateResultRecorded,
  type Attempt,
  type EffectClass,
  type Evidence,
  type Failure,
  type FireEffect,
  type Instant,
  type MessageOf,
  type Outcome,
  type Pool,
  type RequestedCall,
  type Settled,
  type Step,
  type ToolContract,
  type UnknownCause,
} from '@holdfast/protocol';
import type { Claim } from './claim.js';
import { duplicateToken, endToken, evolve, isOpen, lateToken, noEffects, type Effect, type EffectEvent, type RunEffects } from './effect.js';
import { recoveryPolicy } from './recovery-policy.js';

/** Facts from outside that every decision to send an attempt needs. */
export interface Sending {
  readonly at: Instant;
  /** The tool's contract; null when no worker declares it any more. */
  readonly contract: ToolContract | null;
  /** `ce_seq` that the task of a dispatch decided now will have: the row after its event. */
  readonly taskSeq: number;
  /** In [0, 1): jitter of a back-off. */
  readonly jitter: number;
}

export type EffectCommand =
  | ({ readonly type: 'request'; readonly call: RequestedCall; readonly fence: number; /** Who holds the key, for key scope `target`. */ readonly claim: Claim } & Sending)
  /** An attempt's end, from its host or through the run's worker. */
  | ({ readonly type: 'report'; readonly step: Step; readonly attempt: Attempt; readonly outcome: Outcome; readonly local?: Settled['local'] } & Sending)
  /** A lane of a pool has a new host; tasks up to `takenSeq` had been taken by former ones. */
  | ({ readonly type: 'host_lost'; readonly step: Step; readonly pool: Pool; readonly takenSeq: number } & Sending)
  | ({ readonly type: 'due'; readonly step: Step; readonly claim: Claim } & Sending);

export type IgnoreReason = 'duplicate' | 'already_settled' | 'effect_unknown' | 'not_due' | 'other_pool' | 'not_taken' | 'still_joined' | 'recorded_before' | 'retried_since';
export type EffectDecision = Decision<EffectEvent, IgnoreReason, never>;
type Command<Type extends EffectCommand['type']> = Extract<EffectCommand, { type: Type }>;

/** How long after an attempt's last moment its end may still be under way to us. Milliseconds. */
export const REPORT_GRACE_MS = 2000;
const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_QUEUE_MS = 60_000;

export function decide(command: EffectCommand, effects: RunEffects): EffectDecision {
  switch (command.type) {
    case 'request':
      return request(command, effects);
    case 'report':
      return report(command, effects.get(command.step));
    case 'host_lost':
      return hostLost(command, effects.get(command.step));
    case 'due':
      return due(command, effects.get(command.step));
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
  return record(dispatch({ ...call, fence: command.fence, args: call.args }, 1, 'first attempt', command, call.args));
}

/** Sends an attempt: granted, and committed before its task is published. */
function dispatch(
  effect: Pick<Effect, 'step' | 'key' | 'tool' | 'effect' | 'keyScope' | 'digest' | 'fence' | 'args'>,
  attempt: Attempt,
  because: string,
  { at, contract, taskSeq }: Sending,
  firstArgs?: RequestedCall['args'],
): EffectEvent {
  const { step, key, tool, digest, keyScope, fence } = effect;
  const notAfter = at + (contract?.queueMs ?? DEFAULT_QUEUE_MS);
  return EffectDispatched({
    step,
    key,
    tool,
    effect: effect.effect,
    keyScope,
    pool: contract?.pool ?? ('default' as Pool),
    digest,
    attempt,
    fence,
    ...(firstArgs === undefined ? {} : { args: firstArgs }),
    because,
    notAfter,
    deadline: notAfter + (contract?.timeoutMs ?? DEFAULT_TIMEOUT_MS) + REPORT_GRACE_MS,
    taskSeq,
  });
}

/** The event that a task shows to have been decided, where the stream does not hold it; null when it does. */
export function sentBefore(task: MessageOf<typeof FireEffect>['data'], effect: Effect | undefined, pool: Pool, taskSeq: number): EffectEvent | null {
  const { step, key, tool, attempt, fence, args, notAfter, timeoutMs } = task;
  if (effect !== undefined && (effect.attempt >= attempt || !isOpen(effect))) return null;
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
  });
}

function report(command: Command<'report'>, effect: Effect | undefined): EffectDecision {
  const { local } = command;
  if (effect === undefined) return local === undefined ? ignore('effect_unknown') : firstWord(command, local);
  const { attempt, outcome } = command;
  switch (effect.status) {
    case 'dispatched':
      return attempt === effect.attempt ? ended(command, effect) : otherAttempt(command, effect);
    case 'retry_scheduled':
      // The attempt that failed says so again, or it did happen after all.
      return outcome.status === 'succeeded' || outcome.status === 'rejected' ? ended(command, effect) : attempt <= effect.attempt ? ignore('retried_since') : late(command, effect, 'no such attempt was sent');
    case 'unknown':
      return proved(command, effect);
    case 'succeeded':
      return afterSuccess(command, effect);
    case 'rejected':
    case 'failed':
    case 'conflicted':
    case 'joined':
      return outcome.status === effect.status ? ignore('already_settled') : late(command, effect, `the effect is ${effect.status}`);
    default:
      return unreachable(effect);
  }
}

/** The ledger first hears of a locally fired effect when its worker reports an end. */
function firstWord(command: Command<'report'>, local: NonNullable<Settled['local']>): EffectDecision {
  const { step, attempt, outcome } = command;
  const facts = { step, key: local.key, tool: local.tool, effect: local.effect, attempt, local: { tool: local.tool, effect: local.effect, digest: local.digest, ...(local.args === undefined ? {} : { args: local.args }) } };
  return conclude(command, facts, outcome);
}

interface Concluding {
  readonly step: Step;
  readonly key: Effect['key'];
  readonly effect: EffectClass;
  readonly attempt: Attempt;
  readonly notAfter?: Instant;
  readonly local?: { tool: Effect['tool']; effect: EffectClass; digest: Effect['digest']; args?: Effect['args'] };
}

const ended = (command: Command<'report'>, effect: Effect): EffectDecision =>
  conclude(command, { step: effect.step, key: effect.key, effect: effect.effect, attempt: command.attempt, ...('notAfter' in effect && effect.notAfter !== null ? { notAfter: effect.notAfter } : {}) }, command.outcome);

/** What an attempt's end means. */
function conclude(sending: Sending, of: Concluding, outcome: Outcome): EffectDecision {
  const { step, key, attempt } = of;
  const local = of.local === undefined ? {} : { local: of.local };
  switch (outcome.status) {
    case 'succeeded':
      return record(EffectSucceeded({ step, key, attempt, result: outcome.result, evidence: outcome.evidence, ...local }));
    case 'rejected':
      return record(EffectRejected({ step, key, attempt, reason: outcome.reason, evidence: outcome.evidence, ...local }));
    case 'unknown':
      // An effect that may fire again needs no certainty about the attempt before.
      if (of.effect !== 'irreversible') return recover(sending, of, { class: 'unknown_outcome', message: outcome.message }, { kind: 'host' });
      return unknown(sending, of, outcome.cause, outcome.message);
    case 'failed':
      return recover(sending, of, outcome.failure, outcome.evidence);
    default:
      return unreachable(outcome);
  }
}

function unknown({ contract }: Sending, of: Concluding, cause: UnknownCause, message: string): EffectDecision {
  const { step, key, attempt, notAfter, local } = of;
  return record(
    EffectOutcomeUnknown({ step, key, attempt, cause, message, owner: contract?.owner ?? null, ...(notAfter === undefined ? {} : { notAfter }), ...(local === undefined ? {} : { local }) }),
  );
}

/** The recovery policy at work: the only place that decides to try again. */
function recover(sending: Sending, of: Concluding, failure: Failure, evidence: Evidence): EffectDecision {
  const retry = sending.contract?.retry ?? DEFAULT_RETRY;
  const recovery = recoveryPolicy[failure.class][of.effect];
  const { step, key, attempt } = of;
  const local = of.local === undefined ? {} : { local: of.local };
  const again = (attemptsMax: number): EffectDecision => {
    if (attempt >= attemptsMax) return record(EffectFailed({ step, key, attempt, failure, evidence, because: `${failure.class}: all ${attemptsMax} attempts are spent`, ...local }));
    return record(EffectRetryScheduled({ step, key, attempt, failure, because: `${failure.class}: attempt ${attempt} of ${attemptsMax} failed`, retryAt: sending.at + backoffMs(retry, attempt, sending.jitter, failure.retryAfterMs), ...local }));
  };
  switch (recovery) {
    case 'retry':
      return again(retry.attemptsMax);
    case 'retry_once':
      return again(Math.min(2, retry.attemptsMax));
    case 'retry_if_not_applied':
      return failure.notApplied === true ? again(retry.attemptsMax) : unknown(sending, of, 'may_have_applied', failure.message);
    case 'fail':
      return record(EffectFailed({ step, key, attempt, failure, evidence, because: `${failure.class} is not tried again`, ...local }));
    case 'reject':
      return record(EffectRejected({ step, key, attempt, reason: failure.message, evidence, ...local }));
    case 'unknown':
      return unknown(sending, of, 'may_have_applied', failure.message);
    default:
      return unreachable(recovery);
  }
}

/** An end of an attempt that is not the latest. A success settles the effect all the same. */
function otherAttempt(command: Command<'report'>, effect: Effect): EffectDecision {
  if (command.outcome.status === 'succeeded') return ended(command, effect);
  return late(command, effect, `attempt ${effect.attempt} is under way`);
}

/** Unknown gives way to anything proved, and to nothing else. */
function proved(command: Command<'report'>, effect: Effect): EffectDecision {
  const { outcome } = command;
  switch (outcome.status) {
    case 'succeeded':
    case 'rejected':
      return ended(command, effect);
    case 'failed':
      // Only whoever knows that nothing was applied proves anything; and only about the latest attempt.
      return outcome.failure.notApplied === true && command.attempt === effect.attempt && recoveryPolicy[outcome.failure.class][effect.effect] !== 'unknown'
        ? ended(command, effect)
        : late(command, effect, 'it does not prove that nothing was applied');
    case 'unknown':
      return ignore('already_settled');
    default:
      return unreachable(outcome);
  }
}

function afterSuccess(command: Command<'report'>, effect: Extract<Effect, { status: 'succeeded' }>): EffectDecision {
  const { attempt, outcome } = command;
  if (outcome.status !== 'succeeded') return outcome.status === 'unknown' ? ignore('already_settled') : late(command, effect, 'the effect has succeeded');
  if (attempt === effect.attempt) return ignore('already_settled');
  if (effect.effect !== 'irreversible') return ignore('already_settled');
  const attempts = [effect.attempt, attempt];
  if (effect.late.has(duplicateToken(attempts))) return ignore('recorded_before');
  return record(DuplicateEffectDetected({ step: effect.step, key: effect.key, attempts, message: `attempts ${effect.attempt} and ${attempt} of ${effect.tool.name} both report success: the effect happened twice` }));
}

function late(command: Command<'report'>, effect: Effect, because: string): EffectDecision {
  const { attempt, outcome } = command;
  if (effect.late.has(lateToken(attempt, outcome)) || toldBefore(command, effect)) return ignore('recorded_before');
  return record(LateResultRecorded({ step: effect.step, key: effect.key, attempt, outcome, because }));
}

/** The report that brought the effect on its way, read again. */
function toldBefore(command: Command<'report'>, effect: Effect): boolean {
  const decision = ended(command, effect);
  const tokens = decision.kind === 'record' ? decision.events.map(endToken) : [];
  return tokens.some((token) => token !== null && effect.late.has(token));
}

function hostLost(command: Command<'host_lost'>, effect: Effect | undefined): EffectDecision {
  if (effect === undefined || effect.status !== 'dispatched') return ignore('already_settled');
  if (effect.pool !== command.pool) return ignore('other_pool');
  // A task after the last one taken reaches the new host by itself.
  if (effect.taskSeq > command.takenSeq) return ignore('not_taken');
  return attemptLost(command, effect, 'host_lost', `the host of attempt ${effect.attempt} lost its lane before it reported an end`);
}

function attemptLost(sending: Sending, effect: Extract<Effect, { status: 'dispatched' }>, cause: UnknownCause, message: string): EffectDecision {
  const of: Concluding = { step: effect.step, key: effect.key, effect: effect.effect, attempt: effect.attempt, notAfter: effect.notAfter };
  if (effect.effect === 'irreversible') return unknown(sending, of, cause, message);
  const attemptsMax = (sending.contract?.retry ?? DEFAULT_RETRY).attemptsMax;
  if (effect.attempt >= attemptsMax) {
    const failure: Failure = { class: 'unknown_outcome', message };
    // A read that never came back did not happen; a change that may have is not called failed.
    if (effect.effect === 'idempotent') return unknown(sending, of, cause, `${message}; all ${attemptsMax} attempts are spent`);
    return record(EffectFailed({ step: effect.step, key: effect.key, attempt: effect.attempt, failure, evidence: { kind: 'ledger' }, because: `all ${attemptsMax} attempts are spent` }));
  }
  return record(dispatch(effect, effect.attempt + 1, message, sending));
}

function due(command: Command<'due'>, effect: Effect | undefined): EffectDecision {
  if (effect === undefined || !isOpen(effect)) return ignore('not_due');
  switch (effect.status) {
    case 'dispatched':
      return command.at < effect.deadline ? ignore('not_due') : attemptLost(command, effect, 'deadline', `attempt ${effect.attempt} reported no end by its deadline`);
    case 'retry_scheduled':
      return command.at < effect.retryAt ? ignore('not_due') : record(dispatch(effect, effect.attempt + 1, `retry after ${effect.failure.class}`, command));
    case 'joined':
      return joined(command, effect);
    default:
      return ignore('not_due');
  }
}

/** Another run's effect holds the key: its outcome is this one's. */
function joined(command: Command<'due'>, effect: Extract<Effect, { status: 'joined' }>): EffectDecision {
  const { claim } = command;
  const { step, key, owner } = effect;
  if (claim.held === 'by_other' && claim.outcome !== null) {
    return record(EffectSucceeded({ step, key, attempt: 1, result: claim.outcome.result, evidence: claim.outcome.evidence, replayed: claim.owner }));
  }
  if (claim.held === 'by_other') return ignore('still_joined');
  const message = `run ${owner.run} step ${owner.step}, which held this operation key, ended without the effect; a new try is a new step`;
  return record(EffectFailed({ step, key, attempt: 1, failure: { class: 'concurrency_conflict', message, notApplied: true }, evidence: { kind: 'ledger' }, because: message }));
}
