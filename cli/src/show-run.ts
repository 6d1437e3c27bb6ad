import { isoTime, StartRefused, topics, type Step } from '@holdfast/protocol';
import { holdOf, openSteps, openWaits, phaseOf, unknownSteps, type CallStep, type StepState } from '@holdfast/orchestrator/domain';
import { readStreams } from './audit/read-events.js';
import { readCases, type CaseView } from './cases.js';
import { noSuchRun } from './failure.js';
import { readHeld, type HeldStep } from './held.js';
import { runOf } from './run-of.js';

/** A run's checkpoint: all that is known of it, from its events alone; null when there are none. */
export async function showRun(brokers: readonly string[], id: string): Promise<Record<string, unknown> | null> {
  const stream = (await readStreams(brokers, topics.runEvents, id)).get(id);
  if (stream === undefined) return null;
  const run = runOf(stream);
  if (run.status === 'absent' || run.status === 'lane' || run.status === 'brakes') return null;
  const numbers = [...run.steps.keys()].map((step) => Number(step.split('.')[0]));
  const cursor = numbers.length === 0 ? 0 : Math.max(...numbers);
  const phase = phaseOf(run);
  const over = run.status !== 'open';
  const unknown = unknownSteps(run);
  const cases = unknown.length === 0 ? [] : await readCases(brokers, id);
  const held = over || !openSteps(run).some(({ fire }) => fire === 'granted') ? new Map<Step, HeldStep>() : await readHeld(brokers, id);
  return {
    run: id,
    tenant: run.tenant,
    phase,
    goal: run.goal,
    success: run.success,
    principal: run.principal,
    agent: run.agent,
    pool: run.pool,
    version: stream.events.length,
    chain: stream.problems.length === 0 ? 'intact' : stream.problems,
    cursor: String(cursor),
    fence: run.lease?.fence ?? null,
    worker: run.lease?.worker ?? null,
    resumes: run.resumes,
    deadline: run.deadline === null ? null : isoTime(run.deadline),
    budgets: { ...run.budgets, stepsUsed: run.steps.size },
    waits: openWaits(run).map((wait) => ({ step: wait.step, kind: wait.wait.kind, since: isoTime(wait.since), deadline: wait.deadline === null ? null : isoTime(wait.deadline), nextAt: wait.nextAt === null ? null : isoTime(wait.nextAt) })),
    paused: run.paused,
    held: holdOf(run) === null ? null : [...(run.paused === null ? [] : [`by ${run.paused.by}: ${run.paused.reason}`]), ...[...run.brakes].map(([name, { by, reason }]) => `${name} by ${by}: ${reason}`)].join('; '),
    stuck: run.stuck === null ? null : `since ${isoTime(run.stuck.since)} on ${run.stuck.on}`,
    cancel: run.cancel,
    usage: run.usage,
    origin: run.origin === null ? null : `run ${run.origin.run} up to step ${run.origin.from}`,
    input: run.input,
    steps: [...run.steps.values()].map((step) => showStep(step, held)),
    unknown: unknown.map((step) => showUnknown(step, cases.find((each) => each.step === step.call.step))),
    next: over ? null : nextSafe(openSteps(run).map(({ call: { step } }) => `${step} (${held.has(step) ? 'held' : 'under way'})`), unknown.map(({ call }) => call.step), cursor),
    ending: run.status === 'ended' ? run.ending : null,
    compensation: run.compensation,
    quarantine: run.status === 'quarantined' ? run.because : null,
  };
}

/** Why there is no such run. */
export async function whyNone(brokers: readonly string[], id: string): Promise<string> {
  const last = (await readStreams(brokers, topics.runEvents, id)).get(id)?.events.at(-1);
  const refused = last?.envelope.type === StartRefused.type ? StartRefused.schema.safeParse(last.data) : undefined;
  if (refused?.success !== true) return noSuchRun(id).message;
  const { reason, message, retryAt } = refused.data;
  return `there is no run ${id}: its start was refused (${reason}): ${message}; it may be started again from ${isoTime(retryAt)} on`;
}

/** An unknown with its case: since when, whose it is, when it is looked at next. */
function showUnknown({ call, outcome }: CallStep, of: CaseView | undefined): Record<string, unknown> {
  return {
    step: call.step,
    tool: call.tool.name,
    why: outcome?.status === 'unknown' ? outcome.message : '',
    case: of?.case ?? null,
    since: of?.since ?? null,
    owner: of?.owner ?? null,
    nextLook: of?.nextLook ?? null,
  };
}

function nextSafe(open: readonly string[], unknown: readonly string[], cursor: number): string {
  if (unknown.length > 0) return `none until the outcome of step ${unknown.join(', ')} is settled`;
  if (open.length > 0) return open.join(', ');
  return String(cursor + 1);
}

function showStep(step: StepState, held: ReadonlyMap<Step, HeldStep>): Record<string, unknown> {
  switch (step.kind) {
    case 'call':
      return {
        step: step.call.step,
        kind: 'call',
        tool: `${step.call.tool.name}@${step.call.tool.version}`,
        effect: step.call.effect,
        fire: step.fire,
        key: step.call.key,
        digest: step.call.digest,
        args: step.call.args,
        target: step.call.target ?? null,
        attempts: step.attempt,
        fence: step.fence,
        // Not sent yet: it is neither under way nor over.
        outcome: step.outcome ?? (held.has(step.call.step) ? { status: 'held', ...held.get(step.call.step) } : { status: 'open' }),
      };
    case 'record':
      return { step: step.step, kind: step.as, name: step.name, result: step.result, fence: step.fence };
    case 'wait':
      return { step: step.step, kind: 'wait', name: step.wait.kind, wait: step.wait, since: isoTime(step.since), deadline: step.deadline === null ? null : isoTime(step.deadline), end: step.end, abandoned: step.abandoned };
    case 'try':
      return { step: step.step, kind: step.as, name: step.name, attempts: step.attempt, failure: step.failure, retryAt: step.retryAt };
  }
}
