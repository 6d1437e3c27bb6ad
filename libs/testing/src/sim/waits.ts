import { ApprovalRejected, defineTool, WaitExpired, type Run, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import type { Op, ToolKind } from './agents.js';
import type { Chance } from './chance.js';
import { resultOf } from './world.js';

/** What a run waits for, and for how long; a wait of this kind ends whatever people do. */
export type WaitOp =
  | { readonly do: 'sleep'; readonly ms: number }
  | { readonly do: 'signal'; readonly name: string; readonly deadlineMs: number }
  | { readonly do: 'callback'; readonly deadlineMs: number }
  /** Asks for an approval and, given it, makes the call that it allows. */
  | { readonly do: 'approval'; readonly target: string; readonly deadlineMs: number };

/** Fires with an approval, or not at all. */
export const APPROVED: ToolKind = { name: 'vault.open', effect: 'irreversible', keyScope: 'run' };
export const APPROVERS = ['treasurer'];
export const CALLBACKS = { secret: 'of this world', url: 'sim:' };

const isString = z.string();

/** Its code comes from its process, like that of the others. */
export const approvedTool = (spec: Pick<ToolDefinition, 'retry' | 'timeoutMs' | 'queueMs'>, more: object): ToolDefinition =>
  defineTool({
    name: APPROVED.name,
    version: '1',
    effect: APPROVED.effect,
    input: z.object({ n: z.number(), target: z.string(), from: z.string() }),
    output: isString,
    retry: spec.retry,
    timeout: spec.timeoutMs,
    queueTimeout: spec.queueMs,
    owner: 'the desk',
    approval: { approvers: APPROVERS },
    execute: (): string => {
      throw new Error(`${APPROVED.name} is given its world by its process`);
    },
    ...more,
  }) as unknown as ToolDefinition;

/** `tell`: brings a callback's URL to a third party. */
export async function waitFor(run: Run, op: WaitOp, tool: ToolDefinition, tell: (url: string) => void): Promise<string> {
  try {
    switch (op.do) {
      case 'sleep':
        await run.sleep(op.ms);
        return 'awake';
      case 'signal':
        return await run.signal(op.name, isString, { deadline: op.deadlineMs });
      case 'callback': {
        const callback = run.callback(isString, { deadline: op.deadlineMs });
        tell(callback.url);
        return await callback.answer;
      }
      case 'approval': {
        const approval = await run.approval({ what: `open for ${op.target}`, tool, args: { n: 0, target: op.target, from: '' }, deadline: op.deadlineMs });
        return String(await run.call(tool, approval.args as never, { approval }));
      }
    }
  } catch (error) {
    if (error instanceof WaitExpired || error instanceof ApprovalRejected) {
      const said = error instanceof WaitExpired ? 'expired' : 'no';
      // As many steps either way: what comes after has the same names.
      return op.do === 'approval' ? run.step(said, () => said) : said;
    }
    throw error;
  }
}

export const SIGNALLED = 'go';
export const CALLED_BACK = 'scanned';

/** What a wait may come to, with `|` between what depends on when people act; and how many steps it takes. */
export function waitOutcome(op: WaitOp): { readonly said: string; readonly steps: number } {
  switch (op.do) {
    case 'sleep':
      return { said: 'awake', steps: 1 };
    case 'signal':
      return { said: `${SIGNALLED}|expired`, steps: 1 };
    case 'callback':
      return { said: `${CALLED_BACK}|expired`, steps: 1 };
    case 'approval':
      return { said: `${resultOf(APPROVED.name, 0)}|no|expired`, steps: 2 };
  }
}

export const isWait = (op: Op): op is WaitOp => op.do === 'sleep' || op.do === 'signal' || op.do === 'callback' || op.do === 'approval';

/** The program with one to three waits in it, somewhere. */
export function withWaits(program: readonly Op[], chance: Chance, run: string): Op[] {
  const waits = Array.from({ length: chance.whole(1, 3) }, (_, i): WaitOp => {
    const deadlineMs = chance.whole(400, 4000);
    const kind: WaitOp['do'] = chance.pick(['sleep', 'signal', 'callback', 'approval']);
    switch (kind) {
      case 'sleep':
        return { do: 'sleep', ms: chance.whole(1, 2500) };
      case 'signal':
        return { do: 'signal', name: `${run}/${i}`, deadlineMs };
      case 'callback':
        return { do: 'callback', deadlineMs };
      case 'approval':
        return { do: 'approval', target: `${run}/vault/${i}`, deadlineMs };
    }
  });
  const into = [...program];
  for (const wait of waits) {
    const at = chance.whole(0, into.length);
    const found = into[at];
    // In a branch of a group that goes step by step, or between others.
    if (found?.do === 'all' && !found.asOne && chance.hits(0.5)) into[at] = { ...found, branches: found.branches.map((branch, i) => (i === 0 ? [...branch, wait] : branch)) };
    else into.splice(at, 0, wait);
  }
  return into;
}

export const waitsOf = (program: readonly Op[]): WaitOp[] => program.flatMap((each) => (isWait(each) ? [each] : each.do === 'all' ? each.branches.flatMap(waitsOf) : []));
