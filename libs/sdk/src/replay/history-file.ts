import { describeIssues, Ending, HistoryStep, JsonValue, Named, RunId, Step, Tenant } from '@holdfast/protocol';
import { z } from 'zod';
import { HoldfastError } from '../errors.js';

/** A run's history as `holdfast runs export` writes it: all that a replay needs, and nothing that says where it ran. */
export const RunHistory = z.object({
  format: z.literal('holdfast/run-history'),
  version: z.literal(1),
  run: RunId,
  tenant: Tenant,
  agent: Named,
  input: JsonValue,
  /** What is recorded, in stream order. */
  steps: z.array(HistoryStep),
  /** The order in which completions were handed to the code. */
  observed: z.array(Step),
  /** Asks that were refused and left no step. */
  refused: z.array(z.object({ intent: z.string(), step: Step, reason: z.string(), message: z.string() })),
  /** Null while the run is open. */
  ending: Ending.nullable(),
  /** Whose word the ending is: that of the run's code, or of a service (an operator cancelled it, its time ran out). Absent in exports of before. */
  endedBy: z.enum(['code', 'service']).optional(),
});
export type RunHistory = z.infer<typeof RunHistory>;

/** The ending that the run's code gave; null while it has given none. Of an export that doesn't say whose word it is, those that code can't give are a service's. */
export function endingByCode({ ending, endedBy }: RunHistory): Ending | null {
  if (ending === null || endedBy !== undefined) return endedBy === 'service' ? null : ending;
  switch (ending.status) {
    case 'cancelled':
    case 'expired':
      return null;
    case 'completed_partially':
      return ending.output === undefined ? null : ending;
    case 'completed':
    case 'failed':
      return ending;
  }
}

/** What was given as a history is none. */
export class InvalidHistory extends HoldfastError {
  override readonly name = 'InvalidHistory';
  readonly failureClass = 'invalid_request';
}

/** @throws InvalidHistory saying what is wrong */
export function parseHistory(value: unknown): RunHistory {
  const parsed = RunHistory.safeParse(value);
  if (!parsed.success) throw new InvalidHistory(`this is no run history of version 1, as \`holdfast runs export\` writes it: ${describeIssues(parsed.error)}`);
  return parsed.data;
}
