import type { Message } from '@holdfast/protocol';
import type { Inbound, Turn } from '@holdfast/runtime';
import { evolve, noPlans, type PlanEvent, type RunPlans } from '../src/domain/plan.js';
import { PlanHandlers } from '../src/handlers.js';
import { routes } from '../src/routes.js';
import { contract, how, now } from './kit.js';

/** What any tool called `book…` does can be answered, that of `book.guarded` for one version; of the others nothing can. */
const book = { tool: ({ name }: { name: string }) => contract(name, name.startsWith('book') ? { compensate: how(name === 'book.guarded' ? { precondition: { version: '/version', as: 'ifVersion' } } : {}) } : {}), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };

/** What a service tells of a run, in the order in which it is heard, each with its version in its stream. */
export function heard(...told: readonly (readonly [topic: string, message: Message, version?: number])[]) {
  const handlers = routes(new PlanHandlers(book));
  let state: RunPlans = noPlans;
  const recorded: PlanEvent[] = [];
  const turn: Turn<RunPlans, PlanEvent> = {
    lane: 0, now, random: () => 0, inHand: null,
    state: () => state,
    tenantOf: () => 'default',
    record: (_stream, _tenant, event) => {
      recorded.push(event);
      state = evolve(state, event);
    },
    send: () => undefined, seqAhead: () => 1, open: () => [], wake: () => undefined, shared: () => null, putShared: () => undefined, park: () => undefined, answered: () => undefined, count: () => undefined,
  };
  for (const [offset, [topic, { type, data }, version = 1]] of told.entries()) {
    const inbound: Inbound = {
      data,
      envelope: { id: 'x', type, source: 's', subject: 'run-1', time: now, tenant: 'default', version },
      record: { topic, lane: 0, offset, key: 'run-1', headers: {}, value: '{}', time: now },
    };
    handlers.find((route) => route.topic === topic && route.type === type)?.handle(inbound, turn);
  }
  return { recorded, types: recorded.map(({ type }) => type), state };
}
