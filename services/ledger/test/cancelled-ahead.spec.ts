import { expect, test } from '@jest/globals';
import { EffectRequested, RunCancelRequested, RunFinished, RunId, topics, type Ending, type Message } from '@holdfast/protocol';
import type { Inbound, Turn } from '@holdfast/runtime';
import { evolve, noEffects, type EffectEvent, type RunEffects } from '../src/domain/effect.js';
import { EffectHandlers } from '../src/handlers.js';
import { ledger } from '../src/routes.js';
import { contract, digest, key, now, step, tool } from './kit.js';

const book = { tool: () => contract('irreversible', {}), agent: () => undefined, catchUp: () => Promise.resolve(), close: () => Promise.resolve() };
const call = { step, tool, effect: 'irreversible', keyScope: 'run', args: { amount: 5 }, key, digest, digestVersion: 1 } as const;
const asks = EffectRequested({ call: call as never, fire: 'granted' });
const kate = { name: 'kate', roles: ['operator'] };
const cancel = (manner: 'graceful' | 'immediate') => RunCancelRequested({ by: kate, reason: 'no', scope: 'run', manner, command: 'c', at: now });
const ends = (ending: Ending) => RunFinished({ ending, effects: [], steps: { fresh: 0, replayed: 0 } });
const over: Ending = { status: 'expired', deadline: now };

/** Turns over run.events as the loop takes them; what is recorded, and what is sent. */
async function turns(...batches: (readonly (readonly [string, Message])[])[]): Promise<{ recorded: string[]; sent: string[] }> {
  const service = ledger(new EffectHandlers(book, 'holdfast/ledger/1'));
  const states = new Map<string, RunEffects>();
  const recorded: string[] = [];
  const sent: string[] = [];
  const turn: Turn<RunEffects, EffectEvent> = {
    lane: 0, now, random: () => 0, inHand: null,
    state: (stream) => states.get(stream) ?? noEffects,
    tenantOf: () => 'default',
    record: (stream, _tenant, event) => {
      recorded.push(`${stream} ${event.type}`);
      states.set(stream, evolve(states.get(stream) ?? noEffects, event));
    },
    send: (_topic, stream, _tenant, { type }) => void sent.push(`${stream} ${type}`),
    seqAhead: () => 1, open: () => [...states.keys()], wake: () => undefined, shared: () => null, putShared: () => undefined, park: () => undefined, answered: () => undefined, count: () => undefined,
  };
  for (const batch of batches) {
    const inbounds = batch.map(([subject, { type, data }], offset): Inbound => ({
      data,
      envelope: { id: 'x', type, source: 'o', subject, time: now, tenant: 'default' },
      record: { topic: topics.runEvents, lane: 0, offset, key: subject, headers: {}, value: '{}', time: now },
    }));
    await service.prepare?.(inbounds);
    for (const inbound of inbounds) service.routes.find(({ topic, type }) => topic === topics.runEvents && type === inbound.envelope.type)?.handle(inbound, turn);
  }
  return { recorded, sent };
}
const run = RunId.parse('run-1');
const other = RunId.parse('run-2');

test.each([
  ['graceful cancel', cancel('graceful')],
  ['immediate cancel', cancel('immediate')],
  ['end', ends(over)],
])('what a run asks for is not sent where its %s is read in the same turn: it has failed, unfired', async (_, stop) => {
  const { recorded, sent } = await turns([[run, asks], [other, asks], [run, stop]]);
  expect(sent).toEqual(['run-2 FireEffect']);
  expect(recorded).toEqual(['run-1 EffectHeld', 'run-2 EffectDispatched', 'run-1 EffectFailed']);
});

test('what was read before is sent, and a turn knows nothing of the ones before it', async () => {
  expect((await turns([[run, asks]], [[run, cancel('graceful')]])).sent).toEqual(['run-1 FireEffect']);
  expect((await turns([[other, cancel('graceful')]], [[other, asks]])).sent).toEqual(['run-2 FireEffect']);
  expect((await turns([[run, asks], [run, ends({ status: 'completed', output: { value: 1 } })]])).sent).toEqual(['run-1 FireEffect']);
});
