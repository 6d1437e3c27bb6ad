import { ignore, record, unreachable } from '@holdfast/kernel';
import { EffectFailed, EffectRetryScheduled, EffectSucceeded, readingFrom, type Attempt, type Failure } from '@holdfast/protocol';
import type { Command, EffectDecision } from './commands.js';
import type { Effect, EffectEvent, RunEffects } from './effect.js';
import { contradictionOf, fallbackOf, forgotten, mayHaveSeen, report, spentBudget, unknown } from './ended.js';

/**
 * What a settled case means for its effect. It acts only on the latest attempt and while that is
 * unknown; a success is a result like any other and settles the effect whenever it comes.
 */
export function verdict(command: Command<'verdict'>, effects: RunEffects): EffectDecision {
  const effect = effects.get(command.step);
  const { verdict: found, attempt, evidence } = command;
  if (effect === undefined) return ignore('effect_unknown');
  if (found.status === 'ended') return ignore('already_settled'); // It was the ledger that said so.
  const mine = effect.status === 'unknown' && effect.attempt === attempt;
  switch (found.status) {
    case 'applied':
      if (mine) return record(EffectSucceeded({ step: effect.step, key: effect.key, attempt, result: found.result, evidence, reconciled: reconciled(command) }));
      if (sawAnother(command, effect)) {
        const contradiction = contradictionOf({ step: effect.step, attempt, outcome: { status: 'succeeded', result: found.result, evidence } }, effect);
        return contradiction === null ? ignore('already_settled') : record(contradiction);
      }
      return marked(command, report({ ...command, outcome: { status: 'succeeded', result: found.result, evidence } }, effects));
    case 'not_applied':
      if (mine) return notApplied(command, effect, effects);
      // It has succeeded meanwhile. Where a proof says that it can't have, both are kept.
      return effect.status === 'succeeded' && (effect.effect === 'irreversible' || command.sealing) ? report({ ...command, outcome: { status: 'failed', failure: notAppliedBecause(command), evidence } }, effects) : ignore('other_attempt');
    case 'same_key_again':
      if (!mine) return ignore('other_attempt');
      if (effect.stopped !== null) return stillUnknown(command, effect, `no other attempt follows: ${effect.stopped}`);
      if (forgotten(command.contract, effect, command.at) !== null) return stillUnknown(command, effect, 'the target may have forgotten the key by now');
      if (effect.effect === 'irreversible') return unreachableRefire(command, effect);
      return release(command, effect, { class: 'unknown_outcome', message: command.because }, command.because);
    default:
      return unreachable(found);
  }
}

/** Under the same key a later attempt has succeeded: what was found may be that one's, and is no second firing. */
const sawAnother = ({ attempt, contract, evidence, readAt }: Command<'verdict'>, effect: Effect): boolean =>
  effect.effect === 'irreversible' && effect.status === 'succeeded' && effect.attempt > attempt && mayHaveSeen(contract, evidence.at ?? readAt, effect.evidence.at);

/** Who settled it. What the service decided by policy rests on no reading, and is no verdict on the attempt. */
const reconciled = ({ by, forced }: Command<'verdict'>): { by: 'probe' | 'person'; forced?: boolean } => ({ by: by === 'person' ? 'person' : 'probe', ...(forced ? { forced } : {}) });

const marked = (command: Command<'verdict'>, decision: EffectDecision): EffectDecision => {
  if (decision.kind !== 'record') return decision;
  const [first, ...rest] = decision.events;
  return first.type === 'EffectSucceeded' ? record<EffectEvent>(EffectSucceeded({ ...first.data, reconciled: reconciled(command) }), ...rest) : decision;
};

const notAppliedBecause = ({ because }: Command<'verdict'>): Failure => ({ class: 'unknown_outcome', message: because, notApplied: true });

type Unknown = Extract<Effect, { status: 'unknown' }>;

function notApplied(command: Command<'verdict'>, effect: Unknown, effects: RunEffects): EffectDecision {
  if (!provesIt(command, effect)) return stillUnknown(command, effect, 'it was read too early to prove that nothing was applied: something of the attempt might still have taken effect');
  const failure = notAppliedBecause(command);
  const { step, key, attempt } = effect;
  const spent = spentBudget(command.contract, effect, command.at, command.contract?.retry.attemptsMax ?? 1, effects);
  if (spent === null) return release(command, effect, failure, `proved not applied: ${command.because}`, true);
  return record(EffectFailed({ step, key, attempt, failure: { ...failure, ...fallbackOf(command.contract, failure) }, evidence: command.evidence, because: `proved not applied; ${spent}`, reconciled: reconciled(command) }));
}

/** Only effects that may fire again need no proof. */
function provesIt({ sealing, forced, readAt, contract }: Command<'verdict'>, effect: Unknown): boolean {
  if (effect.effect !== 'irreversible' || sealing || forced) return true;
  const from = effect.notAfter === null ? null : readingFrom(contract, effect.notAfter);
  return readAt !== null && from !== null && readAt >= from;
}

function release(command: Command<'verdict'>, effect: Unknown, failure: Failure, because: string, proved = false): EffectDecision {
  const { step, key, attempt } = effect;
  return record(EffectRetryScheduled({ step, key, attempt, failure, because, retryAt: command.at, ...(proved ? { reconciled: reconciled(command) } : {}) }));
}

const unreachableRefire = (command: Command<'verdict'>, effect: Unknown): EffectDecision => stillUnknown(command, effect, 'an irreversible effect is never sent again without evidence');

/** The case is opened anew: nothing else would ever look at the effect again. */
function stillUnknown(command: Command<'verdict'>, effect: Unknown, message: string): EffectDecision {
  const attempt: Attempt = effect.attempt;
  return unknown(command, { ...effect, attempt }, { cause: effect.cause, message, operationId: effect.operationId, ...(effect.notAfter === null ? {} : { notAfter: effect.notAfter }) });
}
