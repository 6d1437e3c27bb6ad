import { Step, type ArtifactRef, type Json, type Named } from '@holdfast/protocol';
import type { z } from 'zod';
import type { AgentReference } from '../define/agent.js';
import type { ToolReference } from '../define/tool.js';
import { GroupNotAllowed, InvalidArguments, messageOf, WrongScope } from '../errors.js';
import { approvalAsk, callbackAsk, childAsk, compensationAsk, signalAsk, sleepAsk, type Approval, type ApprovalOptions, type ChildOptions, type Compensated, type WaitAsk } from '../wait/ask.js';
import { callbackToken, callbackUrl } from '../wait/callback.js';
import type { DeadlineOptions, When } from '../wait/when.js';
import { Asking, Life, nameOf, type Parts } from './asking.js';
import type { CallMarks } from './calls.js';
import { HALT, joined, refuse } from './core.js';
import { never } from './durable.js';
import type { Entry } from './entry.js';
import { Group, GROUP_CALLS_MAX } from './group.js';
import { GroupBranch } from './group-branch.js';
import { mayMend, mend, type Asked } from './mending.js';
import type { Branch, Callback, CompensateOptions, GroupOptions, RollbackOptions, Run, ToolCallOptions } from './run.js';
import { toJson } from '../define/json.js';
import type { Task } from './work.js';

const NAME_MAX = 200;
const encoder = new TextEncoder();

/** The run as one scope of the code sees it: the whole run, or one branch of a group. */
export class Scope extends Asking implements Run {
  #count = 0;
  #openGroup: Step | null = null;
  #over = false;

  constructor(
    parts: Parts,
    /** Empty for the run itself, `3.1.` for the first branch of the group at step 3. */
    private readonly prefix: string,
    life = new Life(),
  ) {
    super(parts, life);
  }

  // The overloads of `Run.call` are its contract; what comes back is what was recorded.
  call(called: ToolReference | string, args: unknown, options: ToolCallOptions<unknown> = {}): Promise<never> {
    let entry: Entry | undefined;
    let tool: ToolReference | undefined;
    const first = this.#ask(called, (step) => {
      tool = this.tool(called);
      const { approval } = options;
      entry = this.parts.calls.call(step, tool, args, approval === undefined ? {} : { approval: stepOf(approval) }, approval?.target);
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
    return joined(core, whole, entry.step, () => label);
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
      return joined(core, whole, step, () => `run.all at step ${step}`);
    });
  }

  race<T extends readonly unknown[]>(branches: readonly [...{ [I in keyof T]: Branch<T[I]> }]): Promise<T[number]> {
    const { core } = this.parts;
    return this.#ask('race', (step) => {
      if (branches.length === 0) throw new InvalidArguments('run.race takes at least one branch: none would never settle');
      const mismatch = core.history.askGroup(step, branches.length, false);
      if (mismatch !== undefined) return core.diverge(mismatch);
      this.#openGroup = step;
      const whole = this.#firstOf(step, branches as readonly Branch<unknown>[]).finally(() => {
        if (this.#openGroup === step) this.#openGroup = null;
      });
      return joined(core, whole, step, () => `run.race at step ${step}`);
    });
  }

  lastStep(): Step {
    if (this.#count === 0) throw new WrongScope('nothing was asked for in this scope yet, so there is no last step');
    return this.#stepAt(this.#count);
  }

  compensate(step: Step, { amount, ...options }: CompensateOptions = {}): Promise<Compensated> {
    return this.#wait(compensationAsk({ kind: 'steps', steps: [step], ...(amount === undefined ? {} : { amount }) }, options));
  }

  rollback({ to, ...options }: RollbackOptions): Promise<Compensated> {
    return this.#wait(compensationAsk(to === 'start' ? { kind: 'run' } : { kind: 'after', step: to }, options));
  }

  sleep(when: When): Promise<void> {
    return this.#wait(sleepAsk(when));
  }

  signal<Schema extends z.ZodType>(name: string, schema: Schema, options: DeadlineOptions = {}): Promise<z.output<Schema>> {
    return this.#wait(signalAsk(name, schema, options));
  }

  approval<Input extends z.ZodType>(options: ApprovalOptions<Input>): Promise<Approval<z.input<Input>>> {
    return this.#wait(approvalAsk(options as unknown as ApprovalOptions));
  }

  child(agent: AgentReference | Named, input: unknown, options: ChildOptions = {}): Promise<never> {
    const { core, waits } = this.parts;
    return this.#ask(agent.name, (step) => waits.start(step, childAsk(agent, input, { run: core.run, step }, options)).promise);
  }

  callback<Schema extends z.ZodType>(schema: Schema, options: DeadlineOptions = {}): Callback<z.output<Schema>> {
    const { core, waits, callbacks } = this.parts;
    try {
      const step = this.#take(false);
      const token = callbackToken(callbacks, { tenant: core.tenant, run: core.run, step });
      // It was checked by the schema before it is handed over.
      const answer = waits.start(step, callbackAsk(token, schema, options)).promise as Promise<z.output<Schema>>;
      return {
        token,
        answer,
        get url() {
          return callbackUrl(callbacks, core.run, step, token);
        },
      };
    } catch (error) {
      // Code that must not go on gets a value rather than an error that it might act upon.
      if (error === HALT) return { token: '', url: '', answer: never() };
      throw error;
    }
  }

  changed(name: string): boolean {
    const { core, work } = this.parts;
    try {
      this.#mayTake(false);
      if (!core.history.changed(this.prefix, this.#count + 1, named(name))) return false;
      return work.value(this.#take(false), 'changed', () => true, name);
    } catch (error) {
      if (error === HALT) return false;
      throw error;
    }
  }

  /** The race that this scope was a branch of is decided, and it lost: what it has asked for concerns nobody. */
  lose(): void {
    this.life.lose();
    const { core, waits } = this.parts;
    core.tracker.lose(this.prefix);
    for (const entry of core.completions.lose(this.prefix)) waits.abandon(entry);
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
      const scope = group === null ? new Scope(this.parts, `${step}.${number}.`, this.life) : new GroupBranch(this.parts, this.life, group, number);
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

  /** Runs all branches until the first is over. Which one that is follows from the recorded order in which they were told. */
  #firstOf(step: Step, branches: readonly Branch<unknown>[]): Promise<unknown> {
    const { core } = this.parts;
    const scopes = branches.map((_, index) => new Scope(this.parts, `${step}.${index + 1}.`, new Life(this.life)));
    return new Promise((resolve, reject) => {
      let over = false;
      const decide = (winner: Scope, tell: () => void): void => {
        if (over) return;
        over = true;
        if (core.phase === 'running') for (const scope of scopes) if (scope !== winner) scope.lose();
        try {
          winner.endBranch();
          tell();
        } catch (error) {
          if (error !== HALT) reject(error);
        }
      };
      for (const [index, scope] of scopes.entries()) {
        const branch = async (): Promise<unknown> => branches[index]?.(scope);
        branch().then(
          (value) => decide(scope, () => resolve(value)),
          (error: unknown) => decide(scope, () => reject(error)),
        );
      }
    });
  }

  #wait<T>(ask: WaitAsk<T>): Promise<never> {
    return this.#ask(ask.name, (step) => this.parts.waits.start(step, ask).promise);
  }

  #stepAt(number: number): Step {
    return `${this.prefix}${number}` as Step;
  }

  /** Whether the scope may take its next number: for the code, or to answer a failed call of it. */
  #mayTake(answers: boolean): void {
    this.check();
    if (this.#openGroup !== null && !answers) {
      throw new WrongScope(`the group at step ${this.#openGroup} is open: inside it use the run that each branch is given, (run) => run.call(…), and await run.all before going on`);
    }
    if (this.#over) throw new WrongScope(`the branch ${this.prefix.slice(0, -1)} is over: its run can't be used any more`);
  }

  #take(answers: boolean): Step {
    this.#mayTake(answers);
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

/** Callers without types can give anything. */
function stepOf({ step }: Approval<unknown>): Step {
  const parsed = Step.safeParse(step);
  if (parsed.success) return parsed.data;
  throw new InvalidArguments('approval takes what run.approval gave; it got something without a step');
}

function named(name: string): string {
  if (typeof name === 'string' && name.length > 0 && name.length <= NAME_MAX) return name;
  throw new InvalidArguments(`a recorded step takes a name of 1 to ${NAME_MAX} characters`);
}

function bytesOf(data: Uint8Array | string | Json, what: string): [bytes: Uint8Array, mediaType: string] {
  if (data instanceof Uint8Array) return [data, 'application/octet-stream'];
  if (typeof data === 'string') return [encoder.encode(data), 'text/plain; charset=utf-8'];
  return [encoder.encode(JSON.stringify(toJson(data, what).value)), 'application/json'];
}
