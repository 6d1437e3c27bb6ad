import { describe, expect, it } from '@jest/globals';
import { Fence, type Json, type Outcome, type Step, type WaitEnd } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn, turn } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const put = defineTool({ name: 'put', version: '1', effect: 'idempotent', ...numbers, execute: ({ n }) => ({ n }) });
const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: ({ n }) => ({ n }) });
const tools = [put, pay];

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const satisfied = (value: Json): WaitEnd => ({ status: 'satisfied', value: { value }, by: 'test' });
const told = (found: unknown): unknown => (found as { output?: { value: unknown } } | null)?.output?.value;
const outcome = (n: number): Outcome => ({ status: 'succeeded', result: { value: { n } }, evidence: { kind: 'receipt' } });
const releases = (stand: StandIn): unknown[] => stand.messages.flatMap(({ type, data }) => (type === 'ReleaseRun' ? [data.waits] : []));

describe('a run whose code waits for nothing but waits', () => {
  it('is let go with all that it has to say, and goes on from its record when one ends', async () => {
    const code = agent(async (run) => {
      const { n } = await run.call(put, { n: 3 });
      run.now();
      await run.sleep('1 day');
      return (await run.call(put, { n: n + 1 })).n;
    });
    const stand = new StandIn({ tools });
    const first = await stand.execute(code);
    expect([first.state, names(stand.messages)]).toEqual(['released', ['CallTool 1', 'RecordStep 2', 'StartWait 3', 'ReleaseRun']]);
    expect(stand.messages.at(-1)).toMatchObject({ data: { waits: ['3'], fence: 1 } });
    expect(stand.observed).toEqual(['1']);
    expect(stand.steps.get('1' as Step)).toMatchObject({ outcome: { status: 'succeeded' } });
    stand.endWait('3' as Step, satisfied(null));
    await stand.quiet();
    expect([told(stand.ending), stand.fence, stand.fired.length, stand.troubles]).toEqual([4, 2, 2, []]);
    expect(names(stand.messages.slice(4))).toEqual(['CallTool 4', 'FinishRun']);
  });

  it('is not let go while a call, work, or something of its own is under way', async () => {
    let finish: () => void = () => undefined;
    const stand = new StandIn({ tools, granted: () => ({ status: 'unknown', cause: 'deadline', message: '' }) });
    stand.begin(
      agent(async (run) => {
        const paid = run.all([(a) => a.call(pay, { n: 1 }), (b) => b.sleep('1 day'), (c) => c.step('think', () => new Promise<number>((resolve) => (finish = () => resolve(7))))]);
        return paid;
      }),
    );
    await stand.quiet();
    expect(releases(stand)).toEqual([]);
    finish();
    await stand.quiet();
    expect(releases(stand)).toEqual([]);
    stand.settle('1.1.1' as Step, 1, outcome(1));
    await stand.quiet();
    expect([releases(stand), stand.executor?.state]).toEqual([[['1.2.1']], 'released']);
    // Code that awaits none of its waits is busy with something that nobody here can see.
    const busy = new StandIn({ tools });
    busy.begin(agent(async (run) => { const signal = run.signal('s', z.string()); await new Promise<void>((resolve) => (finish = resolve)); return signal; }));
    await busy.quiet();
    expect(releases(busy)).toEqual([]);
    finish();
    await busy.quiet();
    expect(releases(busy)).toEqual([['1']]);
  });

  it('is let go again for what is still open when it comes back for another wait', async () => {
    const stand = new StandIn({ tools });
    await stand.execute(agent(async (run) => run.all([(a) => a.signal('a', z.string()), async (b) => { await b.signal('b', z.string()); return b.signal('c', z.string()); }])));
    for (const [step, value] of [['1.2.1', 'b'], ['1.1.1', 'a'], ['1.2.2', 'c']] as const) {
      stand.endWait(step as Step, satisfied(value));
      await stand.quiet();
    }
    expect([releases(stand), stand.fence, told(stand.ending)]).toEqual([[['1.1.1', '1.2.1'], ['1.1.1', '1.2.2'], ['1.2.2']], 4, ['a', 'c']]);
    expect(names(stand.messages).filter((name) => name.startsWith('StartWait'))).toEqual(['StartWait 1.1.1', 'StartWait 1.2.1', 'StartWait 1.2.2']);
  });

  it('whose wait ends before it is let go is told as of any completion, and the order holds', async () => {
    const seen: string[] = [];
    const code = agent(async (run) => {
      const follow = async (name: string, promise: Promise<unknown>): Promise<void> => { await promise; seen.push(name); };
      await run.all([(a) => follow('put', a.call(put, { n: 1 })), (b) => follow('early', b.signal('x', z.string())), (c) => follow('late', c.sleep(1))]);
      return (await run.call(put, { n: 2 })).n;
    });
    const stand = new StandIn({ tools });
    const intend = stand.intend.bind(stand);
    // The wait ends while the offer to be let go is under way: the offer is overtaken, and what it told with it.
    stand.intend = (run, tenant, intents) => {
      if (intents.some(({ type }) => type === 'ReleaseRun')) stand.endWait('1.2.1' as Step, satisfied('x'));
      return intend(run, tenant, intents);
    };
    stand.begin(code);
    await stand.quiet();
    stand.endWait('1.3.1' as Step, satisfied(null));
    await stand.quiet();
    expect([told(stand.ending), stand.fence]).toEqual([2, 2]);
    expect(seen.slice(-3)).toEqual(['put', 'early', 'late']);
    expect([...new Set(stand.observed)]).toEqual(['1.1.1', '1.2.1', '1.3.1', '2']);
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect([seen.slice(-3), told(stand.ending), stand.divergence]).toEqual([['put', 'early', 'late'], 2, null]);
  });

  it('is told of an end that is quicker than its replay', async () => {
    const code = agent(async (run) => { await run.step('first', () => 1); return run.signal('s', z.string()); });
    const stand = new StandIn({ tools });
    await stand.execute(code);
    stand.crash();
    const executor = stand.begin(code);
    stand.endWait('2' as Step, satisfied('quick'));
    await executor.finished;
    expect([told(stand.ending), releases(stand)]).toEqual(['quick', [['2']]]);
  });

  it('makes no sound when it is dropped: nothing is logged, sent or handed over, and its signals abort', async () => {
    const stand = new StandIn({ tools });
    const reached: string[] = [];
    let kept: Run | undefined;
    const executor = stand.begin(agent(async (run) => { kept = run; await run.signal('s', z.string()).finally(() => reached.push('signal')); return 1; }));
    await stand.quiet();
    const sent = stand.messages.length;
    executor.waitEnded({ step: '1' as Step, end: satisfied('late') });
    void kept?.call(put, { n: 1 }).finally(() => reached.push('call'));
    for (let i = 0; i < 5; i += 1) await turn();
    executor.abandon('the lane is lost');
    executor.dropped('again');
    expect([reached, stand.messages.length - sent, stand.troubles, executor.state]).toEqual([[], 0, [], 'released']);
  });
});

describe('a run that is cancelled', () => {
  const one = agent(async (run) => run.call(put, { n: 1 }));
  const reported = (stand: StandIn): unknown => stand.messages.flatMap(({ type, data }) => (type === 'ReportSteps' ? (data.settles ?? []) : []));
  const unfired = (step: string) => ({ step, attempt: 1, outcome: expect.objectContaining({ status: 'failed', failure: expect.objectContaining({ class: 'cancelled', notApplied: true }) }) });

  it('says of a call that was accepted that it never fired', async () => {
    const stand = new StandIn({ tools });
    const intend = stand.intend.bind(stand);
    let acknowledge: () => void = () => undefined;
    let fired = 0;
    stand.intend = (...asked) => (stand.messages.length === 0 ? new Promise((resolve) => (acknowledge = () => void intend(...asked).then(resolve))) : intend(...asked));
    stand.fireLocal = () => ((fired += 1), Promise.resolve('lease_lost'));
    const executor = stand.begin(one);
    await stand.quiet();
    acknowledge();
    executor.dropped('mia has cancelled it', true);
    await executor.finished;
    await stand.quiet();
    expect([fired, executor.state, reported(stand)]).toEqual([0, 'released', [unfired('1')]]);
  });

  it('says it of one that waited for its turn, once that is certain, and of the rest of a group', async () => {
    const stand = new StandIn({ tools });
    const ends: ((lost: 'lease_lost') => void)[] = [];
    const fire = stand.fireLocal.bind(stand);
    stand.fireLocal = (call) => (call.step === '1.1' ? fire(call) : new Promise((resolve) => ends.push(resolve)));
    const executor = stand.begin(agent(async (run) => run.all([(a) => a.call(put, { n: 1 }), (b) => b.call(put, { n: 2 })], { checkpoint: 'group' })));
    await stand.quiet();
    executor.dropped('mia has cancelled it', true);
    for (const end of ends) end('lease_lost');
    await executor.finished;
    await stand.quiet();
    expect([executor.state, reported(stand)]).toEqual(['released', [expect.objectContaining({ step: '1.1', outcome: expect.objectContaining({ status: 'succeeded' }) }), unfired('1.2')]]);
  });

  it('can say nothing certain of a call that a lost worker may have fired', async () => {
    const stand = new StandIn({ tools });
    stand.fireLocal = () => new Promise(() => undefined);
    stand.begin(one);
    await stand.quiet();
    stand.crash();
    const second = stand.begin(one);
    second.dropped('mia has cancelled it', true);
    await second.finished;
    await stand.quiet();
    expect(reported(stand)).toEqual([{ step: '1', attempt: 2, outcome: expect.objectContaining({ status: 'unknown', cause: 'host_lost' }) }]);
  });

  it('says nothing of what another worker gets to fire, when it is only held', async () => {
    const stand = new StandIn({ tools });
    let lose: (lost: 'lease_lost') => void = () => undefined;
    stand.fireLocal = () => new Promise((resolve) => (lose = resolve));
    const executor = stand.begin(one);
    await stand.quiet();
    executor.dropped('mia has paused it', false);
    lose('lease_lost');
    await executor.finished;
    await stand.quiet();
    expect(reported(stand)).toEqual([]);
  });
});

describe('a run that an operator holds', () => {
  it('stops where it is: its code asks for nothing more, and what has fired still reports', async () => {
    const stand = new StandIn({ tools });
    const fires: { resolve: () => void }[] = [];
    const fire = stand.fireLocal.bind(stand);
    stand.fireLocal = (call) => new Promise((resolve) => fires.push({ resolve: () => void fire(call).then(resolve) }));
    const executor = stand.begin(agent(async (run) => { const { n } = await run.call(put, { n: 1 }); return (await run.call(put, { n: n + 1 })).n; }));
    await stand.quiet();
    executor.dropped('mia has paused it');
    executor.dropped('mia has cancelled it');
    await stand.quiet();
    expect(executor.state).toBe('running');
    fires[0]?.resolve();
    await executor.finished;
    await stand.quiet();
    expect([executor.state, names(stand.messages)]).toEqual(['released', ['CallTool 1', 'ReportSteps']]);
    expect(stand.messages.at(-1)).toMatchObject({ data: { settles: [{ step: '1', outcome: { status: 'succeeded' } }] } });
  });

  it('fires nothing whose intent is acknowledged only then, nor what waits for a fresh hold', async () => {
    const stand = new StandIn({ tools });
    let acknowledge: () => void = () => undefined;
    stand.intend = () => new Promise((resolve) => (acknowledge = resolve));
    let fired = 0;
    stand.fireLocal = () => ((fired += 1), Promise.resolve('lease_lost'));
    const executor = stand.begin(agent(async (run) => run.call(put, { n: 1 })));
    await stand.quiet();
    executor.dropped('paused');
    await executor.finished;
    acknowledge();
    await stand.quiet();
    expect([fired, executor.state]).toEqual([0, 'released']);
    const holding = new StandIn({ tools });
    let lose: (lost: 'lease_lost') => void = () => undefined;
    holding.fireLocal = () => new Promise((resolve) => (lose = resolve));
    const second = holding.begin(agent(async (run) => run.call(put, { n: 1 })));
    await holding.quiet();
    second.dropped('paused');
    lose('lease_lost');
    await second.finished;
    expect([second.state, names(holding.messages)]).toEqual(['released', ['CallTool 1']]);
  });

  it('is not told of refusals that the hold brings: it asks again when it is let go', async () => {
    let paused = true;
    const code = agent(async (run) => (await run.call(pay, { n: 5 }).catch((error: Error) => ({ n: error.name }))).n);
    const stand = new StandIn({ tools, refuse: ({ type }) => (type === 'CallTool' && paused ? 'run_paused' : undefined) });
    const executor = stand.begin(code);
    await stand.quiet();
    expect([names(stand.messages), executor.state]).toEqual([['CallTool 1'], 'running']);
    executor.dropped('paused');
    paused = false;
    stand.fence = Fence.parse(2);
    stand.begin(code);
    await stand.quiet();
    expect([told(stand.ending), stand.fired.length]).toEqual([5, 1]);
  });
});

it('a local call of a tool that is held still fires when it is let go, and not before', async () => {
  const stand = new StandIn({ tools });
  let held = true;
  let again: () => void = () => undefined;
  Object.assign(stand, { heldStill: () => held, after: (_delay: number, callback: () => void) => ((again = callback), () => undefined) });
  stand.begin(agent(async (run) => (await run.call(put, { n: 1 })).n));
  await stand.quiet();
  again();
  await stand.quiet();
  expect([names(stand.messages), stand.fired.length]).toEqual([['CallTool 1'], 0]);
  held = false;
  again();
  await stand.quiet();
  expect([stand.fired.length, told(stand.ending)]).toEqual([1, 1]);
});
