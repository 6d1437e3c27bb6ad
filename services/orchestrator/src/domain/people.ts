import { ignore, record, type Decision } from '@holdfast/kernel';
import { ApprovalDecided, CompensationRequested, InputRefused, isoTime, RunCancelRequested, RunPaused, RunUnpaused, RunUnquarantined, WaitEnded, type Operator, type Step } from '@holdfast/protocol';
import type { Command, IgnoreReason, RunDecision } from './commands.js';
import { evolve, openSteps, type KnownRun, type RunEvent } from './run.js';
import { afterDue, ended, isCancelledOut } from './waiting.js';
import { unheard } from './unheard.js';
import { isOpenWait } from './wait.js';

type InputReason = Parameters<typeof InputRefused>[0]['reason'];
type PersonDecision = Decision<RunEvent, IgnoreReason, never>;
interface Asked {
  readonly command: string;
  readonly by: Operator;
  readonly step?: Step;
}

/** Role that may hold, let go and cancel runs. Whoever is `admin` may everything. */
const OPERATOR_ROLE = 'operator';
const ADMIN_ROLE = 'admin';

const may = ({ roles }: Operator, allowed: readonly string[]): boolean => roles.some((role) => role === ADMIN_ROLE || allowed.includes(role));

const no = (input: string, { command, by, step }: Asked, reason: InputReason, message: string): PersonDecision =>
  record(InputRefused({ input, id: command, command, by, reason, message, ...(step === undefined ? {} : { step }) }));

export const mayNot = (input: string, asked: Asked, allowed: readonly string[] = [OPERATOR_ROLE]): PersonDecision | null =>
  may(asked.by, allowed) ? null : no(input, asked, 'role_missing', `${input} needs the role ${allowed.map((role) => `"${role}"`).join(' or ')}; ${asked.by.name} has ${asked.by.roles.length === 0 ? 'none' : asked.by.roles.map((role) => `"${role}"`).join(', ')}`);

/** Approves a thing, not a moment: exactly what the wait shows. Decision and expiry compete here. */
export const decideApproval = ({ asked, at }: Command<'approve'>, run: KnownRun): RunDecision =>
  afterDue(run, at, (now) => {
    const refuse = (reason: InputReason, message: string): PersonDecision => no('DecideApproval', asked, reason, message);
    const { step, by, decision, feedback, digest, expiresAt, command } = asked;
    if (now.inputs.has(command)) return ignore('duplicate');
    const wait = now.steps.get(step);
    if (wait?.kind !== 'wait' || wait.wait.kind !== 'approval') return refuse('wait_unknown', `step ${step} asks for no approval`);
    const missing = mayNot('DecideApproval', asked, wait.wait.approvers);
    if (missing !== null) return missing;
    if (wait.wait.fourEyes && now.principal !== null && by.name === now.principal) return refuse('four_eyes', `${by.name} asked for it: somebody else must decide`);
    if (digest !== undefined && digest !== wait.wait.scope.digest) return refuse('other_scope', 'what was decided on is not what the run asks for: look at it again');
    if (wait.end !== null) return refuse(wait.end.status === 'expired' ? 'wait_over' : 'already_decided', wait.end.status === 'expired' ? `it expired at ${isoTime(wait.end.deadline)}` : `it was ${wait.end.status === 'rejected' ? 'rejected' : 'approved'} by ${'by' in wait.end ? wait.end.by : 'somebody'}`);
    if (now.status !== 'open') return refuse('run_ended', 'the run is over');
    if (now.cancel !== null) return refuse('wait_over', `${now.cancel.by} has cancelled the run: nobody waits at step ${step} any more`);
    if (!isOpenWait(wait)) return refuse('wait_over', `nobody waits at step ${step} any more`);
    const approved = decision === 'approve';
    const decided = ApprovalDecided({ step, decision: approved ? 'approved' : 'rejected', by, command, at, ...(feedback === undefined ? {} : { feedback }), ...(expiresAt === undefined ? {} : { expiresAt }) });
    return record<RunEvent>(
      decided,
      WaitEnded({ step, at, end: approved ? { status: 'satisfied', value: { value: { approvedBy: by.name, ...(expiresAt === undefined ? {} : { expiresAt }) } }, by: by.name } : { status: 'rejected', feedback: feedback ?? '', by: by.name } }),
    );
  });

/** Cancelled is a state: nothing new is sent, what is in flight ends as it ends, and the run never runs again. */
export const cancel = ({ asked, at }: Command<'cancel'>, run: KnownRun): RunDecision =>
  afterDue(run, at, (now) => {
    const { by, reason, scope, manner, command, compensate } = asked;
    if (now.inputs.has(command)) return ignore('duplicate');
    const missing = mayNot('CancelRun', asked, [OPERATOR_ROLE]);
    if (missing !== null) return missing;
    if (now.status === 'ended') return no('CancelRun', asked, 'run_ended', `the run has ended (${now.ending.status})`);
    if (now.cancel !== null && (now.cancel.manner === 'immediate' || manner === 'graceful')) return no('CancelRun', asked, 'not_possible', `${now.cancel.by} has cancelled it already`);
    const requested = RunCancelRequested({ by, reason, scope, manner, command, at, ...(compensate === undefined ? {} : { compensate }) });
    const answer = compensate === undefined ? [] : [CompensationRequested({ because: `${by.name} has cancelled the run: ${reason}` })];
    if (manner === 'immediate' || openSteps(now).length === 0) return record<RunEvent>(requested, ...answer, ended(now, { status: 'cancelled', reason, by: by.name }));
    // Nobody holds it who could tell the end of a local call.
    const nobody = now.status === 'quarantined' || now.lease === null;
    return record<RunEvent>(requested, ...answer, ...(nobody ? unheard(evolve(now, requested) as KnownRun, 'nobody held the run when it was cancelled') : []));
  });

/** What ends a run that is being cancelled: its last step in flight has ended. */
export const cancelled = (run: KnownRun): RunEvent[] =>
  run.cancel !== null && isCancelledOut(run) ? [ended(run, { status: 'cancelled', reason: run.cancel.reason, by: run.cancel.by })] : [];

export function pause({ asked, at }: Command<'pause'>, run: KnownRun): PersonDecision {
  if (run.inputs.has(asked.command)) return ignore('duplicate');
  const missing = mayNot('PauseRun', asked, [OPERATOR_ROLE]);
  if (missing !== null) return missing;
  if (run.status !== 'open') return no('PauseRun', asked, 'run_ended', `the run is ${run.status}`);
  if (run.paused !== null) return no('PauseRun', asked, 'not_possible', `${run.paused.by} has paused it already`);
  return record(RunPaused({ by: asked.by, reason: asked.reason, command: asked.command, at }));
}

export function unpause({ asked, at }: Command<'unpause'>, run: KnownRun): PersonDecision {
  if (run.inputs.has(asked.command)) return ignore('duplicate');
  const missing = mayNot('UnpauseRun', asked, [OPERATOR_ROLE]);
  if (missing !== null) return missing;
  if (run.status !== 'open' || run.paused === null) return no('UnpauseRun', asked, 'not_possible', 'the run is not paused');
  return record(RunUnpaused({ by: asked.by, command: asked.command, at }));
}

/** Whoever has looked into a quarantined run lets it go on. */
export function unquarantine({ asked }: Command<'unquarantine'>, run: KnownRun): PersonDecision {
  if (run.inputs.has(asked.command)) return ignore('duplicate');
  const missing = mayNot('UnquarantineRun', asked, [OPERATOR_ROLE]);
  if (missing !== null) return missing;
  if (run.status !== 'quarantined') return no('UnquarantineRun', asked, 'not_possible', `the run is ${run.status}, not in quarantine`);
  return record(RunUnquarantined({ by: asked.by, reason: asked.reason, command: asked.command }));
}
