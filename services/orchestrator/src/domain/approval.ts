import { isoTime, type RequestedCall, type Step } from '@holdfast/protocol';
import type { CallIdentity, Command, Refusal } from './commands.js';
import type { KnownRun } from './run.js';

/** The approval as it goes with the call that it allows: looked at once more when that is sent. */
export function approvalOf(run: KnownRun, step: Step | undefined, { digest }: CallIdentity): RequestedCall['approval'] {
  const wait = step === undefined ? undefined : run.steps.get(step);
  if (wait?.kind !== 'wait' || wait.approval === null) return undefined;
  const { by, expiresAt } = wait.approval;
  return { step: wait.step, by, digest, ...(expiresAt === null ? {} : { expiresAt }) };
}

/**
 * Why a call may not be made for want of an approval; null when none is needed, or the one that it
 * names is for exactly this tool, target and arguments, unexpired and unused.
 */
export function unapproved(run: KnownRun, { tool, target, approval }: Command<'call'>['data'], { contract, digest }: CallIdentity, place: Pick<Refusal, 'intent' | 'step' | 'fence'>, at: number): Refusal | null {
  const no = (reason: 'approval_required' | 'approval_invalid', message: string): Refusal => ({ ...place, reason, message, token: `approval:${place.step ?? ''}:${approval ?? ''}:${digest}` });
  if (approval === undefined) {
    return contract?.approval === undefined ? null : no('approval_required', `${tool.name} needs an approval by ${contract.approval.approvers.join(' or ')}: ask for it with run.approval, and name it in the call`);
  }
  const wait = run.steps.get(approval);
  if (wait?.kind !== 'wait' || wait.wait.kind !== 'approval') return no('approval_invalid', `step ${approval} is no approval`);
  if (wait.end === null || wait.approval === null) return no('approval_invalid', `the approval at step ${approval} is ${wait.end?.status ?? 'not decided yet'}`);
  const { scope } = wait.wait;
  if (scope.tool.name !== tool.name || scope.tool.version !== tool.version || (scope.target ?? null) !== (target ?? null) || scope.digest !== digest) {
    return no('approval_invalid', `the approval at step ${approval} is for ${scope.tool.name}@${scope.tool.version} with other arguments or another target: what is called now needs an approval of its own`);
  }
  if (wait.approval.usedBy !== null) return no('approval_invalid', `the approval at step ${approval} was used by step ${wait.approval.usedBy}`);
  if (wait.approval.expiresAt !== null && at > wait.approval.expiresAt) return no('approval_invalid', `the approval at step ${approval} expired at ${isoTime(wait.approval.expiresAt)}`);
  return null;
}
