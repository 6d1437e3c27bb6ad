import { expect, it } from '@jest/globals';
import { CallTool, ReportSteps, RunResumed, runTasks, WorkerId, type Message } from '@holdfast/protocol';
import type { ContractBook, Inbound, Turn } from '@holdfast/runtime';
import { absent, evolve, type Run, type RunEvent } from '../src/domain/run.js';
import { RunHandlers } from '../src/handlers.js';
import { accepted, asked, contract, ended, f, pool, run, s, succeeded, tenant, tools } from './kit.js';

const contracts: ContractBook = { tool: () => contract('reserve'), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };

/** A run whose step 1 was granted under fence 1, and which worker w2 holds under fence 2. */
const handedOver: readonly RunEvent[] = [
  accepted(),
  asked('1', 'refund'),
  RunResumed({ lease: { fence: f(2), worker: WorkerId.parse('w2'), taken: 20 }, because: 'worker_changed', revalidated: { history: 'intact', agentVersion: 'same', deadline: 'none', budgets: 'none' }, replayed: 0, refired: [] }),
];

function stage() {
  let state = handedOver.reduce<Run>(evolve, absent);
  const sent: { topic: string; message: Message }[] = [];
  const turn = {
    lane: 0,
    now: 1,
    random: () => 0,
    state: () => state,
    record: (_stream: string, _tenant: string, event: RunEvent) => {
      state = evolve(state, event);
    },
    send: (topic: string, _stream: string, _tenant: string, message: Message) => void sent.push({ topic, message }),
    answered: () => undefined,
    count: () => undefined,
  } as unknown as Turn<Run, RunEvent>;
  const inbound = <Data>(data: Data): Inbound<Data> => ({ data, envelope: { id: 'x', type: 'x', source: 'w1', subject: run, time: 1, tenant }, record: {} as never });
  return { sent, turn, inbound, handlers: new RunHandlers(contracts) };
}

const told = { topic: runTasks(pool), message: { type: 'StepSettled', data: { worker: 'w2', fence: 2, step: '1', attempt: 1, outcome: succeeded } } };

it('tells the holder of an end that rides on a refused intent of the holder before', () => {
  const { sent, turn, inbound, handlers } = stage();
  handlers.call(inbound(CallTool({ step: s('2'), tool: tools.reserve, args: {}, fence: f(1), settles: [ended('1')] }).data), turn);
  expect(sent).toContainEqual(told);
});

it('tells the holder of an end that the holder before reports by itself, and not of its own', () => {
  const { sent, turn, inbound, handlers } = stage();
  handlers.reportSteps(inbound(ReportSteps({ fence: f(1), settles: [ended('1')] }).data), turn);
  expect(sent).toEqual([told]);
  const own = stage();
  own.handlers.reportSteps(own.inbound(ReportSteps({ fence: f(2), settles: [ended('1')] }).data), own.turn);
  expect(own.sent).toEqual([]);
});
