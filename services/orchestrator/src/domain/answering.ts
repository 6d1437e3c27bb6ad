import { ignore, record, type Decision } from '@holdfast/kernel';
import { isAfter, RunCompensated, RunCompensating, WaitEnded, type Json, type PlanScope, type Step, type ToolContract } from '@holdfast/protocol';
import type { Command, IgnoreReason } from './commands.js';
import type { CallStep, KnownRun, RunEvent } from './run.js';
import { isOpenWait } from './wait.js';

type PlanDecision = Decision<RunEvent, IgnoreReason, never>;

/** A plan was opened for a run that is over: people see it. One for a run under way shows as a wait of it. */
export function compensating({ plan, because }: Command<'compensating'>, run: KnownRun): PlanDecision {
  if (run.status !== 'ended' || (run.compensation !== null && run.compensation.plan >= plan)) return ignore('duplicate');
  return record(RunCompensating({ plan, because }));
}

/** Nothing of a plan can move by itself any more: the run says how all stands, and the agent that waits for it goes on. */
export function compensated({ at, concluded }: Command<'compensated'>, run: KnownRun): PlanDecision {
  const { plan, status, effects, waits } = concluded;
  const told = run.compensation !== null && (run.compensation.plan > plan || (run.compensation.plan === plan && run.compensation.status !== 'compensating'));
  if (run.status === 'ended') return told ? ignore('duplicate') : record(RunCompensated({ plan, status, effects }));
  // Cancelled, it moves no more: what it did is answered as a whole.
  if (run.cancel !== null) return ignore('already_settled');
  const value = { status, effects, again: effects.map(({ step, tool }) => ({ step, tool: tool.name, key: calledUnder(run, step) })) } as unknown as Json;
  const ended = waits.flatMap((step) => {
    const wait = run.steps.get(step);
    return wait?.kind === 'wait' && isOpenWait(wait) ? [WaitEnded({ step, at, end: { status: 'satisfied', value: { value }, by: `plan ${plan}` } })] : [];
  });
  const [first, ...rest] = ended;
  return first === undefined ? ignore('already_settled') : record<RunEvent>(first, ...rest);
}

/** Under which key the same call would run again. One with a business key has used it up: its recorded outcome answers for ever. */
const calledUnder = (run: KnownRun, step: Step): 'a new key' | 'the same key, which is used up' => {
  const state = run.steps.get(step);
  return state?.kind === 'call' && state.call.keyScope === 'target' ? 'the same key, which is used up' : 'a new key';
};

const mayStand = ({ outcome }: CallStep): boolean => outcome === null || outcome.status === 'succeeded' || outcome.status === 'unknown';

/** Why an agent can't have these effects answered, in words; null when it can. */
export function notCompensable(run: KnownRun, scope: PlanScope, contractOf: (step: CallStep) => ToolContract | null): string | null {
  const calls = [...run.steps.values()].filter((step): step is CallStep => step.kind === 'call' && step.call.effect !== 'pure');
  const meant = calls.filter(({ call: { step } }) => scope.kind === 'run' || (scope.kind === 'after' ? isAfter(step, scope.step) : scope.steps.includes(step)));
  if (scope.kind === 'steps') {
    const other = scope.steps.find((step) => !meant.some(({ call }) => call.step === step));
    if (other !== undefined) return `step ${other} is no effect of this run`;
  }
  const standing = meant.filter(mayStand);
  const fixed = standing.find((step) => contractOf(step)?.compensate === undefined);
  if (fixed !== undefined) return `the contract of ${fixed.call.tool.name} at step ${fixed.call.step} names no compensation: it would stand`;
  const [first] = standing;
  const closing = first === undefined ? undefined : calls.slice(calls.indexOf(first)).find((step) => mayStand(step) && contractOf(step)?.pointOfNoReturn === true);
  return closing === undefined ? null : `${closing.call.tool.name} at step ${closing.call.step} is a point of no return: the run only goes forward from there`;
}
