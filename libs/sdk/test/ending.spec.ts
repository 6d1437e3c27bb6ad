import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import type { Step } from '@holdfast/protocol';
import { z } from 'zod';
import { defineAgent } from '../src/define/agent.js';
import { defineTool } from '../src/define/tool.js';
import { Failed, IntentRefusedError, Rejected, RunEnded } from '../src/errors.js';
import { guardStrayRejections, type Run } from '../src/run/index.js';
import { names, StandIn, turn, unreadable } from './stand-in.js';

const numbers = { input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) };
const email = defineTool({ name: 'email', version: '1', effect: 'irreversible', owner: 'desk', ...numbers, execute: ({ n }) => ({ n }) });
const look = defineTool({ name: 'look', version: '1', effect: 'pure', ...numbers, execute: ({ n }) => ({ n }) });
const broken = defineTool({ name: 'broken', version: '1', effect: 'pure', ...numbers, execute: () => { throw new Failed({ class: 'permission_denied', message: 'no key' }); } });

/** Jest gives tests a copy of `process` that hears of nothing; functions of the outer realm know the real one. */
const real = setImmediate.constructor('return process')() as NodeJS.Process;

const agent = (run: (run: Run) => Promise<unknown> | unknown, output: z.ZodType = z.unknown()) => defineAgent({ name: 'agent', version: '1', input: z.null(), output, run: run as never });
const world = (more: Partial<ConstructorParameters<typeof StandIn>[0]> = {}): StandIn => new StandIn({ tools: [email, look, broken], ...more });

describe('a durable call that nobody awaited', () => {
  const forgetful = (tool: typeof email) =>
    agent(async (run) => {
      void run.call(tool, { n: 1 });
      return 'sent';
    });

  it.each([['granted', email], ['local', look], ['failing', broken]])('fails the run and is named: %s', async (_, tool) => {
    const stand = world();
    await stand.execute(forgetful(tool));
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: 'invalid_request', message: expect.stringContaining(`call ${tool.name} at step 1`) } });
    expect(names(stand.messages).slice(0, 2)).toEqual(['CallTool 1', 'FinishRun']);
  });

  it('is found too when an awaited call follows, so that a replay ends alike', async () => {
    const code = agent(async (run) => {
      void run.call(email, { n: 1 });
      await run.call(look, { n: 2 });
      return 'sent';
    });
    const stand = world();
    await stand.execute(code);
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { message: expect.stringContaining('call email at step 1') } });
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { message: expect.stringContaining('call email at step 1') } });
    expect(stand.fired.length).toBe(2);
  });

  it('is named when it is a step, a group, or a call that could not be made', async () => {
    const stand = world();
    await stand.execute(
      agent(async (run) => {
        void run.step('note', () => 1);
        void run.call(email, { n: 'one' as never });
        void run.all([(one) => one.call(look, { n: 1 })]);
        return null;
      }),
    );
    expect(stand.ending).toMatchObject({ failure: { message: expect.stringMatching(/step note at step 1, email at step 2 \(InvalidArguments.*\), run\.all at step 3/) } });
  });

  describe('whose rejection nobody takes', () => {
    const stray = jest.fn();
    const listeners = real.listeners('unhandledRejection');
    beforeEach(() => {
      stray.mockClear();
      real.removeAllListeners('unhandledRejection');
      real.on('unhandledRejection', stray);
    });
    afterEach(() => {
      real.removeAllListeners('unhandledRejection');
      for (const listener of listeners) real.on('unhandledRejection', listener);
    });

    it('is no unhandled rejection of the process', async () => {
      const stand = world();
      const code = agent(async (run) => {
        const late = run.call(broken, { n: 1 });
        void run.call(broken, { n: 2 });
        void run.call('nothing', null);
        await run.call(look, { n: 3 });
        return late.catch(() => 'late');
      });
      await stand.execute(code);
      await turn();
      expect(stray).not.toHaveBeenCalled();
      expect(stand.ending).toMatchObject({ failure: { message: expect.stringMatching(/call broken at step 2, nothing at step 3/) } });
    });

    it('fails its own run when a helper was not awaited, and no other', async () => {
      real.removeAllListeners('unhandledRejection');
      const remove = guardStrayRejections(real);
      const stand = world();
      const helper = async (run: Run): Promise<void> => {
        await run.call(broken, { n: 1 });
      };
      const other = world();
      await Promise.all([
        stand.execute(agent(async (run) => { void helper(run); for (let n = 2; n < 12; n += 1) await run.call(email, { n }); return 'done'; })),
        other.execute(agent(async (run) => (await run.call(look, { n: 4 })).n)),
      ]);
      remove();
      expect(stand.ending).toMatchObject({ status: 'failed', failure: { message: expect.stringContaining('call broken at step 1, whose EffectFailed reached nobody') } });
      expect(other.ending?.status).toBe('completed');
    });

    it.each<[string, (error: Error) => void]>([
      ['lead back to where they began', (error) => { const other = new Error('other', { cause: error }); error.cause = other; }],
      ['lead on without end', (error) => Object.defineProperty(error, 'cause', { get: () => endless() })],
      ['throw when they are asked for', (error) => Object.defineProperty(error, 'cause', { get: () => { throw new Error('no'); } })],
      ['end in what throws at each question', (error) => { error.cause = revoked(); }],
    ])('ends the process, and holds nothing up, where no run owns it and its causes %s', (_, give) => {
      real.removeAllListeners('unhandledRejection');
      const remove = guardStrayRejections(real);
      const error = new Error('stray');
      give(error);
      let thrown: unknown;
      try {
        real.emit('unhandledRejection', error, Promise.resolve());
      } catch (given) {
        thrown = given;
      }
      remove();
      expect(thrown === error).toBe(true); // Nothing that looks into it.
    });
  });
});

/** Throws at each question that it is asked, `instanceof` included. */
function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

const endless = (): Error => Object.defineProperty(new Error('and'), 'cause', { get: () => endless() });

describe('a call that lost a race', () => {
  it('is waited for, and its report rides on the ending', async () => {
    const stand = world();
    await stand.execute(agent(async (run) => Promise.race([run.step('quick', () => 'quick'), run.call(look, { n: 1 })])));
    expect(names(stand.messages)).toEqual(['RecordStep 1', 'CallTool 2', 'FinishRun']);
    expect(stand.messages.at(-1)).toMatchObject({ data: { settles: [{ step: '2' }], ending: { output: { value: 'quick' } } } });
  });

  it('does not hold up a failure', async () => {
    const stand = world({ granted: () => ({ status: 'unknown', cause: 'deadline', message: '' }) });
    const executor = await stand.execute(agent(async (run) => Promise.all([run.call(email, { n: 1 }), run.call(broken, { n: 2 })])));
    expect([executor.state, stand.ending?.status]).toEqual(['finished', 'failed']);
  });

  it('does not hold up a partial completion', async () => {
    const stand = world({ granted: () => ({ status: 'unknown', cause: 'deadline', message: '' }) });
    const executor = await stand.execute(
      agent(async (run) => {
        const open = run.call(email, { n: 1 });
        const done = await Promise.race([open, run.step('quick', () => 'quick')]);
        return run.completePartially(done, 'nobody knows about the e-mail');
      }),
    );
    expect([executor.state, stand.ending]).toEqual(['finished', { status: 'completed_partially', output: { value: 'quick' }, because: 'nobody knows about the e-mail' }]);
  });
});

describe('the end', () => {
  it.each([
    ['a plain error', () => { throw new Error('boom'); }, 'transient', 'boom'],
    ['a typed one', () => { throw new Failed({ class: 'policy_denied', message: 'not allowed' }); }, 'policy_denied', 'not allowed'],
    ['something that is no error', () => { throw 'text'; }, 'transient', 'text'],
  ])('of code that throws %s', async (_, code, failureClass, message) => {
    const stand = world();
    await stand.execute(agent(async () => code()));
    expect(stand.ending).toEqual({ status: 'failed', failure: { class: failureClass, message: expect.stringContaining(message) } });
  });

  const untyped = (spec: object): Failed => new Failed(spec as never);
  it.each<[string, () => unknown, string, RegExp]>([
    ['a failure without a class', () => untyped({ message: 'm', notApplied: true }), 'transient', /m \(class: /],
    ['a failure of no known class', () => untyped({ class: 'nonsense', message: 'm' }), 'transient', /m \(class: /],
    ['a long failure of no known class', () => untyped({ message: 'm'.repeat(5000) }), 'transient', /mmm… \(class: /],
    ['a failure without a message', () => untyped({ class: 'policy_denied' }), 'policy_denied', /Failed/],
    ['a failure whose message is no text', () => untyped({ class: 'policy_denied', message: { a: 1n } }), 'policy_denied', /Failed/],
    ['an error of its own without a class', () => new Rejected({ a: 1 } as never), 'business_rejected', /Rejected/],
    ['a revoked proxy', revoked, 'transient', /something was thrown/],
    ['a proxy that throws at each question', () => new Proxy({}, { getPrototypeOf: () => { throw new Error('no'); }, get: () => { throw new Error('no'); } }), 'transient', /something was thrown/],
    ['a failure whose class throws', () => Object.defineProperty(untyped({ class: 'transient', message: 'm' }), 'failureClass', { get: () => { throw new Error('no'); } }), 'transient', /m/],
  ])('is recorded, of code, a step and a model call that throw %s', async (_, make, failureClass, message) => {
    const failure = { class: failureClass, message: expect.stringMatching(message) };
    const ways: ((run: Run) => unknown)[] = [
      () => { throw make(); },
      (run) => run.step('s', () => { throw make(); }),
      (run) => run.step('s', async () => { throw make(); }),
      (run) => run.model('m', () => { throw make(); }),
      (run) => run.all([() => { throw make(); }]),
      (run) => run.all([() => { throw make(); }], { checkpoint: 'group' }),
      (run) => run.race([() => { throw make(); }]),
    ];
    for (const way of ways) {
      const stand = world({ triesMax: 1 });
      await stand.execute(agent(async (run) => way(run)));
      expect(stand.ending).toEqual({ status: 'failed', failure: { ...failure, class: expect.stringMatching(`^(${failureClass}|invalid_request)$`) } });
      expect(unreadable(stand.messages)).toEqual([]);
    }
  });

  it('is said once more where even a failure is refused, and then told to people', async () => {
    const stand = world({ refuse: ({ type }) => (type === 'FinishRun' ? 'invalid' : undefined) });
    await stand.execute(agent(() => { throw new Error('boom'); }));
    expect(names(stand.messages)).toEqual(['FinishRun', 'FinishRun']);
    expect(stand.messages.at(-1)).toMatchObject({ data: { ending: { status: 'failed', failure: { class: 'invalid_output', message: expect.stringContaining('(invalid)') } } } });
    expect(stand.troubles).toEqual([expect.stringContaining('(invalid)'), expect.stringContaining('(invalid)')]);
  });

  it('of code that gives something that throws when it is asked what it is', async () => {
    const stand = world();
    const odd = new Proxy({}, { getPrototypeOf: () => { throw new Error('no'); } });
    await stand.execute(agent(() => odd));
    expect(stand.ending).toMatchObject({ status: 'failed' });
  });

  it('checks the output against its schema', async () => {
    const stand = world();
    await stand.execute(agent(async () => ({ total: 'seven' }), z.object({ total: z.number() })));
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: 'invalid_output', message: expect.stringContaining('total') } });
  });

  it('refuses an output that is not JSON, naming the place', async () => {
    const stand = world();
    await stand.execute(agent(async () => ({ list: [1, undefined] })));
    expect(stand.ending).toMatchObject({ failure: { message: expect.stringContaining('$.list[1] is undefined') } });
  });

  it('checks the input first, and fires nothing', async () => {
    const stand = world();
    await stand.execute(defineAgent({ name: 'agent', version: '1', input: z.object({ n: z.number() }), output: z.null(), run: async () => null }), { n: 'one' });
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: 'invalid_request', message: expect.stringContaining('n: ') } });
  });

  it('takes calls no more', async () => {
    const stand = world();
    let kept: Run | undefined;
    await stand.execute(agent(async (run) => { kept = run; return null; }));
    await expect(kept?.call(look, { n: 1 })).rejects.toThrow(RunEnded);
    await expect(kept?.step('late', () => 1)).rejects.toThrow(RunEnded);
    expect(() => kept?.now()).toThrow(RunEnded);
    expect(names(stand.messages)).toEqual(['FinishRun']);
  });
});

describe('a refused intent', () => {
  it.each([
    ['operation_conflict', 'concurrency_conflict'],
    ['invalid_arguments', 'invalid_request'],
    ['budget_exhausted', 'policy_denied'],
    ['deadline_passed', 'expired'],
  ])('is a typed error of the call: %s', async (reason, failureClass) => {
    const stand = world({ refuse: ({ type }) => (type === 'CallTool' ? reason : undefined) });
    await stand.execute(agent(async (run) => run.call(email, { n: 1 })));
    expect(stand.ending).toMatchObject({ status: 'failed', failure: { class: failureClass, message: expect.stringContaining(`CallTool at step 1 was refused (${reason})`) } });
  });

  it('lets the code go on, tells the order again, and a replay takes the same way', async () => {
    let refusing = true;
    const code = agent(async (run) => {
      const first = (await run.call(email, { n: 1 })).n;
      const second = await run.call(email, { n: 1 }).catch((error: unknown) => (error instanceof IntentRefusedError ? error.reason : 'other'));
      const third = await run.call(email, { n: 2 });
      return [first, second, third.n];
    });
    const stand = world({ refuse: ({ type, data }) => (refusing && type === 'CallTool' && data.step === '2' ? 'invalid_arguments' : undefined) });
    await stand.execute(code);
    expect(stand.observed).toEqual(['1', '2', '3']);
    expect(stand.ending).toEqual({ status: 'completed', output: { value: [1, 'invalid_arguments', 2] } });
    stand.crash();
    stand.ending = null;
    await stand.execute(code);
    expect(stand.ending).toEqual({ status: 'completed', output: { value: [1, 'invalid_arguments', 2] } });
    refusing = false;
  });

  it('of something that the code was told of already brings it to an end', async () => {
    for (const partial of [true, false]) {
      const stand = world();
      await stand.execute(
        agent(async (run) => {
          await run.call(look, { n: 1 });
          stand.executor?.refused({ intent: 'CallTool', step: '1' as Step, reason: 'budget_exhausted', message: 'late' });
          const reason = await run.call(look, { n: 2 }).catch((error: IntentRefusedError) => error.reason);
          return partial ? run.completePartially(reason, 'the budget is spent') : reason;
        }),
      );
      expect(names(stand.messages)).toEqual(['CallTool 1', 'FinishRun']);
      expect(stand.ending).toMatchObject(partial ? { status: 'completed_partially', output: { value: 'budget_exhausted' } } : { status: 'failed', failure: { class: 'policy_denied' } });
    }
  });

  it('fires nothing when it is heard of before the acknowledgement', async () => {
    const stand = world({ refuse: ({ type }) => (type === 'CallTool' ? 'unknown_tool' : undefined) });
    await stand.execute(agent(async (run) => run.call(look, { n: 1 }).catch(() => 'refused')));
    expect([stand.fired.length, stand.ending?.status]).toEqual([0, 'completed']);
  });

  it('told twice changes nothing', async () => {
    const stand = world({ refuse: ({ type, data }) => (type === 'CallTool' && data.step === '1' ? 'unknown_tool' : undefined) });
    const executor = stand.begin(
      agent(async (run) => {
        await run.call(email, { n: 1 }).catch(() => null);
        return (await run.call(email, { n: 2 })).n;
      }),
    );
    for (let i = 0; i < 4; i += 1) await turn();
    executor.refused({ intent: 'CallTool', step: '1' as Step, reason: 'unknown_tool', message: 'again' });
    await executor.finished;
    expect(stand.ending).toEqual({ status: 'completed', output: { value: 2 } });
  });
});
