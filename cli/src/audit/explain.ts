import { topics, type Step } from '@holdfast/protocol';
import { evolve, absent, phaseOf, type Run, type RunEvent } from '@holdfast/orchestrator/domain';
import { readStreams } from './read-events.js';

/** How one step of a run came about. */
export interface ExplainedStep {
  readonly step: Step;
  readonly what: string;
  readonly effect: string;
  /** `fresh`: done by the worker that ended the run, or holds it; `replayed`: taken from the record by it. */
  readonly origin: 'fresh' | 'replayed';
  readonly outcome: string;
  readonly attempts: number;
}

export interface Explanation {
  readonly run: string;
  readonly phase: string;
  readonly steps: readonly ExplainedStep[];
  readonly resumes: readonly { readonly version: number; readonly fence: number; readonly because: string; readonly replayed: number; readonly refired: readonly Step[] }[];
  /** Refusals by reason: what would have been done, or done again, and was not. */
  readonly refused: Readonly<Record<string, number>>;
  /** The first effect that a restart from the beginning would have done a second time; null when there was no restart, or nothing to double. */
  readonly doubledByNaiveRestart: { readonly step: Step; readonly tool: string } | null;
}

/** Explains a run from its events alone; null when the topic has none. */
export async function explain(brokers: readonly string[], run: string): Promise<Explanation | null> {
  const stream = (await readStreams(brokers, topics.runEvents, run)).get(run);
  if (stream === undefined) return null;
  return explainEvents(run, stream.events.map(({ envelope, data }) => ({ type: envelope.type, data }) as unknown as RunEvent));
}

export function explainEvents(run: string, events: readonly RunEvent[]): Explanation | null {
  let state: Run = absent;
  const resumes: Explanation['resumes'][number][] = [];
  const refused: Record<string, number> = {};
  let doubled: Explanation['doubledByNaiveRestart'] = null;
  for (const [i, event] of events.entries()) {
    if (event.type === 'RunResumed') {
      doubled ??= firstEffect(state);
      const { lease, because, replayed, refired } = event.data;
      resumes.push({ version: i + 1, fence: lease.fence, because, replayed, refired: refired.map(({ step }) => step) });
    }
    if (event.type === 'IntentRejected') refused[event.data.reason] = (refused[event.data.reason] ?? 0) + 1;
    state = evolve(state, event);
  }
  if (state.status === 'absent' || state.status === 'lane' || state.status === 'brakes') return null;
  const fence = state.lease?.fence ?? null;
  const steps = [...state.steps].map(([step, state_]): ExplainedStep => {
    const origin = state_.fence === null || fence === null || state_.fence === fence ? 'fresh' : 'replayed';
    if (state_.kind === 'wait') return { step, what: `wait for ${state_.wait.kind}`, effect: 'wait', origin, outcome: state_.end?.status ?? (state_.abandoned ? 'abandoned' : 'open'), attempts: 1 };
    return state_.kind === 'call'
      ? { step, what: state_.call.tool.name, effect: state_.call.effect, origin, outcome: state_.outcome?.status ?? 'open', attempts: state_.attempt }
      : { step, what: `${state_.as} ${state_.name}`, effect: 'recorded', origin, outcome: state_.kind === 'record' ? 'recorded' : 'failed', attempts: state_.kind === 'try' ? state_.attempt : 1 };
  });
  return { run, phase: phaseOf(state), steps, resumes, refused, doubledByNaiveRestart: doubled };
}

function firstEffect(run: Run): Explanation['doubledByNaiveRestart'] {
  if (run.status === 'absent' || run.status === 'lane' || run.status === 'brakes') return null;
  for (const step of run.steps.values()) {
    // One that is unknown may have happened: doing it again may double it.
    if (step.kind === 'call' && step.call.effect !== 'pure' && (step.outcome === null || step.outcome.status === 'succeeded' || step.outcome.status === 'unknown')) return { step: step.call.step, tool: step.call.tool.name };
  }
  return null;
}
