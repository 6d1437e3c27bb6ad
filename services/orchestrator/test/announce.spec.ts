import { describe, expect, it } from '@jest/globals';
import { AgentContract, AnnounceLane, laneStream, Pool, WorkerId, type Message } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { absent, evolve, type Run, type RunEvent } from '../src/domain/run.js';
import { RunHandlers } from '../src/handlers.js';

const pool = Pool.parse('default');
const stream = laneStream(pool, 3);
const noContracts: ContractBook = { tool: () => undefined, agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };

/** A lane's turn in memory: what was recorded, woken and counted. */
function lane(openRuns: readonly string[] = []) {
  let state: Run = absent;
  const seen = { taken: [] as string[], woken: [] as string[], counted: [] as string[], parked: [] as string[] };
  const turn = (now: number): Turn<Run, RunEvent> => ({
    lane: 3,
    now,
    random: () => 0,
    state: () => state,
    tenantOf: () => 'default',
    record: (_stream: string, _tenant: string, event: RunEvent) => {
      state = evolve(state, event);
      if (event.type === 'LaneTaken') seen.taken.push(event.data.worker);
    },
    send: (_topic: string, _stream: string, _tenant: string, _message: Message) => undefined,
    seqAhead: () => 1,
    open: () => openRuns,
    wake: (run) => seen.woken.push(run),
    shared: () => null,
    putShared: () => undefined,
    park: (reason) => seen.parked.push(reason),
    answered: () => undefined,
    inHand: null,
    count: (_what, because) => seen.counted.push(because),
  });
  const handlers = new RunHandlers(noContracts);
  const announce = (worker: string, generation: number, offset: number, now: number, partition = 3): void => {
    const { data } = AnnounceLane({ pool, lane: partition, worker: WorkerId.parse(worker), generation, agents: [], tools: [], taken: {} });
    const inbound: Inbound<typeof data> = {
      data,
      envelope: { id: 'x', type: 'AnnounceLane', source: worker, subject: stream, time: now, tenant: 'default' },
      record: { topic: 'agent.intents', lane: 3, offset, key: stream, headers: {}, value: '{}', time: now },
    };
    handlers.announceLane(inbound, turn(now));
  };
  return { announce, seen };
}

describe('an announcement of a lane', () => {
  it.each([
    { names: 'an agent that is known', agents: [{ name: 'clerk', version: '1' }], reads: 1 },
    { names: 'no agent', agents: [], reads: 0 },
  ])('that names $names has contracts read $reads times before it is decided on: they may have been declared anew', async ({ agents, reads }) => {
    let read = 0;
    const book: ContractBook = {
      ...noContracts,
      agent: (named) => AgentContract.parse({ ...named, input: {}, output: {}, pool }),
      catchUp: () => {
        read += 1;
        return Promise.resolve();
      },
    };
    const { data } = AnnounceLane({ pool, lane: 3, worker: WorkerId.parse('w1'), generation: 1, agents, tools: [], taken: {} });
    await new RunHandlers(book).prepare([{ data, envelope: { id: 'x', type: 'AnnounceLane', source: 'w1', subject: stream, time: 0, tenant: 'default' }, record: { topic: 'agent.intents', lane: 3, offset: 4, key: stream, headers: {}, value: '{}', time: 0 } }]);
    expect(read).toBe(reads);
  });

  it('hands the lane to its worker and has every open run of the pool looked at', () => {
    const { announce, seen } = lane(['a', 'b']);
    announce('w1', 1, 4, 1000);
    expect(seen.taken).toEqual(['w1']);
    expect(seen.woken).toEqual(['a', 'b']);
  });

  it('changes nothing when it is read again', () => {
    const { announce, seen } = lane();
    announce('w1', 1, 4, 1000);
    announce('w1', 1, 4, 2000);
    expect(seen.taken).toEqual(['w1']);
    expect(seen.counted).toEqual(['announced_before']);
  });

  it('of a former holder, written late, does not take the lane back from its successor', () => {
    const { announce, seen } = lane();
    announce('w2', 8, 5, 1000);
    announce('w1', 7, 6, 1500);
    expect(seen.taken).toEqual(['w2']);
    expect(seen.counted).toEqual(['announced_late']);
  });

  it('written a second time, since its answer was lost, leaves the runs with their holder', () => {
    const { announce, seen } = lane();
    announce('w1', 7, 4, 1000);
    announce('w1', 7, 6, 1500);
    expect(seen.taken).toEqual(['w1']);
    expect(seen.counted).toEqual(['announced_again']);
  });

  it('of the same worker under its next generation counts: what it held meanwhile is not known', () => {
    const { announce, seen } = lane();
    announce('w1', 7, 4, 1000);
    announce('w1', 8, 6, 1500);
    expect(seen.taken).toEqual(['w1', 'w1']);
  });

  it('of a group that was away for long counts, though its generations begin anew', () => {
    const { announce, seen } = lane();
    announce('w2', 8, 5, 1000);
    announce('w3', 1, 6, 1000 + 11 * 60 * 1000);
    expect(seen.taken).toEqual(['w2', 'w3']);
  });

  it('on another partition than its own is parked', () => {
    const { announce, seen } = lane();
    announce('w1', 1, 4, 1000, 2);
    expect(seen.taken).toEqual([]);
    expect(seen.parked).toEqual(['wrong_partition']);
  });
});
