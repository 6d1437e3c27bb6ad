import { Step, type ArtifactRef, type Json, type RunId, type Tenant } from '@holdfast/protocol';
import type { ToolReference } from '../define/tool.js';
import { GroupNotAllowed, InvalidArguments, messageOf, RunEnded, UnregisteredTool, WrongScope } from '../errors.js';
import type { CallMarks, Calls } from './calls.js';
import { HALT, joined, refuse, type Core } from './core.js';
import { never } from './durable.js';
import type { Entry } from './entry.js';
import { Group, GROUP_CALLS_MAX } from './group.js';
import { mayMend, mend, type Asked } from './mending.js';
import { CompletedPartially, type Branch, type GroupOptions, type Run, type ToolCallOptions } from './run.js';
import { toJson } from '../define/json.js';
import type { Task, Work } from './work.js';

/** What every scope of one run shares. */
export interface Parts {
  readonly core: Core;
  readonly calls: Calls;
  readonly work: Work;
  /** Tools that can be called by name. */
  readonly tools: ReadonlyMap<string, ToolReference>;
  readonly groups: Map<Step, Group>;
}

const NAME_MAX = 200;
const encoder = new TextEncoder();

/** The members that every scope has alike; where a step's number comes from is each one's own. */
abstract class Asking {
  constructor(protected readonly parts: Parts) {}

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
    if (core.phase === 'stopped') throw HALT;
    if (core.phase === 'ended') throw new RunEnded(`run ${core.run} has ended: a durable call after the end changes nothing`);
    if (core.insideWork) throw new WrongScope('a durable call inside the work of run.step or run.model: on a replay that work is not done again; make the call outside it');
    if (core.refusedAfterwards !== null) throw core.refusedAfterwards;
  }
}

/** The run as one scope of the code sees it: the whole run, or one branch of a group. */
export class Scope extends Asking implements Run {
  #count = 0;
  #openGroup: Step | null = null;
  #over = false;

  constructor(
    parts: Parts,
    /** Empty for the run itself, `3.1.` for the first branch of the group at step 3. */
    private readonly prefix: string,
  ) {
    super(parts);
  }

  // The overloads of `Run.call` are its contract; what comes back is what was recorded.
  call(called: ToolReference | string, args: unknown, options: ToolCallOptions<unknown> = {}): Promise<never> {
    let entry: Entry | undefined;
    let tool: ToolReference | undefined;
    const first = this.#ask(called, (step) => {
      tool = this.tool(called);
      entry = this.parts.calls.call(step, tool, args);
      return entry.promise;
    });
    if (entry === undefined || tool === undefined || !mayMend(tool, options)) return first;
    const { core } = this.parts;
    const { label } = entry;
    // What comes back has the type that was asked for: the tool's own, or of one that stands in for it.
    const whole = mend(
      {
        tool,
        options,
        again: (other, otherArgs, marks) => this.#again(other, otherArgs, marks),
        degraded: (step) => core.degraded.push(step),
        trouble: (message) => core.trouble(message),
      },
      entry,
    ) as Promise<never>;
    return joined(core, whole, () => label);
  }

  /** Answers a failed call of this scope. A branch that is over takes no further step; an open group doesn't matter to what isn't the code's own ask. */
  #again(tool: ToolReference, args: unknown, marks: CallMarks): Asked | undefined {
    if (this.#over) return undefined;
    let entry: Entry | undefined;
    const promise = this.#ask(
      tool,
      (step) => {
        entry = this.parts.calls.call(step, tool, args, marks);
        return entry.promise;
      },
      true,
    );
    return entry ?? { promise, args };
  }

  step<T>(name: string, work: Task['work'], ..._json: unknown[]): Promise<T> {
    return this.#ask(name, (step) => this.parts.work.run(step, { kind: 'step', name: named(name), work }));
  }

  model<T>(name: string, work: Task['work'], ..._json: unknown[]): Promise<T> {
    return this.#ask(name, (step) => this.parts.work.run(step, { kind: 'model', name: named(name), work }));
  }

  artifact(name: string, data: Uint8Array | string | Json, mediaType?: string): Promise<ArtifactRef> {
    const { core } = this.parts;
    return this.#ask(name, (step) => {
      const [bytes, defaultType] = bytesOf(data, `artifact ${name}`);
      const work = (): Promise<ArtifactRef> => core.store.put(bytes, mediaType ?? defaultType, `artifact ${name}`);
      return this.parts.work.run(step, { kind: 'artifact', name: named(name), work });
    });
  }

  now(): number {
    const { port } = this.parts.core;
    return this.#value(() => port.now(), 'now');
  }

  random(): number {
    const { port } = this.parts.core;
    return this.#value(() => port.random(), 'random');
  }

  uuid(): string {
    const { port } = this.parts.core;
    return this.#value(() => port.uuid(), 'uuid');
  }

  all<T extends readonly unknown[]>(branches: readonly [...{ [I in keyof T]: Branch<T[I]> }], options: GroupOptions = {}): Promise<T> {
    const { core } = this.parts;
    return this.#ask('all', (step) => {
      const asOne = options.checkpoint === 'group';
      if (asOne && (branches.length === 0 || branches.length > GROUP_CALLS_MAX)) throw new GroupNotAllowed(`the group at step ${step} has ${branches.length} branches; with checkpoint "group" it takes 1 to ${GROUP_CALLS_MAX}`);
      const mismatch = core.history.askGroup(step, branches.length, asOne);
      if (mismatch !== undefined) return core.diverge(mismatch);
      this.#openGroup = step;
      const whole = this.#branchesOf(step, branches as readonly Branch<unknown>[], asOne).finally(() => {
        if (this.#openGroup === step) this.#openGroup = null;
      });
      return joined(core, whole, () => `run.all at step ${step}`);
    });
  }

  /** The branch's code has returned: nothing more may be asked of it. */
  endBranch(): void {
    this.#over = true;
    const { core } = this.parts;
    const mismatch = core.phase === 'running' ? core.history.end(this.#stepAt(this.#count + 1)) : undefined;
    if (mismatch !== undefined) core.diverge(mismatch);
  }

  /** Runs all branches, and waits for all of them: a group is over when every branch is. */
  async #branchesOf(step: Step, branches: readonly Branch<unknown>[], asOne: boolean): Promise<unknown[]> {
    const group = asOne ? new Group(this.parts.core, this.parts.calls, step, branches.length) : null;
    if (group !== null) this.parts.groups.set(step, group);
    const failures: unknown[] = [];
    const results: unknown[] = new Array<unknown>(branches.length);
    const running = branches.map(async (branch, index) => {
      const number = index + 1;
      const scope = group === null ? new Scope(this.parts, `${step}.${number}.`) : new GroupBranch(this.parts, group, number);
      try {
        results[index] = await branch(scope as Run);
        group?.over(number);
      } catch (error) {
        group?.over(number, error);
        failures.push(error);
      }
      try {
        scope.endBranch();
      } catch (error) {
        if (error === HALT) await never();
        throw error;
      }
    });
    await Promise.all(running);
    this.parts.groups.delete(step);
    if (failures.length > 0) throw failures[0];
    return results;
  }

  #stepAt(number: number): Step {
    return `${this.prefix}${number}` as Step;
  }

  /** Takes the next number of the scope: for the code, or to answer a failed call of it. */
  #take(answers: boolean): Step {
    this.check();
    if (this.#openGroup !== null && !answers) {
      throw new WrongScope(`the group at step ${this.#openGroup} is open: inside it use the run that each branch is given, (run) => run.call(…), and await run.all before going on`);
    }
    if (this.#over) throw new WrongScope(`the branch ${this.prefix.slice(0, -1)} is over: its run can't be used any more`);
    const step = this.#stepAt(this.#count + 1);
    if (this.prefix.length > DEEP_ENOUGH && !Step.safeParse(step).success) throw new WrongScope(`step ${step}: groups are nested too deep`);
    this.#count += 1;
    return step;
  }

  #ask(what: ToolReference | string, ask: (step: Step) => Promise<unknown>, answers = false): Promise<never> {
    const { core } = this.parts;
    let step: Step | undefined;
    try {
      step = this.#take(answers);
      // What comes back has the type that was asked for: it was recorded, or checked, under this step.
      return ask(step) as Promise<never>;
    } catch (error) {
      return refuse(core, error, `${nameOf(what)}${step === undefined ? '' : ` at step ${step}`} (${messageOf(error)})`);
    }
  }

  #value<T extends number | string>(make: () => T, kind: 'now' | 'random' | 'uuid'): T {
    try {
      return this.parts.work.value(this.#take(false), kind, make);
    } catch (error) {
      // Code that must not go on gets a value rather than an error that it might act upon.
      if (error === HALT) return make();
      throw error;
    }
  }
}

/** Steps no longer than this are cursors by construction. */
const DEEP_ENOUGH = 12;

/** One branch of a group that is recorded as one: it can make its call and nothing else. */
class GroupBranch extends Asking {
  #over = false;

  constructor(
    parts: Parts,
    private readonly group: Group,
    private readonly branch: number,
  ) {
    super(parts);
  }

  call(called: ToolReference | string, args: unknown, options: ToolCallOptions<unknown> = {}): Promise<unknown> {
    const step = `${this.group.step}.${this.branch}` as Step;
    try {
      this.check();
      if (this.#over) throw new WrongScope(`the branch ${step} is over: its run can't be used any more`);
      if (options.repair !== undefined) throw this.#error('mending a call');
      return this.group.call(this.branch, step, this.tool(called), args);
    } catch (error) {
      return refuse(this.parts.core, error, `${nameOf(called)} at step ${step} (${messageOf(error)})`);
    }
  }

  step = (): Promise<never> => this.#no('run.step');
  model = (): Promise<never> => this.#no('run.model');
  artifact = (): Promise<never> => this.#no('run.artifact');
  all = (): Promise<never> => this.#no('run.all');
  now = (): never => this.#never('run.now');
  random = (): never => this.#never('run.random');
  uuid = (): never => this.#never('run.uuid');

  endBranch(): void {
    this.#over = true;
  }

  #error(what: string): GroupNotAllowed {
    return new GroupNotAllowed(`${what} in a branch of the group at step ${this.group.step}: with checkpoint "group" each branch makes exactly one call; leave the option out to record each step`);
  }

  #no(what: string): Promise<never> {
    return refuse(this.parts.core, this.#error(what), what);
  }

  #never(what: string): never {
    throw this.#error(what);
  }
}

/** `2` before `10`, and both before `10.1`. */
function byCursor(a: Step, b: Step): number {
  const [left, right] = [a.split('.').map(Number), b.split('.').map(Number)];
  const at = left.findIndex((part, index) => part !== right[index]);
  return at === -1 ? left.length - right.length : (left[at] ?? 0) - (right[at] ?? 0);
}

function named(name: string): string {
  if (typeof name === 'string' && name.length > 0 && name.length <= NAME_MAX) return name;
  throw new InvalidArguments(`a recorded step takes a name of 1 to ${NAME_MAX} characters`);
}

function nameOf(what: unknown): string {
  if (typeof what === 'string') return what;
  return typeof what === 'object' && what !== null && 'name' in what ? String(what.name) : 'a call';
}

function bytesOf(data: Uint8Array | string | Json, what: string): [bytes: Uint8Array, mediaType: string] {
  if (data instanceof Uint8Array) return [data, 'application/octet-stream'];
  if (typeof data === 'string') return [encoder.encode(data), 'text/plain; charset=utf-8'];
  return [encoder.encode(JSON.stringify(toJson(data, what).value)), 'application/json'];
}
