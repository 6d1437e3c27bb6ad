import { describe, expect, it } from '@jest/globals';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn } from './stand-in.js';

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '2', compatibleWith: ['1'], input: z.null(), output: z.unknown(), run });
const step = (run: Run, name: string): Promise<string> => run.step(name, () => name);
const told = (found: unknown): unknown => (found as { output?: { value: unknown } } | null)?.output?.value;

const before = agent(async (run) => [await step(run, 'look'), await step(run, 'pay'), await step(run, 'tell')]);
const after = agent(async (run) => {
  const look = await step(run, 'look');
  const paid = run.changed('two-step pay') ? [await step(run, 'reserve'), await step(run, 'capture')] : [await step(run, 'pay')];
  return [look, ...paid, await step(run, 'tell')];
});

/** A run that got so far by one code, and on by another. */
async function moved(steps: number, next = after, first = before): Promise<StandIn> {
  const stand = new StandIn({ tools: [] });
  await stand.execute(first, null, { crashAfter: steps });
  if (steps === Infinity) stand.crash();
  stand.ending = null;
  await stand.execute(next, null, { crashAfter: Infinity });
  return stand;
}

describe('changed code', () => {
  it('is taken by a run that comes there first, and that is recorded', async () => {
    const stand = await moved(0);
    expect(told(stand.ending)).toEqual(['look', 'reserve', 'capture', 'tell']);
    expect(stand.steps.get('2' as never)).toEqual({ kind: 'record', step: '2', as: 'changed', name: 'two-step pay', result: { value: true } });
    const sent = stand.messages.length;
    stand.crash();
    stand.ending = null;
    await stand.execute(after);
    expect([told(stand.ending), names(stand.messages.slice(sent))]).toEqual([['look', 'reserve', 'capture', 'tell'], ['FinishRun']]);
  });

  it.each([
    [1, ['look', 'reserve', 'capture', 'tell']],
    [2, ['look', 'pay', 'tell']],
    [3, ['look', 'pay', 'tell']],
    [Infinity, ['look', 'pay', 'tell']],
  ])('of a run that had %s steps before is taken only where nothing is recorded yet', async (steps, expected) => {
    const stand = await moved(steps);
    expect([told(stand.ending), stand.divergence]).toEqual([expected, null]);
    stand.crash();
    stand.ending = null;
    await stand.execute(after);
    expect([told(stand.ending), stand.divergence]).toEqual([expected, null]);
  });

  it('is the same wherever its worker is lost', async () => {
    for (let crashAfter = 0; crashAfter < 6; crashAfter += 1) {
      const stand = new StandIn({ tools: [] });
      await stand.execute(after, null, { crashAfter });
      if (stand.ending === null) await stand.execute(after, null, { crashAfter: Infinity });
      expect([told(stand.ending), stand.divergence]).toEqual([['look', 'reserve', 'capture', 'tell'], null]);
    }
  });

  it('counts as taken by the code of before where a later step is recorded and the one at its place is not', async () => {
    let finish: () => void = () => undefined;
    const first = agent(async (run) => Promise.all([run.step('slow', () => new Promise<string>((resolve) => (finish = () => resolve('slow')))), step(run, 'quick')]));
    const next = agent(async (run) => (run.changed('order') ? [await step(run, 'quick'), await step(run, 'slow')] : Promise.all([step(run, 'slow'), step(run, 'quick')])));
    const stand = new StandIn({ tools: [] });
    stand.begin(first);
    await stand.quiet();
    stand.executor?.dropped('paused');
    finish();
    stand.crash();
    // The record of the quick one rides with the next intent; here it was written.
    expect(stand.steps.has('2' as never)).toBe(true);
    await stand.execute(next);
    expect([told(stand.ending), stand.divergence]).toEqual([['slow', 'quick'], null]);
  });

  it('decides for each place by itself: two changes, loops and branches', async () => {
    const old = agent(async (run) => { const all: string[] = []; for (let i = 0; i < 4; i += 1) all.push(await step(run, `old ${i}`)); return all; });
    const next = agent(async (run) => { const all: string[] = []; for (let i = 0; i < 4; i += 1) all.push(run.changed('loop') ? await step(run, `new ${i}`) : await step(run, `old ${i}`)); return all; });
    expect(told((await moved(2, next, old)).ending)).toEqual(['old 0', 'old 1', 'new 2', 'new 3']);
    // A second change comes in front of the first, which has been taken by then.
    const twice = agent(async (run) => {
      const look = await step(run, 'look');
      const logged = run.changed('log') ? [await step(run, 'log')] : [];
      const paid = run.changed('two-step pay') ? [await step(run, 'reserve'), await step(run, 'capture')] : [await step(run, 'pay')];
      return [look, ...logged, ...paid, await step(run, 'tell')];
    });
    expect(told((await moved(2, twice, after)).ending)).toEqual(['look', 'reserve', 'capture', 'tell']);
    expect(told((await moved(2, twice, before)).ending)).toEqual(['look', 'pay', 'tell']);
    expect(told((await moved(1, twice, before)).ending)).toEqual(['look', 'log', 'reserve', 'capture', 'tell']);
    const inside = (code: (run: Run) => Promise<string>) => agent(async (run) => run.all([code, code]));
    const one = inside(async (run) => `${await step(run, 'a')} ${await step(run, 'b')}`);
    const two = inside(async (run) => `${await step(run, 'a')} ${run.changed('b') ? await step(run, 'c') : await step(run, 'b')}`);
    expect(told((await moved(3, two, one)).ending)).toEqual(['a b', 'a c']);
  });

  it('that is taken out while a run holds its marker, or rolled back, is found', async () => {
    const stand = await moved(0);
    for (const code of [before, agent(async (run) => [await step(run, 'look'), await step(run, 'reserve'), await step(run, 'capture'), await step(run, 'tell')])]) {
      stand.crash();
      stand.ending = null;
      stand.divergence = null;
      expect((await stand.execute(code)).state).toBe('diverged');
      expect(stand.divergence).toMatchObject({ step: '2', recorded: 'changed two-step pay' });
    }
  });
});
