import { z } from 'zod';
import { STUCK_AFTER_MS } from './domain/stuck.js';

/** What an operator sets for the whole service; every instance must be given the same. */
export interface Settings {
  /** How long a run may stand still unexplained before it is shown as stuck. Milliseconds. */
  readonly stuckAfterMs: number;
}

export const DEFAULT_SETTINGS: Settings = { stuckAfterMs: STUCK_AFTER_MS };

/**
 * Reads `HOLDFAST_STUCK_AFTER_MS`.
 * @throws Error that names the variable and what is wrong with it
 */
export function readSettings(env: Readonly<Record<string, string | undefined>>): Settings {
  const after = z.coerce.number().int().min(1000).safeParse(env['HOLDFAST_STUCK_AFTER_MS'] ?? STUCK_AFTER_MS);
  if (!after.success) throw new Error(`HOLDFAST_STUCK_AFTER_MS is "${env['HOLDFAST_STUCK_AFTER_MS'] ?? ''}": whole milliseconds, at least 1000, are needed`);
  return { stuckAfterMs: after.data };
}
