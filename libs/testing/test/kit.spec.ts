import { describe, expect, it } from '@jest/globals';
import { defineAgent, defineTool } from '@holdfast/sdk';
import { z } from 'zod';
import { crash, crashEverywhere, duplicate, lost, matchers, TestWorld, type Setup, type Surroundings } from '../src/index.js';

expect.extend(matchers);
declare module 'expect' {
  interface Matchers<R> {
    toEqualUninterrupted(): Promise<R>;
  }
}

/** An agent that reads, mails and pays, before fakes in memory. `careless`: the mail tool says that it may be repeated, and its target forgets the key. */
const scenario = (careless: boolean) => ({ elapse }: Surroundings): Setup => {
  const mails: string[] = [];
  const seen = new Set<string>();
  const payments: string[] = [];
  const look = defineTool({ name: 'stock.look', version: '1', effect: 'pure', input: z.object({ order: z.string() }), output: z.object({ left: z.number() }), execute: () => ({ left: 3 }) });
  const mail = defineTool({
    name: 'mail.send',
    version: '1',
    effect: 'idempotent',
    input: z.object({ to: z.string() }),
    output: z.null(),
    execute: ({ to }, { operationKey }) => {
      if (!careless && seen.has(operationKey)) return null;
      seen.add(operationKey);
      mails.push(to);
      return null;
    },
  });
  const pay = defineTool({
    name: 'payments.refund',
    version: '1',
    effect: 'irreversible',
    owner: 'the desk',
    input: z.object({ order: z.string() }),
    output: z.object({ id: z.string() }),
    execute: async ({ order }) => {
      await elapse('2s');
      payments.push(order);
      return { id: `re-${order}` };
    },
  });
  const agent = defineAgent({
    name: 'desk',
    version: '1',
    input: z.object({ order: z.string() }),
    output: z.string(),
    run: async (run, { order }) => {
      await run.call(look, { order });
      await run.call(mail, { to: `customer of ${order}` });
      const { id } = await run.call(pay, { order });
      return id;
    },
  });
  return { agents: [agent] as unknown as Setup['agents'], tools: [look, mail, pay] as unknown as Setup['tools'], observe: () => ({ mails, payments }) };
};

const desk = { name: 'desk', version: '1' };

describe('a test world', () => {
  it('runs an agent and its tools without Kafka and PostgreSQL, in virtual time', async () => {
    const world = new TestWorld(scenario(false));
    const run = await world.start(desk, { order: '7' });
    expect(run.end()).toEqual({ status: 'open' });
    await world.advance('2 days');
    expect(run.end()).toEqual({ status: 'completed', output: 're-7' });
    expect(world.elapsedMs).toBeGreaterThan(2 * 86_400_000);
    expect(world.account().observed).toEqual({ mails: ['customer of 7'], payments: ['7'] });
  });

  it('takes a crash at a step by name, and the run goes on as if nothing had been', async () => {
    for (const fault of [crash.beforeFiring('mail.send'), crash.afterFiring('mail.send'), crash.afterIntent('payments.refund'), crash.afterDecision('payments.refund'), crash.afterGrant('payments.refund'), crash.afterReport('payments.refund')]) {
      const world = new TestWorld(scenario(false), { faults: [fault] });
      const run = await world.start(desk, { order: '7' });
      await world.settle();
      expect(world.pending()).toEqual([]);
      expect(run.end()).toEqual({ status: 'completed', output: 're-7' });
      await expect(world).toEqualUninterrupted();
    }
  });

  it('delivers twice, and nothing happens twice', async () => {
    for (const fault of [duplicate.task('payments.refund'), duplicate.intent('mail.send'), duplicate.report('payments.refund'), lost.intentAcknowledgement('payments.refund'), lost.reportAcknowledgement('payments.refund')]) {
      const world = new TestWorld(scenario(false), { faults: [fault] });
      await world.start(desk, { order: '7' });
      await world.settle();
      expect(world.pending()).toEqual([]);
      await expect(world).toEqualUninterrupted();
      expect(world.callsOf('payments.refund')).toHaveLength(1);
    }
  });

  it('leaves a run blocked, never guessing, where a crash makes an irreversible step unknown', async () => {
    const world = new TestWorld(scenario(false), { faults: [crash.afterFiring('payments.refund')] });
    const run = await world.start(desk, { order: '7' });
    await world.settle();
    expect(run.end()).toEqual({ status: 'blocked', unknown: [{ step: '3', tool: 'payments.refund' }] });
    expect(world.callsOf('payments.refund')).toHaveLength(1);
  });

  it('sees what a careless tool leaves behind', async () => {
    const world = new TestWorld(scenario(true), { faults: [crash.afterFiring('mail.send')] });
    await world.start(desk, { order: '7' });
    expect(await world.difference()).toMatch(/"mails":\["customer of 7","customer of 7"\]/);
  });
});

describe('a worker that dies', () => {
  const nothing = z.object({});
  /** Two branches: one that takes long, and one after which the worker is killed meanwhile. */
  const halves = (long: 'tool' | 'work', log: string[]) => ({ elapse }: Surroundings): Setup => {
    const twoHalves = async (): Promise<null> => {
      log.push('first half');
      await elapse('5s');
      log.push('second half');
      return null;
    };
    const two = defineTool({ name: 'two', version: '1', effect: 'idempotent', input: nothing, output: z.null(), execute: twoHalves });
    const one = defineTool({ name: 'one', version: '1', effect: 'pure', input: nothing, output: z.null(), execute: () => null });
    const agent = defineAgent({
      name: 'desk',
      version: '1',
      input: nothing,
      output: z.null(),
      run: async (run) => {
        await run.all([(branch) => (long === 'tool' ? branch.call(two, {}) : branch.step('two', twoHalves)), (branch) => branch.call(one, {})]);
        return null;
      },
    });
    return { agents: [agent] as unknown as Setup['agents'], tools: [two, one] as unknown as Setup['tools'] };
  };

  it.each(['tool', 'work'] as const)('takes the %s that it is in the midst of with it: it goes no further than where it was', async (long) => {
    const log: string[] = [];
    const world = new TestWorld(halves(long, log), { faults: [crash.afterFiring('one')] });
    const run = await world.start(desk, {});
    await world.settle();
    expect(world.pending()).toEqual([]);
    expect(run.end()).toEqual({ status: 'completed', output: null });
    expect(log).toEqual(['first half', 'first half', 'second half']);
  });
});

/** Books a seat, mails, and fails: the seat is given back. `careless`: giving it back says that it may be repeated, and isn't made for it. `asks`: somebody must approve that. */
const trip = ({ careless = false, asks = false }: { careless?: boolean; asks?: boolean }) => (): Setup => {
  const seats: string[] = [];
  const seen = new Set<string>();
  const flight = z.object({ flight: z.string() });
  const release = defineTool({
    name: 'seat.release',
    version: '1',
    effect: 'idempotent',
    input: flight,
    output: z.null(),
    execute: (args, { operationKey }) => {
      if (!careless && seen.has(operationKey)) return null;
      seen.add(operationKey);
      seats.push(`${args.flight} given back`);
      return null;
    },
  });
  const book = defineTool({
    name: 'seat.book',
    version: '1',
    effect: 'irreversible',
    owner: 'the desk',
    input: flight,
    output: z.null(),
    compensate: { tool: release, args: { flight: { from: 'args', at: '/flight' } }, verify: false, ...(asks ? { authority: { approvers: ['treasurer'] } } : {}) },
    execute: (args) => {
      seats.push(args.flight);
      return null;
    },
  });
  const agent = defineAgent({
    name: 'trip',
    version: '1',
    input: flight,
    output: z.null(),
    run: async (run, args) => {
      await run.call(book, args);
      await run.signal('go', z.string(), { deadline: 2000 }).catch(() => 'nobody said so');
      throw new Error('the hotel is full');
    },
  });
  return { agents: [agent] as unknown as Setup['agents'], tools: [book, release] as unknown as Setup['tools'], observe: () => seats };
};

describe('a run that is answered', () => {
  it('gives back what it took when its code fails, and says how that stands', async () => {
    const world = new TestWorld(trip({}));
    const run = await world.start({ name: 'trip', version: '1' }, { flight: 'HF 7' });
    await world.signal(run.id, 'go', 'now');
    await world.settle();
    expect(run.end()).toMatchObject({ status: 'failed' });
    expect(world.account()).toMatchObject({ standing: { [run.id]: { 1: 'compensated' } }, observed: ['HF 7', 'HF 7 given back'] });
  });

  it('waits for who has to approve the answer, and takes a no', async () => {
    for (const decision of ['approve', 'reject'] as const) {
      const world = new TestWorld(trip({ asks: true }));
      const run = await world.start({ name: 'trip', version: '1' }, { flight: 'HF 7' });
      await world.advance('10s');
      expect(world.account().observed).toEqual(['HF 7']);
      await world.decide(run.id, '1', decision, { name: 'kate', roles: ['treasurer'] });
      await world.settle();
      expect(world.account().standing[run.id]).toEqual({ 1: decision === 'approve' ? 'compensated' : 'stands' });
    }
  });

  it('is cancelled by hand', async () => {
    const world = new TestWorld(trip({}));
    const run = await world.start({ name: 'trip', version: '1' }, { flight: 'HF 7' });
    await world.cancel(run.id, 'no trip');
    await world.settle();
    expect(run.end()).toEqual({ status: 'cancelled', reason: 'no trip' });
  });

  it('comes to the same after a crash anywhere, unless what answers its effect is careless', async () => {
    expect((await crashEverywhere(trip({}), { flight: 'HF 7' })).mistakes).toEqual([]);
    const { results, mistakes } = await crashEverywhere(trip({ careless: true }), { flight: 'HF 7' });
    expect(results.some(({ crash: where }) => where.startsWith('compensation dies'))).toBe(true);
    expect(mistakes.some((mistake) => /seat\.release at step 1~1 would have happened twice/.test(mistake))).toBe(true);
  });
});

describe('crashEverywhere', () => {
  it('finds nothing to mend in tools that keep their word', async () => {
    const { results, mistakes } = await crashEverywhere(scenario(false), { order: '7' });
    expect(mistakes).toEqual([]);
    expect(results.length).toBeGreaterThan(30);
    expect(results.some(({ verdict, crash: where }) => verdict === 'blocked' && /fire\.granted of payments\.refund/.test(where))).toBe(true);
  });

  it('names the step that a careless tool would have done twice', async () => {
    const { mistakes } = await crashEverywhere(scenario(true), { order: '7' });
    expect(mistakes.length).toBeGreaterThan(0);
    expect(mistakes[0]).toMatch(/mail\.send at step 2 would have happened twice/);
  });
});
