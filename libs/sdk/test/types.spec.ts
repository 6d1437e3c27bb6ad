import { describe, expect, it } from '@jest/globals';
import type { Step } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { accepted } from '../src/define/accepted.js';
import type { JsonCompatible } from '../src/define/json.js';
import { applied, notApplied } from '../src/define/probe.js';
import { defineTool, referTool, type ToolDefinition } from '../src/define/tool.js';
import { InvalidDefinition } from '../src/errors.js';
import type { HoldfastClient, RunHandle } from '../src/client/index.js';
import type { Run } from '../src/run/index.js';

/* What must not compile; `tsc` checks each line that is marked. Only what has no effect is run. */

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <T extends true>(..._: T[]): void => undefined;
/** Compiles when a value has exactly the type named. */
const typed = <Expected>() => <Actual>(_value: Actual, ..._same: Same<Actual, Expected> extends true ? [] : [never]): void => undefined;
const never = (): void => undefined;
const schemas = { input: z.object({ amount: z.number(), note: z.string().optional() }), output: z.object({ paid: z.number() }) };
const refund = defineTool({ name: 'refund', version: '1', effect: 'irreversible', owner: 'desk', ...schemas, execute: ({ amount }) => ({ paid: amount }) });

const text = defineTool({ name: 'text', version: '1', effect: 'pure', input: z.string(), output: z.string(), execute: (given) => given });

describe('schemas', () => {
  it('that are JSON compile', () => {
    const base = { version: '1', effect: 'pure' as const, execute: never as never };
    defineTool({ ...base, name: 'a', input: z.json(), output: z.json() });
    defineTool({ ...base, name: 'b', input: z.record(z.string(), z.unknown()), output: z.array(z.tuple([z.string(), z.number()])) });
    defineTool({ ...base, name: 'c', input: z.object({ id: z.string().brand<'Id'>(), when: z.iso.datetime().nullable().optional() }), output: z.discriminatedUnion('kind', [z.object({ kind: z.literal('a') }), z.object({ kind: z.literal('b'), n: z.number() })]) });
    defineTool({ ...base, name: 'd', input: z.object({ n: z.number().default(1) }), output: z.null() });
    expect(true).toBe(true);
  });

  it('that are not JSON do not', () => {
    const base = { name: 'x', version: '1', effect: 'pure' as const, execute: never as never };
    const ok = z.object({ n: z.number() });
    const attempts = [
      // @ts-expect-error a bigint in the input
      () => defineTool({ ...base, input: z.object({ n: z.bigint() }), output: ok }),
      // @ts-expect-error a Date in the input
      () => defineTool({ ...base, input: z.object({ when: z.date() }), output: ok }),
      // @ts-expect-error a Date in the output, deep inside
      () => defineTool({ ...base, input: ok, output: z.object({ list: z.array(z.object({ when: z.date() })) }) }),
      // @ts-expect-error a Map in the input
      () => defineTool({ ...base, input: z.map(z.string(), z.number()), output: ok }),
      // @ts-expect-error a Set in a union
      () => defineTool({ ...base, input: z.union([z.string(), z.set(z.string())]), output: ok }),
      // @ts-expect-error nothing at all
      () => defineTool({ ...base, input: ok, output: z.void() }),
      // @ts-expect-error undefined inside an array
      () => defineTool({ ...base, input: z.array(z.string().optional()), output: ok }),
      // @ts-expect-error a function in the input
      () => defineTool({ ...base, input: z.object({ f: z.custom<() => void>() }), output: ok }),
      // @ts-expect-error a symbol in the input
      () => defineTool({ ...base, input: z.object({ s: z.symbol() }), output: ok }),
      // @ts-expect-error text outside, a Date inside: what the tool gets must be JSON, too
      () => defineTool({ ...base, input: z.object({ when: z.string().transform((text) => new Date(text)) }), output: ok }),
      // @ts-expect-error the same for agents
      () => defineAgent({ name: 'x', version: '1', input: z.date(), output: z.null(), run: async () => null }),
      // @ts-expect-error and for references
      () => referTool({ name: 'x', version: '1', effect: 'pure', input: z.bigint(), output: ok }),
    ];
    expect(attempts.length).toBe(12);
  });

  it('are judged by their types', () => {
    interface Point {
      x: number;
      label?: string;
    }
    holds<Point extends JsonCompatible<Point> ? true : false>(true);
    holds<{ at: Date } extends JsonCompatible<{ at: Date }> ? false : true>(true);
    holds<undefined extends JsonCompatible<undefined> ? false : true>(true);
    holds<Point[] extends JsonCompatible<Point[]> ? true : false>(true);
    holds<{ a: string | undefined } extends JsonCompatible<{ a: string | undefined }> ? false : true>(true);
    expect(true).toBe(true);
  });
});

describe('tools', () => {
  it('whose key is the target’s need a target, at compile time and at run time', () => {
    const base = { name: 'x', version: '1', effect: 'idempotent' as const, ...schemas, execute: () => ({ paid: 1 }) };
    // @ts-expect-error target is missing
    expect(() => defineTool({ ...base, keyScope: 'target' })).toThrow(InvalidDefinition);
    expect(defineTool({ ...base, keyScope: 'target', target: ({ amount }) => `order-${amount}` }).targetOf({ amount: 3 })).toBe('order-3');
    expect(defineTool({ ...base, target: ({ note }) => note ?? 'none' }).targetOf({ amount: 3 })).toBe('none');
  });

  it('are typed by their schemas inside', () => {
    defineTool({
      name: 'x', version: '1', effect: 'pure', ...schemas,
      execute: (args, context) => {
        typed<{ amount: number; note?: string | undefined }>()(args);
        typed<AbortSignal>()(context.signal);
        return args.amount > 0 ? { paid: args.amount } : accepted('op-1');
      },
      probe: { sealing: false, ask: async ({ amount }, context) => { typed<string | undefined>()(context.operationId); return amount > 0 ? applied({ paid: amount }) : notApplied(); } },
      fallback: { tool: refund, args: ({ amount }) => ({ amount }) },
    });
    // @ts-expect-error another result than the output's
    const wrong = () => defineTool({ name: 'x', version: '1', effect: 'pure', ...schemas, execute: () => ({ paid: 'ten' }) });
    // @ts-expect-error the probe finds another result than the output's
    const found = () => defineTool({ name: 'x', version: '1', effect: 'idempotent', ...schemas, execute: () => ({ paid: 1 }), probe: { sealing: false, ask: () => applied({ paid: 'ten' }) } });
    // @ts-expect-error a probe that says nothing
    const mute = () => defineTool({ name: 'x', version: '1', effect: 'idempotent', ...schemas, execute: () => ({ paid: 1 }), probe: { sealing: false, ask: async () => undefined } });
    // @ts-expect-error what takes over has another result
    const other = () => defineTool({ name: 'x', version: '1', effect: 'idempotent', ...schemas, execute: () => ({ paid: 1 }), fallback: { tool: text } });
    // @ts-expect-error a class that there is none of
    const odd = () => defineTool({ name: 'x', version: '1', effect: 'reversible', ...schemas, execute: () => ({ paid: 1 }) });
    expect([wrong, found, mute, other, odd].length).toBe(5);
  });

  it('fit where any tool is taken', () => {
    const any: ToolDefinition[] = [refund, defineTool({ name: 'y', version: '1', effect: 'pure', input: z.string(), output: z.null(), execute: () => null })];
    expect(any.map(({ name }) => name)).toEqual(['refund', 'y']);
  });
});

describe('a run', () => {
  // Never called: only its types matter.
  const author = async (run: Run): Promise<void> => {
    const { paid } = await run.call(refund, { amount: 1 });
    typed<number>()(paid);
    await run.call(refund, { amount: 1 }, { repair: (failure, args) => (failure.message === '' ? undefined : { ...args, amount: 2 }), fallback: 'throw' });
    typed<readonly Step[]>()(run.degraded);
    // @ts-expect-error mended to what the tool does not take
    await run.call(refund, { amount: 1 }, { repair: () => ({ amount: '2' }) });
    // @ts-expect-error wrong arguments
    await run.call(refund, { amount: '1' });
    // @ts-expect-error arguments are missing
    await run.call(refund);
    // @ts-expect-error this is no tool
    await run.call({ name: 'refund', version: '1' }, {});
    const text = await run.step('text', () => 'text');
    typed<string>()(text);
    await run.step('nothing', () => undefined);
    await run.step('nothing', async () => { await Promise.resolve(); });
    // @ts-expect-error a Date is no JSON
    await run.step('date', () => new Date());
    // @ts-expect-error nor is a promise of a Map
    await run.step('map', async () => new Map<string, number>());
    const answer = await run.model('plan', async () => ({ output: { n: 1 }, usage: { tokensIn: 3 } }));
    typed<{ n: number }>()(answer);
    const plain = await run.model('plan', () => 'yes');
    typed<string>()(plain);
    // @ts-expect-error a bigint is no JSON
    await run.model('big', async () => 1n);
    const [first, second] = await run.all([(a) => a.call(refund, { amount: 1 }), async (b) => (await b.call(refund, { amount: 2 })).paid, () => 'three']);
    typed<{ paid: number }>()(first);
    typed<number>()(second);
    const many = await run.all([1, 2].map((amount) => (branch: Run) => branch.call(refund, { amount })));
    typed<{ paid: number }[]>()(many);
    holds<Same<ReturnType<Run['now']>, number>>(true);
    const won = await run.race([(a) => a.call(refund, { amount: 1 }), (b) => b.signal('s', z.object({ by: z.string() })), async (c) => { await c.sleep('2 days'); return 'late' as const; }]);
    typed<{ paid: number } | { by: string } | 'late'>()(won);
    // @ts-expect-error no length of time
    await run.sleep('2 moons');
    typed<{ order: string }>()(await run.signal('s', z.object({ order: z.string() }), { deadline: { until: new Date(0) }, onDeadline: { action: 'complete_partially', because: 'late' } }));
    // @ts-expect-error who to remind how often is missing
    await run.signal('s', z.string(), { onDeadline: { action: 'remind' } });
    const approval = await run.approval({ what: 'refund', tool: refund, args: { amount: 1 }, approvers: ['desk'] });
    await run.call(refund, approval.args, { approval });
    // @ts-expect-error other arguments than the tool's
    await run.approval({ what: 'refund', tool: refund, args: { amount: '1' }, approvers: ['desk'] });
    // @ts-expect-error an approval of another tool's arguments
    await run.call(text, 'x', { approval });
    const callback = run.callback(z.object({ ok: z.boolean() }));
    typed<{ ok: boolean }>()(await callback.answer);
    const clerk = defineAgent({ name: 'c', version: '1', input: z.object({ n: z.number() }), output: z.object({ sum: z.number() }), run: async (_, { n }) => ({ sum: n }) });
    typed<{ sum: number }>()(await run.child(clerk, { n: 1 }));
    // @ts-expect-error another input
    await run.child(clerk, { n: '1' });
    const named = await run.call('refund', { amount: 1 });
    // @ts-expect-error by name, nothing is known of the result
    void named.paid;
  };
  it('is typed by the tools it calls', () => {
    expect(typeof author).toBe('function');
  });

  it('gives an agent its input and takes its output, whole or in part', () => {
    const spec = { name: 'x', version: '1', input: z.object({ n: z.number() }), output: z.object({ sum: z.number() }) };
    defineAgent({ ...spec, run: async (run, { n }) => (n > 1 ? { sum: n } : run.completePartially({ sum: 0 }, 'too small')) });
    // @ts-expect-error another output
    const wrong = () => defineAgent({ ...spec, run: async () => ({ total: 1 }) });
    // @ts-expect-error another partial output
    const half = () => defineAgent({ ...spec, run: async (run) => run.completePartially({ total: 1 }, 'half') });
    expect([wrong, half].length).toBe(2);
  });
});

describe('a client', () => {
  const agent = defineAgent({ name: 'x', version: '1', input: z.object({ n: z.number() }), output: z.object({ sum: z.number() }), run: async (_, { n }) => ({ sum: n }) });
  // Never called: only its types matter.
  const caller = async (client: HoldfastClient): Promise<void> => {
    const handle = await client.start(agent, { n: 1 });
    typed<RunHandle<{ sum: number }>>()(handle);
    // @ts-expect-error another input
    await client.start(agent, { n: 'one' });
    await client.start({ name: 'x', version: '1' }, { anything: true });
    const run = await client.attach('r', { tools: [refund] });
    const { paid } = await run.call('1', refund, { amount: 1 });
    typed<number>()(paid);
    // @ts-expect-error wrong arguments
    await run.call('1', refund, {});
  };
  it('is typed by the agents it starts', () => {
    expect(typeof caller).toBe('function');
  });
});
