import type { Json } from '@holdfast/protocol';
import type { SiteFault } from '../sim/faults.js';
import { differenceOf, TestWorld, type Passage, type Setup, type Surroundings, type WorldOptions } from './test-world.js';

/** What one crash led to. */
export interface CrashResult {
  /** Where: `worker dies after fire.local of mail.send`. */
  readonly crash: string;
  /**
   * `equal`: nothing to be seen of it. `blocked`: an irreversible step is unknown, and its run waits
   * for evidence, as it should. `different`: it shows.
   */
  readonly verdict: 'equal' | 'blocked' | 'different';
  readonly difference: string | null;
  /** Steps whose tool was called more than once, and so happened twice unless the target knows the operation key. */
  readonly twice: readonly { readonly run: string; readonly step: string; readonly tool: string; readonly calls: number }[];
}

export interface CrashReport {
  readonly results: readonly CrashResult[];
  /** One line for each crash that shows, naming the step that would have happened twice. Empty: nothing to mend. */
  readonly mistakes: readonly string[];
}

const CRASHES: readonly SiteFault[] = ['crash_before', 'crash_after'];

/**
 * Runs an agent once undisturbed, then again and again with one crash in turn at each boundary that
 * the first run passed: each process, before and after each thing it asks of the world about a tool.
 * Compares what each run returns and what the tools leave behind.
 */
export async function crashEverywhere(scenario: (surroundings: Surroundings) => Setup, input: Json, options: Omit<WorldOptions, 'faults'> = {}): Promise<CrashReport> {
  const undisturbed = await play(new TestWorld(scenario, options), input);
  const reference = undisturbed.account();
  const results: CrashResult[] = [];
  for (const passage of undisturbed.passages.filter(({ tools, kind }) => tools.length > 0 && kind !== 'client')) {
    for (const fault of CRASHES) {
      const world = await undisturbed.again({ ...passage, fault });
      results.push(judge(passage, fault, world, differenceOf(reference, world.account())));
    }
  }
  return { results, mistakes: results.flatMap((result) => (result.verdict === 'different' ? [wordsFor(result)] : [])) };
}

async function play(world: TestWorld, input: Json): Promise<TestWorld> {
  const agent = world.onlyAgent();
  await world.start(agent, input);
  await world.settle();
  return world;
}

function judge({ kind, site, tools }: Passage, fault: SiteFault, world: TestWorld, difference: string | null): CrashResult {
  const calls = new Map<string, CrashResult['twice'][number]>();
  for (const { run, step, tool } of world.calls) {
    const place = `${run}/${step}`;
    calls.set(place, { run, step, tool, calls: (calls.get(place)?.calls ?? 0) + 1 });
  }
  const blocked = Object.values(world.account().runs).some(({ status }) => status === 'blocked');
  return {
    crash: `${kind} dies ${fault === 'crash_before' ? 'before' : 'after'} ${site} of ${tools.join(', ')}`,
    verdict: difference === null ? 'equal' : blocked ? 'blocked' : 'different',
    difference,
    twice: [...calls.values()].filter((each) => each.calls > 1),
  };
}

function wordsFor({ crash, twice, difference }: CrashResult): string {
  const steps = twice.map(({ step, tool, calls }) => `${tool} at step ${step} would have happened twice (called ${calls} times)`).join('; ');
  return `${crash}: ${steps === '' ? 'no step was called twice' : steps}; ${difference ?? ''}`;
}
