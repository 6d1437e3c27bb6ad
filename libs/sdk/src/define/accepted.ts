import { OperationId } from '@holdfast/protocol';
import { MayHaveApplied } from '../errors.js';

/** Returned by a tool whose target has taken the work on and has no end yet. Made by `accepted`. */
export class Accepted {
  constructor(
    /** The target's own name for the work; its probe is given it. */
    readonly operationId: string,
  ) {}
}

/**
 * `return accepted(payment.id)`: the target works on it, under this name of its own. The outcome is
 * unknown until the tool's probe, which is given the name, finds its end. A `pure` tool can't answer so.
 * @throws MayHaveApplied when this is no text of 1 to 500 characters: the work was taken on all the same
 */
export function accepted(operationId: string): Accepted {
  const parsed = OperationId.safeParse(operationId);
  if (!parsed.success) throw new MayHaveApplied('the target accepted the work, under a name that can\'t be recorded: an operation id is a text of 1 to 500 characters');
  return new Accepted(parsed.data);
}
