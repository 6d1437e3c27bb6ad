import { CallTool, describeIssues, digestOf, FinishRun, StartWait, Step, type Digest, type Ending, type Failure, type Json, type Message, type Outcome, type RequestedCall, type RunId, type Tenant, type Wait, type WaitEnd } from '@holdfast/protocol';
import type { z } from 'zod';
import { equalsJson, INLINE_BYTES_MAX, toJson } from '../define/json.js';
import type { ToolReference } from '../define/tool.js';
import { clipped, EffectFailed, EffectRejected, IntentRefusedError, InvalidArguments, NotAdmitted, refusalOf, RunEnded, UnregisteredTool, ValueTooLarge } from '../errors.js';
import { approvalAsk, endError, nameOfWait, signalAsk, sleepAsk, type Approval, type ApprovalOptions, type WaitAsk } from '../wait/ask.js';
import type { DeadlineOptions, When } from '../wait/when.js';
import type { RunEvent, RunEventRecord } from './log.js';
import { valueOf, type ClientArtifacts } from './outcome.js';

/** What else is said of a call. */
export interface CallOptions {
  /** The step is recorded with other arguments: `refuse` (default), or `adopt` what is recorded. */
  readonly onConflict?: 'refuse' | 'adopt' | undefined;
  /** The failed step whose arguments this call mends: one whose `failure.repairable` is true, once. */
  readonly repairs?: string | undefined;
  /** The failed step for which this call takes over: one whose `failure.fallback` names this tool. Its result is marked degraded. */
  readonly fallbackFor?: string | undefined;
  /** What `approval` gave for exactly this tool and these arguments. Used up with the call. */
  readonly approval?: Approval<unknown> | undefined;
}

/** @internal */
export interface AttachedRunOptions {
  readonly id: RunId;
  readonly tenant: Tenant;
  readonly tools: readonly ToolReference[];
  readonly artifacts: ClientArtifacts | undefined;
  /** Of the input that the run is attached with. */
  readonly digest: Digest;
  publish(message: Message): Promise<void>;
}

/**
 * One refusal is spoken once: an intent that is refused again for the same reason gets no second
 * answer. So after this time without an answer the refusal known stands. Milliseconds.
 */
const REFUSED_AGAIN_MS = 5000;

type DataOf<Type extends RunEvent['type']> = Extract<RunEvent, { type: Type }>['data'];
type Refusal = DataOf<'IntentRejected'> | (DataOf<'StartRefused'> & { readonly intent: 'StartRun' });

/** A run whose loop its client owns: it names the steps, and calls tools through Holdfast. */
export class AttachedRun {
  /** The run’s id. */
  readonly id: RunId;
  readonly #options: AttachedRunOptions;
  readonly #calls = new Map<Step, RequestedCall>();
  readonly #outcomes = new Map<Step, Outcome>();
  readonly #waits = new Map<Step, Wait>();
  readonly #waitEnds = new Map<Step, WaitEnd>();
  /** Last refusal of each intent, by `CallTool 3` or `FinishRun`. */
  readonly #refusals = new Map<string, Refusal>();
  readonly #listeners = new Set<(refused: Refusal | undefined) => void>();
  #accepted: DataOf<'RunAccepted'> | null = null;
  #ending: Ending | null = null;
  #broken: Error | null = null;
  #close: () => Promise<void> = () => Promise.resolve();

  /** @internal */
  constructor(options: AttachedRunOptions) {
    this.id = options.id;
    this.#options = options;
  }

  /**
   * Calls a tool at a step, `1`, `2` … The same step again fires nothing and gives the recorded
   * outcome. While the outcome is unknown the promise stays pending. Nothing is mended or taken over
   * by itself, since steps are the client's to name: what `EffectFailed.failure` offers it calls as a
   * step of its own, with `repairs` or `fallbackFor`.
   * @throws EffectRejected, EffectFailed how it ended
   * @throws BudgetExhausted, RunIsPaused, RunIsCancelled, ApprovalRequired, ApprovalInvalid (IntentRefusedErrors) for what they say
   * @throws IntentRefusedError with reason `operation_conflict` when the step is recorded with another tool, or other arguments and `onConflict` is `refuse`
   * @throws InvalidArguments, NotJson, ValueTooLarge before anything is sent
   */
  call<Input extends z.ZodType, Output extends z.ZodType>(step: string, tool: ToolReference<Input, Output>, args: z.input<Input>, options?: CallOptions): Promise<z.output<Output>>;
  call(step: string, tool: string, args: Json, options?: CallOptions): Promise<Json>;
  async call(step: string, called: ToolReference | string, args: unknown, options: CallOptions = {}): Promise<never> {
    const { onConflict = 'refuse' } = options;
    const at = parsedStep(step);
    const tool = this.#tool(called);
    const known = this.#calls.get(at);
    if (known === undefined || !this.#stands(known, tool, args, onConflict)) {
      const intent = this.#intent(at, tool, args, options);
      await this.#ask(intent, `CallTool ${at}`, () => this.#stands(this.#calls.get(at), tool, args, onConflict));
    }
    await this.#until(() => isEnd(this.#outcomes.get(at)));
    // What the tool's host recorded has passed the tool's output schema.
    return (await this.#result(at, tool)) as never;
  }

  /** Waits at a step for so long, or until a moment. A client that comes back and asks again waits for what is recorded. */
  sleep(step: string, when: When): Promise<void> {
    return this.#wait(step, () => sleepAsk(when));
  }

  /** Waits at a step for a signal. @throws WaitExpired, InvalidPayload; IntentRefusedError; RunEnded */
  signal<Schema extends z.ZodType>(step: string, name: string, schema: Schema, options: DeadlineOptions = {}): Promise<z.output<Schema>> {
    return this.#wait(step, () => signalAsk(name, schema, options));
  }

  /** Asks people at a step whether a tool may be called so. @throws ApprovalRejected, WaitExpired; IntentRefusedError; RunEnded */
  approval<Input extends z.ZodType>(step: string, options: ApprovalOptions<Input>): Promise<Approval<z.input<Input>>> {
    // What is recorded are the arguments that were given, or those of the same step before.
    return this.#wait(step, () => approvalAsk(options as unknown as ApprovalOptions) as WaitAsk<Approval<z.input<Input>>>);
  }

  /**
   * Ends the run as completed.
   * @throws IntentRefusedError while a step has no end or its outcome is unknown, or when the run has ended otherwise
   */
  finish(output: Json): Promise<void> {
    const { value, bytes } = toJson(output, 'the output');
    if (bytes > INLINE_BYTES_MAX) throw new ValueTooLarge('the output', bytes, INLINE_BYTES_MAX, 'store it as an artifact and pass the reference');
    return this.#end({ status: 'completed', output: { value } });
  }

  /** Ends the run as failed. @throws IntentRefusedError when it has ended otherwise */
  abort(failure: Failure): Promise<void> {
    return this.#end({ status: 'failed', failure: { ...failure, message: clipped(failure.message) } });
  }

  /** Stops following the run; nothing is taken back. Calls that wait fail with RunEnded. */
  async close(): Promise<void> {
    this.fail(new RunEnded(`this client no longer follows run ${this.id}`));
    await this.#close();
  }

  // ---- for the client that made it

  /** @internal */
  onClosed(close: () => Promise<void>): void {
    this.#close = close;
  }

  /** Starts the run unless it is there already. @throws IntentRefusedError it is another run; NotAdmitted there was no room for it @internal */
  async begin(start: () => Promise<void>): Promise<void> {
    if (this.#accepted === null) await this.#ask(start, 'StartRun', () => this.#accepted !== null);
    if (this.#accepted?.agent !== null || this.#accepted.inputDigest !== this.#options.digest) {
      throw new IntentRefusedError('StartRun', undefined, 'run_exists_with_other_input', `run ${this.id} exists with another input or an agent; choose another id`);
    }
  }

  /** @internal */
  tell({ event }: RunEventRecord): void {
    let refused: Refusal | undefined;
    switch (event.type) {
      case 'RunAccepted':
        this.#accepted = event.data;
        break;
      case 'StartRefused':
        // Each try has an answer of its own: it is not remembered for the next.
        refused = { ...event.data, intent: 'StartRun' };
        break;
      case 'EffectRequested':
        this.#calls.set(event.data.call.step, event.data.call);
        break;
      case 'EffectSettled':
        this.#outcomes.set(event.data.step, event.data.outcome);
        break;
      case 'WaitStarted':
        this.#waits.set(event.data.step, event.data.wait);
        break;
      case 'WaitEnded':
        this.#waitEnds.set(event.data.step, event.data.end);
        break;
      case 'RunFinished':
        this.#ending = event.data.ending;
        break;
      case 'RunQuarantined':
        this.#broken = new RunEnded(`run ${this.id} is in quarantine: ${event.data.message}`);
        break;
      case 'IntentRejected':
        refused = event.data;
        this.#refusals.set(nameOf(event.data), event.data);
        break;
      default:
        return;
    }
    for (const listener of [...this.#listeners]) listener(refused);
  }

  /** Events no longer come. @internal */
  fail(error: Error): void {
    this.#broken ??= error;
    for (const listener of [...this.#listeners]) listener(undefined);
  }

  async #wait<T>(step: string, make: () => WaitAsk<T>): Promise<T> {
    const at = parsedStep(step);
    const ask = make();
    const stands = (wait = this.#waits.get(at)): boolean => wait !== undefined && wait.kind === ask.kind && nameOfWait(wait) === ask.name;
    if (!stands()) {
      const begun = ask.begin(Date.now());
      await this.#ask(() => this.#options.publish(StartWait({ step: at, ...begun })), `StartWait ${at}`, () => stands());
    }
    await this.#until(() => this.#waitEnds.has(at) || this.#ending !== null);
    const wait = this.#waits.get(at);
    const end = this.#waitEnds.get(at);
    if (wait === undefined || end === undefined) throw new RunEnded(`run ${this.id} has ended, and what step ${at} waited for can't come any more`);
    if (end.status !== 'satisfied') throw endError(end, wait, at);
    return ask.receive(await valueOf(end.value, at, { tenant: this.#options.tenant, run: this.id }, this.#options.artifacts), wait, at, end.by);
  }

  #tool(called: ToolReference | string): ToolReference {
    if (typeof called !== 'string') return called;
    const tool = this.#options.tools.findLast(({ name }) => name === called);
    if (tool === undefined) throw new UnregisteredTool(`no tool "${called}" was given to attach; given: ${this.#options.tools.map(({ name }) => name).join(', ') || 'none'}`);
    return tool;
  }

  /** Whether what is recorded at a step answers the call. */
  #stands(known: RequestedCall | undefined, tool: ToolReference, args: unknown, onConflict: 'refuse' | 'adopt'): boolean {
    if (known === undefined || known.tool.name !== tool.name) return false;
    return onConflict === 'adopt' || (known.tool.version === tool.version && equalsJson(args, known.args));
  }

  #intent(step: Step, tool: ToolReference, args: unknown, { onConflict = 'refuse', repairs, fallbackFor, approval }: CallOptions): () => Promise<void> {
    const what = `the arguments of ${tool.name}@${tool.version}`;
    const { value, bytes } = toJson(args, what);
    if (bytes > INLINE_BYTES_MAX) throw new ValueTooLarge(what, bytes, INLINE_BYTES_MAX, 'store the large part as an artifact and pass the reference');
    const checked = tool.input.safeParse(value);
    if (!checked.success) throw new InvalidArguments(`${what}: ${describeIssues(checked.error)}`);
    const target = tool.targetOf(checked.data) ?? approval?.target;
    const intent = CallTool({
      step,
      tool: { name: tool.name, version: tool.version },
      args: value,
      fire: 'granted',
      onConflict,
      ...(target === undefined ? {} : { target }),
      ...(repairs === undefined ? {} : { repairs: parsedStep(repairs) }),
      ...(fallbackFor === undefined ? {} : { fallbackFor: parsedStep(fallbackFor) }),
      ...(approval === undefined ? {} : { approval: approval.step }),
    });
    return () => this.#options.publish(intent);
  }

  async #end(ending: Ending): Promise<void> {
    const done = (): boolean => this.#ending !== null && digestOf(this.#ending as Json) === digestOf(ending as Json);
    if (!done()) await this.#ask(() => this.#options.publish(FinishRun({ ending })), 'FinishRun', done);
  }

  /** Sends an intent and waits until it is taken. @throws IntentRefusedError when it is refused */
  async #ask(send: () => Promise<void>, name: string, taken: () => boolean): Promise<void> {
    const before = this.#refusals.get(name);
    let refusal: Refusal | undefined;
    let timer: NodeJS.Timeout | undefined;
    const answer = this.#until(
      () => taken() || refusal !== undefined,
      (refused) => {
        if (refused !== undefined && nameOf(refused) === name) refusal = refused;
      },
    );
    answer.catch(() => undefined);
    try {
      await send();
      if (before !== undefined) {
        timer = setTimeout(() => {
          refusal ??= before;
          for (const listener of [...this.#listeners]) listener(undefined);
        }, REFUSED_AGAIN_MS);
      }
      await answer;
    } finally {
      clearTimeout(timer);
    }
    if (refusal !== undefined && !taken()) throw errorOf(refusal);
  }

  /** Resolves when events have made it so. */
  #until(done: () => boolean, note: (refused: Refusal | undefined) => void = () => undefined): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const listener = (refused: Refusal | undefined): void => {
        note(refused);
        if (!done() && this.#broken === null) return;
        this.#listeners.delete(listener);
        if (done()) resolve();
        else reject(this.#broken);
      };
      this.#listeners.add(listener);
      listener(undefined);
    });
  }

  async #result(step: Step, tool: ToolReference): Promise<Json> {
    const outcome = this.#outcomes.get(step);
    switch (outcome?.status) {
      case 'succeeded':
        return valueOf(outcome.result, step, { tenant: this.#options.tenant, run: this.id }, this.#options.artifacts);
      case 'rejected':
        throw new EffectRejected(tool.name, step, outcome.reason);
      case 'failed':
        throw new EffectFailed(tool.name, step, outcome.failure);
      case 'unknown':
      case undefined:
        throw new RunEnded(`step ${step} of run ${this.id} has no end`); // Not reached: a call waits for its end.
    }
  }
}

const isEnd = (outcome: Outcome | undefined): boolean => outcome !== undefined && outcome.status !== 'unknown';

const nameOf = (refusal: Refusal): string => (!('step' in refusal) || refusal.step === undefined ? refusal.intent : `${refusal.intent} ${refusal.step}`);
const errorOf = (refusal: Refusal): IntentRefusedError => ('retryAt' in refusal ? new NotAdmitted(refusal.reason, refusal.message, refusal.retryAt, refusal.holder) : refusalOf(refusal.intent, refusal.step, refusal.reason, refusal.message));

function parsedStep(step: string): Step {
  const parsed = Step.safeParse(step);
  if (!parsed.success) throw new InvalidArguments(`step ${JSON.stringify(step)}: ${describeIssues(parsed.error)}`);
  return parsed.data;
}
