import { isDeepStrictEqual } from 'node:util';
import { fold } from '@holdfast/kernel';
import { topics, type Json, type Step } from '@holdfast/protocol';
import { absent, evolve, phaseOf, type Run, type RunEvent } from '@holdfast/orchestrator/domain';
import { readStreams } from './read-events.js';

/** One step of a run, as far as two runs of the same code can be alike: no keys, no times, no attempts. */
export interface StepSide {
  readonly what: string;
  readonly args: Json;
  readonly outcome: Json;
  readonly attempts: number;
}

export interface ComparedStep {
  readonly step: Step;
  readonly run: StepSide | null;
  readonly reference: StepSide | null;
  /** In which of `what`, `args` and `outcome` they differ; `missing`: only one of them has the step. Empty: alike. */
  readonly differs: readonly ('what' | 'args' | 'outcome' | 'missing')[];
}

export interface Comparison {
  readonly run: string;
  readonly reference: string;
  readonly alike: boolean;
  /** How often each was taken up again by a worker. */
  readonly resumes: { readonly run: number; readonly reference: number };
  readonly input: { readonly differs: boolean };
  readonly ending: { readonly run: Json; readonly reference: Json; readonly differs: boolean };
  readonly steps: readonly ComparedStep[];
}

type Known = Extract<Run, { steps: unknown }>;
type AnyStep = Known['steps'] extends ReadonlyMap<Step, infer One> ? One : never;

/** Sets a run beside another one of the same code, from the topic alone; `missing` names one that it doesn't hold. */
export async function compare(brokers: readonly string[], run: string, reference: string): Promise<Comparison | { readonly missing: string }> {
  const read = async (id: string): Promise<readonly RunEvent[] | null> => (await readStreams(brokers, topics.runEvents, id)).get(id)?.events.map(({ envelope, data }) => ({ type: envelope.type, data }) as unknown as RunEvent) ?? null;
  const one = await read(run);
  if (one === null) return { missing: run };
  const other = await read(reference);
  return other === null ? { missing: reference } : compareEvents(run, one, reference, other);
}

export function compareEvents(run: string, events: readonly RunEvent[], reference: string, others: readonly RunEvent[]): Comparison | { readonly missing: string } {
  const one = folded(events);
  const other = folded(others);
  if (one === null || other === null) return { missing: one === null ? run : reference };
  const steps = [...new Set([...other.steps.keys(), ...one.steps.keys()])].map((step) => comparedStep(step, one, other));
  const ending = { run: endingOf(one), reference: endingOf(other) };
  const input = { differs: one.inputDigest !== other.inputDigest };
  const differs = !isDeepStrictEqual(ending.run, ending.reference);
  return {
    run,
    reference,
    alike: !differs && !input.differs && steps.every((step) => step.differs.length === 0),
    resumes: { run: resumesIn(events), reference: resumesIn(others) },
    input,
    ending: { ...ending, differs },
    steps,
  };
}

function folded(events: readonly RunEvent[]): Known | null {
  const run = fold<Run, RunEvent>(evolve, absent, events);
  return 'steps' in run ? run : null;
}

const resumesIn = (events: readonly RunEvent[]): number => events.filter(({ type }) => type === 'RunResumed').length;

function comparedStep(step: Step, one: Known, other: Known): ComparedStep {
  const run = sideOf(one.steps.get(step));
  const reference = sideOf(other.steps.get(step));
  if (run === null || reference === null) return { step, run, reference, differs: ['missing'] };
  return { step, run, reference, differs: (['what', 'args', 'outcome'] as const).filter((part) => !isDeepStrictEqual(run[part], reference[part])) };
}

function sideOf(step: AnyStep | undefined): StepSide | null {
  switch (step?.kind) {
    case undefined:
      return null;
    case 'call':
      return step.bound ? null : { what: `call ${step.call.tool.name}@${step.call.tool.version}`, args: step.call.args, outcome: outcomeOf(step.outcome), attempts: step.attempt };
    case 'record':
      return { what: `${step.as} ${step.name}`, args: null, outcome: step.result as Json, attempts: 1 };
    case 'try':
      return { what: `${step.as} ${step.name}`, args: null, outcome: { failed: step.failure.class }, attempts: step.attempt };
    case 'wait':
      return { what: `wait for ${step.wait.kind}`, args: null, outcome: step.end === null ? (step.abandoned ? 'abandoned' : 'open') : endOf(step.end), attempts: 1 };
  }
}

type CallOutcome = Extract<AnyStep, { kind: 'call' }>['outcome'];
function outcomeOf(outcome: CallOutcome): Json {
  if (outcome === null) return 'open';
  switch (outcome.status) {
    case 'succeeded':
      return { succeeded: outcome.result as Json };
    case 'rejected':
      return { rejected: outcome.reason };
    case 'failed':
      return { failed: outcome.failure.class };
    case 'unknown':
      return 'unknown';
  }
}

type WaitEnd = NonNullable<Extract<AnyStep, { kind: 'wait' }>['end']>;
const endOf = (end: WaitEnd): Json => ('value' in end ? { [end.status]: end.value as Json } : end.status);

function endingOf(run: Known): Json {
  if (run.status !== 'ended') return phaseOf(run);
  const { ending } = run;
  if (ending.status === 'failed') return { failed: ending.failure.class };
  return 'output' in ending ? { [ending.status]: ending.output as Json } : ending.status;
}
