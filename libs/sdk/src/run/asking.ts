import type { RunId, Step, Tenant } from '@holdfast/protocol';
import type { ToolReference } from '../define/tool.js';
import { RunEnded, UnregisteredTool, WrongScope } from '../errors.js';
import type { CallbackSettings } from '../wait/callback.js';
import type { Calls } from './calls.js';
import { HALT, halted, type Core } from './core.js';
import type { Group } from './group.js';
import { CompletedPartially } from './run.js';
import type { Waits } from './waits.js';
import type { Work } from './work.js';

/** What every scope of one run shares. */
export interface Parts {
  readonly core: Core;
  readonly calls: Calls;
  readonly work: Work;
  readonly waits: Waits;
  readonly callbacks: CallbackSettings;
  /** Tools that can be called by name. */
  readonly tools: ReadonlyMap<string, ToolReference>;
  readonly groups: Map<Step, Group>;
}

/** How long a scope matters: code whose branch has lost a race makes no further progress, and neither do branches inside it. */
export class Life {
  #lost = false;

  constructor(private readonly around?: Life) {}

  get over(): boolean {
    return this.#lost || this.around?.over === true;
  }

  lose(): void {
    this.#lost = true;
  }
}

/** The members that every scope has alike; where a step's number comes from is each one's own. */
export abstract class Asking {
  constructor(
    protected readonly parts: Parts,
    protected readonly life: Life,
  ) {}

  get id(): RunId {
    return this.parts.core.run;
  }

  get tenant(): Tenant {
    return this.parts.core.tenant;
  }

  get degraded(): readonly Step[] {
    return this.parts.core.degraded.toSorted(byCursor);
  }

  completePartially<Output>(output: Output, because: string): CompletedPartially<Output> {
    return new CompletedPartially(output, because);
  }

  protected tool(called: ToolReference | string): ToolReference {
    if (typeof called === 'string') {
      const tool = this.parts.tools.get(called);
      if (tool === undefined) throw new UnregisteredTool(`no tool "${called}" is registered with this worker; registered: ${[...this.parts.tools.keys()].filter((name) => !name.includes('@')).join(', ') || 'none'}`);
      return tool;
    }
    // Callers without types can pass anything.
    const given: unknown = called;
    if (typeof given === 'object' && given !== null && 'kind' in given && given.kind === 'tool' && 'targetOf' in given) return called;
    throw new UnregisteredTool(`run.call takes a tool made by defineTool or referTool, or the name of a registered one; it got ${typeof given}`);
  }

  /** What must hold before any durable ask. */
  protected check(): void {
    const { core } = this.parts;
    if (halted(core) || this.life.over) throw HALT;
    if (core.phase === 'ended') throw new RunEnded(`run ${core.run} has ended: a durable call after the end changes nothing`);
    if (core.insideWork) throw new WrongScope('a durable call inside the work of run.step or run.model: on a replay that work is not done again; make the call outside it');
    if (core.refusedAfterwards !== null) throw core.refusedAfterwards;
  }
}

export function nameOf(what: unknown): string {
  if (typeof what === 'string') return what;
  return typeof what === 'object' && what !== null && 'name' in what ? String(what.name) : 'a call';
}

/** `2` before `10`, and both before `10.1`. */
function byCursor(a: Step, b: Step): number {
  const [left, right] = [a.split('.').map(Number), b.split('.').map(Number)];
  const at = left.findIndex((part, index) => part !== right[index]);
  return at === -1 ? left.length - right.length : (left[at] ?? 0) - (right[at] ?? 0);
}
