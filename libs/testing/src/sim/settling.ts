import type { EffectClass } from '@holdfast/protocol';
import { defineTool, type Compensation, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import { ALL_TOOLS, args, declare, toolsWith, type CallOp, type Op, type ToolKind } from './agents.js';
import { Chance } from './chance.js';
import type { UndoOp } from './undo.js';
import { APPROVED, APPROVERS } from './waits.js';
import { DOUBTFUL, GUARDED } from './world.js';

/** A tool whose effect can be answered, and by what. */
export interface Answerable extends ToolKind {
  readonly by: ToolKind;
  readonly order: 'reverse' | 'independent';
  /** Somebody must approve its answer. */
  readonly approved: boolean;
  /** Its amount, which is `n`, may be answered in parts. */
  readonly parts: boolean;
}

const tool = (name: string, effect: EffectClass): ToolKind => ({ name, effect, keyScope: 'run' });

/** The one that is answered in parts. */
const PARTED: Answerable = { ...tool('bill.pay', 'irreversible'), by: tool('bill.repay', 'irreversible'), order: 'reverse', approved: false, parts: true };

/** One for each way in which an effect is answered. */
export const ANSWERABLE: readonly [Answerable, ...Answerable[]] = [
  { ...tool('seat.book', 'irreversible'), by: tool('seat.release', 'irreversible'), order: 'reverse', approved: false, parts: false },
  { ...tool('room.book', 'idempotent'), by: tool('room.release', 'idempotent'), order: 'independent', approved: false, parts: false },
  { ...tool('fund.take', 'irreversible'), by: tool('fund.return', 'irreversible'), order: 'reverse', approved: true, parts: false },
  { ...tool('door.set', 'idempotent'), by: tool(GUARDED, 'idempotent'), order: 'independent', approved: false, parts: false },
  PARTED,
];
/** Once it has happened, nothing before it is answered any more. */
export const POINT: ToolKind = tool(DOUBTFUL, 'irreversible');
/** Every tool there is. */
export const KINDS: readonly ToolKind[] = [...ALL_TOOLS, ...ANSWERABLE, ...ANSWERABLE.map(({ by }) => by), POINT];

/** Tools that can be asked what became of an attempt; of the other irreversible ones a person must find out. */
const PROBES: ReadonlyMap<string, 'plain' | 'sealing'> = new Map([
  ['card.charge', 'plain'],
  [APPROVED.name, 'sealing'],
  ['seat.book', 'plain'],
  ['seat.release', 'plain'],
  ['fund.take', 'sealing'],
  ['fund.return', 'sealing'],
  ['bill.pay', 'plain'],
  ['bill.repay', 'plain'],
]);
export const probeOf = (name: string): 'plain' | 'sealing' | null => PROBES.get(name) ?? null;

/** Longer than anything here takes to come into effect once it was sent, milliseconds. */
export const SETTLE_MS = 3500;

const withoutWorld = (): never => {
  throw new Error('it is given its world by its process');
};

/** What a contract says in a world where both services are: how the tool's unknowns are settled. */
export function settledBy({ name, effect }: ToolKind): object {
  const kind = probeOf(name);
  return {
    ...(effect === 'irreversible' ? { settleDelay: SETTLE_MS } : {}),
    ...(kind === null ? {} : { probe: { sealing: kind === 'sealing', ask: withoutWorld, schedule: { initial: 300, max: 2000 } } }),
  };
}

/** What the answer to each kind gets besides, by its contract. */
function handedOn({ by, parts }: Answerable): { readonly input: object; readonly compensate: object } {
  if (parts) return { input: { input: args.extend({ amount: z.number() }) }, compensate: { partial: { amount: { from: 'args', at: '/n' }, as: 'amount' } } };
  return by.name === GUARDED ? { input: { input: args.extend({ seen: z.string() }) }, compensate: { precondition: { version: '', as: 'seen' } } } : { input: {}, compensate: {} };
}

/** The tools that can be answered, and those that answer them. */
export const answerTools: readonly ToolDefinition[] = ANSWERABLE.flatMap((kind) => {
  const more = handedOn(kind);
  const by = defineTool(declare(kind.by, { ...settledBy(kind.by), ...more.input }) as never) as unknown as ToolDefinition;
  const compensate: Compensation<never, never> = {
    tool: by,
    // By its contract, or as a host computes it.
    args: kind.order === 'independent' ? ({ n, target }: { n: number; target: string }) => ({ n, target, from: 'host' }) : { n: { from: 'args', at: '/n' }, target: { from: 'args', at: '/target' }, from: { from: 'key' } },
    order: kind.order,
    verify: probeOf(kind.by.name) !== null,
    ...(kind.approved ? { authority: { approvers: APPROVERS } } : {}),
    ...more.compensate,
  };
  return [by, defineTool(declare(kind, { ...settledBy(kind), compensate }) as never) as unknown as ToolDefinition];
});

/** The program with calls that can be answered in it, wishes that they be, and now and then an end in failure. */
export function withAnswers(program: readonly Op[], chance: Chance, run: string): Op[] {
  let n = 1000;
  const call = (name: string = chance.pick(ANSWERABLE).name): CallOp => {
    n += 1;
    return { do: 'call', tool: name, n, target: `${run}/${n}`, from: 'nothing' };
  };
  const into = [...program];
  const put = (...ops: Op[]): void => void into.splice(chance.whole(0, into.length), 0, ...ops);
  for (let calls = chance.whole(1, 4); calls > 0; calls -= 1) put(call());
  if (chance.hits(0.4)) {
    const how = chance.pick<UndoOp['how']>(['rollback', 'compensate', 'in part']);
    const first = call(how === 'in part' ? PARTED.name : undefined);
    const amount = chance.pick([1, Math.floor(first.n / 2), first.n]);
    put({ do: 'undo', n: (n += 1), calls: [first, ...Array.from({ length: chance.whole(0, 2) }, () => call())], how, amount });
  }
  // Behind something at least that can be answered.
  if (chance.hits(0.3)) put(call(), call(POINT.name));
  if (chance.hits(0.4)) into.splice(chance.whole(Math.floor(into.length / 2), into.length), into.length, { do: 'fail' });
  return into;
}

export const answerableOf = (name: string): Answerable | null => ANSWERABLE.find((each) => each.name === name) ?? null;

/** Whether whoever decides on the answer to an effect lets it be done: the same whenever, and however often, he is asked. */
export const isApproved = (seed: string, run: string, step: string): boolean => new Chance(`${seed}/treasurer/${run}/${step}`).hits(0.8);

/** All tools of a world where both services are. */
export const settledTools: readonly ToolDefinition[] = [...toolsWith(settledBy), ...answerTools, defineTool(declare(POINT, { ...settledBy(POINT), pointOfNoReturn: true }) as never) as unknown as ToolDefinition];
