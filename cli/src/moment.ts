import { z } from 'zod';
import { CliError } from './failure.js';

const Rfc3339 = z.iso.datetime({ offset: true });

/**
 * Epoch milliseconds of a time such as `2026-01-31T12:00:00Z`. A time without its zone is refused, and so is whatever else JavaScript would take for one.
 * @throws CliError
 */
export function momentMs(text: string, what: string): number {
  const found = Rfc3339.safeParse(text).success ? Date.parse(text) : Number.NaN;
  if (!Number.isFinite(found)) throw new CliError(`${what} ${JSON.stringify(text)} is no time such as 2026-01-31T12:00:00Z`);
  return found;
}
