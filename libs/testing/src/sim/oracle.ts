import { DEFAULT_TENANT, operationKey, type RunId, type Step } from '@holdfast/protocol';
import { TIMEOUT_MS, TOOLS, type CallOp, type Op } from './agents.js';
import { isWait, waitOutcome } from './waits.js';
import { CONTESTED, resultOf, scriptOf } from './world.js';

/** What an uninterrupted run of a program comes to. */
export interface Expected {
  /** What the agent returns, where `|` stands between answers of which either will do; null when the run can't complete: nobody can say what became of a step. */
  readonly output: readonly string[] | null;
  /** Keys of irreversible effects that change the world. */
  readonly applied: ReadonlySet<string>;
}

/**
 * Works out what an uninterrupted run comes to, without running it: the programs and the world
 * follow from the seed. That it says what the real uninterrupted run says is checked with the real
 * one for a part of the seeds.
 */
export function expected(seed: string, run: string, program: readonly Op[]): Expected {
  const oracle = new Oracle(seed, run);
  const output = oracle.of(program, '');
  return { output: oracle.doubtful ? null : output, applied: oracle.applied };
}

class Oracle {
  doubtful = false;
  readonly applied = new Set<string>();

  constructor(
    private readonly seed: string,
    private readonly run: string,
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
        case 'now':
        case 'random':
        case 'uuid':
          return [];
        case 'all':
          return each.branches.flatMap((branch, i) => (each.asOne ? branch.slice(0, 1).map((only) => (only.do === 'call' ? this.#call(only, `${step}.${i + 1}`) : '')) : this.of(branch, `${step}.${i + 1}.`)));
      }
    });
  }

  #call({ tool, n, target }: CallOp, step: string): string {
    const kind = TOOLS.find(({ name }) => name === tool);
    if (kind === undefined) throw new Error(`no tool ${tool}`);
    const tenant = DEFAULT_TENANT;
    const key = kind.keyScope === 'target' ? operationKey({ scope: 'target', tenant, tool, target }) : operationKey({ scope: 'run', tenant, run: this.run as RunId, step: step as Step, tool, target: null });
    const once = kind.effect === 'irreversible';
    // The first of them fires, all others are told of the conflict: who that is depends on the moment.
    if (target.startsWith(CONTESTED)) return `${resultOf(tool, n)}|failed: concurrency_conflict`;
    for (const behaviour of scriptOf(this.seed, key, kind.effect, n, target)) {
      switch (behaviour.does) {
        case 'apply':
          if (!once && behaviour.afterMs > TIMEOUT_MS) continue; // Given up, and tried again.
          if (once) this.applied.add(key);
          return resultOf(tool, n);
        case 'reject':
          return 'rejected';
        case 'fail':
          if (behaviour.as === 'transient' || behaviour.as === 'overloaded') continue;
          return `failed: ${behaviour.as}`;
        case 'doubt':
          this.doubtful = true;
          if (behaviour.applied) this.applied.add(key);
          return '';
      }
    }
    throw new Error(`the script of ${tool} at step ${step} has no end`);
  }
}
