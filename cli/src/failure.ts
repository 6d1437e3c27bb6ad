/** Exit codes: 0 done, 1 the answer is "no" (a check failed), 2 it could not be done. */
export const EXIT = { ok: 0, no: 1, cannot: 2 } as const;

export const EXIT_CODES = 'Exit codes: 0 done; 1 the answer is no (a check failed, a command was refused, there is no such run, a run ended otherwise than completed); 2 it could not be done, or the words are wrong.';

/** Something the person at the keyboard can mend; the message is one sentence that says how. */
export class CliError extends Error {
  override readonly name: string = 'CliError';
}

/** The answer is no: exit code 1. */
export class CliNo extends CliError {
  override readonly name = 'CliNo';
}

export const noSuchRun = (run: string): CliNo => new CliNo(`run ${run} has no events: it was never accepted here`);
