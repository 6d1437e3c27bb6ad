import { brakeStream, laneStream, Pool, runTasks, ToolsHeld } from '@holdfast/protocol';
import type { ContractBook, Turn } from '@holdfast/runtime';
import type { Holder } from './domain/commands.js';
import { noBrakes, type Brakes } from './domain/brakes.js';
import type { Run, RunEvent } from './domain/run.js';

type RunTurn = Turn<Run, RunEvent>;

/** Which worker of a pool holds the lane that a turn is about; null while none does. */
export function holderOf(turn: RunTurn, pool: Pool, contracts: Pick<ContractBook, 'agent'>): Holder | null {
  const lane = turn.state(laneStream(pool, turn.lane));
  if (lane.status !== 'lane') return null;
  const agents = lane.agents.map((agent) => {
    const { compatibleWith = [], resume } = contracts.agent(agent) ?? {};
    return { ...agent, compatibleWith, ...(resume === undefined ? {} : { resume }) };
  });
  return { worker: lane.worker, agents, offset: lane.offset, rebuilt: lane.rebuilt };
}

/** Of the announcement under which it holds it. */
export function generationOf(turn: RunTurn, pool: Pool): number | null {
  const lane = turn.state(laneStream(pool, turn.lane));
  return lane.status === 'lane' ? lane.generation : null;
}

/** Tag of the streams of lanes, one for each pool. */
export const LANES_TAG = '~lanes';
/** Runs that are held back by something else than a wait of their own: in a queue, paused, being cancelled. */
export const HELD_TAG = '~held';

/** What is held still on the lane that a turn is about. */
export function brakesOf(turn: RunTurn): Brakes {
  const brakes = turn.state(brakeStream(turn.lane));
  return brakes.status === 'brakes' ? brakes : noBrakes;
}

/** Tells whoever holds the lane which tools are held still; a new holder only where there are any. */
export function tellHeldTools(turn: RunTurn, pool?: Pool): void {
  const tools = [...brakesOf(turn).set.values()].flatMap(({ target }) => (target.kind === 'tool' ? [{ name: target.name, ...(target.version === undefined ? {} : { version: target.version }) }] : []));
  if (pool !== undefined && tools.length === 0) return;
  for (const stream of pool === undefined ? turn.open(LANES_TAG) : [laneStream(pool, turn.lane)]) {
    const lane = turn.state(stream);
    if (lane.status === 'lane') turn.send(runTasks(Pool.parse(stream.split('/')[1])), stream, turn.tenantOf(stream), ToolsHeld({ worker: lane.worker, tools }));
  }
}
