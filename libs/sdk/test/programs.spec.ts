import { describe, expect, it } from '@jest/globals';
import { digestOf, type Json, type Outcome, type RequestedCall } from '@holdfast/protocol';
import fc from 'fast-check';
import { z } from 'zod';
import { defineAgent, type AgentDefinition } from '../src/define/agent.js';
import { defineTool, type ToolDefinition } from '../src/define/tool.js';
import { Failed, Rejected } from '../src/errors.js';
import type { Run } from '../src/run/index.js';
import { names, StandIn, type StandInOptions } from './stand-in.js';

/* Random agents over every kind of durable ask; what they do depends on what they were told before. */

type ToolName = 'read' | 'put' | 'pay' | 'far' | 'deny' | 'flaky' | 'shaky';
type Op =
  | { readonly op: 'call'; readonly tool: ToolName }
  | { readonly op: 'step' | 'model' | 'now' | 'random' | 'uuid' }
  | { readonly op: 'flaky' }
  | { readonly op: 'all'; readonly branches: readonly (readonly Op[])[] }
  | { readonly op: 'group'; readonly tools: readonly ('read' | 'put')[] }
  | { readonly op: 'sleep' | 'signal' | 'approval' | 'child' }
  | { readonly op: 'first'; readonly branches: readonly (readonly Op[])[] }
  | { readonly op: 'race'; readonly tools: readonly [ToolName, ToolName]; readonly first: readonly Op[]; readonly second: readonly Op[] }
  | { readonly op: 'when'; readonly even: readonly Op[]; readonly odd: readonly Op[] };

const toolNames: readonly ToolName[] = ['read', 'put', 'pay', 'far', 'deny', 'flaky', 'shaky'];
const schemas = { input: z.object({ from: z.string() }), output: z.object({ value: z.number() }) };

const valueOf = (of: Json): number => Number.parseInt(digestOf(of).slice(0, 8), 16);

/** Tools whose answers follow from their arguments, or are new each time they fire. */
function makeTools(fresh: () => number): Record<ToolName, ToolDefinition> {
  const answer = (name: string) => ({ from }: { from: string }) => ({ value: valueOf([name, from]) + fresh() });
  const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'desk', ...schemas, execute: answer('pay') });
  return {
    shaky: defineTool({ name: 'shaky', version: '1', effect: 'irreversible', owner: 'desk', ...schemas, fallback: { tool: pay, args: ({ from }) => ({ from: `${from}, by another` }) }, execute: answer('shaky') }),
    pay,
    read: defineTool({ name: 'read', version: '1', effect: 'pure', ...schemas, execute: answer('read') }),
    put: defineTool({ name: 'put', version: '1', effect: 'idempotent', ...schemas, execute: answer('put') }),
    far: defineTool({ name: 'far', version: '1', effect: 'pure', ...schemas, execute: answer('far') }),
    deny: defineTool({ name: 'deny', version: '1', effect: 'irreversible', owner: 'desk', ...schemas, execute: () => { throw new Rejected('no'); } }),
    flaky: defineTool({
      name: 'flaky', version: '1', effect: 'pure', ...schemas,
      execute: (args, { attempt }) => { if (attempt === 1) throw new Error('away'); if (valueOf(args.from) % 3 === 0) throw new Failed({ class: 'invalid_request', message: 'never' }); return answer('flaky')(args); },
    }),
  } as unknown as Record<ToolName, ToolDefinition>;
}

interface Player {
  readonly tools: Record<ToolName, ToolDefinition>;
  readonly fresh: () => number;
  /** Whether times and chance show in what the agent does. */
  readonly chance: boolean;
}

async function play(run: Run, ops: readonly Op[], told: Json[], player: Player): Promise<void> {
  for (const op of ops) told.push(await playOne(run, op, told, player));
}

function playOne(run: Run, op: Op, told: readonly Json[], player: Player): Promise<Json> | Json {
  const from = digestOf(told.slice(-3));
  // What is mended to, and whether at all, hangs on the arguments alone, as it must.
  const repair = (_: unknown, { from: wrong }: { from: string }) => (valueOf(wrong) % 4 === 0 ? undefined : { from: `${wrong}, mended` });
  const call = (on: Run, name: ToolName): Promise<Json> => (name === 'shaky' ? on.call(player.tools.shaky, { from }, { repair } as never) : on.call(player.tools[name], { from } as never)).then((found) => found as Json, (error: Error) => error.name);
  switch (op.op) {
    case 'call':
      return call(run, op.tool);
    case 'step':
      return run.step('work', () => valueOf(['step', from]) + player.fresh());
    case 'model':
      return run.model('think', async () => ({ output: { text: `${valueOf(['model', from]) + player.fresh()}` } }));
    case 'flaky':
      return run.step('flaky', ({ attempt }) => { if (attempt < 2) throw new Error('away'); return valueOf(from); });
    case 'now':
    case 'random':
    case 'uuid':
      return player.chance ? run[op.op]() : typeof run[op.op]();
    case 'all':
      return run.all(op.branches.map((ops) => async (branch: Run): Promise<Json> => { const own: Json[] = [from]; await play(branch, ops, own, player); return own; }));
    case 'group':
      return run.all(op.tools.map((name) => (branch: Run) => call(branch, name)), { checkpoint: 'group' });
    case 'sleep':
      return run.sleep('1 day').then(() => 'slept');
    case 'signal':
      return run.signal('s', z.number(), { deadline: 1000 }).catch((error: Error) => error.name);
    case 'child':
      return run.child({ name: 'other', version: '1' }, from).catch((error: Error) => error.name);
    case 'approval':
      return run.approval({ what: 'pay', tool: player.tools.pay, args: { from }, approvers: ['desk'] }).then((approval) => run.call(player.tools.pay, approval.args as never, { approval }) as Promise<Json>).catch((error: Error) => error.name);
    case 'first':
      return run.race(op.branches.map((ops) => async (branch: Run): Promise<Json> => { const own: Json[] = [from]; await play(branch, ops, own, player); return own; }));
    case 'race': {
      const [a, b] = op.tools;
      return Promise.race([call(run, a).then(() => op.first), call(run, b).then(() => op.second)]).then(async (ops) => { const own: Json[] = [ops === op.first ? 'first' : 'second']; await play(run, ops, own, player); return own; });
    }
    case 'when': {
      const last = JSON.stringify(told.at(-1) ?? null);
      const ops = valueOf(last) % 2 === 0 ? op.even : op.odd;
      const own: Json[] = [];
      return play(run, ops, own, player).then(() => own);
    }
  }
}

const { program } = fc.letrec<{ program: Op[]; op: Op }>((tie) => ({
  program: fc.array(tie('op'), { maxLength: 4, depthIdentifier: 'program' }) as fc.Arbitrary<Op[]>,
  op: fc.oneof(
    { depthSize: 'small', depthIdentifier: 'program', withCrossShrink: true },
    fc.record({ op: fc.constant('call' as const), tool: fc.constantFrom(...toolNames) }),
    fc.record({ op: fc.constantFrom('step' as const, 'model' as const, 'now' as const, 'random' as const, 'uuid' as const, 'flaky' as const) }),
    fc.record({ op: fc.constantFrom('sleep' as const, 'signal' as const, 'approval' as const, 'child' as const) }),
    fc.record({ op: fc.constant('first' as const), branches: fc.array(tie('program') as fc.Arbitrary<Op[]>, { minLength: 1, maxLength: 3 }) }),
    fc.record({ op: fc.constant('group' as const), tools: fc.array(fc.constantFrom('read' as const, 'put' as const), { minLength: 1, maxLength: 4 }) }),
    fc.record({ op: fc.constant('all' as const), branches: fc.array(tie('program') as fc.Arbitrary<Op[]>, { minLength: 1, maxLength: 3 }) }),
    fc.record({ op: fc.constant('race' as const), tools: fc.tuple(fc.constantFrom(...toolNames), fc.constantFrom(...toolNames)), first: tie('program') as fc.Arbitrary<Op[]>, second: tie('program') as fc.Arbitrary<Op[]> }),
    fc.record({ op: fc.constant('when' as const), even: tie('program') as fc.Arbitrary<Op[]>, odd: tie('program') as fc.Arbitrary<Op[]> }),
  ),
}));

/** Cursors reach no deeper than three groups inside one another. */
const shallow = (ops: readonly Op[], left = 3): boolean =>
  ops.every((op) => {
    switch (op.op) {
      case 'all':
      case 'first':
        return left > 0 && op.branches.every((branch) => shallow(branch, left - 1));
      case 'group':
        return left > 0;
      case 'race':
        return shallow(op.first, left) && shallow(op.second, left);
      case 'when':
        return shallow(op.even, left) && shallow(op.odd, left);
      default:
        return true;
    }
  });
const raceless = (ops: readonly Op[]): boolean => !/"(race|first)"/.test(JSON.stringify(ops));
const programs = program.filter((ops) => ops.length > 0 && shallow(ops));

const picker = (seed: number): ((count: number) => number) => {
  let state = seed;
  return (count) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 12) % count;
  };
};

function makeAgent(ops: readonly Op[], player: Player): AgentDefinition {
  return defineAgent({
    name: 'agent', version: '1', input: z.null(), output: z.unknown(),
    run: async (run) => { const told: Json[] = ['start']; await play(run, ops, told, player); return [...told, run.degraded]; },
  }) as unknown as AgentDefinition;
}

/** Of the calls of `shaky` some fail so that they may be mended, some so that another tool may take over, some for good. */
function granted({ tool, args }: RequestedCall): Outcome | undefined {
  if (tool.name !== 'shaky') return undefined;
  const kind = valueOf(['shaky', args]) % 5;
  if (kind === 0) return undefined;
  const offers = { ...(kind < 3 ? { repairable: true } : {}), ...(kind > 1 && kind < 4 ? { fallback: { name: 'pay', version: '1' } } : {}) };
  return { status: 'failed', failure: { class: 'invalid_request', message: 'no', ...offers }, evidence: { kind: 'ledger' } };
}

/** How a wait ends follows from where it stands, and a bit of what it is. */
const ends: StandInOptions['ends'] = ({ step, wait }) => {
  const value = valueOf(step);
  if (wait.kind === 'approval' && value % 3 === 0) return { status: 'rejected', feedback: 'no', by: 'mia' };
  if (wait.kind === 'signal' && value % 4 === 0) return { status: 'expired', deadline: 1000 };
  if (wait.kind === 'child' && value % 4 === 0) return { status: 'failed', failure: { class: 'cancelled', message: 'gone' } };
  return { status: 'satisfied', value: { value: wait.kind === 'signal' && value % 5 === 0 ? 'not a number' : value }, by: 'test' };
};

const world = (player: Player, seed: number): StandIn => new StandIn({ tools: Object.values(player.tools), elsewhere: ['far'], ends, pick: picker(seed), seen: seed % 2 === 0, granted });
const RUNS = Number(process.env['PROGRAMS'] ?? (process.env['HOLDFAST_PROOF'] === 'full' ? 600 : 60));

describe('any agent', () => {
  it('comes to the same end wherever its worker is lost, and does nothing recorded again', async () => {
    const player: Player = { tools: makeTools(() => 0), fresh: () => 0, chance: false };
    await fc.assert(
      fc.asyncProperty(programs.filter(raceless), fc.nat(1000), async (ops, seed) => {
        const agent = makeAgent(ops, player);
        const whole = world(player, seed);
        await whole.execute(agent);
        expect(whole.ending?.status).toBe('completed');
        for (let crashAfter = 0; crashAfter < whole.messages.length; crashAfter += 1) {
          const stand = world(player, seed + crashAfter);
          await stand.execute(agent, null, { crashAfter });
          // Lost a second time on the way, then left alone.
          await stand.execute(agent, null, { crashAfter: stand.messages.length + (seed % 3) });
          if (stand.ending === null) await stand.execute(agent, null, { crashAfter: Infinity });
          expect(stand.divergence).toBeNull();
          expect(stand.ending).toEqual(whole.ending);
          expect(stand.fired.filter(({ recordedBefore }) => recordedBefore)).toEqual([]);
          const paid = stand.fired.filter(({ step }) => { const known = stand.steps.get(step); return known?.kind === 'call' && known.call.effect === 'irreversible'; });
          expect(new Set(paid.map(({ key }) => key)).size).toBe(paid.length);
        }
      }),
      { numRuns: RUNS },
    );
  });

  it('whose worker is lost anywhere finishes without diverging, whatever time, chance and races said', async () => {
    let count = 0;
    const fresh = (): number => (count += 1);
    const player: Player = { tools: makeTools(fresh), fresh, chance: true };
    await fc.assert(
      fc.asyncProperty(programs, fc.nat(1000), fc.nat(40), async (ops, seed, crashAfter) => {
        const agent = makeAgent(ops, player);
        const stand = world(player, seed);
        await stand.execute(agent, null, { crashAfter });
        for (let more = 1; stand.ending === null && more < 12; more += 1) await stand.execute(agent, null, { crashAfter: more > 8 ? Infinity : stand.messages.length + more });
        expect([stand.divergence, stand.ending?.status, stand.fired.filter(({ recordedBefore }) => recordedBefore)]).toEqual([null, 'completed', []]);
      }),
      { numRuns: RUNS * 5 },
    );
  });

  it('some of whose granted calls are refused, finishes as well, given that refusals keep the order told', async () => {
    let count = 0;
    const fresh = (): number => (count += 1);
    const player: Player = { tools: makeTools(fresh), fresh, chance: true };
    await fc.assert(
      fc.asyncProperty(programs, fc.nat(1000), fc.nat(40), async (ops, seed, crashAfter) => {
        const agent = makeAgent(ops, player);
        const stand = new StandIn({
          tools: Object.values(player.tools), elsewhere: ['far'], ends, pick: picker(seed), seen: seed % 2 === 0, refusalKeepsOrder: true, granted,
          refuse: ({ type, data }) => (type === 'CallTool' && data.fire === 'granted' && valueOf([data.step, seed]) % 4 === 0 ? 'invalid_arguments' : undefined),
        });
        await stand.execute(agent, null, { crashAfter });
        for (let more = 1; stand.ending === null && more < 12; more += 1) await stand.execute(agent, null, { crashAfter: more > 8 ? Infinity : stand.messages.length + more });
        expect([stand.divergence, stand.ending?.status]).toEqual([null, 'completed']);
      }),
      { numRuns: RUNS * 5 },
    );
  });

  it('replays its whole history to the very same output, asking nothing of the world', async () => {
    let count = 0;
    const fresh = (): number => (count += 1);
    const player: Player = { tools: makeTools(fresh), fresh, chance: true };
    await fc.assert(
      fc.asyncProperty(programs, fc.nat(1000), async (ops, seed) => {
        const agent = makeAgent(ops, player);
        const stand = world(player, seed);
        await stand.execute(agent);
        const ending = stand.ending;
        for (let again = 0; again < 3; again += 1) {
          stand.crash();
          stand.ending = null;
          const [fired, sent] = [stand.fired.length, stand.messages.length];
          await stand.execute(agent, null, { pick: picker(seed + again) });
          expect(stand.ending).toEqual(ending);
          expect([stand.fired.length - fired, names(stand.messages.slice(sent))]).toEqual([0, ['FinishRun']]);
        }
      }),
      { numRuns: RUNS * 3 },
    );
  });
});
