import { ignore, record } from '@holdfast/kernel';
import { InputRefused, RunForked, StepsCopied, type Step } from '@holdfast/protocol';
import type { Command, RunDecision } from './commands.js';
import { mayNot } from './people.js';
import type { KnownRun, StepState } from './run.js';

/** A step travels within one message, with what is said around it. Bytes. */
export const FORKED_STEP_BYTES_MAX = 240 * 1024;

const place = (step: Step): number => Number(step.split('.')[0]);
export const isBefore = (step: Step, from: Step): boolean => place(step) < place(from);

/** Steps of a run before one, in stream order. */
export const stepsBefore = (run: KnownRun, from: Step): StepState[] => [...run.steps].flatMap(([step, state]) => (isBefore(step, from) ? [state] : []));

type End = 'good' | 'bad' | 'open';

function endOf(state: StepState): End {
  switch (state.kind) {
    case 'call':
      return state.outcome === null || state.outcome.status === 'unknown' ? 'open' : state.outcome.status === 'succeeded' ? 'good' : 'bad';
    case 'record':
      return 'good';
    case 'try':
      return state.retryAt === null ? 'bad' : 'open';
    case 'wait':
      return state.abandoned || state.end?.status === 'satisfied' ? 'good' : state.end === null ? 'open' : 'bad';
  }
}

/** Where a retry goes on: at the last step that did not succeed, else behind the last of all. */
function retryFrom(run: KnownRun): Step {
  const numbers = [...run.steps.keys()].map(place);
  const failed = [...run.steps].flatMap(([step, state]) => (endOf(state) === 'good' ? [] : [place(step)]));
  return String(failed.length > 0 ? Math.max(...failed) : Math.max(0, ...numbers) + 1) as Step;
}

/** Begins another run with what this one has recorded before a step; nothing of that is fired again. */
export function fork({ asked, bytesOf }: Command<'fork'>, run: KnownRun): RunDecision {
  const { command, by, run: other, from: wanted } = asked;
  if (run.inputs.has(command)) return ignore('duplicate');
  const no = (message: string): RunDecision => record(InputRefused({ input: 'ForkRun', id: command, command, by, reason: 'not_possible', message }));
  const missing = mayNot('ForkRun', asked);
  if (missing !== null) return missing;
  if (run.agent === null) return no('the run’s loop is its client’s own: only runs of an agent can be forked');
  if (wanted === undefined && (run.status === 'open' || (run.status === 'ended' && run.ending.status === 'completed'))) return no(`only a run that ended otherwise than completed is tried again; this one is ${run.status === 'open' ? 'open' : 'completed'}. Name a step to fork it from`);
  if (wanted?.includes('.') === true) return no(`step ${wanted} is inside a parallel group: name the step of the group`);
  const last = Math.max(0, ...[...run.steps.keys()].map(place));
  if (wanted !== undefined && place(wanted) > last + 1) return no(`the run has ${last === 0 ? 'no steps' : `steps up to ${last}`}: fork it from ${last === 0 ? 'step 1' : `one of 1 to ${last + 1}`}`);
  const from = wanted ?? retryFrom(run);
  if (wanted === undefined) {
    const stands = [...run.steps].find(([step, state]) => !isBefore(step, from) && state.kind === 'call' && state.call.effect !== 'pure' && (state.outcome?.status === 'succeeded' || endOf(state) === 'open'));
    if (stands !== undefined) return no(`step ${stands[0]} ${endOf(stands[1]) === 'open' ? 'has no known end' : 'has succeeded'}, and a retry from step ${from} would do it again under another key: settle it, or fork the run from a step that you name`);
  }
  const before = stepsBefore(run, from);
  const open = before.find((state) => endOf(state) === 'open' || (state.kind === 'call' && state.bound));
  if (open !== undefined) return no(`step ${stepOf(open)} before it has no known end: settle it first, or fork from there`);
  const unused = before.find((state) => state.kind === 'wait' && state.approval !== null && (state.approval.usedBy === null || !isBefore(state.approval.usedBy, from)));
  if (unused !== undefined) return no(`the approval at step ${stepOf(unused)} is for this run, and what it allows comes after step ${from}: fork from step ${place(stepOf(unused))} or earlier, so that it is asked for again`);
  const large = before.find((state) => bytesOf(state) > FORKED_STEP_BYTES_MAX);
  if (large !== undefined) return no(`step ${stepOf(large)} has more than ${FORKED_STEP_BYTES_MAX} bytes, which no message can take along: fork from there, or from an earlier step`);
  return record(RunForked({ run: other, from, by, command, ...(asked.input === undefined ? {} : { input: { value: asked.input } }) }));
}

/** A further page of what a fork has from its origin; each comes once, in order, and the run begins with the last. */
export function copySteps({ data: { origin, steps, more } }: Command<'copy'>, run: KnownRun): RunDecision {
  if (run.status !== 'open') return ignore('run_over');
  if (run.origin === null || run.origin.run !== origin.run || run.origin.from !== origin.from || run.origin.more !== more + 1) return ignore('duplicate');
  return record(StepsCopied({ origin, steps, observed: [], more }));
}

const stepOf = (state: StepState): Step => (state.kind === 'call' ? state.call.step : state.step);
