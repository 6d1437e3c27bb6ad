import { describe, expect, it } from '@jest/globals';
import type { Failure, FailureClass, Named, Outcome, RequestedCall, Step } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool, referTool } from '../src/define/tool.js';
import { EffectFailed, GroupNotAllowed, type InvalidArguments } from '../src/errors.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn, type StandInOptions } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const same = ({ n }: { n: number }): { n: number } => ({ n });
const last = defineTool({ name: 'last', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: same });
const cheque = defineTool({ name: 'cheque', version: '2', effect: 'irreversible', owner: 'desk', ...numbers, fallback: { tool: last }, execute: same });
const transfer = defineTool({ name: 'transfer', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, fallback: { tool: cheque, args: ({ n }) => ({ n: n + 1000 }) }, execute: same });
const away = referTool({ name: 'transfer', version: '1', effect: 'irreversible', ...numbers, fallback: { tool: cheque } });
const look = defineTool({ name: 'look', version: '1', effect: 'pure', ...numbers, fallback: { tool: last }, execute: same });
const tools = [transfer, cheque, last, look];
const byCheque: Named = { name: 'cheque', version: '2' };
const byLast: Named = { name: 'last', version: '1' };

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const value = (stand: StandIn): unknown => (stand.ending as { output?: { value: unknown } } | null)?.output?.value;
const failed = (failureClass: FailureClass, more: Partial<Failure> = {}): Outcome => ({ status: 'failed', failure: { class: failureClass, message: `${failureClass}!`, ...more }, evidence: { kind: 'ledger' } });

/** What the ledger says of each call, in the order in which it is asked; after that the tools do what they do. */
const saying = (...outcomes: (Outcome | undefined)[]): StandInOptions['granted'] => () => outcomes.shift();
const world = (granted: StandInOptions['granted'], more: Partial<StandInOptions> = {}): StandIn => new StandIn({ tools, ...(granted === undefined ? {} : { granted }), ...more });
const calls = (stand: StandIn): object[] => stand.messages.flatMap((intent) => (intent.type === 'CallTool' ? [{ step: intent.data.step, tool: intent.data.tool.name, args: intent.data.args, repairs: intent.data.repairs, fallbackFor: intent.data.fallbackFor }] : []));
const told = (error: unknown): unknown => (error instanceof EffectFailed ? `${error.tool} at ${error.step}: ${error.failure.class}` : error instanceof Error ? error.name : error);

describe('a failure that may be mended', () => {
  it('is answered once, with the arguments that the agent gives, as the next step', async () => {
    const stand = world(saying(failed('invalid_request', { repairable: true })));
    const seen: unknown[] = [];
    await stand.execute(agent(async (run) => {
      const paid = await run.call(transfer, { n: 1 }, { repair: (failure, args) => { seen.push(failure.message, args); return { n: args.n * 10 }; } });
      return [paid.n, (await run.call(transfer, { n: 5 })).n, run.degraded];
    }));
    expect(value(stand)).toEqual([10, 5, []]);
    expect(seen).toEqual(['invalid_request!', { n: 1 }]);
    expect(calls(stand)).toEqual([
      { step: '1', tool: 'transfer', args: { n: 1 } },
      { step: '2', tool: 'transfer', args: { n: 10 }, repairs: '1' },
      { step: '3', tool: 'transfer', args: { n: 5 } },
    ]);
  });

  it('may be mended by a model, whose answer is recorded', async () => {
    const stand = world(saying(failed('invalid_output', { repairable: true })));
    await stand.execute(agent(async (run) => (await run.call(transfer, { n: 1 }, { repair: async () => ({ n: await run.model('mend', () => 7) }) })).n));
    expect(value(stand)).toBe(7);
    expect(names(stand.messages)).toEqual(['CallTool 1', 'RecordStep 2', 'CallTool 3', 'FinishRun']);
  });

  it.each<[string, Outcome[], (failure: Failure) => { n: number } | undefined, string, number]>([
    ['a second time, whatever the ledger says', [failed('invalid_request', { repairable: true }), failed('invalid_request', { repairable: true })], () => ({ n: 2 }), 'transfer at 2: invalid_request', 2],
    ['where the agent gives up', [failed('invalid_request', { repairable: true })], () => undefined, 'transfer at 1: invalid_request', 1],
    ['that the ledger does not offer to mend', [failed('permission_denied')], () => ({ n: 2 }), 'transfer at 1: permission_denied', 1],
  ])('is not answered %s', async (_, outcomes, repair, error, count) => {
    const stand = world(saying(...outcomes));
    await stand.execute(agent(async (run) => run.call(transfer, { n: 1 }, { repair }).catch(told)));
    expect([value(stand), calls(stand).length]).toEqual([error, count]);
  });

  it('that is mended to what the schema refuses stays a failure, and says both', async () => {
    const stand = world(saying(failed('invalid_request', { repairable: true })));
    let caught: unknown;
    await stand.execute(agent(async (run) => run.call(transfer, { n: 1 }, { repair: () => ({ n: 'two' as never }) }).catch((error: unknown) => { caught = error; return told(error); })));
    expect(value(stand)).toBe('InvalidArguments');
    expect((caught as InvalidArguments).cause).toBeInstanceOf(EffectFailed);
    expect(names(stand.messages)).toEqual(['CallTool 1', 'FinishRun']);
  });

  it('is the agent’s to throw about', async () => {
    const stand = world(saying(failed('invalid_request', { repairable: true, fallback: byCheque })));
    await stand.execute(agent(async (run) => run.call(transfer, { n: 1 }, { repair: () => { throw new Error('no idea'); } }).catch((error: Error) => error.message)));
    expect([value(stand), calls(stand).length]).toEqual(['no idea', 1]);
  });
});

describe('the fallback', () => {
  it('takes over as the next step, with mapped arguments; its result is the call’s, and the step is marked', async () => {
    const stand = world(saying(failed('transient', { fallback: byCheque })));
    await stand.execute(agent(async (run) => [(await run.call(transfer, { n: 1 })).n, run.degraded, (await run.call(last, { n: 2 })).n]));
    expect(value(stand)).toEqual([1001, ['1'], 2]);
    expect(calls(stand)).toEqual([
      { step: '1', tool: 'transfer', args: { n: 1 } },
      { step: '2', tool: 'cheque', args: { n: 1001 }, fallbackFor: '1' },
      { step: '3', tool: 'last', args: { n: 2 } },
    ]);
  });

  it('declared on a reference takes over for a tool in another worker, with the same arguments', async () => {
    const stand = world(saying(failed('overloaded', { fallback: byCheque })), { elsewhere: ['transfer'] });
    await stand.execute(agent(async (run) => [(await run.call(away, { n: 1 })).n, run.degraded]));
    expect(value(stand)).toEqual([1, ['1']]);
  });

  it('takes over when the mended call fails as well, with what it was mended to; a call by name finds it too', async () => {
    const stand = world(saying(failed('invalid_request', { repairable: true, fallback: byCheque }), failed('invalid_request', { fallback: byCheque })));
    await stand.execute(agent(async (run) => [await run.call('transfer', { n: 1 }, { repair: () => ({ n: 2 }) }), run.degraded]));
    expect(value(stand)).toEqual([{ n: 1002 }, ['1']]);
    expect(calls(stand)).toMatchObject([{ step: '1' }, { step: '2', repairs: '1' }, { step: '3', tool: 'cheque', args: { n: 1002 }, fallbackFor: '2' }]);
  });

  it.each<[string, () => { n: number } | undefined]>([['the agent gives up', () => undefined], ['what it gives does not fit the schema', () => ({ n: 'two' as never })]])('takes over when %s', async (_, repair) => {
    const stand = world(saying(failed('invalid_request', { repairable: true, fallback: byCheque })));
    await stand.execute(agent(async (run) => [(await run.call(transfer, { n: 1 }, { repair })).n, run.degraded]));
    expect(value(stand)).toEqual([1001, ['1']]);
  });

  it('that fails gives way to its own, and so on to the last, whose failure is thrown', async () => {
    const stand = world(saying(failed('transient', { fallback: byCheque }), failed('transient', { fallback: byLast })));
    await stand.execute(agent(async (run) => [(await run.call(transfer, { n: 1 })).n, run.degraded]));
    expect(value(stand)).toEqual([1001, ['1']]);
    expect(calls(stand)).toMatchObject([{ step: '1' }, { step: '2', fallbackFor: '1' }, { step: '3', tool: 'last', fallbackFor: '2' }]);

    const none = world(saying(failed('transient', { fallback: byCheque }), failed('transient')));
    let caught: unknown;
    await none.execute(agent(async (run) => [await run.call(transfer, { n: 1 }).catch((error: unknown) => { caught = error; return told(error); }), run.degraded]));
    expect(value(none)).toEqual(['cheque at 2: transient', []]);
    expect(told((caught as Error).cause)).toBe('transfer at 1: transient');
  });

  it.each<[string, Outcome, { fallback?: 'throw' }]>([
    ['that is not offered', failed('permission_denied'), {}],
    ['that the call declines', failed('transient', { fallback: byCheque }), { fallback: 'throw' }],
    ['that the code declares otherwise', failed('transient', { fallback: { name: 'cheque', version: '3' } }), {}],
  ])('%s is not called', async (_, outcome, options) => {
    const stand = world(saying(outcome));
    await stand.execute(agent(async (run) => [await run.call(transfer, { n: 1 }, options).catch(told), run.degraded]));
    expect(value(stand)).toEqual([expect.stringMatching(/^transfer at 1/), []]);
    expect(calls(stand)).toHaveLength(1);
    expect(stand.troubles).toEqual(outcome.status === 'failed' && outcome.failure.fallback?.version === '3' ? [expect.stringMatching(/cheque@3.*the agent's code declares cheque@2/)] : []);
  });

  it('takes over for a local effect as well, once the ledger has given it up', async () => {
    const broken = defineTool({ name: 'look', version: '1', effect: 'pure', ...numbers, fallback: { tool: last }, execute: () => { throw new Error('away'); } });
    const stand = new StandIn({ tools: [broken, last] as never, triesMax: 1 });
    const settle = stand.settle.bind(stand);
    stand.settle = (step: Step, attempt: number, outcome: Outcome) => settle(step, attempt, outcome.status === 'failed' ? failed('transient', { fallback: byLast }) : outcome);
    await stand.execute(agent(async (run) => [await run.call(broken as never, { n: 3 } as never), run.degraded]));
    expect(value(stand)).toEqual([{ n: 3 }, ['1']]);
  });
});

describe('inside a group', () => {
  it('each branch goes on at its own steps', async () => {
    const answers: Record<string, Outcome | undefined> = { '1.1.1': failed('transient', { fallback: byCheque }), '1.2.1': failed('invalid_request', { repairable: true }) };
    const stand = world((call: RequestedCall) => answers[call.step]);
    await stand.execute(agent(async (run) => {
      const both = await run.all([
        async (a) => [(await a.call(transfer, { n: 1 })).n, (await a.call(last, { n: 2 })).n],
        async (b) => [(await b.call(transfer, { n: 3 }, { repair: () => ({ n: 4 }) })).n, (await b.call(last, { n: 5 })).n],
      ]);
      return [both, run.degraded];
    }));
    expect(value(stand)).toEqual([[[1001, 2], [4, 5]], ['1.1.1']]);
    expect([...stand.steps.keys()].sort()).toEqual(['1.1.1', '1.1.2', '1.1.3', '1.2.1', '1.2.2', '1.2.3']);
  });

  it('what was degraded is told in the order of the steps, whichever ended first', async () => {
    const answers = (call: RequestedCall): Outcome | undefined => (call.tool.name === 'transfer' ? failed('transient', { fallback: byCheque }) : undefined);
    for (const pick of [0, 1]) {
      const stand = world(answers, { pick: (count: number) => (pick === 0 ? 0 : count - 1) });
      await stand.execute(agent(async (run) => {
        await run.all(Array.from({ length: 11 }, () => (branch: Run) => branch.call(transfer, { n: 1 })));
        await run.call(transfer, { n: 2 });
        return run.degraded;
      }));
      expect(value(stand)).toEqual([...Array.from({ length: 11 }, (_, index) => `1.${index + 1}.1`), '2']);
    }
  });

  it('a call that was made before the group is taken over while the group is open', async () => {
    const answers: Record<string, Outcome | undefined> = { '1': failed('transient', { fallback: byCheque }) };
    const stand = world((call: RequestedCall) => answers[call.step]);
    await stand.execute(agent(async (run) => {
      const before = run.call(transfer, { n: 1 });
      const group = run.all([async (a) => { for (let n = 0; n < 6; n += 1) await a.call(look, { n }); return 'over'; }]);
      return [(await before).n, await group];
    }));
    expect(value(stand)).toEqual([[1001, ['over']]].flat());
    expect(calls(stand)).toContainEqual({ step: '3', tool: 'cheque', args: { n: 1001 }, fallbackFor: '1' });
  });

  it('a branch that is over takes no further step: its call keeps its own failure', async () => {
    const stand = world(saying(failed('transient', { fallback: byCheque })));
    await stand.execute(agent(async (run) => {
      let left: Promise<unknown> = Promise.resolve();
      await run.all([(a) => { left = a.call(transfer, { n: 1 }); return null; }]);
      return left.catch(told);
    }));
    expect([value(stand), calls(stand).length]).toEqual(['transfer at 1.1.1: transient', 1]);
  });

  it('recorded as one, a call is neither mended nor taken over', async () => {
    const stand = world(undefined);
    await stand.execute(agent(async (run) => run.all([(a) => a.call(look, { n: 1 }, { repair: () => ({ n: 2 }) })], { checkpoint: 'group' }).catch((error: unknown) => (error instanceof GroupNotAllowed ? error.message : error))));
    expect(value(stand)).toMatch(/mending a call in a branch of the group at step 1/);
  });
});

describe('a call that may be mended', () => {
  it('and that nobody awaits is found at the end', async () => {
    const stand = world(undefined);
    await stand.execute(agent(async (run) => { void run.call(transfer, { n: 1 }); return null; }));
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { message: expect.stringMatching(/nobody had awaited call transfer at step 1/) } });
  });

  it('whose worker is lost anywhere comes to the same end, with nothing fired twice', async () => {
    const answers = (call: RequestedCall): Outcome | undefined => ({ '1': failed('invalid_request', { repairable: true, fallback: byCheque }), '2': failed('invalid_request', { fallback: byCheque }), '4': failed('transient', { fallback: byCheque }) } as Record<string, Outcome>)[call.step];
    const code = agent(async (run) => {
      const one = await run.call(transfer, { n: 1 }, { repair: (_, { n }) => ({ n: n + 1 }) });
      const two = await run.call(transfer, { n: 10 });
      return [one.n, two.n, (await run.call(look, { n: 0 })).n, run.degraded];
    });
    const whole = world(answers);
    await whole.execute(code);
    expect(value(whole)).toEqual([1002, 1010, 0, ['1', '4']]);
    for (let crashAfter = 0; crashAfter < whole.messages.length; crashAfter += 1) {
      const stand = world(answers);
      await stand.execute(code, null, { crashAfter });
      await stand.execute(code, null, { crashAfter: Infinity });
      expect([stand.divergence, stand.ending]).toEqual([null, whole.ending]);
      const keys = stand.fired.filter(({ step }) => step !== '6').map(({ key }) => key);
      expect(new Set(keys).size).toBe(keys.length);
    }
  });
});

describe('the arguments that are recorded', () => {
  it('are what is mended and mapped, whatever a resumed agent says instead', async () => {
    for (const outcome of [failed('invalid_request', { repairable: true }), failed('transient', { fallback: byCheque })]) {
      let wording = 1;
      const stand = world(saying({ status: 'unknown', cause: 'deadline', message: '' }));
      const code = agent(async (run) => (await run.call(transfer, { n: wording }, { repair: (_, { n }) => ({ n: n + 1000 }) })).n);
      stand.begin(code);
      await stand.quiet();
      stand.crash();
      wording = 5;
      const executor = stand.begin(code);
      await stand.quiet();
      stand.settle('1' as Step, 1, outcome);
      await executor.finished;
      expect([value(stand), executor.adopted]).toEqual([1001, 1]);
    }
  });
});

describe('an outcome that is unknown', () => {
  const unknown: Outcome = { status: 'unknown', cause: 'accepted', message: 'works on it', operationId: 'op-1' };
  const succeeded: Outcome = { status: 'succeeded', result: { value: { n: 9 } }, evidence: { kind: 'probe', note: 'found' } };

  it.each([false, true])('is waited for, in the history as well, and settled later it is as if the call had returned (settled before the code asks: %s)', async (before) => {
    const stand = world(() => unknown);
    const code = agent(async (run) => { await run.step('before', () => 0); return [(await run.call(transfer, { n: 1 })).n, run.degraded]; });
    stand.begin(code);
    await stand.quiet();
    expect(names(stand.messages)).toEqual(['RecordStep 1', 'CallTool 2']);
    stand.crash();
    const executor = stand.begin(code);
    expect(stand.grant(code, null).steps).toMatchObject([{ kind: 'record' }, { kind: 'call', outcome: { status: 'unknown' } }]);
    if (!before) await stand.quiet();
    stand.settle('2' as Step, 1, unknown);
    stand.settle('2' as Step, 1, succeeded);
    await executor.finished;
    expect([value(stand), names(stand.messages), stand.fired]).toEqual([[9, []], ['RecordStep 1', 'CallTool 2', 'FinishRun'], []]);
  });

  it('that turns out a failure is taken over like any other', async () => {
    const stand = world(saying(unknown));
    const code = agent(async (run) => [(await run.call(transfer, { n: 1 })).n, run.degraded]);
    stand.begin(code);
    await stand.quiet();
    stand.crash();
    const executor = stand.begin(code);
    await stand.quiet();
    stand.settle('1' as Step, 1, failed('transient', { fallback: byCheque }));
    await executor.finished;
    expect(value(stand)).toEqual([1001, ['1']]);
  });
});
