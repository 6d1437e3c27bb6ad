/** The database holds less than this instance had committed there: it failed over to a copy that was behind, or was restored. */
export class JournalBehind extends Error {
  override readonly name = 'JournalBehind';
  constructor(service: string, lane: number, has: number, had: number) {
    super(`lane ${lane} of ${service} stands at seq ${has} in the database and stood at ${had}: the database is an older copy; run \`holdfast rebuild ${service}\` before it starts again`);
  }
}

/** What to do about messages that are gone before they were decided on. */
export const mend = (service: string): string =>
  `messages are missing (retention, deleted records, or a topic that was made anew). Stop ${service} and restore the topic; or run \`holdfast rebuild ${service} --skip-missing\`, which says what is left out`;

/** What an error says. */
export const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Whom an error that the same statement would meet again is to be blamed on. */
export type Blame = 'message' | 'lane';

/**
 * Null for outages and conflicts: trying again mends them. `message`: a value that no column takes, or that is beyond
 * a limit; it came with what was decided on. `lane`: the journal contradicts what is held in memory, or tables or
 * rights are not as they should be; no message is to blame for that.
 */
export function blameOf(error: unknown): Blame | null {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  if (typeof code !== 'string') return null;
  if (/^(22|54)/.test(code)) return 'message';
  return /^(21|23|42)/.test(code) ? 'lane' : null;
}
