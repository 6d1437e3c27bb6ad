import type { Named } from '@holdfast/protocol';
import { sameNamed } from './accept.js';
import type { CallIdentity, Command, Refusal } from './commands.js';
import type { KnownRun } from './run.js';

/** Why a call can't be taken, whatever the run: its tool is not declared, or its arguments are none for it. */
export function unacceptable(tool: Named, identity: CallIdentity, place: Pick<Refusal, 'intent' | 'step' | 'fence'>): Refusal | null {
  if (identity.contract === null) {
    return { ...place, reason: 'unknown_tool', message: `no worker has declared tool ${tool.name}@${tool.version}; start one that serves it, or name a declared version`, token: `tool:${place.step ?? ''}:${tool.name}@${tool.version}` };
  }
  if (identity.invalid !== null) {
    return { ...place, reason: 'invalid_arguments', message: `arguments of ${tool.name}@${tool.version}: ${identity.invalid}`, token: `args:${place.step ?? ''}:${identity.digest}` };
  }
  return null;
}

/** A call that mends or replaces another must name one that failed so, and that nothing else answers yet. */
export function answersNothing(run: KnownRun, { tool, repairs, fallbackFor }: Command<'call'>['data'], place: Pick<Refusal, 'intent' | 'step' | 'fence'>): Refusal | null {
  const answered = repairs ?? fallbackFor;
  if (answered === undefined) return null;
  const no = (message: string): Refusal => ({ ...place, reason: 'invalid', message, token: `answers:${place.step ?? ''}:${answered}` });
  if (repairs !== undefined && fallbackFor !== undefined) return no('a call either mends a failed step or takes over for it, not both');
  const failed = run.steps.get(answered);
  const failure = failed?.kind === 'call' && failed.outcome?.status === 'failed' ? failed.outcome.failure : null;
  if (failed?.kind !== 'call' || failure === null) return no(`step ${answered} is no call that failed`);
  for (const step of run.steps.values()) if (step.kind === 'call' && (step.call.repairs ?? step.call.fallbackFor) === answered && (step.call.repairs === undefined) === (repairs === undefined)) return no(`step ${answered} is answered by step ${step.call.step} already`);
  if (repairs !== undefined) return failure.repairable === true && sameNamed(failed.call.tool, tool) ? null : no(`step ${answered} can't be mended by a call of ${tool.name}`);
  return failure.fallback !== undefined && sameNamed(failure.fallback, tool) ? null : no(`tool ${tool.name} is not the declared fallback of step ${answered}`);
}
