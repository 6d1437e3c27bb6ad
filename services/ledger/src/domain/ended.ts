import { ignore, record, unreachable } from '@holdfast/kernel';
import {
  backoffMs,
  canonicalJson,
  CLOCK_SKEW_MS,
  DEFAULT_RETRY,
  DuplicateEffectDetected,
  EffectFailed,
  EffectOutcomeUnknown,
  EffectRejected,
  EffectRetryScheduled,
  EffectSucceeded,
  LateResultRecorded,
  VerdictContradicted,
  type Attempt,
  type EffectClass,
  type Evidence,
  type Failure,
  type Instant,
  type Json,
  type Outcome,
  type Settled,
  type Step,
  type Stored,
  type ToolContract,
  type UnknownCause,
} from '@holdfast/protocol';
import type { Command, EffectDecision, Sending } from './commands.js';
import { attemptsOf, contradictionToken, duplicateToken, endToken, lastSent, lateToken, type Effect, type EffectEvent, type RunEffects } from './effect.js';
import { leavesDoubt, mayFallBack, recoveryOf } from './recovery-policy.js';

type Reported = Pick<Command<'report'>, 'step' | 'attempt' | 'outcome' | 'local'> & Sending;

/** What an attempt's end, told by whomever, means for its effect. Results are evidence: each is kept, and the same told twice is one. */
export function report(command: Reported, effects: RunEffects): EffectDecision {
  const { local, step } = command;
  const effect = effects.get(step);
  if (effect === undefined) return local === undefined ? ignore('effect_unknown') : firstWord(command, local, effects);
  const decision = told(command, effect, effects);
  const contradiction = decision.kind === 'record' ? contradictionOf(command, effect) : null;
  return decision.kind === 'record' && contradiction !== null ? record<EffectEvent>(...decision.events, contradiction) : decision;
}

function told(command: Reported, effect: Effect, effects: RunEffects): EffectDecision {
  const { attempt, outcome } = command;
  switch (effect.status) {
    case 'dispatched':
      return attempt === effect.attempt ? ended(command, effect, effects) : otherAttempt(command, effect, effects);
    case 'held':
    case 'retry_scheduled':
      // The attempt that failed says so again, or it did happen after all.
      if (outcome.status === 'succeeded' || (outcome.status === 'rejected' && attempt === lastSent(effect))) return ended(command, effect, effects);
      if (outcome.status === 'rejected') return late(command, effect, effects, `attempt ${lastSent(effect)} was made since`);
      return attempt <= effect.attempt ? ignore('retried_since') : late(command, effect, effects, 'no such attempt was sent');
    case 'unknown':
      return proved(command, effect, effects);
    case 'succeeded':
      return afterSuccess(command, effect, effects);
    case 'rejected':
    case 'failed':
    case 'conflicted':
    case 'joined':
      return outcome.status === effect.status ? ignore('already_settled') : late(command, effect, effects, `the effect is ${effect.status}`);
    default:
      return unreachable(effect);
  }
}

const STOPPED = 'its run is cancelled or has expired';

/** The ledger first hears of a locally fired effect when its worker reports an end. */
function firstWord(command: Reported, local: NonNullable<Settled['local']>, effects: RunEffects): EffectDecision {
  const { step, attempt, outcome, at } = command;
  const { tool, effect, digest, args, attemptsMax, repairs } = local;
  const said = { tool, effect, digest, ...(args === undefined ? {} : { args }), since: at, ...(attemptsMax === undefined ? {} : { attemptsMax }), ...(repairs === undefined ? {} : { repairs }) };
  return conclude(command, { step, key: local.key, tool, effect, attempt, since: at, fence: 0, args: args ?? null, attemptsMax: attemptsMax ?? null, repairs: repairs ?? null, stopped: local.last === true ? STOPPED : null, local: said }, outcome, effects);
}

/** As much of an effect as concluding an attempt needs. */
interface Concluding extends Pick<Effect, 'step' | 'key' | 'tool' | 'args' | 'fence' | 'since' | 'attemptsMax' | 'repairs' | 'stopped'> {
  readonly effect: EffectClass;
  readonly attempt: Attempt;
  /** The latest moment at which its host can have decided to fire. */
  readonly notAfter?: Instant;
  readonly local?: NonNullable<ReturnType<typeof EffectSucceeded>['data']['local']>;
}

/** Its host has made its last check by the time it reports. */
function ended(command: Reported, effect: Effect, effects: RunEffects): EffectDecision {
  const { step, key, tool, args, fence, since, attemptsMax, repairs, stopped } = effect;
  const checkedBy = 'notAfter' in effect && effect.notAfter !== null ? { notAfter: Math.min(effect.notAfter, command.at) } : {};
  return conclude(command, { step, key, tool, effect: effect.effect, args, fence, since, attemptsMax, repairs, stopped, attempt: command.attempt, ...checkedBy }, command.outcome, effects);
}

/** What an attempt's end means. */
function conclude(sending: Sending, of: Concluding, outcome: Outcome, effects: RunEffects): EffectDecision {
  const { step, key, attempt } = of;
  const local = localOf(of);
  switch (outcome.status) {
    case 'succeeded':
      return record(EffectSucceeded({ step, key, attempt, result: outcome.result, evidence: outcome.evidence, ...local }));
    case 'rejected':
      return record(EffectRejected({ step, key, attempt, reason: outcome.reason, evidence: outcome.evidence, ...local }));
    case 'unknown':
      // What is known in part, or still under way, would be done twice by another attempt.
      if (of.effect === 'irreversible' || (of.effect === 'idempotent' && (outcome.cause === 'partial_effect' || outcome.cause === 'accepted'))) return unknown(sending, of, { ...outcome, ...(of.notAfter === undefined ? {} : { notAfter: of.notAfter }) });
      return recover(sending, of, { class: 'unknown_outcome', message: outcome.message }, { kind: 'host' }, effects);
    case 'failed':
      return recover(sending, of, outcome.failure, outcome.evidence, effects);
    default:
      return unreachable(outcome);
  }
}

const localOf = ({ local }: Pick<Concluding, 'local'>): { local?: NonNullable<Concluding['local']> } => (local === undefined ? {} : { local });

interface NobodyKnows {
  readonly cause: UnknownCause;
  readonly message: string;
  readonly notAfter?: Instant;
  readonly operationId?: string | undefined;
  readonly proved?: Extract<Outcome, { status: 'unknown' }>['proved'];
}

/** Opens a case. */
export function unknown({ contract }: Sending, of: Omit<Concluding, 'notAfter' | 'attemptsMax' | 'repairs'>, { cause, message, notAfter, operationId, proved }: NobodyKnows): EffectDecision {
  const { step, key, attempt, tool, effect, args, fence, since, local, stopped } = of;
  return record(
    EffectOutcomeUnknown({
      step,
      key,
      attempt,
      cause,
      message,
      owner: contract?.owner ?? null,
      about: { tool, effect, args, fence, ...(since === null ? {} : { since }) },
      ...(notAfter === undefined ? {} : { notAfter }),
      ...(operationId === undefined ? {} : { operationId }),
      ...(proved === undefined ? {} : { proved }),
      ...(stopped === null ? {} : { last: true as const }),
      ...(local === undefined ? {} : { local }),
    }),
  );
}

/** The recovery policy at work: the only place that decides to try again. */
function recover(sending: Sending, of: Concluding, failure: Failure, evidence: Evidence, effects: RunEffects): EffectDecision {
  const retry = sending.contract?.retry ?? DEFAULT_RETRY;
  const { step, key, attempt } = of;
  const doubt = (): EffectDecision => inDoubt(sending, of, failure, failure.message);
  const fail = (because: string, more: Partial<Failure> = {}): EffectDecision =>
    record(EffectFailed({ step, key, attempt, failure: { ...failure, ...fallbackOf(sending.contract, failure), ...more }, evidence, because, ...localOf(of) }));
  const again = (attemptsMax: number): EffectDecision => {
    const retryAt = sending.at + backoffMs(retry, attempt, sending.jitter, failure.retryAfterMs);
    const spent = spentBudget(sending.contract, of, retryAt, attemptsMax, effects);
    if (spent === null) return record(EffectRetryScheduled({ step, key, attempt, failure, because: `${failure.class}: attempt ${attempt} of ${attemptsMax} failed`, retryAt, ...localOf(of) }));
    return exhausted(sending, of, failure, evidence, spent);
  };
  const recovery = recoveryOf(sending.contract, failure.class, of.effect);
  switch (recovery) {
    case 'retry':
      return again(retry.attemptsMax);
    case 'retry_once':
      return again(Math.min(2, retry.attemptsMax));
    case 'retry_if_not_applied':
      return of.effect !== 'irreversible' || failure.notApplied === true ? again(retry.attemptsMax) : doubt();
    case 'repair_once':
      // A mended call has a key of its own: it would not be told from a second one.
      if (of.effect === 'irreversible' && leavesDoubt(failure, of.effect)) return doubt();
      return of.repairs === null ? fail(`${failure.class}: the agent may mend its call once`, { repairable: true }) : fail(`${failure.class}: step ${of.repairs} was mended once already`);
    case 'fail':
      return fail(`${failure.class} is not tried again`);
    case 'reject':
      return record(EffectRejected({ step, key, attempt, reason: failure.message, evidence, ...localOf(of) }));
    case 'unknown':
      return doubt();
    default:
      return unreachable(recovery);
  }
}

/** No further attempt is allowed. A change that may have been applied is not called failed for that. */
export function exhausted(sending: Sending, of: Omit<Concluding, 'attemptsMax' | 'repairs'>, failure: Failure, evidence: Evidence, spent: string): EffectDecision {
  if (leavesDoubt(failure, of.effect)) return inDoubt(sending, of, failure, `${failure.message}; ${spent}`);
  const { step, key, attempt } = of;
  return record(EffectFailed({ step, key, attempt, failure: { ...failure, ...fallbackOf(sending.contract, failure) }, evidence, because: `${failure.class}: ${spent}`, ...localOf(of) }));
}

const inDoubt = (sending: Sending, of: Omit<Concluding, 'attemptsMax' | 'repairs'>, failure: Failure, message: string): EffectDecision =>
  unknown(sending, of, { cause: failure.class === 'partial_effect' ? 'partial_effect' : 'may_have_applied', message, ...(of.notAfter === undefined ? {} : { notAfter: of.notAfter }) });

/** Why the target may not be sent the key again at `at`, in words; null when it may. */
export function forgotten(contract: ToolContract | null, { effect, since }: Pick<Concluding, 'effect' | 'since'>, at: Instant): string | null {
  const remembered = contract?.targetRemembersKeysForMs;
  return effect !== 'pure' && remembered !== undefined && at > (since ?? at) + remembered ? `the target remembers keys for ${remembered} ms only` : null;
}

/** Which budget forbids another attempt at `retryAt`, in words; null when none does. */
export function spentBudget(contract: ToolContract | null, of: Pick<Concluding, 'attempt' | 'effect' | 'since' | 'attemptsMax' | 'stopped' | 'local'>, retryAt: Instant, attemptsMax: number, effects: RunEffects): string | null {
  if (of.stopped !== null) return of.stopped;
  if (of.attempt >= attemptsMax) return `all ${attemptsMax} attempts are spent`;
  const { elapsedMaxMs } = contract?.retry ?? DEFAULT_RETRY;
  if (elapsedMaxMs !== undefined && retryAt > (of.since ?? retryAt) + elapsedMaxMs) return `another attempt would begin later than ${elapsedMaxMs} ms after the first`;
  const late = forgotten(contract, of, retryAt);
  if (late !== null) return late;
  const inRun = of.local === undefined ? attemptsOf(effects) : attemptsOf(effects) + of.attempt;
  return of.attemptsMax !== null && inRun >= of.attemptsMax ? `the run's budget of ${of.attemptsMax} attempts is spent` : null;
}

/** The tool that may take over, where the contract names one and the failure allows it. */
export const fallbackOf = (contract: ToolContract | null, failure: Pick<Failure, 'class'>): Pick<Failure, 'fallback'> =>
  contract?.fallback === undefined || !mayFallBack(failure.class) ? {} : { fallback: contract.fallback };

/** An end of an attempt that is not the latest. A success settles the effect all the same. */
function otherAttempt(command: Reported, effect: Effect, effects: RunEffects): EffectDecision {
  if (command.outcome.status === 'succeeded') return ended(command, effect, effects);
  return late(command, effect, effects, `attempt ${effect.attempt} is under way`);
}

/** Unknown gives way to anything proved, and to nothing else. */
function proved(command: Reported, effect: Effect, effects: RunEffects): EffectDecision {
  const { outcome } = command;
  switch (outcome.status) {
    case 'succeeded':
      return ended(command, effect, effects);
    case 'rejected':
      // It says nothing about the attempt that followed.
      return command.attempt === effect.attempt ? ended(command, effect, effects) : late(command, effect, effects, `attempt ${effect.attempt} is the one in doubt`);
    case 'failed':
      // Only whoever knows that nothing was applied proves anything; and only about the latest attempt.
      return outcome.failure.notApplied === true && command.attempt === effect.attempt && recoveryOf(command.contract, outcome.failure.class, effect.effect) !== 'unknown'
        ? ended(command, effect, effects)
        : late(command, effect, effects, 'it does not prove that nothing was applied');
    case 'unknown':
      return ignore('already_settled');
    default:
      return unreachable(outcome);
  }
}

function afterSuccess(command: Reported, effect: Extract<Effect, { status: 'succeeded' }>, effects: RunEffects): EffectDecision {
  const { attempt, outcome } = command;
  if (outcome.status !== 'succeeded') return outcome.status === 'unknown' ? ignore('already_settled') : late(command, effect, effects, 'the effect has succeeded');
  if (attempt === effect.attempt) return sameResult(outcome.result, effect.result) ? ignore('already_settled') : late(command, effect, effects, 'the effect has succeeded with another result');
  if (effect.effect !== 'irreversible') return ignore('already_settled');
  const found = effect.attempt < attempt && isLook(effect.evidence) ? effect.evidence.at : null;
  if (mayHaveSeen(command.contract, found, outcome.evidence.at)) return late(command, effect, effects, `what was found for attempt ${effect.attempt} may be what this one did`);
  const attempts = [effect.attempt, attempt];
  if (effect.late.has(duplicateToken(attempts))) return ignore('recorded_before');
  return record(DuplicateEffectDetected({ step: effect.step, key: effect.key, attempts, message: `attempts ${effect.attempt} and ${attempt} of ${effect.tool.name} both report success: the effect happened twice` }));
}

const isLook = ({ kind }: Evidence): boolean => kind === 'probe' || kind === 'person';

/**
 * A look goes by the key, and can't tell one attempt's effect from another's. It shows an earlier
 * one's only where it was over (`lookedAt`) before the later one, done at `doneAt`, can have begun.
 */
export const mayHaveSeen = (contract: ToolContract | null, lookedAt: Instant | null | undefined, doneAt: Instant | undefined): boolean =>
  typeof lookedAt === 'number' && doneAt !== undefined && lookedAt >= doneAt - (contract?.timeoutMs ?? 0) - CLOCK_SKEW_MS;

const sameResult = (a: Stored, b: Stored): boolean => canonicalJson(a as Json) === canonicalJson(b as Json);

function late(command: Reported, effect: Effect, effects: RunEffects, because: string): EffectDecision {
  const { attempt, outcome } = command;
  if (effect.late.has(lateToken(attempt, outcome)) || toldBefore(command, effect, effects)) return ignore('recorded_before');
  return record(LateResultRecorded({ step: effect.step, key: effect.key, attempt, outcome, because }));
}

/** The report that brought the effect on its way, read again. */
function toldBefore(command: Reported, effect: Effect, effects: RunEffects): boolean {
  const decision = ended(command, effect, effects);
  const tokens = decision.kind === 'record' ? decision.events.map(endToken) : [];
  return tokens.some((token) => token !== null && effect.late.has(token));
}

/**
 * Two words on one attempt that can't both be true. The earlier one, a case's verdict or the
 * attempt's own end, has been acted upon; neither is dropped, and a person must look.
 */
export function contradictionOf({ step, attempt, outcome }: { readonly step: Step; readonly attempt: Attempt; readonly outcome: Outcome }, effect: Effect): EffectEvent | null {
  if (effect.effect === 'pure' || effect.late.has(contradictionToken(attempt, outcome))) return null;
  const happened = outcome.status === 'succeeded';
  const didNot = outcome.status === 'rejected' || (outcome.status === 'failed' && outcome.failure.notApplied === true);
  const before = effect.words.get(attempt);
  if (before === undefined || (before.applied ? !didNot : !happened)) return null;
  const { applied: _, ...recorded } = before;
  return VerdictContradicted({
    step,
    key: effect.key,
    attempt,
    recorded,
    outcome,
    message: `attempt ${attempt} of ${effect.tool.name} was recorded as ${recorded.status} (by ${recorded.by}), and now its outcome is told as ${outcome.status}: compare both with the target`,
  });
}
