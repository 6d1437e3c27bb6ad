import { describe, expect, it } from '@jest/globals';
import type { Step } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool, referTool } from '../src/define/tool.js';
import { EffectFailed, EffectRejected, Failed, Rejected, StepFailed, type HoldfastError } from '../src/errors.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn, turn, unreadable } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const double = defineTool({ name: 'double', version: '1', effect: 'pure', ...numbers, execute: ({ n }) => ({ n: n * 2 }) });
const put = defineTool({ name: 'put', version: '1', effect: 'idempotent', ...numbers, execute: ({ n }) => ({ n }) });
const charge = defineTool({ name: 'charge', version: '1', effect: 'irreversible', owner: 'billing', ...numbers, execute: ({ n }) => ({ n }) });
const refuses = defineTool({ name: 'refuses', version: '1', effect: 'irreversible', owner: 'billing', ...numbers, execute: () => { throw new Rejected('no funds'); } });
const fails = defineTool({ name: 'fails', version: '1', effect: 'pure', ...numbers, execute: () => { throw new Failed({ class: 'permission_denied', message: 'no key' }); } });
const tools = [double, put, charge, refuses, fails];

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const world = (more: Partial<ConstructorParameters<typeof StandIn>[0]> = {}): StandIn => new StandIn({ tools, ...more });
const value = (found: unknown): unknown => (found as { output?: { value: unknown } } | null)?.output?.value;

describe('a local sequence', () => {
  const five = agent(async (run) => {
    let n = 1;
    for (let i = 0; i < 5; i += 1) n = (await run.call(double, { n })).n;
    return n;
  });

  it('costs one message a step and one for the end, reports riding along', async () => {
    const stand = world();
    await stand.execute(five);
    expect(names(stand.messages)).toEqual(['CallTool 1', 'CallTool 2', 'CallTool 3', 'CallTool 4', 'CallTool 5', 'FinishRun']);
    expect(stand.messages.map(({ data }) => ('settles' in data ? (data.settles ?? []).map(({ step }) => step) : []))).toEqual([[], ['1'], ['2'], ['3'], ['4'], ['5']]);
    expect(stand.messages.map(({ data }) => ('observed' in data ? data.observed : []))).toEqual([[], ['1'], ['2'], ['3'], ['4'], ['5']]);
    expect(stand.ending).toEqual({ status: 'completed', output: { value: 32 } });
  });

  it('fires only what Kafka has acknowledged', async () => {
    const stand = world();
    const order: string[] = [];
    const intend = stand.intend.bind(stand);
    stand.intend = (...args) => intend(...args).then(() => void order.push(...names(args[2] as never).map((name) => `acknowledged ${name}`)));
    const fire = stand.fireLocal.bind(stand);
    stand.fireLocal = (call) => {
      order.push(`fire ${call.step}`);
      return fire(call);
    };
    await stand.execute(five);
    for (let step = 1; step <= 5; step += 1) expect(order.indexOf(`fire ${step}`)).toBeGreaterThan(order.indexOf(`acknowledged CallTool ${step}`));
  });

  it('reports an end by itself when the code asks for nothing next', async () => {
    let wake: () => void = () => undefined;
    const stand = world();
    const executor = stand.begin(
      agent(async (run) => {
        const { n } = await run.call(double, { n: 1 });
        await new Promise<void>((resolve) => (wake = resolve));
        return n;
      }),
    );
    await stand.quiet();
    expect(names(stand.messages)).toEqual(['CallTool 1', 'ReportSteps']);
    wake();
    await executor.finished;
    expect(names(stand.messages)).toEqual(['CallTool 1', 'ReportSteps', 'FinishRun']);
    expect(stand.observed).toEqual(['1']);
  });

  it('leaves the retry of a failure to the ledger', async () => {
    let calls = 0;
    const flaky = defineTool({ name: 'flaky', version: '1', effect: 'pure', ...numbers, execute: ({ n }) => { calls += 1; if (calls < 3) throw new Error('away'); return { n }; } });
    const stand = world({ tools: [flaky] });
    await stand.execute(agent(async (run) => (await run.call(flaky, { n: 7 })).n));
    expect(value(stand.ending)).toBe(7);
    expect(stand.fired.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(new Set(stand.fired.map(({ key }) => key)).size).toBe(1);
    expect(names(stand.messages)).toEqual(['CallTool 1', 'ReportSteps', 'FinishRun']);
  });

  it('keeps the record apart from what the code does to a result', async () => {
    const stand = world();
    await stand.execute(
      agent(async (run) => {
        const first = await run.call(double, { n: 1 });
        first.n = 99;
        const noted = await run.step('note', () => ({ list: [1] }));
        noted.list.push(2);
        await run.call(double, { n: 3 });
        return first.n;
      }),
    );
    expect(stand.steps.get('1' as Step)).toMatchObject({ outcome: { result: { value: { n: 2 } } } });
    expect(stand.steps.get('2' as Step)).toMatchObject({ result: { value: { list: [1] } } });
  });

  it('keeps the arguments apart from what the code does to them meanwhile', async () => {
    const stand = world();
    await stand.execute(
      agent(async (run) => {
        const args = { n: 1 };
        const called = run.call(put, args);
        args.n = 1000;
        return (await called).n;
      }),
    );
    expect(value(stand.ending)).toBe(1);
    expect(stand.fired.map(({ args }) => args)).toEqual([{ n: 1 }]);
  });
});

describe('a granted call', () => {
  it('waits for the ledger, and for no acknowledgement', async () => {
    const stand = world();
    await stand.execute(agent(async (run) => (await run.call(charge, { n: 5 })).n));
    expect(stand.messages[0]).toMatchObject({ type: 'CallTool', data: { fire: 'granted', fence: 1 } });
    expect(value(stand.ending)).toBe(5);
  });

  it('goes on at once when this very process saw it succeed, and says so with the next intent', async () => {
    const stand = world({ seen: true });
    await stand.execute(
      agent(async (run) => {
        await run.call(charge, { n: 5 });
        return (await run.call(charge, { n: 6 })).n;
      }),
    );
    expect(names(stand.messages)).toEqual(['CallTool 1', 'CallTool 2', 'FinishRun']);
    expect(stand.messages[1]).toMatchObject({ data: { settles: [{ step: '1' }], observed: ['1'] } });
    expect(stand.ending?.status).toBe('completed');
  });

  it('stays open while its outcome is unknown, and the run waits with its end', async () => {
    const stand = world({ granted: () => ({ status: 'unknown', cause: 'deadline', message: 'no answer' }) });
    const executor = stand.begin(
      agent(async (run) => {
        const called = run.call(charge, { n: 5 });
        return Promise.race([called, run.step('other', () => 'other')]);
      }),
    );
    await stand.quiet();
    expect(executor.state).toBe('ending');
    expect(names(stand.messages)).not.toContain('FinishRun');
    stand.settle('1' as Step, 1, { status: 'succeeded', result: { value: { n: 5 } }, evidence: { kind: 'person' } });
    await executor.finished;
    expect(value(stand.ending)).toBe('other');
  });

  it('says a completion again when a step that it takes for closed was refused as open', async () => {
    let refusals = 1;
    const stand = world({ refuse: ({ type }) => (type === 'FinishRun' && (refusals -= 1) >= 0 ? 'outcome_unknown' : undefined) });
    const executor = stand.begin(agent(async (run) => (await run.call(charge, { n: 5 })).n));
    await stand.quiet();
    expect(stand.ending).toBeNull();
    executor.settled({ step: '1' as Step, attempt: 1, outcome: { status: 'succeeded', result: { value: { n: 5 } }, evidence: { kind: 'probe' } } });
    await stand.quiet();
    expect(value(stand.ending)).toBe(5);
  });

  it('hears of an ending that was refused after it was written, where a call was refused and stays open all the same', async () => {
    let open = true;
    const stand = world({ refuse: ({ type }) => (type === 'CallTool' ? 'budget_exhausted' : type === 'FinishRun' && open ? 'steps_open' : undefined) });
    const executor = stand.begin(agent(async (run) => run.call(put, { n: 5 }).then(({ n }) => String(n), ({ name }: HoldfastError) => name)));
    await stand.quiet();
    expect([executor.state, stand.ending]).toEqual(['ending', null]);
    open = false;
    executor.settled({ step: '1' as Step, attempt: 2, outcome: { status: 'succeeded', result: { value: { n: 5 } }, evidence: { kind: 'receipt' } } });
    await executor.finished;
    expect([executor.state, value(stand.ending)]).toEqual(['finished', 'BudgetExhausted']);
  });

  it('says its ending again once a step is closed that it never asked for', async () => {
    let open = true;
    const stand = world({ refuse: ({ type }) => (type === 'FinishRun' && open ? 'steps_open' : undefined) });
    const executor = stand.begin(agent(async (run) => run.call(put, { n: 5 }).then(({ n }) => String(n))));
    await stand.quiet();
    expect([executor.state, stand.ending]).toEqual(['ending', null]);
    open = false;
    executor.settled({ step: '7' as Step, attempt: 1, outcome: { status: 'succeeded', result: { value: { n: 7 } }, evidence: { kind: 'receipt' } } });
    await executor.finished;
    expect([executor.state, value(stand.ending)]).toEqual(['finished', '5']);
  });

  it('hands typed errors to the code', async () => {
    const stand = world();
    await stand.execute(
      agent(async (run) => {
        const caught: unknown[] = [];
        for (const tool of [refuses, fails]) {
          await run.call(tool, { n: 1 }).catch((error: HoldfastError) => caught.push([error.name, error.failureClass, error instanceof EffectRejected || error instanceof EffectFailed]));
        }
        return caught;
      }),
    );
    expect(value(stand.ending)).toEqual([['EffectRejected', 'business_rejected', true], ['EffectFailed', 'permission_denied', true]]);
  });

  it('is what a tool elsewhere, a business key or an irreversible effect asks for', async () => {
    const keyed = defineTool({ name: 'keyed', version: '1', effect: 'idempotent', keyScope: 'target', target: ({ n }) => `order-${n}`, ...numbers, execute: ({ n }) => ({ n }) });
    const remote = defineTool({ name: 'remote', version: '1', effect: 'pure', ...numbers, execute: ({ n }) => ({ n }) });
    const stand = world({ tools: [keyed, remote, charge, double], elsewhere: ['remote'] });
    const reference = referTool({ name: 'remote', version: '1', effect: 'pure', ...numbers });
    await stand.execute(
      agent(async (run) => {
        await run.call(keyed, { n: 1 });
        await run.call(reference, { n: 2 });
        await run.call(charge, { n: 3 });
        return (await run.call(double, { n: 4 })).n;
      }),
    );
    expect(stand.messages.filter(({ type }) => type === 'CallTool').map(({ data }) => ('fire' in data ? data.fire : null))).toEqual(['granted', 'granted', 'granted', 'local']);
    expect(stand.messages[0]).toMatchObject({ data: { target: 'order-1' } });
  });
});

describe('recorded work', () => {
  it('is sent before any later intent, in the same produce', async () => {
    const stand = world();
    await stand.execute(
      agent(async (run) => {
        const answer = await run.model('plan', () => ({ output: { n: 4 }, usage: { tokensIn: 10, tokensOut: 2 } }));
        const time = run.now();
        return [(await run.call(double, answer)).n, typeof time];
      }),
    );
    expect(stand.produces.map((produce) => names(produce))).toEqual([['RecordStep 1', 'RecordStep 2', 'CallTool 3'], ['FinishRun']]);
    expect(stand.messages[0]).toMatchObject({ data: { kind: 'model', name: 'plan', result: { value: { n: 4 } }, usage: { tokensIn: 10, tokensOut: 2 } } });
    expect(value(stand.ending)).toEqual([8, 'number']);
  });

  it('is tried again when the orchestrator says so, and fails when it says never', async () => {
    let tries = 0;
    const stand = world();
    await stand.execute(
      agent(async (run) => {
        const good = await run.step('flaky', ({ attempt }) => {
          tries += 1;
          if (attempt < 3) throw new Error('away');
          return attempt;
        });
        const bad = await run.step('broken', () => { throw new Failed({ class: 'invalid_request', message: 'wrong' }); }).catch((error: unknown) => (error instanceof StepFailed ? error.failure.class : 'other'));
        return [good, bad];
      }),
    );
    expect(value(stand.ending)).toEqual([3, 'invalid_request']);
    expect(tries).toBe(3);
    expect(names(stand.messages)).toEqual(['ReportTry 1', 'ReportTry 1', 'RecordStep 1', 'ReportTry 2', 'FinishRun']);
  });

  it('is tried again no sooner than was said, however early a timer is', async () => {
    const stand = world({ pauseMs: 40 });
    const before = stand.now();
    const tried: number[] = [];
    await stand.execute(agent((run) => run.step('busy', ({ attempt }) => {
      tried.push(stand.now() - before);
      if (attempt === 1) throw new Error('busy');
      return attempt;
    })));
    expect(tried).toEqual([expect.any(Number), expect.any(Number)]);
    expect(tried[1]).toBeGreaterThanOrEqual(39);
  });

  it('tells how long whoever was asked wants to be left alone', async () => {
    const stand = world();
    await stand.execute(agent((run) => run.step('busy', () => {
      throw new Failed({ class: 'invalid_request', message: 'later', retryAfterMs: 1234.5 });
    })));
    expect(stand.messages.find(({ type }) => type === 'ReportTry')?.data).toMatchObject({ failure: { class: 'invalid_request', retryAfterMs: 1235 } });
  });

  const keyed = (target: unknown) => defineTool({ name: 'keyed', version: '1', effect: 'idempotent', target: () => target as string, ...numbers, execute: ({ n }) => ({ n }) });
  it.each<[string, (run: Run) => unknown, string]>([
    ['a usage that JSON can\'t carry', (run) => run.model('m', () => ({ output: 1, usage: { tokensIn: 1e300 } })), 'invalid_output'],
    ['a pause that JSON can\'t carry', (run) => run.step('s', () => { throw new Failed({ class: 'overloaded', message: 'm', retryAfterMs: 1e300 }); }), 'overloaded'],
    ['a target that is no text', (run) => run.call(keyed(5), { n: 1 }), 'invalid_request'],
    ['an approval that is none', (run) => run.call(keyed('t'), { n: 1 }, { approval: { step: 'first' } as never }), 'invalid_request'],
  ])('asks for nothing that its readers would refuse: %s', async (_, code, failureClass) => {
    const stand = new StandIn({ tools: [keyed('t')] });
    await stand.execute(agent(async (run) => code(run)));
    expect(unreadable(stand.messages)).toEqual([]);
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: failureClass } });
  });

  it('records times, numbers and ids lazily, and at the latest at the end', async () => {
    const stand = world();
    await stand.execute(agent(async (run) => [run.now() > 0, run.random() < 1, run.uuid().length > 0]));
    expect(stand.produces.map((produce) => names(produce))).toEqual([['RecordStep 1', 'RecordStep 2', 'RecordStep 3', 'FinishRun']]);
  });

  it('gives back nothing as null, live and replayed', async () => {
    const stand = world();
    const code = agent(async (run) => [await run.step('nothing', () => undefined)]);
    await stand.execute(code);
    expect(value(stand.ending)).toEqual([null]);
  });

  it('names the place of a result that is not JSON, and does not try again', async () => {
    const stand = world();
    await stand.execute(agent(async (run) => run.step('dated', () => ({ when: new Date(0) }) as never)));
    expect(names(stand.messages)).toEqual(['ReportTry 1', 'FinishRun']);
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: 'invalid_request', message: expect.stringContaining('$.when is a Date') } });
  });
});

describe('abandoned', () => {
  it('makes no further progress and sends nothing, whatever arrives', async () => {
    const reached: string[] = [];
    const stand = world({ granted: () => ({ status: 'unknown', cause: 'deadline', message: 'no answer' }) });
    let keep: Run | undefined;
    const executor = stand.begin(
      agent(async (run) => {
        keep = run;
        await run.call(charge, { n: 1 }).finally(() => reached.push('call'));
        reached.push('after');
        return 1;
      }),
    );
    await stand.quiet();
    const sent = stand.messages.length;
    executor.abandon('lane lost');
    await executor.finished;
    executor.settled({ step: '1' as Step, attempt: 1, outcome: { status: 'succeeded', result: { value: { n: 1 } }, evidence: { kind: 'person' } } });
    void keep?.call(charge, { n: 2 }).finally(() => reached.push('later call'));
    void keep?.step('later', () => reached.push('later work')).finally(() => reached.push('later step'));
    expect(typeof keep?.now()).toBe('number');
    for (let i = 0; i < 5; i += 1) await turn();
    expect([reached, stand.messages.length - sent, executor.state]).toEqual([[], 0, 'abandoned']);
  });

  it('is what a stale fence leads to', async () => {
    const stand = world({ refuse: ({ type }) => (type === 'CallTool' ? 'stale_fence' : undefined) });
    const executor = await stand.execute(agent(async (run) => run.call(charge, { n: 1 }).catch(() => 'caught')));
    expect([executor.state, stand.ending]).toEqual(['abandoned', null]);
  });

  it('tells recorded work by its signal', async () => {
    const stand = world();
    let aborted = false;
    const executor = stand.begin(
      agent(async (run) => run.step('long', ({ signal }) => new Promise<null>((resolve) => signal.addEventListener('abort', () => { aborted = true; resolve(null); })))),
    );
    await stand.quiet();
    executor.abandon('stopping');
    expect(aborted).toBe(true);
    await stand.quiet();
    expect(stand.messages).toEqual([]);
  });
});

describe('a lease that is not fresh', () => {
  it('fires nothing, and asks again', async () => {
    const stand = world();
    let asked = 0;
    const fire = stand.fireLocal.bind(stand);
    stand.fireLocal = (call) => ((asked += 1) < 3 ? Promise.resolve('lease_lost') : fire(call));
    await stand.execute(agent(async (run) => (await run.call(double, { n: 1 })).n));
    expect([asked, stand.fired.length, value(stand.ending)]).toEqual([3, 1, 2]);
  });
});
