import { describe, expect, it } from '@jest/globals';
import type { ArtifactRef, HistoryStep, Json, Outcome, Step } from '@holdfast/protocol';
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { joinGrant, RunExecutor, type Grant, type GrantPage, type Run, type RunArtifacts } from '../src/run/index.js';
import { names, StandIn, turn } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const same = ({ n }: { n: number }): { n: number } => ({ n });
const slow = defineTool({ name: 'slow', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: same });
const quick = defineTool({ name: 'quick', version: '1', effect: 'pure', ...numbers, execute: same });
const left = defineTool({ name: 'left', version: '1', effect: 'idempotent', ...numbers, execute: same });
const right = defineTool({ name: 'right', version: '1', effect: 'idempotent', ...numbers, execute: same });
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', owner: 'desk', input: z.object({ amount: z.number() }), output: z.object({ paid: z.number() }), execute: ({ amount }) => ({ paid: amount }) });
const tools = [slow, quick, left, right, refund];

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const random = (seed: number): ((count: number) => number) => {
  let state = seed;
  return (count) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 12) % count;
  };
};
const outcomeOf = (n: number): Outcome => ({ status: 'succeeded', result: { value: { n } }, evidence: { kind: 'receipt' } });

describe('a race between completions that lie next to each other', () => {
  const racing = agent(async (run) => {
    const winner = await Promise.race([run.call(slow, { n: 1 }).then(() => 'slow'), run.call(quick, { n: 2 }).then(() => 'quick')]);
    const { n } = await run.call(winner === 'slow' ? left : right, { n: 3 });
    return [winner, n];
  });

  async function recorded(winner: string): Promise<StandIn> {
    for (let seed = 1; seed < 200; seed += 1) {
      const stand = new StandIn({ tools, pick: random(seed) });
      await stand.execute(racing);
      if ((stand.ending as { output?: { value?: unknown[] } } | null)?.output?.value?.[0] === winner) return stand;
    }
    throw new Error(`${winner} never won`);
  }

  it.each(['slow', 'quick'])('is decided by the record alone: %s won, 1,000 replays', async (winner) => {
    const stand = await recorded(winner);
    stand.crash();
    const whole = stand.grant(racing, null);
    for (let seed = 0; seed < 1000; seed += 1) {
      const pick = random(seed);
      const replay = new StandIn({ tools, pick });
      // Some outcomes come with the grant, the others later and in any order.
      const later: { step: Step; outcome: Outcome }[] = [];
      const steps = whole.steps.map((step): HistoryStep => {
        if (step.kind !== 'call' || step.outcome === undefined || pick(2) === 0) return step;
        later.push({ step: step.call.step, outcome: step.outcome });
        const { outcome: _, ...open } = step;
        return { ...open, fire: 'granted' };
      });
      const executor = new RunExecutor({ grant: { ...whole, steps }, agent: racing, tools, port: replay });
      replay.executor = executor;
      executor.start();
      while (later.length > 0) {
        const [settled] = later.splice(pick(later.length), 1);
        if (settled !== undefined) executor.settled({ ...settled, attempt: 1 });
        for (let i = pick(3); i > 0; i -= 1) await turn();
      }
      await executor.finished;
      expect(replay.fired).toEqual([]);
      expect(names(replay.messages)).toEqual(['FinishRun']);
      expect(replay.ending).toEqual({ status: 'completed', output: { value: [winner, 3] } });
    }
  });

  it('is decided so with results of 1 MB that the store gives in any order', async () => {
    const kept = new Map<string, Uint8Array>();
    const grow = defineTool({ name: 'slow', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: same });
    const code = agent(async (run) => {
      const winner = await Promise.race([run.call(grow, { n: 1 }).then(() => 'slow'), run.call(quick, { n: 2 }).then(() => 'quick')]);
      await run.call(winner === 'slow' ? left : right, { n: 3 });
      return winner;
    });
    const large = Buffer.from(JSON.stringify({ n: 1, text: 'x'.repeat(1 << 20) }));
    const ref: ArtifactRef = { sha256: createHash('sha256').update(large).digest('hex'), bytes: large.byteLength, mediaType: 'application/json', scope: 'default/run-1' };
    kept.set(ref.sha256, large);
    const stand = await recorded('slow');
    stand.crash();
    const whole = stand.grant(code, null);
    const steps = whole.steps.map((step): HistoryStep => (step.kind === 'call' && step.outcome?.status === 'succeeded' && step.call.step !== '3' ? { ...step, outcome: { ...step.outcome, result: { artifact: ref } } } : step));
    for (let seed = 0; seed < 50; seed += 1) {
      const replay = new StandIn({ tools, pick: random(seed) });
      const artifacts: RunArtifacts = { put: () => Promise.reject(new Error('nothing to put')), get: ({ sha256 }) => new Promise((resolve) => replay.soon(() => resolve(kept.get(sha256) ?? new Uint8Array()))) };
      const executor = new RunExecutor({ grant: { ...whole, steps }, agent: code, tools, port: replay, artifacts });
      replay.executor = executor;
      executor.start();
      await executor.finished;
      expect([replay.fired.length, replay.ending]).toEqual([0, { status: 'completed', output: { value: 'slow' } }]);
    }
  });

  it('hands over one completion at a time, after the microtasks of the one before', async () => {
    const seen: string[] = [];
    const code = agent(async (run) => {
      const follow = async (name: string, called: Promise<unknown>): Promise<void> => {
        await called;
        seen.push(`${name} begins`);
        for (let i = 0; i < 20; i += 1) await Promise.resolve();
        seen.push(`${name} ends`);
      };
      await run.all([(one) => follow('a', one.call(quick, { n: 1 })), (two) => follow('b', two.call(quick, { n: 2 })), (three) => follow('c', three.step('s', () => 1))]);
      return null;
    });
    const stand = new StandIn({ tools });
    await stand.execute(code);
    const order = stand.observed.flatMap((step) => [`${{ '1.1.1': 'a', '1.2.1': 'b', '1.3.1': 'c' }[step as string]} begins`, `${{ '1.1.1': 'a', '1.2.1': 'b', '1.3.1': 'c' }[step as string]} ends`]);
    expect(seen.splice(0)).toEqual(order);
    // All are there at once.
    stand.crash();
    await stand.execute(code);
    expect(seen).toEqual(order);
  });
});

describe('arguments that are worded otherwise after a restart', () => {
  const asking = (amount: number, more: object = {}) => agent(async (run) => (await run.call(refund, { amount, ...more })).paid);

  it('change nothing: what is recorded is what runs', async () => {
    const stand = new StandIn({ tools, granted: () => ({ status: 'unknown', cause: 'deadline', message: '' }) });
    stand.begin(asking(10));
    await stand.quiet();
    stand.crash();
    const executor = stand.begin(asking(1000));
    await stand.quiet();
    expect([stand.fired.length, names(stand.messages), executor.adopted]).toEqual([0, ['CallTool 1'], 1]);
    stand.settle('1' as Step, 1, { status: 'succeeded', result: { value: { paid: 10 } }, evidence: { kind: 'receipt' } });
    await executor.finished;
    expect(stand.ending).toMatchObject({ output: { value: 10 } });
  });

  it('are fired again as recorded when the call was local', async () => {
    const code = (n: number) => agent(async (run) => (await run.call(quick, { n })).n);
    const stand = new StandIn({ tools, crashAfter: 1 });
    stand.fireLocal = () => new Promise(() => undefined);
    stand.begin(code(1));
    await stand.quiet();
    stand.crash();
    const again = new StandIn({ tools });
    for (const [step, recorded] of stand.steps) again.steps.set(step, recorded);
    again.fence = stand.fence;
    const executor = await again.execute(code(2));
    expect(again.fired).toMatchObject([{ step: '1', attempt: 2, args: { n: 1 } }]);
    expect([names(again.messages), executor.adopted]).toEqual([['FinishRun'], 1]);
  });

  it('need not even be valid', async () => {
    const stand = new StandIn({ tools });
    await stand.execute(asking(10));
    stand.crash();
    stand.ending = null;
    const executor = await stand.execute(asking('ten' as never, { when: new Date(0) }));
    expect([stand.ending, executor.adopted, stand.fired.length]).toEqual([{ status: 'completed', output: { value: 10 } }, 1, 1]);
  });
});

describe('code that asks for another step than its history holds', () => {
  const original = agent(async (run) => {
    const plan = await run.model('plan', () => 1);
    await run.all([(a) => a.call(quick, { n: plan }), (b) => b.call(left, { n: 2 }), async (c) => { await c.call(left, { n: 3 }); await c.step('note', () => 1); }]);
    await run.all([(a) => a.call(quick, { n: 1 }), (b) => b.call(left, { n: 2 })], { checkpoint: 'group' });
    run.now();
    await run.call(refund, { amount: 1 });
    return 'done';
  });
  const start = async (run: Run): Promise<void> => {
    await run.model('plan', () => 1);
    await run.all([(a) => a.call(quick, { n: 1 }), (b) => b.call(left, { n: 2 }), async (c) => { await c.call(left, { n: 3 }); await c.step('note', () => 1); }]);
  };
  const pair = [(a: Run) => a.call(quick, { n: 1 }), (b: Run) => b.call(left, { n: 2 })] as const;

  it.each<[string, (run: Run) => Promise<unknown>, Step, RegExp, RegExp]>([
    ['another tool', async (run) => { await start(run); await run.all([...pair], { checkpoint: 'group' }); run.now(); return run.call(slow, { n: 1 }); }, '5' as Step, /call refund/, /call slow/],
    ['a step for a call', async (run) => { await start(run); await run.all([...pair], { checkpoint: 'group' }); run.now(); return run.step('refund', () => 1); }, '5' as Step, /call refund/, /step refund/],
    ['a call for a model', async (run) => run.call(quick, { n: 1 }), '1' as Step, /model plan/, /call quick/],
    ['another name', async (run) => run.model('think', () => 1), '1' as Step, /model plan/, /model think/],
    ['another kind of the same name', async (run) => run.step('plan', () => 1), '1' as Step, /model plan/, /step plan/],
    ['a time for a call', async (run) => { await start(run); await run.all([...pair], { checkpoint: 'group' }); run.now(); return run.now(); }, '5' as Step, /call refund/, /now/],
    ['a call for a time', async (run) => { await start(run); await run.all([...pair], { checkpoint: 'group' }); return run.call(refund, { amount: 1 }); }, '4' as Step, /now/, /call refund/],
    ['a call for a group', async (run) => { await run.model('plan', () => 1); return run.call(quick, { n: 1 }); }, '2' as Step, /a group of branches/, /call quick/],
    ['a group for a model', async (run) => run.all([...pair]), '1' as Step, /model plan/, /a group of 2 branches/],
    ['fewer branches', async (run) => { await run.model('plan', () => 1); return run.all([...pair]); }, '2' as Step, /at least 3 branches/, /2 branches/],
    ['a shorter branch', async (run) => { await run.model('plan', () => 1); return run.all([...pair, (c) => c.call(left, { n: 3 })]); }, '2.3.2' as Step, /step note/, /the end of the branch/],
    ['each step of a group recorded as one', async (run) => { await start(run); return run.all([...pair]); }, '3' as Step, /recorded as one/, /a group of 2 branches/],
    ['one record of a group recorded by step', async (run) => { await run.model('plan', () => 1); return run.all([...pair, (c) => c.call(left, { n: 3 })], { checkpoint: 'group' }); }, '2' as Step, /a group of 3 branches/, /recorded as one/],
    ['the end', async (run) => { await start(run); return 'early'; }, '3.1' as Step, /call quick/, /the end of the run/],
    ['an end by an error', async () => { throw new Error('early'); }, '1' as Step, /model plan/, /the end of the run/],
  ])('%s: stops for good, names both, and nothing fires', async (_, code, step, recorded, asked) => {
    const stand = new StandIn({ tools });
    await stand.execute(original);
    expect(stand.ending?.status).toBe('completed');
    stand.crash();
    stand.ending = null;
    const [fired, sent] = [stand.fired.length, stand.messages.length];
    const executor = await stand.execute(agent(code));
    expect(executor.state).toBe('diverged');
    expect([stand.fired.length, names(stand.messages.slice(sent)), stand.ending]).toEqual([fired, [`ReportDivergence ${step}`], null]);
    expect(stand.divergence).toMatchObject({ step, recorded: expect.stringMatching(recorded), asked: expect.stringMatching(asked), fence: 2 });
  });

  it('fires nothing that the code asked for before the divergence was found', async () => {
    const two = agent(async (run) => run.all([async (a) => { await a.call(quick, { n: 1 }); await a.call(quick, { n: 2 }); await a.call(quick, { n: 3 }); }, (b) => b.call(left, { n: 1 })]));
    const stand = new StandIn({ tools });
    await stand.execute(two);
    stand.crash();
    expect(stand.observed.indexOf('1.2.1' as Step)).toBeLessThan(stand.observed.indexOf('1.1.2' as Step));
    stand.ending = null;
    const fired = stand.fired.length;
    // Branch b asks for something new at once; branch a turns out to be wrong two hand-overs later.
    const changed = agent(async (run) =>
      run.all([async (a) => { await a.call(quick, { n: 1 }); await a.call(quick, { n: 2 }); await a.call(left, { n: 3 }); }, async (b) => { await b.call(left, { n: 1 }); await b.call(refund, { amount: 5 }); }]),
    );
    await stand.execute(changed);
    expect(stand.divergence).toMatchObject({ step: '1.1.3', asked: 'call left' });
    expect([stand.fired.length, stand.steps.has('1.2.2' as Step)]).toEqual([fired, false]);
  });
});

describe('a resumed run', () => {
  it('waits for a granted call that is under way, and never asks for it again', async () => {
    const code = agent(async (run) => (await run.call(slow, { n: 4 })).n);
    const stand = new StandIn({ tools, granted: () => ({ status: 'unknown', cause: 'host_lost', message: '' }) });
    stand.begin(code);
    await stand.quiet();
    stand.crash();
    const executor = stand.begin(code);
    // The ledger may be quicker than the code.
    stand.settle('1' as Step, 1, outcomeOf(4));
    await executor.finished;
    expect(names(stand.messages)).toEqual(['CallTool 1', 'FinishRun']);
  });

  it('takes what comes before the code asks for it', async () => {
    const code = agent(async (run) => {
      const first = await run.step('first', () => 1);
      return first + (await run.call(slow, { n: 4 })).n;
    });
    const stand = new StandIn({ tools, granted: () => ({ status: 'unknown', cause: 'host_lost', message: '' }) });
    stand.begin(code);
    await stand.quiet();
    stand.crash();
    const executor = stand.begin(code);
    executor.settled({ step: '2' as Step, attempt: 1, outcome: { status: 'unknown', cause: 'deadline', message: '' } });
    stand.settle('2' as Step, 1, outcomeOf(4));
    executor.settled({ step: '2' as Step, attempt: 1, outcome: outcomeOf(5) });
    executor.seen({ step: '2' as Step, attempt: 1, outcome: outcomeOf(4) });
    await executor.finished;
    expect([stand.fired.length, names(stand.messages)]).toEqual([0, ['RecordStep 1', 'CallTool 2', 'FinishRun']]);
  });

  it('does not fire a local call again whose outcome is unknown', async () => {
    const code = agent(async (run) => (await run.call(left, { n: 4 })).n);
    const stand = new StandIn({ tools });
    stand.fireLocal = () => new Promise(() => undefined);
    stand.begin(code);
    await stand.quiet();
    stand.crash();
    const [known] = stand.steps.values();
    if (known?.kind === 'call') stand.steps.set(known.call.step, { ...known, outcome: { status: 'unknown', cause: 'may_have_applied', message: '' } });
    let fired = 0;
    stand.fireLocal = () => ((fired += 1), new Promise(() => undefined));
    const executor = stand.begin(code);
    await stand.quiet();
    stand.settle('1' as Step, 1, outcomeOf(4));
    await executor.finished;
    expect([fired, stand.ending]).toEqual([0, { status: 'completed', output: { value: 4 } }]);
  });

  it('goes on with the next try of recorded work', async () => {
    const attempts: number[] = [];
    const code = agent(async (run) => run.step('flaky', ({ attempt }) => { attempts.push(attempt); if (attempt < 3) throw new Error('away'); return attempt; }));
    const stand = new StandIn({ tools, crashAfter: 1 });
    await stand.execute(code);
    const executor = await stand.execute(code, null, { crashAfter: Infinity });
    expect([executor.state, attempts, stand.ending]).toEqual(['finished', [1, 2, 2, 3], { status: 'completed', output: { value: 3 } }]);
  });

  it('does spent work not again', async () => {
    let tries = 0;
    const code = agent(async (run) => run.step('broken', () => { tries += 1; throw new Error('away'); }).catch((error: Error) => error.message));
    const stand = new StandIn({ tools });
    await stand.execute(code);
    const before = stand.ending;
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect([tries, stand.ending]).toEqual([3, before]);
  });

  it('is granted in pages, in whatever order they come', () => {
    const page = (number: number, fence = 2): GrantPage => ({ worker: 'w', fence, tenant: 'default', agent: { name: 'a', version: '1' }, input: number === 1 ? 7 : null, page: number, pages: 3, steps: [{ kind: 'record', step: String(number), as: 'step', name: 's', result: { value: number } }], observed: number === 1 ? ['1'] : [] }) as never;
    const run = 'run-1' as Grant['run'];
    expect(joinGrant(run, [page(1), page(3)])).toBeUndefined();
    expect(joinGrant(run, [page(3), page(1, 1), page(2), page(1)])).toMatchObject({ run, fence: 2, input: 7 as Json, observed: ['1'], steps: [{ step: '1' }, { step: '2' }, { step: '3' }] });
  });
});
