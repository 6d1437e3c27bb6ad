import { laneStream, type Pool } from '@holdfast/protocol';
import type { Turn } from '@holdfast/runtime';
import type { Holder } from './domain/commands.js';
import type { Run, RunEvent } from './domain/run.js';

type RunTurn = Turn<Run, RunEvent>;

/** Which worker of a pool holds the lane that a turn is about; null while none does. */
export function holderOf(turn: RunTurn, pool: Pool): Holder | null {
  const lane = turn.state(laneStream(pool, turn.lane));
  return lane.status === 'lane' ? { worker: lane.worker, agents: lane.agents, offset: lane.offset, rebuilt: lane.rebuilt } : null;
}

/** Of the announcement under which it holds it. */
export function generationOf(turn: RunTurn, pool: Pool): number | null {
  const lane = turn.state(laneStream(pool, turn.lane));
  return lane.status === 'lane' ? lane.generation : null;
}
