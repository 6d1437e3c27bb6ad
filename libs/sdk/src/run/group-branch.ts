import type { Step } from '@holdfast/protocol';
import type { ToolReference } from '../define/tool.js';
import { GroupNotAllowed, messageOf, WrongScope } from '../errors.js';
import { Asking, nameOf, type Life, type Parts } from './asking.js';
import { refuse } from './core.js';
import type { Group } from './group.js';
import type { ToolCallOptions } from './run.js';

/** One branch of a group that is recorded as one: it can make its call and nothing else. */
export class GroupBranch extends Asking {
  #over = false;

  constructor(
    parts: Parts,
    life: Life,
    private readonly group: Group,
    private readonly branch: number,
  ) {
    super(parts, life);
  }

  call(called: ToolReference | string, args: unknown, options: ToolCallOptions<unknown> = {}): Promise<unknown> {
    const step = `${this.group.step}.${this.branch}` as Step;
    try {
      this.check();
      if (this.#over) throw new WrongScope(`the branch ${step} is over: its run can't be used any more`);
      if (options.repair !== undefined) throw this.#error('mending a call');
      if (options.approval !== undefined) throw this.#error('a call by an approval');
      return this.group.call(this.branch, step, this.tool(called), args);
    } catch (error) {
      return refuse(this.parts.core, error, `${nameOf(called)} at step ${step} (${messageOf(error)})`);
    }
  }

  step = (): Promise<never> => this.#no('run.step');
  model = (): Promise<never> => this.#no('run.model');
  artifact = (): Promise<never> => this.#no('run.artifact');
  all = (): Promise<never> => this.#no('run.all');
  race = (): Promise<never> => this.#no('run.race');
  sleep = (): Promise<never> => this.#no('run.sleep');
  signal = (): Promise<never> => this.#no('run.signal');
  approval = (): Promise<never> => this.#no('run.approval');
  child = (): Promise<never> => this.#no('run.child');
  callback = (): never => this.#never('run.callback');
  changed = (): never => this.#never('run.changed');
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
