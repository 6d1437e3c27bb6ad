import { isoTime, RunQuarantined, ResumePoint, type Instant, type Lease, type MessageOf, type Named, type RunResumed } from '@holdfast/protocol';
import { hostedAs } from './accept.js';
import { budgetState } from './budget.js';
import type { Holder } from './commands.js';
import { openSteps, openWaits, type KnownRun, type RunEvent } from './run.js';

type Revalidated = MessageOf<typeof RunResumed>['data']['revalidated'];
export type Facts = NonNullable<Lease['facts']>;

/** What a holder's agent declares, by point; undefined where it declares nothing. */
export function factsOf(holder: Holder, agent: Named): Facts | undefined {
  const resume = hostedAs(holder, agent)?.resume;
  return resume === undefined ? undefined : (Object.fromEntries(Object.entries(resume).map(([point, { value }]) => [point, value])) as Facts);
}

/** Tools of which something is still open in a run: calls without an end, and approvals that are asked for. */
export const toolsOpen = (run: KnownRun): Named[] => [...openSteps(run).map(({ call }) => call.tool), ...openWaits(run).flatMap(({ wait }) => (wait.kind === 'approval' ? [wait.scope.tool] : []))];

/** What a resume looks at, point by point, as it is now. */
export function revalidated(run: KnownRun, agentVersion: Revalidated['agentVersion'], at: Instant | null, now: Facts = {}, undeclared: readonly Named[] = []): Revalidated {
  const tools = toolsOpen(run);
  const compared = Object.fromEntries(ResumePoint.options.map((point) => [point, comparedAt(run, now, point)]));
  return {
    history: 'intact',
    agentVersion,
    deadline: run.deadline === null ? 'none' : 'open',
    budgets: budgetState(run),
    tools: tools.length === 0 ? 'none' : undeclared.length === 0 ? 'declared' : 'missing',
    approvals: approvals(run, at),
    input: run.signals.length === 0 ? 'same' : 'newer',
    principal: run.principal === null ? 'none' : 'named',
    ...compared,
  };
}

function comparedAt({ facts }: KnownRun, now: Facts, point: ResumePoint): 'none' | 'same' | 'changed' {
  if (facts[point] === undefined && now[point] === undefined) return 'none';
  return facts[point] === now[point] ? 'same' : 'changed';
}

function approvals(run: KnownRun, at: Instant | null): 'none' | 'valid' | 'expired' {
  const given = [...run.steps.values()].flatMap((step) => (step.kind === 'wait' && step.approval !== null && step.approval.usedBy === null ? [step.approval] : []));
  if (given.length === 0) return 'none';
  return at !== null && given.some(({ expiresAt }) => expiresAt !== null && at > expiresAt) ? 'expired' : 'valid';
}

/** A change that the agent's contract leaves to a person, over which a run has waited; null when there is none. */
export function askFirst(run: KnownRun, holder: Holder, agent: Named, at: Instant): RunEvent | null {
  const resume = hostedAs(holder, agent)?.resume ?? {};
  const now = factsOf(holder, agent) ?? {};
  const changed = ResumePoint.options.filter((point) => resume[point]?.onChange === 'ask' && comparedAt(run, now, point) === 'changed');
  if (changed.length === 0) return null;
  const words = changed.map((point) => `${point} is ${now[point] ?? 'not declared'}, and was ${run.facts[point] ?? 'not declared'} when the run was last granted`);
  return RunQuarantined({ reason: 'revalidation_failed', message: `at ${isoTime(at)} ${words.join('; ')}: ${agent.name} leaves it to a person whether the run goes on so`, facts: now });
}
