import { ReportDivergence, type Outcome, type Report, type Step, type WaitEnd } from '@holdfast/protocol';
import type { AgentDefinition } from '../define/agent.js';
import type { ToolReference } from '../define/tool.js';
import { clipped, InvalidArguments, messageOf, refusalOf, type IntentRefusedError } from '../errors.js';
import type { RunEar, RunPort } from '../host/port.js';
import { RunStore, type RunArtifacts } from './artifacts.js';
import { Calls } from './calls.js';
import { Completions } from './completions.js';
import type { CallbackSettings } from '../wait/callback.js';
import type { Parts } from './asking.js';
import { HALT, halted, Tracker, type Core } from './core.js';
import { Ending } from './ending.js';
import type { Grant } from './grant.js';
import type { Group } from './group.js';
import { History, type Mismatch, type OnNew } from './history.js';
import { Outgoing } from './outgoing.js';
import { Scope } from './scope.js';
import { Waits } from './waits.js';
import { Work } from './work.js';

export interface RunExecutorOptions {
  readonly grant: Grant;
  readonly agent: AgentDefinition;
  /** Tools that the agent can call by name. */
  readonly tools?: readonly ToolReference[] | undefined;
  readonly port: RunPort;
  readonly artifacts?: RunArtifacts | undefined;
  /** Absent: a callback can't be waited for. */
  readonly callbacks?: CallbackSettings | undefined;
  /** Something that an operator should hear of. */
  readonly onTrouble?: ((message: string) => void) | undefined;
  /** Told of each step that is not recorded, before anything of it happens; may throw `HALT` to leave the code waiting there. */
  readonly onNew?: OnNew | undefined;
}

/** What became of a run in this worker. */
export type RunState = 'running' | 'ending' | 'finished' | 'diverged' | 'abandoned' | 'released';

/** The run isn't ours any more, or nobody's: the code must make no further progress. */
const LOST: readonly string[] = ['stale_fence', 'fence_required', 'run_ended', 'run_quarantined', 'run_unknown'];

/** An operator holds the run, or has cancelled it. */
const HELD: readonly string[] = ['run_paused', 'run_cancelled'];
/** Reasons for which an ask is refused without the code being told. */
export const UNTOLD: readonly string[] = [...LOST, ...HELD];
const UNANSWERED: readonly string[] = ['ReleaseRun', 'AbandonWait'];

/**
 * Advances one run under one fence: runs the agent's code, gives it what is recorded, and asks for
 * what is not. One executor serves one grant; a new grant makes a new one.
 */
export class RunExecutor implements RunEar {
  /**
   * Resolves when this worker has nothing more to do for the run: the orchestrator has let it go or
   * taken its end, the code diverged from the record, or the run was abandoned. An end that is on the
   * log may yet be refused, for a step that another worker has left open. Never rejects.
   */
  readonly finished: Promise<void>;
  readonly #options: RunExecutorOptions;
  readonly #core: Core;
  readonly #calls: Calls;
  readonly #work: Work;
  readonly #waits: Waits;
  readonly #ending: Ending;
  readonly #groups = new Map<Step, Group>();
  readonly #refusedSteps = new Set<string>();
  readonly #abort = new AbortController();
  #state: RunState = 'running';
  #handedOver = 0;
  #endIsOnLog = false;
  #resolveFinished: () => void = () => undefined;

  constructor(options: RunExecutorOptions) {
    this.#options = options;
    this.finished = new Promise<void>((resolve) => {
      this.#resolveFinished = resolve;
    });
    this.#core = this.#makeCore();
    this.#calls = new Calls(this.#core, () => this.#landed());
    this.#work = new Work(this.#core);
    this.#waits = new Waits(this.#core);
    this.#ending = new Ending({
      core: this.#core,
      agent: options.agent,
      inFlight: () => this.#calls.inFlight,
      abandon: (entry) => this.#waits.abandon(entry),
      onFinished: () => {
        this.#endIsOnLog = true;
      },
    });
  }

  get state(): RunState {
    return this.#state;
  }

  /** Recorded calls whose arguments the code worded otherwise; the recorded ones stood. */
  get adopted(): number {
    return this.#calls.adopted;
  }

  /** How many completions the code has been told of. */
  get handedOver(): number {
    return this.#handedOver;
  }

  /** The first recorded step that the code has not come to yet. */
  get unasked(): { readonly step: Step; readonly recorded: string } | undefined {
    return this.#core.history.firstUnasked();
  }

  /** Starts the agent's code; it runs until its first wait before this returns. */
  start(): void {
    const { agent, grant } = this.#options;
    this.#core.completions.soon();
    const input = agent.input.safeParse(grant.input);
    if (!input.success) {
      const issues = input.error.issues.slice(0, 5).map(({ path, message }) => `${path.join('.') || 'value'}: ${message}`);
      return this.#ending.threw(new InvalidArguments(`the run's input doesn't fit the schema of ${agent.name}@${agent.version}: ${issues.join('; ')}`));
    }
    void this.#run(input.data);
  }

  seen(report: Report): void {
    if (!halted(this.#core)) this.#calls.seen(report);
  }

  settled({ step, attempt, outcome }: { step: Step; attempt: number; outcome: Outcome }): void {
    if (halted(this.#core)) return;
    this.#calls.settled(step, attempt, outcome);
    if (this.#core.phase === 'ended' && outcome.status !== 'unknown') this.#ending.progressed(true);
  }

  waitEnded({ step, end }: { step: Step; end: WaitEnd }): void {
    if (this.#core.phase === 'running') this.#waits.ended(step, end);
  }

  tryAnswered({ step, attempt, retryAt }: { step: Step; attempt: number; retryAt: number | null }): void {
    if (this.#core.phase === 'running') this.#work.tryAnswered(step, attempt, retryAt);
  }

  refused({ intent, step, reason, message }: { intent: string; step?: Step | undefined; reason: string; message: string }): void {
    const core = this.#core;
    if (halted(core)) return;
    if (LOST.includes(reason)) return this.abandon(`${intent} was refused (${reason}): ${message}`);
    // It is about to be let go: what the code asked for is asked again, should the run go on.
    if (HELD.includes(reason)) return;
    // Time has overtaken it, and nobody waits for an answer.
    if (UNANSWERED.includes(intent)) return;
    if (intent === 'FinishRun') return this.#ending.refused(reason, message);
    if (step === undefined || intent === 'ReportDivergence') return core.trouble(`${intent} was refused (${reason}): ${message}`);
    // A refusal may be told twice, and of a step that was recorded before.
    if (this.#refusedSteps.has(step) || core.history.has(step)) return;
    this.#refusedSteps.add(step);
    this.#refusedStep(step, refusalOf(intent, step, reason, message));
  }

  dropped(because: string, cancelled = false): void {
    const core = this.#core;
    if (this.#state === 'finished' || halted(core)) return;
    // The word on its end was its last one: it has been taken.
    if (this.#endIsOnLog && !cancelled) return this.#over('finished');
    core.phase = 'let_go';
    this.#calls.letGo(cancelled);
    core.completions.stop();
    core.tracker.clear();
    core.outgoing.letGo();
    core.outgoing.flush();
    this.#abort.abort(new Error(`run ${core.run} was let go: ${because}`));
    this.#landed();
  }

  abandon(because: string): void {
    if (this.#state === 'finished' || this.#state === 'released' || this.#core.phase === 'stopped') return;
    this.#halt();
    this.#abort.abort(new Error(`run ${this.#core.run} left this worker: ${because}`));
    this.#over('abandoned');
  }

  /** A local attempt has reported. One that is let go is over with the last of them. */
  #landed(): void {
    if (this.#core.phase !== 'let_go') return this.#ending.progressed(false);
    if (this.#calls.inFlight === 0 && this.#state !== 'released') this.#over('released');
  }

  async #run(input: unknown): Promise<void> {
    const { agent } = this.#options;
    const parts: Parts = { core: this.#core, calls: this.#calls, work: this.#work, waits: this.#waits, callbacks: this.#options.callbacks ?? {}, tools: byName(this.#options.tools ?? []), groups: this.#groups };
    try {
      const result: unknown = await agent.run(new Scope(parts, ''), input);
      this.#ending.returned(result);
    } catch (error) {
      this.#ending.threw(error);
    }
    if (this.#core.phase === 'ended' && this.#state === 'running') this.#state = 'ending';
  }

  #refusedStep(step: Step, error: IntentRefusedError): void {
    const core = this.#core;
    // A group is refused at its own step, or at the one of the member that was at fault.
    const group = this.#groups.get(step) ?? (error.intent === 'CallGroup' ? this.#groups.get(step.slice(0, step.lastIndexOf('.')) as Step) : undefined);
    if (group?.refused(error) === true) return;
    const entry = core.completions.open.get(step);
    if (entry === undefined || entry.settlement?.ok === true) {
      // The code has been told of a result that the log will never hold: it may come to an end, and do nothing more.
      core.refusedAfterwards ??= error;
      core.trouble(`${error.message}; the code had its result already and is brought to an end`);
      return;
    }
    if (entry.kind === 'call') this.#calls.refused(entry, error);
    else if (entry.waits) this.#waits.refused(entry, error);
    else this.#work.refused(entry, error);
  }

  #diverge({ step, recorded, asked }: Mismatch): never {
    const { port, run, tenant, fence } = this.#core;
    this.#halt();
    this.#abort.abort(new Error(`run ${run} diverged from its history at step ${step}`));
    const report = ReportDivergence({ step, recorded: clipped(recorded, 500), asked: clipped(asked, 500), fence });
    this.#core.trouble(`run ${run} diverged from its history at step ${step}: recorded is ${recorded}, the code asks for ${asked}`);
    void port
      .intend(run, tenant, [report])
      .catch((error: unknown) => this.#core.trouble(`the divergence could not be reported: ${messageOf(error)}`))
      .finally(() => this.#over('diverged'));
    throw HALT;
  }

  #halt(): void {
    this.#core.phase = 'stopped';
    this.#core.outgoing.stop();
    this.#core.completions.stop();
    this.#core.tracker.clear();
  }

  #over(state: RunState): void {
    this.#state = state;
    this.#resolveFinished();
  }

  #makeCore(): Core {
    const { grant, port, artifacts, onTrouble, onNew } = this.#options;
    const { run, tenant, fence } = grant;
    const history = new History(grant.steps, onNew);
    const outgoing = new Outgoing({ run, tenant, fence, port, onLost: (error) => this.abandon(`its intents could not be written: ${messageOf(error)}`) });
    const completions = new Completions({
      observed: grant.observed,
      replays: grant.steps.length > 0,
      onHandOver: (step) => {
        this.#handedOver += 1;
        outgoing.observe(step);
      },
      onClosed: () => this.#ending.progressed(true),
      onIdle: () => this.#idle(),
      allAsked: () => history.unasked === 0,
      soon: (callback) => port.soon(callback),
    });
    return {
      run,
      tenant,
      fence,
      port,
      store: new RunStore(artifacts, { tenant, run }),
      history,
      outgoing,
      completions,
      signal: this.#abort.signal,
      tracker: new Tracker(),
      degraded: [],
      phase: 'running',
      insideWork: false,
      refusedAfterwards: null,
      diverge: (mismatch) => this.#diverge(mismatch),
      trouble: (message) => onTrouble?.(message),
    };
  }

  /** The code has nothing to be told: what can't wait is sent, and a run that only waits may be let go. */
  #idle(): void {
    if (this.#core.phase === 'running' && this.#core.completions.quiet) this.#waits.offerRelease();
    this.#core.outgoing.flush();
  }
}

/** Tools by name, and by `name@version`; of several versions the last registered answers to the name. */
function byName(tools: readonly ToolReference[]): Map<string, ToolReference> {
  const named = new Map<string, ToolReference>();
  for (const tool of tools) named.set(tool.name, tool).set(`${tool.name}@${tool.version}`, tool);
  return named;
}
