import { workerMessages, decoder, type AgentContract, type MessageOf } from '@holdfast/protocol';
import { nameOf } from '../contracts.js';
import type { LiveEvent } from '../live.js';
import { findingsOf, type Finding } from './finding.js';

type Seen = MessageOf<(typeof workerMessages)[number]>['data'];

/** A worker that has been silent for so many of its pauses is gone. */
const SILENT_FOR = 3;
const NAMED_MOST = 3;
const stack = findingsOf('stack');
const decode = decoder(workerMessages);

/** The last word of each worker that is there now. `now`: epoch milliseconds. */
export function workersAlive(events: readonly LiveEvent[], now: number): Seen[] {
  const last = new Map<string, Seen>();
  for (const { type, data } of events) {
    const decoded = decode(type, data);
    if (decoded.ok) last.set(decoded.message.data.worker, decoded.message.data);
  }
  return [...last.values()].filter(({ state, at, everyMs }) => state !== 'stopped' && now - at <= SILENT_FOR * everyMs);
}

/** A lane of a pool belongs to one worker: what another one serves there waits. */
export function unequalPools(workers: readonly Seen[], declared: readonly AgentContract[]): Finding[] {
  const pools = new Map<string, Seen[]>();
  for (const worker of workers) pools.set(worker.pool, [...(pools.get(worker.pool) ?? []), worker]);
  return [...pools].flatMap(([pool, members]) => {
    const served = [...new Set(members.flatMap(({ agents }) => agents.map(nameOf)))].sort();
    const lacking = served.flatMap((agent) => {
      const without = members.filter(({ agents }) => !agents.some((each) => nameOf(each) === agent || takesUp(declared, nameOf(each), agent)));
      return without.length === 0 ? [] : [`${agent} by ${without.slice(0, NAMED_MOST).map(({ worker }) => worker).join(', ')}${without.length > NAMED_MOST ? ' …' : ''}`];
    });
    if (lacking.length === 0) return [];
    return [stack.weak(`pool ${pool}`, `its workers serve different agents, and a lane belongs to one worker: runs wait in the lanes of who doesn’t serve theirs. Not served: ${lacking.join('; ')}`, 'let every worker of a pool serve all its agents, old versions with open runs included, or give each a pool of its own')];
  });
}

/** Whether runs of one version are taken up by another. */
function takesUp(declared: readonly AgentContract[], by: string, agent: string): boolean {
  const contract = declared.find((each) => nameOf(each) === by);
  return contract?.compatibleWith.some((version) => nameOf({ name: contract.name, version }) === agent) === true;
}
