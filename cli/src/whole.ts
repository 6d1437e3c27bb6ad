import { CliError } from './failure.js';

/** A whole number from 1 to `max`. @throws CliError that names the option */
export function whole(text: string, what: string, max: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > max) throw new CliError(`${what} ${text} is not a number from 1 to ${max}`);
  return value;
}
