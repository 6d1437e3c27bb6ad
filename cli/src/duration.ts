import ms, { type StringValue } from 'ms';
import { CliError } from './failure.js';

/**
 * Milliseconds of a length of time such as `30m`, `12h` or `90 days`, `least` milliseconds or more. A number alone is refused: whoever forgot the unit would
 * say something else than meant.
 * @throws CliError
 */
export function durationMs(text: string, what: string, least = 0): number {
  const found = /^\d{1,9}(\.\d{1,3})? ?[a-z]{1,12}$/i.test(text) ? ms(text as StringValue) : undefined;
  if (found === undefined || !Number.isFinite(found) || found < least) throw new CliError(`${what} ${JSON.stringify(text)} is no length of time: say it with its unit, such as "90 days" or "12h"`);
  return found;
}
