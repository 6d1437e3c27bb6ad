import type { EffectClass } from '@holdfast/protocol';
import { defineAgent, defineTool, EffectFailed, EffectRejected, Failed, IntentRefusedError, StepFailed, type AgentDefinition, type Run, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import type { Chance } from './chance.js';
import { undo, type UndoOp } from './undo.js';
import { APPROVED, approvedTool, isWait, waitFor, type WaitOp } from './waits.js';

export interface ToolKind {
  readonly name: string;
  readonly effect: EffectClass;
  readonly keyScope: 'run' | 'target';
}

/** One tool for each way to fire. Keys of scope `target` are granted whatever the class. */
export const TOOLS: readonly [ToolKind, ...ToolKind[]] = [
  { name: 'stock.read', effect: 'pure', keyScope: 'run' },
  { name: 'rates.read', effect: 'pure', keyScope: 'target' },
  { name: 'mail.put', effect: 'idempotent', keyScope: 'run' },
  { name: 'books.put', effect: 'idempotent', keyScope: 'target' },
  { name: 'card.charge', effect: 'irreversible', keyScope: 'run' },
  { name: 'order.refund', effect: 'irreversible', keyScope: 'target' },
];

export const args = z.object({ n: z.number(), target: z.string(), from: z.string() });

/** How long a granted task may wait, and how long an attempt may take, milliseconds. */
export const QUEUE_MS = 3000;
export const TIMEOUT_MS = 1200;

/** Those that anybody may call, and the one that needs an approval. */
export const ALL_TOOLS: readonly ToolKind[] = [...TOOLS, APPROVED];

/** A tool as it is declared; each process puts its own way to the world into `execute`. `more`: what else its contract says. */
export function declare({ name, effect, keyScope }: ToolKind, more: object = {}): object {
  return {
    name,
    version: '1',
    effect,
    input: args,
    output: z.string(),
    retry: { attemptsMax: 12, initialMs: 50, maxMs: 1000, factor: 2 },
    timeout: TIMEOUT_MS,
    queueTimeout: QUEUE_MS,
    owner: 'the desk',
    execute: (): string => {
      throw new Error(`${name} is given its world by its process`);
    },
    ...(keyScope === 'target' ? { keyScope, target: ({ target }: z.infer<typeof args>) => target } : {}),
    ...more,
  };
}

/** `more`: what each contract says besides. */
export const toolsWith = (more: (kind: ToolKind) => object): readonly ToolDefinition[] => [
  ...TOOLS.map((kind) => defineTool(declare(kind, more(kind)) as never) as unknown as ToolDefinition),
  approvedTool({ retry: { attemptsMax: 12, initialMs: 50, maxMs: 1000, factor: 2 }, timeoutMs: TIMEOUT_MS, queueMs: QUEUE_MS }, more(APPROVED)),
];
export const tools = toolsWith(() => ({}));
/** What the agent's code knows of the tool that needs an approval. */
const vault = tools.find(({ name }) => name === APPROVED.name) as ToolDefinition;

export interface CallOp {
  readonly do: 'call';
  readonly tool: string;
  readonly n: number;
  readonly target: string;
  /** What else goes into its arguments: nothing, what chance recorded, or what no replay will say again. */
  readonly from: 'nothing' | 'recorded' | 'unrecorded';
}

export type Op =
  | CallOp
  | WaitOp
  | UndoOp
  /** The code throws: its run has failed. */
  | { readonly do: 'fail' }
  | { readonly do: 'step' | 'model'; readonly n: number; /** So many tries fail. */ readonly fails: number }
  | { readonly do: 'now' | 'random' | 'uuid' }
  /** Two calls at once; what follows depends on which of them the code hears of first. */
  | { readonly do: 'race'; readonly calls: readonly [CallOp, CallOp] }
  | { readonly do: 'all'; readonly branches: readonly (readonly Op[])[]; readonly asOne: boolean };

/** What surrounds one life of a run's code. */
export interface Life {
  /** Told each time that recorded work is really done. */
  onWork(what: string): void;
  /** Brings a callback's URL to whoever shall answer. */
  onCallback(url: string): void;
  /** Words that were never said before, as a model's that is asked again. */
  newWords(): string;
}

const agent = defineAgent({ name: 'interpreter', version: '1', input: z.null(), output: z.array(z.string()), run: () => [] }) as unknown as AgentDefinition;

/** The agent: carries out the program of its run, which is its code, and returns what each step came to. */
export const interpreter = (programOf: (run: string) => readonly Op[], onBegun: (run: string) => Life): AgentDefinition => ({ ...agent, run: (run) => carryOut(run, programOf(run.id), onBegun(run.id)) });

async function carryOut(run: Run, program: readonly Op[], life: Life): Promise<string[]> {
  const said: string[] = [];
  let chance = '';
  for (const each of program) {
    if (isWait(each)) {
      said.push(await outcomeOf(() => waitFor(run, each, vault, (url) => life.onCallback(url))));
      continue;
    }
    switch (each.do) {
      case 'call':
        said.push(await outcomeOf(() => callOf(run, each, chance, life)));
        break;
      case 'step':
      case 'model':
        said.push(await outcomeOf(() => workOf(run, each, life)));
        break;
      case 'race': {
        const heard: string[] = [];
        const both = each.calls.map((call, index) => outcomeOf(() => callOf(run, call, chance, life)).finally(() => heard.push(String(index + 1))));
        said.push(...(await Promise.all(both)));
        const [first = ''] = heard;
        said.push(await run.step(`first ${first}`, () => 'first'));
        break;
      }
      case 'now':
        chance = String(run.now());
        break;
      case 'random':
        chance = String(run.random());
        break;
      case 'uuid':
        chance = run.uuid();
        break;
      case 'undo':
        said.push(...(await undo(run, each, (call) => outcomeOf(() => callOf(run, call, chance, life)))));
        break;
      case 'fail':
        throw new Error('as scripted');
      case 'all': {
        const branches = each.branches.map((branch) => (scope: Run) => (each.asOne ? onlyCall(scope, branch[0], life) : carryOut(scope, branch, life)));
        said.push(...(await run.all(branches, each.asOne ? { checkpoint: 'group' } : {})).flat());
        break;
      }
    }
  }
  return said;
}

const callOf = (run: Run, { tool, n, target, from }: CallOp, chance: string, life: Life): Promise<unknown> =>
  run.call(tool, { n, target, from: from === 'recorded' ? chance : from === 'unrecorded' ? life.newWords() : '' });

/** With checkpoint `group` a failed member fails the group: its error is the branch's result here. */
const onlyCall = async (scope: Run, only: Op | undefined, life: Life): Promise<string[]> => (only?.do === 'call' ? [await outcomeOf(() => callOf(scope, only, '', life))] : []);

function workOf(run: Run, { do: kind, n, fails }: Extract<Op, { n: number; fails: number }>, life: Life): Promise<string> {
  const work = ({ attempt }: { attempt: number }): string => {
    life.onWork(`${kind} ${n}`);
    if (attempt <= fails) throw new Failed({ class: 'transient', message: 'as scripted' });
    return `${kind}:${n}`;
  };
  return kind === 'step' ? run.step(`${kind} ${n}`, work) : run.model(`${kind} ${n}`, (attempt) => ({ output: work(attempt), usage: { tokensIn: n } }));
}

async function outcomeOf(ask: () => Promise<unknown>): Promise<string> {
  try {
    return String(await ask());
  } catch (error) {
    if (error instanceof EffectRejected) return 'rejected';
    if (error instanceof EffectFailed) return `failed: ${error.failureClass}`;
    if (error instanceof StepFailed) return `step failed: ${error.failureClass}`;
    if (error instanceof IntentRefusedError) return `refused: ${error.reason}`;
    throw error;
  }
}

/** Targets that several runs of a world name: `shared` ones with the same words, the `contested` one each with its own. */
export interface CommonTargets {
  readonly shared: readonly string[];
  readonly contested: string;
}

/** A random program of eight steps or more. */
export function randomProgram(chance: Chance, run: string, { shared, contested }: CommonTargets): Op[] {
  let n = 0;
  const call = (only: readonly ToolKind[] = TOOLS): CallOp => {
    const { name, keyScope, effect } = chance.pick(only as [ToolKind, ...ToolKind[]]);
    n += 1;
    if (keyScope === 'target' && effect === 'irreversible') {
      const common = chance.next();
      // Whoever names a shared target says the same of it: what differs would depend on who came first.
      if (common < 0.25) return { do: 'call', tool: name, n: 0, target: shared[chance.whole(0, shared.length - 1)] ?? '', from: 'nothing' };
      if (common < 0.35) return { do: 'call', tool: name, n, target: contested, from: 'nothing' };
    }
    // A local call may fire before its other words are refused: only granted ones can be held to what was recorded.
    const from = keyScope === 'target' ? 'nothing' : chance.hits(0.3) ? 'recorded' : effect === 'irreversible' && chance.hits(0.3) ? 'unrecorded' : 'nothing';
    return { do: 'call', tool: name, n, target: `${run}/${n}`, from };
  };
  const one = (depth: number): Op => {
    const kind = chance.next();
    n += 1;
    if (kind < 0.58) return call();
    if (kind < 0.74) return { do: chance.hits(0.5) ? 'step' : 'model', n, fails: chance.hits(0.15) ? chance.whole(1, 2) : 0 };
    if (kind < 0.82) return { do: chance.pick(['now', 'random', 'uuid']) };
    if (depth > 0) return call();
    if (kind < 0.87) return { do: 'race', calls: [call(), call()] };
    const asOne = chance.hits(0.3);
    const local = TOOLS.filter(({ effect, keyScope }) => effect !== 'irreversible' && keyScope === 'run');
    const branches = Array.from({ length: chance.whole(2, 3) }, () => (asOne ? [call(local)] : Array.from({ length: chance.whole(1, 2) }, () => one(depth + 1))));
    return { do: 'all', branches, asOne };
  };
  const program: Op[] = [];
  while (stepsOf(program) < 8 || chance.hits(0.3)) program.push(one(0));
  return program;
}

export const stepsOf = (program: readonly Op[]): number => program.reduce((sum, each) => sum + stepsIn(each), 0);

function stepsIn(op: Op): number {
  switch (op.do) {
    case 'race':
      return 3;
    case 'approval':
      return 2;
    case 'undo':
      return op.calls.length + 2;
    case 'fail':
      return 0;
    case 'all':
      return op.branches.reduce((all, branch) => all + stepsOf(branch), 0);
    default:
      return 1;
  }
}
