import type { Branch, Run } from '@holdfast/sdk';

export interface RecordedWork {
  readonly kind: 'step' | 'model';
  readonly name: string;
  readonly step: string;
}

type Around = (work: RecordedWork, code: () => unknown) => unknown;
type Method = (this: Run, ...args: unknown[]) => unknown;

/** The run as an agent's code sees it, with `around` around each try at recorded work, in branches too. */
export function watchedRun(run: Run, around: Around): Run {
  return new Proxy(run, {
    get(target, member) {
      const found: unknown = Reflect.get(target, member, target);
      if (typeof found !== 'function') return found;
      const method = found as Method;
      switch (member) {
        case 'step':
        case 'model':
          return (name: string, work: (attempt: unknown) => unknown, ...more: unknown[]) => {
            let step = '';
            const said = method.call(target, name, (attempt: unknown) => around({ kind: member, name, step: step || target.lastStep() }, () => work(attempt)), ...more);
            step = stepOf(target);
            return said;
          };
        case 'all':
        case 'race':
          return (branches: readonly Branch<unknown>[], ...more: unknown[]) => method.call(target, branches.map((branch) => (scope: Run) => branch(watchedRun(scope, around))), ...more);
        default:
          return method.bind(target);
      }
    },
  });
}

/** What was asked for last; nothing where an ask was refused before it became a step. */
function stepOf(run: Run): string {
  try {
    return run.lastStep();
  } catch {
    return '';
  }
}
