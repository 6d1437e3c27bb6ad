/** Exit codes: 0 done, 1 the answer is "no" (a check failed), 2 it could not be done. */
export const EXIT = { ok: 0, no: 1, cannot: 2 } as const;

/** Something the person at the keyboard can mend; the message is one sentence that says how. */
export class CliError extends Error {
  override readonly name = 'CliError';
}
