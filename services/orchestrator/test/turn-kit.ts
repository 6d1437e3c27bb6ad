import type { Message } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { absent, evolve, type Run, type RunEvent } from '../src/domain/run.js';
import { RunHandlers } from '../src/handlers.js';
import { at, tenant } from './kit.js';

export const book: ContractBook = { tool: () => undefined, agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };
export const handlers = new RunHandlers(book);

/** A turn over these streams, with what it came to. */
export function turnOver(states: Map<string, Run>, inHand: Turn<Run, RunEvent>['inHand'] = null, now: number = at) {
  const recorded: RunEvent[] = [];
  const sent: Message[] = [];
  /** Reasons for which something became a dead letter, and for which nothing was done. */
  const parked: string[] = [];
  const ignored: string[] = [];
  const turn: Turn<Run, RunEvent> = {
    lane: 3, now, random: () => 0, inHand,
    state: (stream) => states.get(stream) ?? absent,
    tenantOf: () => tenant,
    record: (stream, _tenant, event) => {
      recorded.push(event);
      states.set(stream, evolve(states.get(stream) ?? absent, event));
    },
    send: (_topic, _stream, _tenant, message) => sent.push(message),
    seqAhead: () => 1, open: () => [], wake: () => undefined, shared: () => null, putShared: () => undefined, park: (reason) => parked.push(reason), answered: () => undefined, count: (_what, because) => ignored.push(because),
  };
  return { turn, recorded, sent, parked, ignored };
}

export const stateOf = (...events: RunEvent[]): Run => events.reduce(evolve, absent);

/** A message as it comes from `agent.intents`. */
export const inboundOf = <Data>(type: string, subject: string, data: Data, of: string = tenant): Inbound<Data> => ({
  data,
  envelope: { id: 'x', type, source: 'w', subject, time: at, tenant: of },
  record: { topic: 'agent.intents', lane: 3, offset: 8, key: subject, headers: {}, value: '{}', time: at },
});
