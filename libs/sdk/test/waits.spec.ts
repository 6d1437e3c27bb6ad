import { describe, expect, it } from '@jest/globals';
import { digestOf, digestOfText, material, type Json, type Step, type WaitEnd } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { ApprovalRejected, ChildFailed, InvalidPayload, NotConfigured, WaitExpired, type HoldfastError } from '../src/errors.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn } from './stand-in.js';

const refund = defineTool({
  name: 'refund', version: '2', effect: 'irreversible', owner: 'desk', material: ['order', 'amount'], approval: { approvers: ['finance'], fourEyes: true },
  input: z.object({ order: z.string(), amount: z.number(), note: z.string().optional() }), output: z.object({ paid: z.number() }), target: ({ order }) => `order-${order}`, execute: ({ amount }) => ({ paid: amount }),
});
const put = defineTool({ name: 'put', version: '1', effect: 'idempotent', input: z.object({ n: z.number() }), output: z.object({ n: z.number() }), execute: ({ n }) => ({ n }) });
const tools = [refund, put];

const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const satisfied = (value: Json, by = 'clock'): WaitEnd => ({ status: 'satisfied', value: { value }, by });
const told = (found: unknown): unknown => (found as { output?: { value: unknown } } | null)?.output?.value;
/** What a wait that fails is told to the code as. */
const caught = (promise: Promise<unknown>): Promise<Json> => promise.then(() => 'nothing', (error: HoldfastError) => ({ name: error.name, class: error.failureClass, message: error.message }));
const at = (stand: StandIn, step: string): unknown => stand.messages.find(({ type, data }) => type === 'StartWait' && data.step === step)?.data;

describe('a wait', () => {
  it('is asked for once with what it waits for, and a replay gives what is recorded', async () => {
    const code = agent(async (run) => {
      await run.sleep('2 days');
      await run.sleep({ until: new Date(1_800_000_000_000) });
      await run.sleep(1.5);
      return (await run.signal('paid', z.object({ amount: z.string() }), { deadline: '3 h', onDeadline: { action: 'remind', every: '1h', times: 2 } })).amount;
    });
    const stand = new StandIn({ tools, ends: ({ wait }) => (wait.kind === 'signal' ? satisfied({ amount: '5', more: 1 }, 'signal s') : satisfied(null)) });
    await stand.execute(code);
    expect(told(stand.ending)).toBe('5');
    const now = 1_700_000_000_000;
    const [first, second, third, fourth] = ['1', '2', '3', '4'].map((step) => at(stand, step) as { wait: { until: number }; deadline: number });
    expect(first?.wait.until).toBeGreaterThan(now + 2 * 86_400_000);
    expect(second).toMatchObject({ wait: { kind: 'sleep', until: 1_800_000_000_000 } });
    expect((third?.wait.until ?? 0) - now).toBeLessThan(100);
    expect(fourth).toMatchObject({ wait: { kind: 'signal', name: 'paid', schema: { type: 'object', required: ['amount'] } }, onDeadline: { action: 'remind', everyMs: 3_600_000, times: 2 } });
    expect(fourth?.deadline).toBeGreaterThan(now + 3 * 3_600_000);
    const sent = stand.messages.length;
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect([names(stand.messages.slice(sent)), told(stand.ending)]).toEqual([['FinishRun'], '5']);
  });

  it('that ends otherwise is a typed error', async () => {
    const ends: Record<string, WaitEnd> = {
      1: { status: 'expired', deadline: 1_700_000_000_000 },
      2: { status: 'rejected', feedback: 'refund half of it', by: 'mia' },
      3: { status: 'failed', failure: { class: 'permission_denied', message: 'no key' } },
      4: satisfied({ amount: 5 }),
    };
    const stand = new StandIn({ tools, ends: ({ step }) => ends[step] });
    await stand.execute(
      agent(async (run) => [
        await caught(run.signal('paid', z.string())),
        await caught(run.approval({ what: 'refund', tool: refund, args: { order: '7', amount: 1 } })),
        await caught(run.child({ name: 'clerk', version: '1' }, null)),
        await caught(run.signal('paid', z.object({ amount: z.string() }))),
      ]),
    );
    expect(told(stand.ending)).toEqual([
      { name: 'WaitExpired', class: 'expired', message: 'signal paid at step 1 expired at 2023-11-14T22:13:20.000Z' },
      { name: 'ApprovalRejected', class: 'human_rejected', message: 'approval refund at step 2 was rejected by mia: refund half of it' },
      { name: 'ChildFailed', class: 'permission_denied', message: 'child run run-1/3 at step 3 failed (permission_denied): no key' },
      { name: 'InvalidPayload', class: 'invalid_request', message: expect.stringContaining('signal "paid" at step 4') },
    ]);
    expect([WaitExpired, ApprovalRejected, ChildFailed, InvalidPayload].map(({ name }) => name)).toEqual(['WaitExpired', 'ApprovalRejected', 'ChildFailed', 'InvalidPayload']);
  });

  it.each<[string, (run: Run) => Promise<unknown>, RegExp]>([
    ['a length of time', (run) => run.sleep('soon' as never), /"soon"; it takes milliseconds from 0 on/],
    ['a length of time, not before now', (run) => run.sleep('-1 h'), /milliseconds from 0 on/],
    ['a moment', (run) => run.sleep({ until: new Date('never') }), /until is Invalid Date/],
    ['a moment that no date can hold', (run) => run.sleep({ until: Number.MAX_SAFE_INTEGER }), /until is 9007199254740991.*up to the year 9999/],
    ['a length of time that nobody lives to see', (run) => run.sleep('200 years'), /"200 years"; it takes .* at most 100 years/],
    ['a deadline', (run) => run.signal('s', z.string(), { deadline: Number.NaN }), /deadline is NaN/],
    ['a zod schema', (run) => run.signal('s', {} as never), /needs a zod schema/],
    ['a name', (run) => run.signal('', z.string()), /wait.name/],
    ['arguments of the tool', (run) => run.approval({ what: 'w', tool: put, args: { n: 'x' } as never, approvers: ['a'] }), /put@1 don't fit/],
    ['approvers', (run) => run.approval({ what: 'w', tool: put, args: { n: 1 } }), /names no approvers/],
    ['the target that the arguments name', (run) => run.approval({ what: 'w', tool: refund, args: { order: '7', amount: 1 }, target: 'order-8' }), /"order-8", and its arguments name "order-7"/],
    ['the input of the child', (run) => run.child({ name: 'c', version: '1', input: z.object({ n: z.number() }), output: z.null() }, {} as never), /the input of c@1/],
  ])('takes %s, or nothing is sent', async (_, ask, message) => {
    const stand = new StandIn({ tools });
    await stand.execute(agent(async (run) => caught(ask(run))));
    expect([names(stand.messages), told(stand.ending)]).toEqual([['FinishRun'], { name: 'InvalidArguments', class: 'invalid_request', message: expect.stringMatching(message) }]);
  });

  it('that nobody awaited is named, and its run fails the same way on every replay', async () => {
    const code = agent(async (run) => {
      void run.signal('paid', z.string());
      return run.step('other', () => 1);
    });
    const stand = new StandIn({ tools });
    await stand.execute(code);
    const ending = stand.ending;
    expect(ending).toMatchObject({ status: 'failed', failure: { message: expect.stringContaining('signal paid at step 1') } });
    expect(names(stand.messages)).toEqual(['StartWait 1', 'RecordStep 2', 'AbandonWait 1', 'FinishRun']);
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect(stand.ending).toEqual(ending);
  });

  it('asked for where another one is recorded stops the run for good', async () => {
    const stand = new StandIn({ tools, ends: () => satisfied('yes') });
    await stand.execute(agent(async (run) => run.signal('paid', z.string())));
    stand.crash();
    stand.ending = null;
    for (const code of [agent(async (run) => run.signal('sent', z.string())), agent(async (run) => run.sleep(1)), agent(async (run) => run.call(put, { n: 1 }))]) {
      expect((await stand.execute(code)).state).toBe('diverged');
      expect(stand.divergence).toMatchObject({ step: '1', recorded: 'signal paid' });
      stand.crash();
    }
  });
});

describe('an approval', () => {
  const args = { order: '7', amount: 10, note: 'late' };

  it('is asked for exactly what will be called, by the digest that the orchestrator computes', async () => {
    const stand = new StandIn({ tools, ends: () => satisfied({ approvedBy: 'mia', expiresAt: 1_800_000_000_000 }, 'mia') });
    await stand.execute(
      agent(async (run) => {
        const approval = await run.approval({ what: 'refund order 7', tool: refund, args, amount: { value: '10.00', currency: 'EUR' }, remindEvery: '1 day' });
        const { paid } = await run.call(refund, approval.args, { approval });
        return [paid, approval] as unknown;
      }),
    );
    expect(at(stand, '1')).toMatchObject({
      wait: {
        kind: 'approval', what: 'refund order 7', approvers: ['finance'], fourEyes: true, remindEveryMs: 86_400_000,
        scope: { tool: { name: 'refund', version: '2' }, target: 'order-7', args, digest: digestOf(material(refund.contract('default' as never), args)), amount: { value: '10.00', currency: 'EUR' } },
      },
    });
    expect(digestOf(material(refund, args))).toBe(digestOf({ order: '7', amount: 10 }));
    expect(stand.messages.find(({ type }) => type === 'CallTool')).toMatchObject({ data: { step: '2', args, approval: '1', fire: 'granted', target: 'order-7' } });
    expect(told(stand.ending)).toEqual([10, { kind: 'approval', step: '1', by: 'mia', expiresAt: 1_800_000_000_000, tool: { name: 'refund', version: '2' }, target: 'order-7', args }]);
  });

  it('of a local tool is looked at by the ledger: the call never fires by itself', async () => {
    const stand = new StandIn({ tools, ends: () => satisfied(null, 'mia') });
    await stand.execute(
      agent(async (run) => {
        const approval = await run.approval({ what: 'put', tool: put, args: { n: 1 }, approvers: ['desk'], target: 'shelf 3' });
        return run.call(put, approval.args, { approval });
      }),
    );
    expect(stand.messages.find(({ type }) => type === 'CallTool')).toMatchObject({ data: { fire: 'granted', approval: '1', target: 'shelf 3' } });
    const guarded = defineTool({ name: 'guarded', version: '1', effect: 'idempotent', approval: { approvers: ['a'] }, input: z.null(), output: z.null(), execute: () => null });
    const other = new StandIn({ tools: [guarded] });
    await other.execute(agent(async (run) => run.call(guarded, null)));
    expect(other.messages[0]).toMatchObject({ type: 'CallTool', data: { fire: 'granted' } });
    expect(guarded.contract('default' as never).approval).toEqual({ approvers: ['a'], fourEyes: false });
  });

  it('is what was asked for then: code that words it otherwise gets the arguments that were approved', async () => {
    const ask = (amount: number) => agent(async (run) => { const approval = await run.approval({ what: 'refund', tool: refund, args: { order: '7', amount } }); return (await run.call(refund, approval.args, { approval })).paid; });
    const stand = new StandIn({ tools });
    stand.begin(ask(10));
    await stand.quiet();
    stand.crash();
    stand.begin(ask(1000));
    stand.endWait('1' as Step, satisfied(null, 'mia'));
    await stand.quiet();
    expect([stand.fired.map(({ args: fired }) => fired), told(stand.ending)]).toEqual([[{ order: '7', amount: 10 }], 10]);
  });

  it('never reaches the wrong one of two that are asked for side by side, in any order, with restarts (C03)', async () => {
    const code = agent(async (run) => {
      const ask = (order: string) => async (branch: Run): Promise<Json> => {
        await branch.step(`look up ${order}`, () => order);
        try {
          const approval = await branch.approval({ what: `refund ${order}`, tool: refund, args: { order, amount: 1 } });
          await branch.call(refund, approval.args, { approval });
          return [order, approval.by];
        } catch (error) {
          return [order, error instanceof ApprovalRejected ? error.feedback : String(error)];
        }
      };
      return run.all([ask('A'), ask('B')]);
    });
    for (let seed = 0; seed < 100; seed += 1) {
      let state = seed;
      const pick = (count: number): number => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 12) % count;
      const stand = new StandIn({ tools, pick });
      stand.begin(code);
      await stand.quiet();
      const answers: [Step, WaitEnd][] = [['1.1.2' as Step, satisfied(null, 'mia')], ['1.2.2' as Step, { status: 'rejected', feedback: 'B is not due', by: 'tom' }]];
      if (seed % 2 === 0) answers.reverse();
      for (const [index, [step, end]] of answers.entries()) {
        if (pick(3) === 0) { stand.crash(); stand.begin(code); }
        stand.endWait(step, end);
        // Sometimes both answers are there before the run moves.
        if (index === 0 && pick(2) === 0) await stand.quiet();
      }
      await stand.quiet();
      expect(told(stand.ending)).toEqual([['A', 'mia'], ['B', 'B is not due']]);
      expect(stand.fired.map(({ args: fired }) => (fired as { order: string }).order)).toEqual(['A']);
      stand.crash();
      stand.ending = null;
      await stand.execute(code);
      expect([told(stand.ending), stand.fired.length, stand.divergence]).toEqual([[['A', 'mia'], ['B', 'B is not due']], 1, null]);
    }
  });
});

describe('a callback', () => {
  const callbacks = { secret: 'a secret', url: 'https://gate.example/callbacks/' };
  const code = agent(async (run) => {
    const callback = run.callback(z.object({ ok: z.boolean() }), { deadline: '1 day' });
    const seen = [callback.token, callback.url];
    await run.call(put, { n: callback.token.length });
    return [(await callback.answer).ok, ...seen];
  });

  it('gives the same token on every replay, and only its digest is sent', async () => {
    const stand = new StandIn({ tools, callbacks });
    stand.begin(code);
    await stand.quiet();
    stand.crash();
    stand.begin(code);
    await stand.quiet();
    stand.endWait('1' as Step, satisfied({ ok: true }, 'callback'));
    await stand.quiet();
    const [ok, token, url] = told(stand.ending) as [boolean, string, string];
    expect([ok, url]).toEqual([true, `https://gate.example/callbacks/run-1/1/${token}`]);
    expect(token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(at(stand, '1')).toMatchObject({ wait: { kind: 'callback', tokenHash: digestOfText(token) } });
    expect(JSON.stringify(stand.messages.slice(0, -1))).not.toContain(token);
    const other = new StandIn({ tools, callbacks: { ...callbacks, secret: 'another' }, ends: () => satisfied({ ok: true }) });
    await other.execute(code);
    expect((told(other.ending) as string[])[1]).not.toBe(token);
  });

  it('says what is not set', async () => {
    const stand = new StandIn({ tools });
    await stand.execute(agent(async (run) => { try { return run.callback(z.null()).token; } catch (error) { return error instanceof NotConfigured ? error.message : 'other'; } }));
    expect(told(stand.ending)).toMatch(/set HOLDFAST_CALLBACK_SECRET/);
    const bare = new StandIn({ tools, callbacks: { secret: 's' }, ends: () => satisfied(null) });
    await bare.execute(agent(async (run) => { const callback = run.callback(z.null()); await callback.answer; return caught((async () => callback.url)()); }));
    expect(told(bare.ending)).toMatchObject({ name: 'NotConfigured', message: expect.stringContaining('HOLDFAST_CALLBACK_URL') });
  });
});

describe('a child', () => {
  const clerk = defineAgent({ name: 'clerk', version: '3', input: z.object({ order: z.string() }), output: z.object({ done: z.boolean() }), run: async () => ({ done: true }) });

  it('is named by where it stands, and gives its output', async () => {
    const stand = new StandIn({ tools, ends: ({ step }) => satisfied(step === '3' ? { done: 'perhaps' } : { done: true }, 'run') });
    await stand.execute(
      agent(async (run) => {
        const { done } = await run.child(clerk, { order: '7' });
        const plain = await run.child({ name: 'other', version: '1' }, [1], { runId: 'mine', pool: 'fast', deadline: 1000, onDeadline: { action: 'compensate' } });
        return [done, plain, await caught(run.child(clerk, { order: '8' }))];
      }),
    );
    expect(told(stand.ending)).toEqual([true, { done: true }, expect.objectContaining({ name: 'InvalidPayload' })]);
    expect(at(stand, '1')).toMatchObject({ wait: { kind: 'child', run: 'run-1/1', agent: { name: 'clerk', version: '3' }, input: { order: '7' } } });
    expect(at(stand, '2')).toMatchObject({ wait: { run: 'mine', pool: 'fast', input: [1] }, onDeadline: { action: 'compensate' } });
  });
});
