import { readFile } from 'node:fs/promises';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { Fence, isoTime, type Message, type MessageOf, type ReportDivergence, type Step } from '@holdfast/protocol';
import type { AgentDefinition } from '../define/agent.js';
import type { ToolReference } from '../define/tool.js';
import { messageOf } from '../errors.js';
import type { RunPort } from '../host/port.js';
import type { RunArtifacts } from '../run/artifacts.js';
import { HALT } from '../run/core.js';
import type { EndingData } from '../run/ending.js';
import { RunExecutor, UNTOLD } from '../run/executor.js';
import { endingByCode, InvalidHistory, parseHistory, type RunHistory } from './history-file.js';

/** What a replay needs besides the record. */
export interface ReplayOptions {
  /** Tools that the agent calls by name. None is ever fired. */
  readonly tools?: readonly ToolReference[] | undefined;
  /** Where results are read that were too large for a message. */
  readonly artifacts?: RunArtifacts | undefined;
  /** How long code that waits for something which is not recorded is given, milliseconds. Default 500. */
  readonly patienceMs?: number | undefined;
}

/** The first place at which the code would leave its record. */
export interface Divergence {
  /** A step, `start` or `end`. */
  readonly step: string;
  /** What the record has there. */
  readonly recorded: string;
  /** What the code asks for there. */
  readonly asked: string;
}

/** What a replay found. */
export interface Replayed {
  /** The run whose record it was. */
  readonly run: string;
  /** Of which agent and version it is, `name@version`. */
  readonly agent: string;
  /** How many recorded steps there are. */
  readonly steps: number;
  /** Null: the code does what is recorded. */
  readonly divergence: Divergence | null;
  /** Calls whose arguments the code words otherwise; the recorded ones would stand. */
  readonly adopted: number;
  /** What the code would do next where the record ends of a run that is open, or was ended by a service. */
  readonly next: readonly string[];
}

/**
 * Replays a recorded run against the code as it is now, without a broker: nothing is fired, no
 * recorded work is done, and what is not recorded is not begun. For tests of those who change agents.
 *
 * A run that a service has ended (it was cancelled, or its time ran out) is compared like an open
 * one: up to where its record ends.
 *
 * `history`: what `holdfast runs export` wrote, or the path of its file.
 * @throws InvalidHistory it can't be read, or is of another agent
 */
export async function replayHistory(history: RunHistory | string, agent: AgentDefinition, options: ReplayOptions = {}): Promise<Replayed> {
  const of = typeof history === 'string' ? await readHistory(history) : parseHistory(history);
  if (of.agent.name !== agent.name) throw new InvalidHistory(`run ${of.run} is one of agent ${of.agent.name}, not of ${agent.name}`);
  const version = otherVersion(of, agent);
  const replay = new Replay(of, agent, options);
  return replay.outcome(version ?? (await replay.run()));
}

async function readHistory(file: string): Promise<RunHistory> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new InvalidHistory(`${file} can't be read: ${messageOf(error)}`);
  });
  try {
    return parseHistory(JSON.parse(text));
  } catch (error) {
    throw error instanceof InvalidHistory ? error : new InvalidHistory(`${file} holds no JSON: ${messageOf(error)}`);
  }
}

/** A version that doesn't say that it can carry on runs of the recorded one would not be given them. */
function otherVersion({ agent: recorded }: RunHistory, agent: AgentDefinition): Divergence | null {
  if (recorded.version === agent.version || agent.compatibleWith.includes(recorded.version)) return null;
  return { step: 'start', recorded: `${recorded.name}@${recorded.version}`, asked: `${agent.name}@${agent.version}, which is not compatibleWith "${recorded.version}"` };
}

/** Looks at code that seems to stand still before it is said to do so. */
const QUIET_LOOKS = 10;

type Refusal = RunHistory['refused'][number];
/** Intents that can be refused again here: nothing of what they ask for is done before. (A group asks for tools that this replay doesn't host.) */
const REFUSED_AGAIN: readonly string[] = ['CallTool', 'StartWait'];

type Intent = { readonly type: string; readonly data: Readonly<Record<string, unknown>> };

/** One replay: the executor of real runs, on a port that writes nothing down. */
class Replay implements RunPort {
  readonly #next: string[] = [];
  readonly #ending: RunHistory['ending'];
  #divergence: Divergence | null = null;
  #executor: RunExecutor | undefined;
  #asks = 0;
  #ended = false;
  /** The code has come to where its record can't say how it went on. */
  #beyond = false;

  constructor(
    private readonly history: RunHistory,
    private readonly agent: AgentDefinition,
    private readonly options: ReplayOptions,
  ) {
    this.#ending = endingByCode(history);
  }

  async run(): Promise<Divergence | null> {
    const { run, tenant, agent, input, steps, observed } = this.history;
    const executor = new RunExecutor({
      grant: { run, tenant, agent, input, steps, observed, fence: Fence.parse(1) },
      agent: this.agent,
      tools: this.options.tools,
      port: this,
      artifacts: this.options.artifacts,
      onNew: (step, asked) => this.#new(step, asked),
    });
    this.#executor = executor;
    executor.start();
    await this.#atRest(executor);
    if (this.#divergence === null && executor.state === 'running') this.#stands(executor);
    executor.abandon('the replay is over');
    return this.#divergence;
  }

  outcome(divergence: Divergence | null): Replayed {
    const { run, agent, steps } = this.history;
    return { run, agent: `${agent.name}@${agent.version}`, steps: steps.length, divergence, adopted: this.#executor?.adopted ?? 0, next: divergence === null ? this.#next : [] };
  }

  // ---- RunPort

  intend(_run: unknown, _tenant: unknown, intents: readonly Message[]): Promise<void> {
    this.#asks += 1;
    for (const { type, data } of intents as readonly Intent[]) {
      if (type === 'ReportDivergence') this.#diverges(data as MessageOf<typeof ReportDivergence>['data']);
      else if (type === 'FinishRun') this.#ends(data['ending'] as EndingData);
      else this.#refuse(data['step'] as Step | undefined);
    }
    return Promise.resolve();
  }

  hosted(): undefined {
    return undefined; // What nobody hosts is not fired.
  }

  fireLocal(): Promise<'lease_lost'> {
    return Promise.resolve('lease_lost');
  }

  now(): number {
    return 0;
  }

  random(): number {
    return 0;
  }

  uuid(): string {
    return '';
  }

  after(): () => void {
    return () => undefined; // A replay doesn't wait.
  }

  soon(callback: () => void): void {
    setImmediate(callback);
  }

  // ----

  #new(step: Step, asked: string): void {
    this.#asks += 1;
    const refusal = this.#refusalOf(step);
    if (refusal !== undefined && REFUSED_AGAIN.includes(refusal.intent)) return;
    // Recorded work was done before it was refused, and the code had its value: that is recorded nowhere.
    if (refusal !== undefined) this.#beyond = true;
    else if (this.#ending === null) this.#next.push(`step ${step}: ${asked}`);
    else this.#diverges({ step, recorded: 'nothing more here', asked });
    throw HALT;
  }

  /** What was refused when it was recorded is refused again. */
  #refuse(step: Step | undefined): void {
    const refusal = step === undefined ? undefined : this.#refusalOf(step);
    if (refusal !== undefined) setImmediate(() => this.#executor?.refused(refusal));
  }

  /** What the code was told at a step. A group is refused as a whole, at its own step or at that of a member. */
  #refusalOf(step: Step): Refusal | undefined {
    const told = this.history.refused.filter(({ reason }) => !UNTOLD.includes(reason));
    const group = step.slice(0, Math.max(0, step.lastIndexOf('.')));
    return told.find((each) => each.step === step) ?? told.find((each) => each.intent === 'CallGroup' && group !== '' && (each.step === group || each.step.startsWith(`${group}.`)));
  }

  #ends(ending: EndingData): void {
    this.#ended = true;
    if (this.#ending === null) this.#next.push(inWords(ending));
    else if (inWords(this.#ending) !== inWords(ending)) this.#diverges({ step: 'end', recorded: inWords(this.#ending), asked: inWords(ending) });
  }

  /** The code has come to a standstill though it isn't at its end. */
  #stands(executor: RunExecutor): void {
    if (this.#beyond) return;
    const { unasked } = executor;
    if (unasked !== undefined) this.#diverges({ ...unasked, asked: 'nothing: the code waits for something else, which is not recorded' });
    else if (this.#ending !== null && this.#next.length === 0) this.#diverges({ step: 'end', recorded: inWords(this.#ending), asked: 'nothing: the code waits for something that is not recorded' });
  }

  #diverges({ step, recorded, asked }: Divergence): void {
    this.#divergence ??= { step, recorded, asked };
  }

  /**
   * Resolves when the code has ended, or has asked for nothing for a while. The while is cut into looks, each with a
   * turn of the event loop: a machine that stood still for all of it has given the code no turn.
   */
  async #atRest(executor: RunExecutor): Promise<void> {
    const { patienceMs = 500 } = this.options;
    let before = this.#seen(executor);
    for (let look = 0; look < QUIET_LOOKS && !this.#ended && executor.state === 'running'; look += 1) {
      await sleep(patienceMs / QUIET_LOOKS);
      await turn();
      const now = this.#seen(executor);
      if (now !== before) look = -1;
      before = now;
    }
  }

  #seen(executor: RunExecutor): number {
    return this.#asks + executor.handedOver;
  }
}

function inWords(ending: EndingData): string {
  switch (ending.status) {
    case 'completed':
      return `completed with ${JSON.stringify(ending.output)}`;
    case 'completed_partially':
      return `completed partially with ${JSON.stringify(ending.output)}`;
    case 'failed':
      return `failed (${ending.failure.class}): ${ending.failure.message}`;
    case 'cancelled':
      return `was cancelled by ${ending.by}: ${ending.reason}`;
    case 'expired':
      return `expired at ${isoTime(ending.deadline)}`;
  }
}

