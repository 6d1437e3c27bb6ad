import { ignore, record, unreachable, type Decider } from '@holdfast/kernel';
import { answeredBy, ArgumentsKnown, ArgumentsMissing, CompensationNoted, CompensationRegistered, digestOf, EffectNoted, RunEndNoted, VerificationConcluded, type PlanCause, type PlanScope, type Step } from '@holdfast/protocol';
import { advance, openedFor } from './advance.js';
import { completed } from './arguments.js';
import type { Command, IgnoreReason, Looking, PlanCommand, PlanDecision } from './commands.js';
import { covers, mayStand, wayBack } from './order.js';
import { compensate, decideCompensation } from './people.js';
import { evolve, lastPart, noPlans, openPlan, type Known, type Ordered, type PlanEvent, type Registered, type RunPlans } from './plan.js';
import { wantedOf } from './standing.js';

export function decide(command: PlanCommand, run: RunPlans): PlanDecision {
  switch (command.type) {
    case 'register':
      return register(command, run);
    case 'note':
      return note(command, run);
    case 'note_answer':
      return noteAnswer(command, run);
    case 'ended':
      return ended(command, run);
    case 'open':
      return opened(command, run);
    case 'arguments':
      return argumentsCame(command, run);
    case 'verified':
      return verified(command, run);
    case 'compensate':
      return run.commands.has(command.asked.command) ? ignore('command_answered') : andOn(compensate(command, run), run, command);
    case 'decide':
      return run.commands.has(command.asked.command) ? ignore('command_answered') : andOn(decideCompensation(command, run), run, command);
    case 'due':
      return onlyOn(run, command, 'not_due');
    default:
      return unreachable(command);
  }
}

export const planDecider: Decider<PlanCommand, RunPlans, PlanEvent, IgnoreReason, never> = { initial: noPlans, decide, evolve };

/** What has happened, and all that follows from it by itself. */
function andOn([first, ...rest]: readonly [PlanEvent, ...PlanEvent[]], run: RunPlans, looking: Looking): PlanDecision {
  const after = [first, ...rest].reduce(evolve, run);
  return record(first, ...rest, ...advance(after, looking));
}

function onlyOn(run: RunPlans, looking: Looking, otherwise: IgnoreReason): PlanDecision {
  const [first, ...rest] = advance(run, looking);
  return first === undefined ? ignore(otherwise) : record(first, ...rest);
}

function register({ effect, fence, ...looking }: Command<'register'>, run: RunPlans): PlanDecision {
  const before = run.effects.get(effect.step);
  if (before !== undefined && (before.early !== true || effect.early === true)) return ignore('registered_before');
  const { pointOfNoReturn, early, ...facts } = effect;
  const registered = CompensationRegistered({ ...facts, fence, ...(pointOfNoReturn ? { pointOfNoReturn } : {}), ...(early === true ? { early } : {}) });
  const late = begunLate(evolve(run, registered), effect, looking);
  return andOn(late === null ? [registered] : [registered, late], run, looking);
}

/** A call that was refused since its run was over may have fired all the same, and nobody may ever say so. */
function begunLate(run: RunPlans, { step, tool, how }: Registered, looking: Looking): PlanEvent | null {
  if (how === null || !isUndone(run) || wayBack(run, step).is === 'closed' || openPlan(run)?.scopes.some((scope) => covers(scope, step)) === true) return null;
  return openedFor(run, { kind: 'landed_late', step, message: `step ${step} (${tool.name}) was asked for as its run was over, and may have happened` }, { kind: 'steps', steps: [step] }, looking);
}

/** The run is over, and what it did is not to stand. */
const isUndone = ({ ending }: RunPlans): boolean => ending !== null && ending.ending !== 'completed' && ending.ending !== 'completed_partially';

/** What has succeeded stays so in the ledger, whatever is said of it later; and what has an end is never in doubt again, unless it is taken up again. */
const stands = (known: Known | null | undefined, said: Known['status']): boolean => known?.status === 'succeeded' || (said === 'unknown' && known !== null && known !== undefined && known.status !== 'unknown');

function note({ noted, ...looking }: Command<'note'>, run: RunPlans): PlanDecision {
  const { step, version, status } = noted;
  const before = run.known.get(step);
  if (stands(before, status) || (before?.version ?? -1) >= version) return ignore('noted_before');
  const event = EffectNoted(noted);
  const late = status === 'succeeded' ? landedLate(evolve(run, event), step, looking) : null;
  return andOn(late === null ? [event] : [event, late], run, looking);
}

/** It was not to stand, and no open plan knows of it: it joins the one that there is, or begins another. */
function landedLate(run: RunPlans, step: Step, looking: Looking): PlanEvent | null {
  const effect = run.effects.get(step);
  const open = openPlan(run);
  if ((effect?.how ?? null) === null || effect === undefined || open?.scopes.some((scope) => covers(scope, step)) === true || wayBack(run, step).is === 'closed') return null;
  const settled = run.items.get(step)?.settled ?? null;
  if (settled !== null && settled.standing !== 'never_happened') return null;
  if (!isUndone(run) && !run.plans.some(({ scopes }) => scopes.some((scope) => covers(scope, step)))) return null;
  return openedFor(run, { kind: 'landed_late', step, message: `step ${step} (${effect.tool.name}) has happened after all` }, { kind: 'steps', steps: [step] }, looking);
}

const orderedAs = (run: RunPlans, step: Step): { of: Step; part: Ordered } | null => {
  const answered = answeredBy(step);
  const part = answered === null ? undefined : run.items.get(answered.of)?.parts.get(answered.part);
  return answered === null || part === undefined ? null : { of: answered.of, part };
};

function noteAnswer({ noted, changedSince, ...looking }: Command<'note_answer'>, run: RunPlans): PlanDecision {
  const { step, status, version, attempt } = noted;
  const ordered = orderedAs(run, step);
  if (ordered === null || status === 'not_ours') return ignore('effect_unknown');
  const { of, part } = ordered;
  // What was said of attempts before it was taken up again is known.
  if (stands(part.known, status) || (part.known?.version ?? -1) >= version || (attempt <= part.after && status !== 'succeeded')) return ignore('noted_before');
  const precondition = run.effects.get(of)?.how?.precondition !== undefined;
  return andOn([CompensationNoted({ ...noted, plan: part.plan, of, status, ...(changedSince && precondition ? { changedSince } : {}) })], run, looking);
}

function ended({ end, message, ...looking }: Command<'ended'>, run: RunPlans): PlanDecision {
  if (run.ending !== null) return ignore('ended_before');
  const noted = RunEndNoted(end);
  const { ending } = end;
  if (ending === 'completed' || ending === 'completed_partially') return run.effects.size === 0 ? ignore('nothing_to_do') : record(noted);
  const after = evolve(run, noted);
  // Kept also where nothing is to be answered: a call that was refused after it had fired is heard of later.
  if (!canAnswer(after)) return record(noted);
  return andOn([noted, openedFor(after, { kind: 'run_ended', ending, message: message.slice(0, 2000) }, { kind: 'run' }, looking)], run, looking);
}

/** Whether anything of the run can be answered at all. */
export const canAnswer = (run: RunPlans): boolean => [...run.effects.values()].some(({ how, step }) => how !== null && mayStand(run, step) && wayBack(run, step).is !== 'closed');

const sameCause = (a: PlanCause, b: PlanCause): boolean => JSON.stringify(a) === JSON.stringify(b);

function opened({ cause, scope, ...looking }: Command<'open'>, run: RunPlans): PlanDecision {
  if (run.plans.some(({ causes }) => causes.some((before) => sameCause(before, cause)))) return ignore('opened_before');
  // An agent waits for its answer, also where there is nothing to do.
  if (cause.kind !== 'agent' && !canAnswer(run)) return ignore('nothing_to_do');
  return andOn([openedFor(run, cause, cause.kind === 'agent' ? asItIs(run, scope, cause.step) : scope, looking)], run, looking);
}

/** An agent means what it has done so far: what it does afterwards is what it wants. */
function asItIs(run: RunPlans, scope: PlanScope, wait: Step): PlanScope {
  if (scope.kind === 'steps') return scope;
  const steps = [...run.effects.keys()].filter((step) => covers(scope, step));
  return { kind: 'steps', steps: steps.length === 0 ? [wait] : steps };
}

function argumentsCame({ step, ask, answer, ...looking }: Command<'arguments'>, run: RunPlans): PlanDecision {
  const item = run.items.get(step);
  const effect = run.effects.get(step);
  const plan = openPlan(run);
  if (item === undefined || effect === undefined || effect.how === null || plan === null || item.asks !== ask) return ignore('not_asked');
  if (item.answerBy === null) return ignore('answered_before');
  const of = { plan: plan.number, of: step };
  const missing = (message: string): PlanEvent => ArgumentsMissing({ ...of, ask, message, nextAskAt: looking.at + 30_000 });
  if (answer.status === 'failed') return andOn([missing(answer.message)], run, looking);
  const last = lastPart(item);
  const again = last?.known?.status === 'failed' || last?.known?.status === 'rejected' ? last : null;
  const part = again?.part ?? Math.max(0, ...item.parts.keys()) + 1;
  const material = { args: effect.args, result: run.known.get(step)?.result ?? null, key: effect.key };
  const amount = again?.amount ?? wantedOf(plan, effect, item, run.known.get(step));
  const made = completed(effect.how, answer.args, material, amount);
  return andOn([made.ok ? ArgumentsKnown({ ...of, part, args: made.args, digest: digestOf(made.args), by: 'host', ...(amount === null ? {} : { amount }) }) : missing(made.message)], run, looking);
}

function verified({ step, attempt, probe, issuedAt, answer, ...looking }: Command<'verified'>, run: RunPlans): PlanDecision {
  const ordered = orderedAs(run, step);
  if (ordered === null || openPlan(run) === null) return ignore('not_asked');
  const { of, part } = ordered;
  const asked = part.verification.asked.get(probe);
  // A number may have been given out before by a service that lost its database: that reading is older than it looks.
  if (asked === undefined || part.known?.attempt !== attempt || (issuedAt ?? asked) !== asked) return ignore('not_asked');
  if (part.verification.answers.has(`${probe}:${answer.status}`) || part.verification.found !== null) return ignore('answered_before');
  const pauseMs = Math.min(60_000, 500 * 2 ** Math.min(20, probe - 1));
  return andOn([VerificationConcluded({ plan: part.plan, of, step, probe, answer, nextLookAt: answer.status === 'applied' ? null : looking.at + pauseMs })], run, looking);
}
