import { ignore, record } from '@holdfast/kernel';
import { DEFAULT_POOL, RunAccepted, RunAdmitted, RunJoined, RunQueued, StartRefused, StepsCopied, type Fence, type Lease, type Named } from '@holdfast/protocol';
import { defined, hosts, refusal, sameNamed } from './accept.js';
import type { Admission } from './admission.js';
import type { Command, Holder, RunDecision } from './commands.js';
import { factsOf } from './revalidate.js';
import type { KnownRun, Run, RunEvent } from './run.js';

export function start({ data, tenant, inputDigest, holder, at, admission, offset, fork: copied }: Command<'start'>, run: Run): RunDecision {
  if (run.status === 'lane' || run.status === 'brakes') return ignore('not_a_run');
  if (run.status !== 'absent') {
    if (run.inputDigest === inputDigest && sameNamed(run.agent, data.agent)) return ignore('duplicate');
    return refusal(run, {
      intent: 'StartRun',
      reason: 'run_exists_with_other_input',
      message: 'a run with this id exists with another input or agent; choose another id, or read that run’s outcome',
      token: `start:${inputDigest}:${data.agent?.name ?? ''}@${data.agent?.version ?? ''}`,
    });
  }
  const { agent } = data;
  if (admission?.kind === 'refused') {
    const { kind: _, ...because } = admission;
    return record(StartRefused({ agent, ...because, ...defined({ offset }) }));
  }
  const lease = agent !== null && admission?.kind !== 'queued' && holder !== null && hosts(holder, agent) !== null ? leaseOf(holder, 1, agent) : undefined;
  const accepted = RunAccepted({
    tenant,
    agent,
    pool: data.pool ?? DEFAULT_POOL,
    input: data.input,
    inputDigest,
    at,
    ...defined({ goal: data.goal, success: data.success, principal: data.principal, deadline: data.deadline, budgets: data.budgets, onDeadline: data.onDeadline, parent: data.parent, lease }),
    ...defined({ concurrencyKey: data.concurrencyKey, priority: data.priority, gates: admission?.kind === 'open' ? [...admission.gates] : undefined }),
  });
  const rest: RunEvent[] = [...(copied === undefined ? [] : [StepsCopied(copied)]), ...(admission?.kind === 'queued' ? [queuedBy(admission)] : [])];
  return record<RunEvent>(accepted, ...rest);
}

const queuedBy = ({ gate, gates, message, since, expiresAt }: Extract<Admission, { kind: 'queued' }>): RunEvent => RunQueued({ gate, gates: [...gates], message, since, expiresAt });

export function admit({ gate, admission, at }: Command<'admit'>, run: KnownRun): RunDecision {
  if (run.status !== 'open') return ignore('run_over');
  if (run.queued?.gate !== gate) return ignore('duplicate');
  return record(admission.kind === 'open' ? RunAdmitted({ gates: [...admission.gates], at }) : queuedBy(admission));
}

/** The right to advance a run, for whoever holds its lane. */
export const leaseOf = (holder: Holder, fence: number, agent: Named): Lease => ({ fence: fence as Fence, worker: holder.worker, taken: holder.offset, ...(holder.rebuilt === 0 ? {} : { rebuilt: holder.rebuilt }), ...defined({ facts: factsOf(holder, agent) }) });

/** A run that is wanted as a child by more than one is one run, and tells each. */
export function join({ parent }: Command<'join'>, run: KnownRun): RunDecision {
  if (run.status === 'ended') return ignore('run_over');
  return run.parents.some((known) => known.run === parent.run && known.step === parent.step) ? ignore('duplicate') : record(RunJoined({ parent }));
}
