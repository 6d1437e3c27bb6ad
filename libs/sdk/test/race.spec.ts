import { describe, expect, it } from '@jest/globals';
import type { ArtifactRef, HistoryStep, Json, Step, WaitEnd } from '@holdfast/protocol';
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { RunExecutor, type Run, type RunArtifacts } from '../src/run/index.js';
import { names, StandIn, turn } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const same = ({ n }: { n: number }): { n: number } => ({ n });
const slow = defineTool({ name: 'slow', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: same });
const left = defineTool({ name: 'left', version: '1', effect: 'idempotent', ...numbers, execute: same });
const right = defineTool({ name: 'right', version: '1', effect: 'idempotent', ...numbers, execute: same });
const tools = [slow, left, right];

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const satisfied = (value: Json): WaitEnd => ({ status: 'satisfied', value: { value }, by: 'test' });
const told = (found: unknown): unknown => (found as { output?: { value: unknown } } | null)?.output?.value;
const random = (seed: number): ((count: number) => number) => {
  let state = seed;
  return (count) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 12) % count;
  };
};

describe('a race', () => {
  it('is won by the branch that is over first; what the others wait for is abandoned, and they go no further', async () => {
    const reached: string[] = [];
    const code = agent(async (run) => {
      const won = await run.race([
        async (a) => { await a.sleep('1 day'); reached.push('slept'); await a.call(left, { n: 1 }); return 'time'; },
        async (b) => (await b.signal('paid', z.string())) + ' paid',
        async (c) => c.all([async (d) => d.signal('x', z.string()), async (e) => { await e.signal('y', z.string()); reached.push('y'); return e.call(left, { n: 2 }); }]),
      ]);
      return [won, (await run.call(right, { n: 3 })).n];
    });
    const stand = new StandIn({ tools });
    await stand.execute(code);
    stand.endWait('1.2.1' as Step, satisfied('7'));
    await stand.quiet();
    expect([told(stand.ending), reached, stand.fired.map(({ step }) => step)]).toEqual([['7 paid', 3], [], ['2']]);
    expect(names(stand.messages).slice(4)).toEqual(['ReleaseRun', 'AbandonWait 1.1.1', 'AbandonWait 1.3.1.1.1', 'AbandonWait 1.3.1.2.1', 'CallTool 2', 'FinishRun']);
    const sent = stand.messages.length;
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect([told(stand.ending), names(stand.messages.slice(sent)), reached]).toEqual([['7 paid', 3], ['FinishRun'], []]);
  });

  it('lets calls of the others that are intended go on, and records them', async () => {
    let end: () => void = () => undefined;
    const slowly = defineTool({ name: 'left', version: '1', effect: 'idempotent', ...numbers, execute: ({ n }) => new Promise((resolve) => (end = () => resolve({ n }))) });
    const reached: string[] = [];
    const stand = new StandIn({ tools: [slowly, right] });
    const code = agent(async (run) => {
      const won = await run.race([async (a) => { await a.call(slowly, { n: 1 }); reached.push('left'); await a.step('more', () => 1); return 'left'; }, async (b) => (await b.call(right, { n: 2 })).n]);
      await run.sleep('1 day');
      return won;
    });
    stand.begin(code);
    await stand.quiet();
    // A local attempt of this very process holds it up; once it has reported, nothing does.
    expect(names(stand.messages)).not.toContain('ReleaseRun');
    end();
    await stand.quiet();
    expect([stand.executor?.state, reached, stand.steps.get('1.1.1' as Step)]).toMatchObject(['released', [], { outcome: { status: 'succeeded' } }]);
    expect(stand.observed).toEqual(['1.2.1']);
    stand.endWait('2' as Step, satisfied(null));
    await stand.quiet();
    expect([told(stand.ending), reached, stand.fired.length]).toEqual([2, [], 2]);
  });

  it('does not keep a process for a call of the others that the ledger looks after, however long that takes', async () => {
    const stand = new StandIn({ tools, granted: () => ({ status: 'unknown', cause: 'deadline', message: '' }) });
    await stand.execute(agent(async (run) => { const won = await run.race([(a) => a.call(slow, { n: 1 }), async () => 'won']); await run.sleep('1 day'); return won; }));
    expect(stand.executor?.state).toBe('released');
    stand.endWait('2' as Step, satisfied(null));
    await stand.quiet();
    // It can't be completed while nobody knows what became of the call.
    expect([stand.executor?.state, stand.ending]).toEqual(['ending', null]);
    stand.settle('1.1.1' as Step, 1, { status: 'succeeded', result: { value: { n: 1 } }, evidence: { kind: 'probe' } });
    await stand.quiet();
    expect(told(stand.ending)).toBe('won');
  });

  it('drops work of the others, recorded or not, and never takes it for a call that nobody awaited', async () => {
    let finish: () => void = () => undefined;
    const code = agent(async (run) =>
      run.race([
        async (a) => { const kept = a.signal('never awaited', z.string()); await a.step('think', () => new Promise<number>((resolve) => (finish = () => resolve(1)))); return kept; },
        async (b) => { await b.step('quick', () => 1); return 'quick'; },
      ]),
    );
    const stand = new StandIn({ tools });
    await stand.execute(code);
    finish();
    await stand.quiet();
    expect([told(stand.ending), stand.steps.has('1.1.2' as Step), names(stand.messages)]).toEqual(['quick', false, ['StartWait 1.1.1', 'RecordStep 1.2.1', 'AbandonWait 1.1.1', 'FinishRun']]);
  });

  it('is lost by an error as it is won by a result, and a late error of the others hurts nobody', async () => {
    const stand = new StandIn({ tools });
    await stand.execute(
      agent(async (run) => {
        const failed = await run.race([async (a) => { await a.step('s', () => 1); throw new Error('first'); }, (b) => b.sleep('1 day')]).catch((error: Error) => error.message);
        const both = await run.race([async () => 'now', async () => { throw new Error('as soon'); }]);
        const none = await run.race([]).catch((error: Error) => error.name);
        return [failed, both, none];
      }),
    );
    expect(told(stand.ending)).toEqual(['first', 'now', 'InvalidArguments']);
  });

  it('gives nothing to a branch that has lost, however it asks', async () => {
    let loser: Run | undefined;
    const reached: string[] = [];
    const stand = new StandIn({ tools });
    stand.begin(
      agent(async (run) => {
        await run.race([async (a) => { loser = a; return a.sleep('1 day'); }, async () => 'won']);
        void loser?.call(left, { n: 1 }).finally(() => reached.push('call'));
        void loser?.step('s', () => reached.push('work')).finally(() => reached.push('step'));
        void loser?.all([(inner) => inner.sleep(1)]).finally(() => reached.push('all'));
        reached.push(typeof loser?.now(), String(loser?.changed('x')), String(loser?.callback(z.null()).token));
        return run.signal('s', z.string());
      }),
    );
    await stand.quiet();
    expect(names(stand.messages)).toEqual(['StartWait 1.1.1', 'AbandonWait 1.1.1', 'StartWait 2', 'ReleaseRun']);
    expect(reached).toEqual(['number', 'false', '']);
  });

  it('is taken into account by whoever asks for the whole run again: another number of branches is found', async () => {
    const stand = new StandIn({ tools, ends: () => satisfied('s') });
    await stand.execute(agent(async (run) => run.race([(a) => a.sleep('1 day'), (b) => b.signal('s', z.string())])));
    stand.crash();
    stand.ending = null;
    await stand.execute(agent(async (run) => run.race([(a) => a.sleep('1 day')])));
    expect(stand.divergence).toMatchObject({ step: '1', recorded: expect.stringContaining('at least 2 branches') });
  });
});

describe('a race whose branches end next to each other', () => {
  const large = Buffer.from(JSON.stringify('x'.repeat(1 << 20)));
  const ref: ArtifactRef = { sha256: createHash('sha256').update(large).digest('hex'), bytes: large.byteLength, mediaType: 'application/json', scope: 'default/run-1' };
  const racing = agent(async (run) => {
    const winner = await run.race([
      async (a) => { await a.call(slow, { n: 1 }); return 'tool'; },
      async (b) => { await b.signal('x', z.string()); return 'signal'; },
      async (c) => { await c.sleep('1 day'); return 'timer'; },
    ]);
    const { n } = await run.call(winner === 'tool' ? left : right, { n: 3 });
    return [winner, n];
  });

  async function recorded(winner: string): Promise<StandIn> {
    for (let seed = 1; seed < 400; seed += 1) {
      const stand = new StandIn({ tools, pick: random(seed), ends: ({ wait }) => satisfied(wait.kind === 'signal' ? 'x' : null) });
      await stand.execute(racing);
      if ((told(stand.ending) as unknown[] | undefined)?.[0] === winner) return stand;
    }
    throw new Error(`${winner} never won`);
  }

  it.each(['tool', 'signal', 'timer'])('takes the recorded branch in 100 replays with cold and warm caches, small and large payloads: %s (C17)', async (winner) => {
    const stand = await recorded(winner);
    expect(stand.divergence).toBeNull();
    stand.crash();
    const whole = stand.grant(racing, null);
    for (let seed = 0; seed < 100; seed += 1) {
      const pick = random(seed);
      const replay = new StandIn({ tools, pick });
      // Cold: everything comes with the grant. Warm: ends come later, in any order, some from the store, and some never did.
      const later: (() => void)[] = [];
      const steps = whole.steps.map((step): HistoryStep => {
        if (step.kind === 'wait' && step.wait.kind === 'signal' && step.end?.status === 'satisfied' && seed % 3 === 0) return { ...step, end: { ...step.end, value: { artifact: ref } } };
        if (pick(2) === 0) return step;
        if (step.kind === 'call' && step.outcome !== undefined) {
          const settled = { step: step.call.step, attempt: 1, outcome: step.outcome };
          later.push(() => executor.settled(settled));
          const { outcome: _, ...open } = step;
          return { ...open, fire: 'granted' };
        }
        if (step.kind !== 'wait' || step.end === undefined) return step;
        const ended = { step: step.step, end: step.end };
        later.push(() => executor.waitEnded(ended));
        const { end: _, ...open } = step;
        return open;
      });
      const artifacts: RunArtifacts = { put: () => Promise.reject(new Error('nothing to put')), get: () => new Promise((resolve) => replay.soon(() => resolve(large))) };
      const executor = new RunExecutor({ grant: { ...whole, steps }, agent: racing, tools, port: replay, artifacts });
      replay.executor = executor;
      executor.start();
      while (later.length > 0) {
        const [tell] = later.splice(pick(later.length), 1);
        tell?.();
        for (let i = pick(3); i > 0; i -= 1) await turn();
      }
      await executor.finished;
      expect([executor.state, replay.fired, names(replay.messages).filter((name) => !name.startsWith('AbandonWait'))]).toEqual(['finished', [], ['FinishRun']]);
      expect(replay.ending).toEqual({ status: 'completed', output: { value: [winner, 3] } });
    }
  });
});
