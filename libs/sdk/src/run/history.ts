import { unreachable } from '@holdfast/kernel';
import type { HistoryStep, RecordKind, Step, Wait } from '@holdfast/protocol';
import { nameOfWait } from '../wait/ask.js';

export type AskedKind = 'call' | RecordKind | Wait['kind'];

const WAIT_KINDS: readonly AskedKind[] = ['sleep', 'signal', 'approval', 'callback', 'child'];
export const isWaitKind = (kind: AskedKind): kind is Wait['kind'] => WAIT_KINDS.includes(kind);

interface Recorded {
  readonly step: HistoryStep;
  /** Position in the stream. */
  readonly rank: number;
  asked: boolean;
}

/** What the code asks is not what was recorded at that place. */
export interface Mismatch {
  readonly step: Step;
  readonly recorded: string;
  readonly asked: string;
}

export type Answer = { readonly kind: 'new' } | { readonly kind: 'recorded'; readonly step: HistoryStep; readonly rank: number } | { readonly kind: 'mismatch'; readonly mismatch: Mismatch };

const NEW: Answer = { kind: 'new' };

const cursorOf = (step: HistoryStep): Step => (step.kind === 'call' ? step.call.step : step.step);

export function describe(step: HistoryStep): string {
  switch (step.kind) {
    case 'call':
      return `call ${step.call.tool.name}`;
    case 'record':
    case 'try':
      return describeAsked(step.as, step.name);
    case 'wait':
      return describeAsked(step.wait.kind, nameOfWait(step.wait));
    default:
      return unreachable(step);
  }
}

export const describeAsked = (kind: AskedKind, name: string): string => (kind === name ? kind : `${kind} ${name}`);

/** Told of each step that is not recorded, before anything of it happens; may throw to keep it from happening. */
export type OnNew = (step: Step, asked: string) => void;

/** What is recorded of a run, and which of it the code has asked for again. */
export class History {
  readonly #recorded = new Map<Step, Recorded>();
  /** Highest branch recorded below a step at which a group was opened. */
  readonly #branches = new Map<string, number>();
  /** Highest number recorded in a scope, by the prefix of its steps. */
  readonly #last = new Map<string, number>();
  #unasked: number;
  readonly #onNew: OnNew | undefined;

  constructor(steps: readonly HistoryStep[], onNew?: OnNew) {
    this.#onNew = onNew;
    // Of a step that failed and was tried again there may be several entries: the last one stands.
    steps.forEach((step, rank) => {
      const cursor = cursorOf(step);
      const before = this.#recorded.get(cursor);
      this.#recorded.set(cursor, { step, rank: before?.rank ?? rank, asked: false });
      if (before === undefined) this.#notePlaces(cursor);
    });
    this.#unasked = this.#recorded.size;
  }

  get unasked(): number {
    return this.#unasked;
  }

  has(step: Step): boolean {
    return this.#recorded.has(step);
  }

  /** Recorded calls. */
  calls(): Extract<HistoryStep, { kind: 'call' }>[] {
    return [...this.#recorded.values()].flatMap(({ step }) => (step.kind === 'call' ? [step] : []));
  }

  /** The first recorded step that the code has not come to. */
  firstUnasked(): { readonly step: Step; readonly recorded: string } | undefined {
    for (const [step, { step: recorded, asked }] of this.#recorded) if (!asked) return { step, recorded: describe(recorded) };
    return undefined;
  }

  /** True while the code has not come to a recorded step. */
  awaits(step: Step): boolean {
    return this.#recorded.get(step)?.asked === false;
  }

  /** The code asks for a step, for the first time in this life of the run. */
  ask(step: Step, kind: AskedKind, name: string): Answer {
    const asked = (): string => describeAsked(kind, name);
    if (this.#unasked === 0 && this.#onNew === undefined) return NEW;
    const recorded = this.#recorded.get(step);
    if (recorded === undefined) {
      if (this.#branches.has(step)) return mismatch(step, 'a group of branches', asked());
      this.#onNew?.(step, asked());
      return NEW;
    }
    if (!recorded.asked) {
      recorded.asked = true;
      this.#unasked -= 1;
    }
    return isOf(recorded.step, kind, name) ? { kind: 'recorded', step: recorded.step, rank: recorded.rank } : mismatch(step, describe(recorded.step), asked());
  }

  /**
   * Whether code that was changed under this name holds at a place: true where the record says so, and
   * where nothing is recorded there or beyond; false for a run that went on from there by the code of before.
   */
  changed(prefix: string, number: number, name: string): boolean {
    const recorded = this.#recorded.get(`${prefix}${number}` as Step);
    return (recorded !== undefined && isOf(recorded.step, 'changed', name)) || (this.#last.get(prefix) ?? 0) < number;
  }

  /** The code opens a group of branches at a step. */
  askGroup(step: Step, branches: number, asOne: boolean): Mismatch | undefined {
    if (this.#unasked === 0) return undefined;
    const asked = `a group of ${branches} branches${asOne ? ', recorded as one' : ''}`;
    const recorded = this.#recorded.get(step);
    if (recorded !== undefined) return { step, recorded: describe(recorded.step), asked };
    const most = this.#branches.get(step);
    if (most === undefined) return undefined;
    if (most > branches) return { step, recorded: `a group of at least ${most} branches`, asked };
    const wasOne = this.#recorded.has(`${step}.${most}` as Step);
    if (wasOne !== asOne || (asOne && most < branches)) return { step, recorded: `a group of ${most} branches${wasOne ? ', recorded as one' : ''}`, asked };
    return undefined;
  }

  /** The code of a scope is over: a recorded step that follows in it will never be asked for. */
  end(next: Step): Mismatch | undefined {
    const recorded = this.#unasked === 0 ? undefined : this.#recorded.get(next);
    if (recorded !== undefined) return { step: next, recorded: describe(recorded.step), asked: 'the end of the branch' };
    return this.#unasked > 0 && this.#branches.has(next) ? { step: next, recorded: 'a group of branches', asked: 'the end of the branch' } : undefined;
  }

  /** The code of the whole run is over. */
  endOfRun(): Mismatch | undefined {
    if (this.#unasked === 0) return undefined;
    for (const [step, recorded] of this.#recorded) {
      if (!recorded.asked) return { step, recorded: describe(recorded.step), asked: 'the end of the run' };
    }
    return undefined;
  }

  #notePlaces(step: Step): void {
    const parts = step.split('.');
    for (let index = 0; index < parts.length; index += 2) {
      const prefix = parts.slice(0, index).map((part) => `${part}.`).join('');
      this.#last.set(prefix, Math.max(this.#last.get(prefix) ?? 0, Number(parts[index])));
    }
    for (let index = 1; index < parts.length; index += 2) {
      const group = parts.slice(0, index).join('.');
      this.#branches.set(group, Math.max(this.#branches.get(group) ?? 0, Number(parts[index])));
    }
  }
}

function isOf(step: HistoryStep, kind: AskedKind, name: string): boolean {
  switch (step.kind) {
    case 'call':
      return kind === 'call' && step.call.tool.name === name;
    case 'wait':
      return kind === step.wait.kind && nameOfWait(step.wait) === name;
    case 'record':
    case 'try':
      return kind === step.as && name === step.name;
    default:
      return unreachable(step);
  }
}

const mismatch = (step: Step, recorded: string, asked: string): Answer => ({ kind: 'mismatch', mismatch: { step, recorded, asked } });
