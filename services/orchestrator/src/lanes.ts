import { laneStream, type Pool } from '@holdfast/protocol';
import type { ContractBook, Turn } from '@holdfast/runtime';
import type { Holder } from './domain/commands.js';
import type { Run, RunEvent } from './domain/run.js';

type RunTurn = Turn<Run, RunEvent>;

/** Which worker of a pool holds the lane that a turn is about; null while none does. */
export function holderOf(turn: RunTurn, pool: Pool, contracts: Pick<ContractBook, 'agent'>): Holder | null {
  const lane = turn.state(laneStream(pool, turn.lane));
  if (lane.status !== 'lane') return null;
  const agents = lane.agents.map((agent) => ({ ...agent, compatibleWith: contracts.agent(agent)?.compatibleWith ?? [] }));
  return { worker: lane.worker, agents, offset: lane.offset, rebuilt: lane.rebuilt };
}

/** Of the announcement under which it holds it. */
export function generationOf(turn: RunTurn, pool: Pool): number | null {
  const lane = turn.state(laneStream(pool, turn.lane));
  return lane.status === 'lane' ? lane.generation : null;
}
