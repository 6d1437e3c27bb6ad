import type { Json } from '@holdfast/protocol';
import type { SiteFault } from '../sim/faults.js';
import { differenceOf, TestWorld, type Account, type Passage, type RunEnd, type Setup, type StartedRun, type Surroundings, type WorldOptions } from './test-world.js';
import { endsOf, isVisible, repeatedIn, type Repetition } from './repetition.js';

export interface CrashOptions extends Omit<WorldOptions, 'faults'> {
  /**
   * What people and time do once the run is asked for: signals, decisions, `advance`. Played in the
   * undisturbed world, and again in each world with a crash; so `settle` before a decision on
   * something that the run must first have asked for. Afterwards each world settles.
   */
  readonly script?: ((world: TestWorld, run: StartedRun) => Promise<void>) | undefined;
}

/** What one crash led to. */
export interface CrashResult {
  /** Where: `worker dies after fire.local of mail.send`. */
  readonly crash: string;
  /**
   * `equal`: nothing to be seen of it. `blocked`: an irreversible step is unknown, and its run waits
   * for evidence, as it should; nothing was done twice. `different`: it shows. `unobserved`: something
   * that isn't pure was done again, and the scenario has no `observe` that tells whether that shows.
   */
  readonly verdict: 'equal' | 'blocked' | 'different' | 'unobserved';
  readonly difference: string | null;
  /** Steps whose tool was called more than once, and so happened twice unless the target knows the operation key. */
  readonly twice: readonly { readonly run: string; readonly step: string; readonly tool: string; readonly calls: number }[];
}

/** A step that is done again after some crash, under the same operation key where it is a call. */
export interface Repeated {
  readonly kind: 'call' | 'step' | 'model';
  readonly run: string;
  readonly step: string;
  /** Of the tool, or of the recorded work. */
  readonly name: string;
  /** How often its code was called, at most. */
  readonly times: number;
  /** The first crash after which it was. */
  readonly crash: string;
}

export interface CrashReport {
  /** How the undisturbed run ended. */
  readonly end: RunEnd;
  readonly results: readonly CrashResult[];
  /** One line for each crash that shows, or of which nobody can tell, naming the step that would have happened twice. Empty: nothing to mend. */
  readonly mistakes: readonly string[];
  /**
   * Calls of tools that aren't pure, and recorded work, that some crash has had done more often than
   * undisturbed, each once. That is as it should be where the target knows the operation key, and
   * where the work has no side effects: `observe` tells.
   */
  readonly repeated: readonly Repeated[];
}

interface Judged {
  readonly result: CrashResult;
  readonly repetitions: readonly Repetition[];
}

const CRASHES: readonly SiteFault[] = ['crash_before', 'crash_after'];

/**
 * Runs an agent once undisturbed, then again and again with one crash in turn at each boundary that
 * the first run passed: each process, before and after each thing that it writes, commits or calls.
 * Compares what each run returns and what the tools leave behind.
 *
 * @throws Error the undisturbed run has no end, so that what would come after stays untested; or it
 * failed before it did anything
 */
export async function crashEverywhere(scenario: (surroundings: Surroundings) => Setup, input: Json, options: CrashOptions = {}): Promise<CrashReport> {
  const { script, ...given } = options;
  const play = async (otherwise: ConstructorParameters<typeof TestWorld>[2]): Promise<{ world: TestWorld; run: StartedRun }> => {
    const world = new TestWorld(scenario, given, otherwise);
    const run = await world.start(world.onlyAgent(), input);
    await script?.(world, run);
    await world.settle();
    return { world, run };
  };
  const { world: undisturbed, run } = await play({});
  mustHaveEnded(undisturbed, run.end());
  const judged: Judged[] = [];
  for (const passage of undisturbed.passages.filter(isBoundary)) {
    for (const fault of CRASHES) {
      const kill = { ...passage, fault };
      const crash = `${passage.kind} dies ${fault === 'crash_before' ? 'before' : 'after'} ${passage.site} of ${passage.about ?? 'the run'}`;
      const { world } = await play({ kill }).catch((error: unknown) => {
        throw new Error(`the world in which the ${crash} could not be played: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
      });
      judged.push(await judge(crash, undisturbed, world, async (instead) => (await play({ kill, instead })).world.account().observed));
    }
  }
  const results = judged.map(({ result }) => result);
  return { end: run.end(), results, mistakes: judged.flatMap((each) => (isMistake(each.result) ? [wordsFor(each)] : [])), repeated: repeatedOf(judged) };
}

/** Of a worker everything but its signs of life and what it declares of itself; of the services what is about a step, or the end. */
const isBoundary = ({ kind, site, about }: Passage): boolean => (kind === 'worker' ? site !== 'publish' : kind !== 'client' && about !== null);
const isMistake = ({ verdict }: CrashResult): boolean => verdict === 'different' || verdict === 'unobserved';

function mustHaveEnded(undisturbed: TestWorld, end: RunEnd): void {
  const unended = undisturbed.unended();
  if (unended.length > 0) throw new Error(`undisturbed, ${unended.join('; ')}: whatever comes after would stay untested; let people act and time pass in \`script\` until the run has ended`);
  if (end.status === 'failed' && undisturbed.deeds.length === 0) throw new Error(`undisturbed, the run fails before it has done anything: ${end.message}`);
}

/** `playing`: what the tools leave behind in the same world, where something happens in place of some deeds. */
async function judge(crash: string, undisturbed: TestWorld, world: TestWorld, playing: Parameters<typeof isVisible>[2]): Promise<Judged> {
  const repetitions = repeatedIn(undisturbed.deeds, world.deeds);
  const [wanted, got] = [undisturbed.account(), world.account()];
  const twice = callsTwice(world);
  const judged = (verdict: CrashResult['verdict'], difference: string | null): Judged => ({ result: { crash, verdict, difference, twice }, repetitions });
  const doubled = repetitions.filter((each) => each.effect === 'irreversible' && each.returned > 1);
  const blocked = Object.keys(got.runs).filter((id) => got.runs[id]?.status === 'blocked');
  const difference = differenceOf(wanted, blocked.length === 0 ? got : withoutBlocked(wanted, got, blocked));
  if (difference !== null) return judged('different', difference);
  if (doubled.length > 0) return judged('different', `${doubled.map(({ name, step }) => `${name} at step ${step}`).join(', ')} has happened twice, and is irreversible`);
  if (!world.isObserved && repetitions.some(({ effect }) => effect !== 'pure')) return judged('unobserved', null);
  if (blocked.length === 0) return judged('equal', null);
  for (const each of repetitions) {
    if (await isVisible(each, got.observed, playing)) return judged('different', `the tools have left ${JSON.stringify(got.observed)}, which they would not where ${each.name} at step ${each.step} had been done once`);
  }
  return judged('blocked', differenceOf(wanted, got));
}

/** A blocked run is left out, and with it what the tools have left: something is still to come. */
function withoutBlocked(wanted: Account, got: Account, blocked: readonly string[]): Account {
  const runs = { ...got.runs, ...Object.fromEntries(blocked.flatMap((id) => (wanted.runs[id] === undefined ? [] : [[id, wanted.runs[id]]]))) };
  const standing = { ...got.standing, ...Object.fromEntries(blocked.flatMap((id) => (wanted.standing[id] === undefined ? [] : [[id, wanted.standing[id]]]))) };
  return { runs, standing, observed: wanted.observed };
}

function callsTwice(world: TestWorld): CrashResult['twice'] {
  return endsOf(world.deeds.filter(({ kind }) => kind === 'call')).flatMap(({ run, step, name, times }) => (times > 1 ? [{ run, step, tool: name, calls: times }] : []));
}

function repeatedOf(judged: readonly Judged[]): Repeated[] {
  const all = new Map<string, Repeated>();
  for (const { result, repetitions } of judged) {
    for (const { kind, run, step, name, effect, times } of repetitions) {
      if (effect === 'pure') continue;
      const before = all.get(`${run}/${step}`);
      all.set(`${run}/${step}`, { kind, run, step, name, times: Math.max(times, before?.times ?? 0), crash: before?.crash ?? result.crash });
    }
  }
  return [...all.values()];
}

function wordsFor({ result: { crash, verdict, difference }, repetitions }: Judged): string {
  const impure = repetitions.filter(({ effect }) => effect !== 'pure');
  const steps = (impure.length > 0 ? impure : repetitions).map(({ kind, name, step, times }) => (kind === 'call' ? `${name} at step ${step} would have happened twice (called ${times} times)` : `the work of ${kind} ${name} at step ${step} was done ${times} times`)).join('; ');
  const shows = verdict === 'unobserved' ? 'whether that shows nobody can tell, since the scenario has no observe' : (difference ?? '');
  return `${crash}: ${steps === '' ? 'no step was called twice' : steps}; ${shows}`;
}
