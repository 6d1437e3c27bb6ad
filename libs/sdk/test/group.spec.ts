import { describe, expect, it } from '@jest/globals';
import type { Step } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { Failed, WrongScope } from '../src/errors.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const same = ({ n }: { n: number }): { n: number } => ({ n });
const look = defineTool({ name: 'look', version: '1', effect: 'pure', ...numbers, execute: same });
const put = defineTool({ name: 'put', version: '1', effect: 'idempotent', ...numbers, execute: same });
const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: same });
const keyed = defineTool({ name: 'keyed', version: '1', effect: 'idempotent', keyScope: 'target', target: ({ n }) => String(n), ...numbers, execute: same });
const far = defineTool({ name: 'far', version: '1', effect: 'pure', ...numbers, execute: same });
const broken = defineTool({ name: 'broken', version: '1', effect: 'pure', ...numbers, execute: () => { throw new Failed({ class: 'invalid_request', message: 'wrong' }); } });
const tools = [look, put, pay, keyed, far, broken];
const agent = (run: (run: Run) => Promise<unknown>) => defineAgent({ name: 'agent', version: '1', input: z.null(), output: z.unknown(), run });
const world = (more: object = {}): StandIn => new StandIn({ tools, elsewhere: ['far'], ...more });
const value = (found: unknown): unknown => (found as { output?: { value: unknown } } | null)?.output?.value;

describe('branches', () => {
  it('have numbers of their own, whatever order they end in', async () => {
    for (const seed of [0, 1, 2, 3, 4]) {
      const stand = world({ pick: (count: number) => (seed * 7) % count });
      await stand.execute(
        agent(async (run) => {
          const before = await run.step('before', () => 0);
          const both = await run.all([
            async (a) => { const { n } = await a.call(look, { n: 1 }); return n + (await a.call(put, { n: 10 })).n; },
            async (b) => { const inner = await b.all([(x) => x.call(look, { n: 100 }), (y) => y.call(look, { n: 200 })]); return inner[0].n + inner[1].n; },
          ]);
          return [before, ...both, (await run.call(look, { n: 9 })).n];
        }),
      );
      expect(value(stand.ending)).toEqual([0, 11, 300, 9]);
      expect([...stand.steps.keys()].sort()).toEqual(['1', '2.1.1', '2.1.2', '2.2.1.1.1', '2.2.1.2.1', '3']);
    }
  });

  it('give the same person’s answer to the same call, in both orders', async () => {
    for (let i = 0; i < 100; i += 1) {
      const stand = world({ granted: () => ({ status: 'unknown', cause: 'may_have_applied', message: '' }), pick: (count: number) => i % count });
      const code = agent(async (run) => run.all([(a) => a.call(pay, { n: 1 }).then(() => 'A paid', () => 'A not'), (b) => b.call(pay, { n: 2 }).then(() => 'B paid', () => 'B not')]));
      let executor = stand.begin(code);
      await stand.quiet();
      const answers = [
        () => stand.settle('1.1.1' as Step, 1, { status: 'succeeded', result: { value: { n: 1 } }, evidence: { kind: 'person' } }),
        () => stand.settle('1.2.1' as Step, 1, { status: 'rejected', reason: 'no', evidence: { kind: 'person' } }),
      ];
      if (i % 2 === 1) answers.reverse();
      answers[0]?.();
      if (i % 3 === 0) {
        stand.crash();
        executor = stand.begin(code);
      }
      answers[1]?.();
      await executor.finished;
      expect(value(stand.ending)).toEqual(['A paid', 'B not']);
    }
  });

  it('are all over before the group fails, with the error that came first', async () => {
    const stand = world();
    const over: string[] = [];
    await stand.execute(
      agent(async (run) => {
        const message = await run.all([(a) => a.call(broken, { n: 1 }).finally(() => over.push('a')), async (b) => { for (let n = 0; n < 5; n += 1) await b.call(look, { n }); over.push('b'); }]).catch((error: Error) => error.name);
        return [message, ...over];
      }),
    );
    expect(value(stand.ending)).toEqual(['EffectFailed', 'a', 'b']);
  });

  it('must be asked through their own run, and no longer than they last', async () => {
    const stand = world();
    const failures: unknown[] = [];
    const note = (error: unknown): void => void failures.push(error);
    await stand.execute(
      agent(async (run) => {
        let kept: Run | undefined;
        await run.all([
          async (a) => { kept = a; await run.call(look, { n: 1 }).catch(note); try { run.now(); } catch (error) { note(error); } await run.all([() => null]).catch(note); await a.call(look, { n: 2 }); },
        ]);
        await kept?.call(look, { n: 3 }).catch(note);
        await run.call(look, { n: 4 });
        return null;
      }),
    );
    expect(failures.map((error) => error instanceof WrongScope)).toEqual([true, true, true, true]);
    expect(String(failures[0])).toMatch(/the group at step 1 is open: inside it use the run that each branch is given/);
    expect([...stand.steps.keys()]).toEqual(['1.1.1', '2']);
  });

  it('can be nested no deeper than a cursor reaches', async () => {
    const stand = world();
    const nest = (run: Run, levels: number): Promise<unknown> => (levels === 0 ? run.call(look, { n: 1 }) : run.all([(inner) => nest(inner, levels - 1)]));
    await stand.execute(agent(async (run) => nest(run, 4)));
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: 'invalid_request', message: expect.stringContaining('nested too deep') } });
  });

  it('refuse a durable call inside recorded work', async () => {
    const stand = world({ triesMax: 1 });
    await stand.execute(agent(async (run) => run.step('outer', () => run.now()).catch((error: Error) => error.message)));
    expect(value(stand.ending)).toMatch(/a durable call inside the work of run.step/);
  });
});

describe('a group recorded as one', () => {
  const whole = (calls: readonly ((branch: Run) => Promise<unknown>)[]) => agent(async (run) => run.all(calls, { checkpoint: 'group' }));

  it('is one intent and one report', async () => {
    for (const pick of [0, 1]) {
      const stand = world({ pick: (count: number) => (pick === 0 ? 0 : count - 1) });
      await stand.execute(agent(async (run) => {
        const found = await run.all([(a) => a.call(look, { n: 1 }), async (b) => (await b.call(put, { n: 2 })).n * 10, (c) => c.call(look, { n: 3 })], { checkpoint: 'group' });
        return [found, (await run.call(look, { n: 4 })).n];
      }));
      expect(names(stand.messages)).toEqual(['CallGroup 1', 'CallTool 2', 'FinishRun']);
      expect(stand.messages[0]).toMatchObject({ data: { calls: [{ step: '1.1' }, { step: '1.2' }, { step: '1.3' }] } });
      expect(stand.messages[1]).toMatchObject({ data: { settles: expect.arrayContaining([expect.objectContaining({ step: '1.1' }), expect.objectContaining({ step: '1.3' })]), observed: expect.arrayContaining(['1.1', '1.2', '1.3']) } });
      expect(value(stand.ending)).toEqual([[{ n: 1 }, 20, { n: 3 }], 4]);
    }
  });

  it('reports its failures with the rest, and leaves them to the ledger', async () => {
    const stand = world();
    await stand.execute(agent(async (run) => run.all([(a) => a.call(look, { n: 1 }), (b) => b.call(broken, { n: 2 }).catch((error: Error) => error.name)], { checkpoint: 'group' })));
    expect(names(stand.messages)).toEqual(['CallGroup 1', 'ReportSteps', 'FinishRun']);
    expect(value(stand.ending)).toEqual([{ n: 1 }, 'EffectFailed']);
  });

  it.each<[string, readonly ((branch: Run) => Promise<unknown>)[], RegExp]>([
    ['an irreversible effect', [(a) => a.call(look, { n: 1 }), (b) => b.call(pay, { n: 2 })], /pay@1 can't be called in the group at step 1.*only pure and idempotent effects/],
    ['a business key', [(a) => a.call(keyed, { n: 1 })], /only keys of scope "run"/],
    ['a tool elsewhere', [(a) => a.call(far, { n: 1 })], /only tools that this worker hosts/],
    ['a second call', [async (a) => { await a.call(look, { n: 1 }); await a.call(look, { n: 2 }); }], /branch 1 of the group at step 1 makes a second call/],
    ['no call', [(a) => a.call(look, { n: 1 }), async () => null], /branch 2 of the group at step 1 ended without a call/],
    ['a throw before the call', [(a) => a.call(look, { n: 1 }), async () => { throw new Error('before'); }], /before/],
    ['recorded work', [(a) => a.step('s', () => 1)], /run\.step in a branch of the group at step 1/],
    ['a time', [async (a) => a.now()], /run\.now in a branch/],
    ['arguments that do not fit', [(a) => a.call(look, { n: 'x' as never }), (b) => b.call(look, { n: 1 })], /InvalidArguments/],
    ['no branches', [], /has 0 branches/],
    ['101 branches', Array.from({ length: 101 }, () => (a: Run) => a.call(look, { n: 1 })), /has 101 branches/],
    ['more than fits into one message', Array.from({ length: 3 }, () => (a: Run) => a.call(wide, { text: 'x'.repeat(100_000) })), /the group at step 1 has \d+ bytes.*make smaller groups/],
  ])('refuses %s, and fires nothing of it', async (name, calls, message) => {
    const stand = new StandIn({ tools: [...tools, wide], elsewhere: ['far'] });
    await stand.execute(whole(calls));
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: name === 'a throw before the call' ? 'transient' : 'invalid_request', message: expect.stringMatching(message) } });
    expect(stand.fired.length).toBe(name === 'a second call' ? 1 : 0);
  });

  it.each(['CallGroup', 'member'])('is refused as a whole, at its own step or at a member’s: %s', async (kind) => {
    const stand = world();
    stand.intend = async (_run, _tenant, intents) => {
      if (intents[0]?.type === 'CallGroup') stand.soon(() => stand.executor?.refused({ intent: 'CallGroup', step: (kind === 'member' ? '1.2' : '1') as Step, reason: 'invalid_arguments', message: 'no' }));
      else stand.messages.push(...(intents as never[]));
      await new Promise<void>((resolve) => stand.soon(resolve));
    };
    stand.begin(agent(async (run) => run.all([(a) => a.call(look, { n: 1 }).catch((error: Error) => error.name), (b) => b.call(look, { n: 2 }).catch((error: Error) => error.name)], { checkpoint: 'group' })));
    await stand.quiet();
    expect(stand.messages).toMatchObject([{ type: 'FinishRun', data: { ending: { output: { value: ['IntentRefusedError', 'IntentRefusedError'] } } } }]);
    expect(stand.fired).toEqual([]);
  });
});

const wide = defineTool({ name: 'wide', version: '1', effect: 'pure', input: z.object({ text: z.string() }), output: z.null(), execute: () => null });
