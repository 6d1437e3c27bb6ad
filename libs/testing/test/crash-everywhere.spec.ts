import { describe, expect, it, jest } from '@jest/globals';
import { defineAgent, defineTool, notApplied, type Run } from '@holdfast/sdk';
import { z } from 'zod';
import { crashEverywhere, type Setup, type Surroundings } from '../src/index.js';

// A world for each crash: seconds by itself, minutes beside all other suites.
jest.setTimeout(600_000);

const order = z.object({ order: z.string() });
const input = { order: '7' };
const kate = { name: 'kate', roles: ['treasurer'] };

type Parts = ReturnType<typeof partsOf>;

/** Tools before fakes in memory. `careless`: the mail tool says that it may be repeated, and its target forgets the key. */
function partsOf({ elapse }: Surroundings, careless: boolean) {
  const sent: string[] = [];
  const paid: string[] = [];
  const seen = new Set<string>();
  const send = (to: string, key: string): void => {
    if (!careless && seen.has(key)) return;
    seen.add(key);
    sent.push(to);
  };
  const look = defineTool({ name: 'stock.look', version: '1', effect: 'pure', input: order, output: z.number(), execute: () => 3 });
  const mail = defineTool({
    name: 'mail.send',
    version: '1',
    effect: 'idempotent',
    input: order,
    output: z.null(),
    execute: async (args, { operationKey }) => {
      await elapse('1s');
      send(args.order, operationKey);
      return null;
    },
  });
  const hasty = defineTool({
    name: 'mail.hasty',
    version: '1',
    effect: 'idempotent',
    input: order,
    output: z.null(),
    execute: async (args, { operationKey }) => {
      send(args.order, operationKey);
      await elapse('3s');
      return null;
    },
  });
  const pay = defineTool({
    name: 'pay',
    version: '1',
    effect: 'irreversible',
    owner: 'the desk',
    input: order,
    output: z.null(),
    execute: async (args) => {
      await elapse('2s');
      paid.push(args.order);
      return null;
    },
  });
  const open = defineTool({ name: 'vault.open', version: '1', effect: 'irreversible', owner: 'the desk', input: order, output: z.null(), approval: { approvers: ['treasurer'] }, execute: () => null });
  return { sent, paid, look, mail, hasty, pay, open, elapse };
}

interface Made {
  readonly careless?: boolean;
  readonly observed?: boolean;
}

const scenario =
  (run: (run: Run, parts: Parts) => Promise<unknown>, { careless = false, observed = true }: Made = {}) =>
  (surroundings: Surroundings): Setup => {
    const parts = partsOf(surroundings, careless);
    const agent = defineAgent({
      name: 'desk',
      version: '1',
      input: order,
      output: z.string(),
      run: async (scope) => {
        await run(scope, parts);
        return 'told';
      },
    });
    const { sent, paid, look, mail, hasty, pay, open } = parts;
    return { agents: [agent] as unknown as Setup['agents'], tools: [look, mail, hasty, pay, open] as unknown as Setup['tools'], ...(observed ? { observe: () => ({ sent, paid }) } : {}) };
  };

describe('beside an irreversible step that a crash makes unknown', () => {
  const beside = (tool: 'mail' | 'hasty') => async (run: Run, parts: Parts): Promise<void> => {
    await run.all([(branch) => branch.call(parts[tool], input), (branch) => branch.call(parts.pay, input)]);
  };

  it.each(['mail', 'hasty'] as const)('a careless %s is found at each crash after which its effect is there twice', async (tool) => {
    const { results, mistakes } = await crashEverywhere(scenario(beside(tool), { careless: true }), input);
    const doubled = results.filter(({ difference }) => difference?.includes('{"sent":["7","7"]') === true);
    expect(doubled.length).toBeGreaterThan(1);
    expect(doubled.every(({ verdict }) => verdict === 'different')).toBe(true);
    expect(mistakes).toHaveLength(doubled.length);
  });

  it.each(['mail', 'hasty'] as const)('a %s whose target knows the key is none, though it is called twice', async (tool) => {
    const { results, mistakes, repeated } = await crashEverywhere(scenario(beside(tool)), input);
    expect(mistakes).toEqual([]);
    expect(results.some(({ twice, verdict }) => verdict === 'blocked' && twice.length > 0)).toBe(true);
    expect(repeated).toMatchObject([{ kind: 'call', name: tool === 'mail' ? 'mail.send' : 'mail.hasty', step: '1.1.1', times: 2 }]);
  });
});

describe('a scenario without observe', () => {
  it('has no all-clear for what was done again: nobody has looked', async () => {
    const { results, mistakes, repeated } = await crashEverywhere(scenario((run, { mail }) => run.call(mail, input), { observed: false }), input);
    expect(results.some(({ verdict }) => verdict === 'unobserved')).toBe(true);
    expect(mistakes[0]).toMatch(/mail\.send at step 1 would have happened twice \(called 2 times\); whether that shows nobody can tell, since the scenario has no observe/);
    expect(repeated).toEqual([{ kind: 'call', run: 'run-1', step: '1', name: 'mail.send', times: 2, crash: expect.stringContaining('worker dies') }]);
  });

  it('is enough for tools that read', async () => {
    const { mistakes, repeated } = await crashEverywhere(scenario((run, { look }) => run.call(look, input), { observed: false }), input);
    expect({ mistakes, repeated }).toEqual({ mistakes: [], repeated: [] });
  });
});

describe('recorded work', () => {
  const tells = (where: 'step' | 'branch') => async (run: Run, { sent }: Parts): Promise<void> => {
    const work = (scope: Run): Promise<null> => scope.step('tell', () => (sent.push('told'), null));
    await (where === 'step' ? work(run) : run.all([work, (branch) => branch.sleep(10)]));
  };

  it.each([
    ['step', '1'],
    ['branch', '1.1.1'],
  ] as const)('with a side effect is found, in a %s, as the last thing that an agent does', async (where, step) => {
    const { mistakes, repeated } = await crashEverywhere(scenario(tells(where)), input);
    expect(mistakes.length).toBeGreaterThan(0);
    expect(mistakes[0]).toMatch(new RegExp(`^worker dies before publish\\.intents of step tell.*: the work of step tell at step ${step} was done 2 times; the tools have left`));
    expect(repeated).toMatchObject([{ kind: 'step', name: 'tell', step, times: 2 }]);
  });

  it('without one is no mistake, and is among what was repeated', async () => {
    const { results, mistakes, repeated } = await crashEverywhere(scenario((run) => run.model('choose', () => ({ output: 1 }))), input);
    expect(mistakes).toEqual([]);
    expect(repeated).toMatchObject([{ kind: 'model', name: 'choose', step: '1' }]);
    expect(results.map(({ crash }) => crash)).toEqual(expect.arrayContaining([expect.stringMatching(/^orchestrator dies after store\.commit of .*model choose/), expect.stringMatching(/^worker dies before publish\.intents of .*the end/)]));
  });
});

describe('an agent that waits', () => {
  const waits = async (run: Run, { mail, open }: Parts): Promise<void> => {
    await run.signal('go', z.string(), { deadline: '30 days' });
    await run.sleep('2 days');
    const approval = await run.approval({ what: 'open it', tool: open, args: input, deadline: '30 days' });
    await run.call(open, input, { approval });
    await run.call(mail, input);
  };

  it('must be told what people do: else what comes after would stay untested', async () => {
    await expect(crashEverywhere(scenario(waits, { careless: true }), input)).rejects.toThrow('undisturbed, run-1 is open and waits for signal go at step 1');
    await expect(crashEverywhere(scenario(waits, { careless: true }), input, { script: (world, { id }) => world.signal(id, 'go', 'now') })).rejects.toThrow('undisturbed, run-1 is open and waits for sleep at step 2');
  });

  it('is tested to its end with a script', async () => {
    const script: NonNullable<Parameters<typeof crashEverywhere>[2]>['script'] = async (world, { id }) => {
      await world.signal(id, 'go', 'now');
      await world.settle();
      await world.advance('3 days');
      await world.settle();
      await world.decide(id, '3', 'approve', kate);
    };
    const { end, results, mistakes } = await crashEverywhere(scenario(waits, { careless: true }), input, { script });
    expect(end).toEqual({ status: 'completed', output: 'told' });
    expect(results.map(({ crash }) => crash)).toEqual(expect.arrayContaining(['orchestrator dies before store.commit of signal go', 'worker dies after fire.granted of vault.open']));
    expect(mistakes.length).toBeGreaterThan(0);
    expect(mistakes.every((mistake) => /^worker dies .*: mail\.send at step 5 would have happened twice/.test(mistake))).toBe(true);
  });
});

describe('a run that fails undisturbed', () => {
  it('before it has done anything tests nothing, and says so', async () => {
    await expect(crashEverywhere(scenario((run, { mail }) => run.call(mail, input)), { wrong: 1 })).rejects.toThrow(/undisturbed, the run fails before it has done anything: .*order/);
  });

  it('later on shows its end in the report', async () => {
    const { end } = await crashEverywhere(scenario(async (run, { look }) => {
      await run.call(look, input);
      throw new Error('nothing left');
    }), input);
    expect(end).toEqual({ status: 'failed', message: expect.stringContaining('nothing left') });
  });
});

describe('an irreversible tool', () => {
  it('that happens twice is a mistake, whatever observe shows', async () => {
    const lying = (): Setup => {
      const back = defineTool({ name: 'give.back', version: '1', effect: 'idempotent', input: order, output: z.null(), execute: () => null });
      const book = defineTool({
        name: 'book',
        version: '1',
        effect: 'irreversible',
        owner: 'the desk',
        input: order,
        output: z.null(),
        settleDelay: 0,
        probe: { sealing: true, ask: () => notApplied() },
        compensate: { tool: back, args: { order: { from: 'args', at: '/order' } }, verify: false },
        execute: () => null,
      });
      const agent = defineAgent({ name: 'desk', version: '1', input: order, output: z.null(), run: (run, args) => run.call(book, args) });
      return { agents: [agent] as unknown as Setup['agents'], tools: [book, back] as unknown as Setup['tools'], observe: () => 'nothing to see' };
    };
    const { mistakes } = await crashEverywhere(lying, input);
    expect(mistakes.some((mistake) => /^worker dies after fire\.granted of book: book at step 1 would have happened twice \(called 2 times\); book at step 1 has happened twice, and is irreversible/.test(mistake))).toBe(true);
  });
});
