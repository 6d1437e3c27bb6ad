import type { LoopHealth } from '../loop/loop.js';
import type { Health } from '../telemetry/pages.js';

/** What is looked at besides the loop. Milliseconds. */
export interface Around {
  readonly databaseSilentMs: number;
  readonly lagStuckMs: number;
}

/** How long may pass, by how sure it is that something is wrong: in multiples of the patience. */
const SILENT = 2;
const STUCK = 3;
const DEAD = 6;

/** Why an instance is not ready, or null. Healthy means progress, not that the process is up. `patienceMs`: how long a row may wait to be published, and the database to answer. */
export function unreadyBecause(health: LoopHealth, around: Around, patienceMs: number): string | null {
  if (health.halted.length > 0) return health.halted.map(({ lane, reason }) => `lane ${lane}: ${reason}`).join('; ');
  if (health.unpublishedMs > patienceMs) return `the oldest unpublished row has waited ${health.unpublishedMs} ms`;
  if (around.databaseSilentMs > patienceMs) return `the database has not answered for ${around.databaseSilentMs} ms`;
  if (health.silentMs > patienceMs * SILENT) return `the broker has not counted this instance in for ${health.silentMs} ms`;
  if (health.stuckMs > patienceMs * STUCK) return `the loop has not come round for ${health.stuckMs} ms`;
  if (around.lagStuckMs > patienceMs * STUCK) return `messages stand on a topic and none was decided for ${around.lagStuckMs} ms`;
  return null;
}

/** What the pages say of an instance. */
export function healthOf(health: LoopHealth, around: Around, patienceMs: number): Health {
  return { unready: unreadyBecause(health, around, patienceMs), dead: health.stuckMs > patienceMs * DEAD ? 'stuck' : null, facts: { ...health, ...around } };
}
