import { DEFAULT_TENANT, operationKey, type OperationKey, type RunId, type Standing, type Step } from '@holdfast/protocol';
import { TIMEOUT_MS, type CallOp, type Op, type ToolKind } from './agents.js';
import { answerableOf, isApproved, KINDS, POINT, type Answerable } from './settling.js';
import type { UndoOp } from './undo.js';
import { isWait, waitOutcome } from './waits.js';
import { CONTESTED, resultOf, scriptOf } from './world.js';

/** What an uninterrupted run of a program comes to. */
export interface Expected {
  /** What the agent returns, where `|` stands between answers of which either will do; null when the run can't complete: nobody can say what became of a step. */
  readonly output: readonly string[] | null;
  /** Keys of irreversible effects that change the world. */
  readonly applied: ReadonlySet<string>;
  /** Its code ends in failure. */
  readonly fails: boolean;
  /** How the effects stand that were, or are then to be, answered, by step. */
  readonly standing: ReadonlyMap<string, Standing['standing']>;
}

/**
 * Works out what an uninterrupted run comes to, without running it: the programs and the world
 * follow from the seed. That it says what the real uninterrupted run says is checked with the real
 * one for a part of the seeds.
 */
export function expected(seed: string, run: string, program: readonly Op[], world: OfWorld): Expected {
  const oracle = new Oracle(seed, run, world);
  const until = program.findIndex((each) => each.do === 'fail');
  const fails = until !== -1;
  const output = oracle.of(fails ? program.slice(0, until) : program, '');
  if (fails) oracle.end();
  return { output: oracle.doubtful || fails ? null : output, applied: oracle.applied, fails, standing: oracle.standing };
}

interface Happened {
  readonly step: string;
  readonly key: OperationKey;
  readonly kind: Answerable;
  readonly call: CallOp;
  /** How much of it is answered, and in how many parts. */
  answered: number;
  parts: number;
}

const wholeOf = ({ kind, call }: Happened): number => (kind.parts ? call.n : 1);

export interface OfWorld {
  /** What is unknown is settled in time. */
  readonly settles: boolean;
  /** Whether a run that names this target is cancelled: what others wait for with it may be left undone. */
  readonly cancels: (target: string) => boolean;
  /** Whether a former holder's call, refused for its fence, holds the key of a step. */
  readonly isBound: (step: string) => boolean;
}

class Oracle {
  doubtful = false;
  readonly applied = new Set<string>();
  readonly standing = new Map<string, Standing['standing']>();
  /** Effects that happened and can be answered, in the order in which they were asked for. */
  readonly #answerable: Happened[] = [];
  /** The last point of no return that the run has passed, and how many of those effects lie before it. */
  #closed: { readonly step: string; readonly before: number } | null = null;

  constructor(
    private readonly seed: string,
    private readonly run: string,
    private readonly world: OfWorld,
  ) {}

  of(program: readonly Op[], prefix: string): string[] {
    let number = 0;
    return program.flatMap((each) => {
      number += 1;
      const step = `${prefix}${number}`;
      if (isWait(each)) {
        const { said, steps } = waitOutcome(each);
        number += steps - 1;
        return [said];
      }
      switch (each.do) {
        case 'call':
          return [this.#call(each, step)];
        case 'step':
        case 'model':
          return [`${each.do}:${each.n}`];
        case 'race':
          number += 2;
          return [this.#call(each.calls[0], step), this.#call(each.calls[1], `${prefix}${number - 1}`), 'first'];
        case 'undo': {
          const said = this.#undo(each, prefix, number);
          number += each.calls.length + 1;
          return said;
        }
        case 'fail':
          return [];
        case 'now':
        case 'random':
        case 'uuid':
          return [];
        case 'all':
          return each.branches.flatMap((branch, i) => (each.asOne ? branch.slice(0, 1).map((only) => (only.do === 'call' ? this.#call(only, `${step}.${i + 1}`) : '')) : this.of(branch, `${step}.${i + 1}.`)));
      }
    });
  }

  #undo({ calls, how, amount }: UndoOp, prefix: string, number: number): string[] {
    const steps = calls.map((_, i) => `${prefix}${number + 1 + i}`);
    const said = calls.map((call, i) => this.#call(call, steps[i] ?? ''));
    const meant = steps.slice(0, how === 'rollback' ? undefined : 1);
    this.#answer(this.#answerable.filter(({ step }) => meant.includes(step)), how === 'in part' ? amount : null);
    const stands = [...this.standing.values()];
    return ['marked', ...said, stands.includes('failed') ? 'compensation_failed' : stands.includes('stands') || stands.includes('in_part') ? 'compensated_partially' : 'compensated'];
  }

  /** Answers what a run that has failed did, as its plan does: none is made where nothing can be. */
  end(): void {
    const before = this.#closed?.before ?? 0;
    if (this.#answerable.length === before) return this.standing.clear();
    for (const { step } of this.#answerable.slice(0, before)) if (!this.standing.has(step)) this.standing.set(step, 'stands');
    if (this.#closed !== null) this.standing.set(this.#closed.step, 'stands');
    this.#answer(this.#answerable.slice(before), null);
  }

  /** Answers effects, the latest first; `amount`: so much of each. */
  #answer(effects: readonly Happened[], amount: number | null): void {
    let held = false;
    for (const effect of effects.toReversed()) {
      const { step, kind } = effect;
      const before = this.standing.get(step);
      const standing: Standing['standing'] = before === 'compensated' || before === 'stands' ? before : this.#answered(effect, held && kind.order === 'reverse', amount);
      this.standing.set(step, standing);
      // What has to be answered before it can't be: it is not tried.
      held ||= standing === 'failed' && kind.order === 'reverse';
    }
  }

  #answered(happened: Happened, held: boolean, amount: number | null): Standing['standing'] {
    const { step, key: effect, kind, call } = happened;
    if (kind.approved && !isApproved(this.seed, this.run, step)) return 'stands';
    if (held) return 'failed';
    const key = operationKey({ scope: 'compensation', effect, part: happened.parts + 1 });
    const said = this.#ends(kind.by, key, call.n, call.target);
    // Somebody has changed it since, and that is not overwritten.
    if (said === 'failed: concurrency_conflict') return 'stands';
    if (said !== resultOf(kind.by.name, call.n)) return 'failed';
    const whole = wholeOf(happened);
    happened.parts += 1;
    happened.answered += Math.min(whole - happened.answered, amount ?? whole);
    return happened.answered === whole ? 'compensated' : 'in_part';
  }

  #call(call: CallOp, step: string): string {
    const { tool, n, target } = call;
    const kind = KINDS.find(({ name }) => name === tool);
    if (kind === undefined) throw new Error(`no tool ${tool}`);
    const tenant = DEFAULT_TENANT;
    const key = kind.keyScope === 'target' ? operationKey({ scope: 'target', tenant, tool, target }) : operationKey({ scope: 'run', tenant, run: this.run as RunId, step: step as Step, tool, target: null });
    // The first of them fires, all others are told of the conflict: who that is depends on the moment.
    if (target.startsWith(CONTESTED)) return `${resultOf(tool, n)}|failed: concurrency_conflict`;
    // Held back, or proved not to have happened, it is not tried for a run that is over: and those who joined it are told.
    if (n === 0 && this.world.cancels(target)) return `${resultOf(tool, n)}|failed: concurrency_conflict`;
    const said = this.#ends(kind, key, n, target);
    // A former holder may have fired it with what it had drawn itself: its words stand, and other ones conflict.
    if (call.from === 'recorded' && kind.effect === 'idempotent' && this.world.isBound(step)) return `${said}|refused: operation_conflict`;
    const answerable = answerableOf(tool);
    if (answerable !== null && said === resultOf(tool, n)) this.#answerable.push({ step, key, kind: answerable, call, answered: 0, parts: 0 });
    if (tool === POINT.name && said === resultOf(tool, n)) this.#closed = { step, before: this.#answerable.length };
    return said;
  }

  /** What comes of a key in the end. */
  #ends(tool: ToolKind, key: OperationKey, n: number, target: string): string {
    const { name } = tool;
    const once = tool.effect === 'irreversible';
    for (const behaviour of scriptOf(this.seed, key, tool, n, target)) {
      switch (behaviour.does) {
        case 'apply':
          if (!once && behaviour.afterMs > TIMEOUT_MS) continue; // Given up, and tried again.
          if (once) this.applied.add(key);
          return resultOf(name, n);
        case 'reject':
          return 'rejected';
        case 'fail':
          if (behaviour.as === 'transient' || behaviour.as === 'overloaded') continue;
          return `failed: ${behaviour.as}`;
        case 'doubt':
          if (behaviour.applied) this.applied.add(key);
          if (this.world.settles && !behaviour.applied) continue;
          if (this.world.settles) return resultOf(name, n);
          this.doubtful = true;
          return '';
      }
    }
    throw new Error(`the script of ${name} under ${key} has no end`);
  }
}
