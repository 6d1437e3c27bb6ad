import type { Step } from '@holdfast/protocol';
import type { ToolReference } from '../define/tool.js';
import { EffectFailed, InvalidArguments } from '../errors.js';
import type { CallMarks } from './calls.js';
import type { ToolCallOptions } from './run.js';

/** A call that the code has made: what it will be told, and the arguments that are recorded. */
export interface Asked {
  readonly promise: Promise<unknown>;
  readonly args: unknown;
}

export interface Mending {
  readonly tool: ToolReference;
  readonly options: ToolCallOptions<unknown>;
  /** Makes another call as the scope's next step; undefined where the scope takes none any more. */
  again(tool: ToolReference, args: unknown, marks: CallMarks): Asked | undefined;
  /** The result of a step was given by another tool. */
  degraded(step: Step): void;
  /** Something that an operator should hear of. */
  trouble(message: string): void;
}

export const mayMend = ({ fallback }: ToolReference, options: ToolCallOptions<unknown>): boolean =>
  options.repair !== undefined || (fallback !== null && options.fallback !== 'throw');

/**
 * A call whose recorded failure may be answered: by mending its arguments once, then by the
 * contract's fallback. Both are steps of their own. What is done follows from recorded outcomes and
 * the code alone, so that a replay does the same.
 */
export async function mend(mending: Mending, first: Asked): Promise<unknown> {
  try {
    return await first.promise;
  } catch (error) {
    if (!(error instanceof EffectFailed)) throw error;
    return repair(mending, first, error);
  }
}

async function repair(mending: Mending, first: Asked, failed: EffectFailed): Promise<unknown> {
  const { tool, options } = mending;
  if (failed.failure.repairable !== true || options.repair === undefined) return takeOver(mending, { tool, asked: first, failed }, failed.step, failed);
  const args = await options.repair(failed.failure, first.args);
  const repaired = args === undefined ? undefined : mending.again(tool, args, { repairs: failed.step });
  if (repaired === undefined) return takeOver(mending, { tool, asked: first, failed }, failed.step, failed);
  try {
    return await repaired.promise;
  } catch (error) {
    // Mended arguments that don't even fit the schema are no new failure of the tool: the recorded one stands.
    if (error instanceof InvalidArguments) return takeOver(mending, { tool, asked: first, failed }, failed.step, causedBy(error, failed));
    if (!(error instanceof EffectFailed)) throw error;
    return takeOver(mending, { tool, asked: repaired, failed: error }, failed.step, causedBy(error, failed));
  }
}

interface Failing {
  readonly tool: ToolReference;
  readonly asked: Asked;
  readonly failed: EffectFailed;
}

/** Calls what the contract lets take over, and what takes over for that; else throws `otherwise`. */
async function takeOver(mending: Mending, failing: Failing, step: Step, otherwise: Error): Promise<unknown> {
  const { tool, asked, failed } = failing;
  const offered = failed.failure.fallback;
  if (offered === undefined || mending.options.fallback === 'throw') throw otherwise;
  const { fallback } = tool;
  if (fallback?.tool.name !== offered.name || fallback.tool.version !== offered.version) {
    const declared = fallback === null ? 'none' : `${fallback.tool.name}@${fallback.tool.version}`;
    mending.trouble(`${tool.name}@${tool.version} at step ${failed.step} may be taken over by ${offered.name}@${offered.version}, and the agent's code declares ${declared} as its fallback: it is not called`);
    throw otherwise;
  }
  const args: unknown = fallback.args === undefined ? asked.args : fallback.args(tool.input.parse(asked.args));
  const other = mending.again(fallback.tool, args, { fallbackFor: failed.step });
  if (other === undefined) throw otherwise;
  let result: unknown;
  try {
    result = await other.promise;
  } catch (error) {
    if (!(error instanceof EffectFailed)) throw error;
    return takeOver(mending, { tool: fallback.tool, asked: other, failed: error }, step, causedBy(error, failed));
  }
  mending.degraded(step);
  return result;
}

function causedBy<E extends Error>(error: E, cause: Error): E {
  if (error.cause === undefined && error !== cause) error.cause = cause;
  return error;
}
