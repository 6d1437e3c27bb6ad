import { ArtifactRef, isExactNumber, RecordStep, ReportTry, Usage, type HistoryStep, type Json, type RecordKind, type Step, type Stored } from '@holdfast/protocol';
import { toJson } from '../define/json.js';
import { InvalidOutput, MESSAGE_MAX, ResultUnreadable, StepFailed, type IntentRefusedError } from '../errors.js';
import { failureOf } from '../failure.js';
import { open, type Core } from './core.js';
import type { Entry } from './entry.js';
import { load } from './loading.js';
import { OVERHEAD_BYTES, type Draft } from './outgoing.js';
import type { ModelAnswer, Try } from './run.js';

/** Recorded work that runs in the agent's process. */
export interface Task {
  readonly kind: Extract<RecordKind, 'step' | 'model' | 'artifact'>;
  readonly name: string;
  readonly work: (attempt: Try) => unknown;
}

/** What a task came to: how it is recorded, and what the code gets. */
interface Done {
  readonly stored: Stored;
  readonly bytes: number;
  readonly value: unknown;
  readonly usage: Usage | undefined;
}

interface Running {
  readonly task: Task;
  attempt: number;
  /** Where somebody wants to know: epoch milliseconds. */
  readonly startedAt?: number;
}

/** Steps, model calls, artifacts, times and chance: done once, recorded before the next effect. */
export class Work {
  /** What waits for the orchestrator's word on another try. */
  readonly #running = new Map<Step, Running>();

  constructor(private readonly core: Core) {}

  run(step: Step, task: Task): Promise<unknown> {
    const { core } = this;
    const answer = core.history.ask(step, task.kind, task.name);
    if (answer.kind === 'mismatch') return core.diverge(answer.mismatch);
    const entry = open(core, step, task.kind, task.name);
    if (answer.kind === 'recorded') {
      entry.rank = answer.rank;
      this.#replay(entry, task, answer.step);
    } else {
      core.completions.live(() => this.#try(entry, { task, attempt: 1 }));
    }
    return entry.promise;
  }

  /** A time, a number, an id: made at once, recorded with the next intent. */
  value<T extends Json>(step: Step, kind: Extract<RecordKind, 'now' | 'random' | 'uuid' | 'changed'>, make: () => T, name: string = kind): T {
    const { core } = this;
    const answer = core.history.ask(step, kind, name);
    if (answer.kind === 'mismatch') return core.diverge(answer.mismatch);
    if (answer.kind === 'recorded' && answer.step.kind === 'record') {
      if ('value' in answer.step.result) return answer.step.result.value as T;
      throw new ResultUnreadable(step, `a ${kind} is recorded without its value`);
    }
    const value = make();
    core.outgoing.lazily(this.#draft(step, kind, name, { stored: { value }, bytes: 60, value, usage: undefined }));
    return value;
  }

  /** The orchestrator's word on a failed try: when to try again (epoch milliseconds), or never. */
  tryAnswered(step: Step, attempt: number, retryAt: number | null): void {
    const { core } = this;
    const running = this.#running.get(step);
    const entry = core.completions.open.get(step);
    if (running === undefined || entry === undefined || running.attempt !== attempt || entry.cancel !== null) return;
    if (retryAt === null) {
      this.#running.delete(step);
      core.completions.settle(entry, { ok: false, error: entry.failure ?? new Error(`${entry.label} failed`) });
      return;
    }
    this.#tryAt(entry, { task: running.task, attempt: attempt + 1 }, retryAt);
  }

  /** The orchestrator refused the report of a failed try. */
  refused(entry: Entry, error: IntentRefusedError): void {
    this.#running.delete(entry.step);
    if (entry.progress?.observed !== undefined) this.core.outgoing.observeAgain(entry.progress.observed);
    this.core.completions.settle(entry, { ok: false, error });
  }

  #replay(entry: Entry, task: Task, recorded: HistoryStep): void {
    const { core } = this;
    if (recorded.kind === 'record') {
      const { result } = recorded;
      if ('value' in result) core.completions.settle(entry, { ok: true, value: result.value });
      else if ('unreadable' in result) core.completions.settle(entry, { ok: false, error: new ResultUnreadable(entry.step, result.unreadable) });
      // An artifact step's answer is the reference itself.
      else if (task.kind === 'artifact') core.completions.settle(entry, { ok: true, value: result.artifact });
      else load(core, entry, result.artifact);
    } else if (recorded.kind === 'try') {
      if (recorded.retryAt === null) core.completions.settle(entry, { ok: false, error: new StepFailed(`${task.kind} ${task.name}`, entry.step, recorded.failure) });
      else this.#tryAt(entry, { task, attempt: recorded.attempt + 1 }, recorded.retryAt);
    }
  }

  #tryAt(entry: Entry, running: Running, at: number): void {
    const { core } = this;
    entry.cancel = core.port.after(Math.max(0, at - core.port.now()), () => {
      entry.cancel = null;
      // A timer may be early by the clock that the moment was named by.
      if (core.port.now() < at) return this.#tryAt(entry, running, at);
      if (core.phase === 'running') core.completions.live(() => this.#try(entry, running));
    });
  }

  #try(entry: Entry, given: Running): void {
    const { core } = this;
    if (core.phase !== 'running' || entry.lost) return;
    const running = core.port.worked === undefined ? given : { ...given, startedAt: core.port.now() };
    this.#running.set(entry.step, running);
    try {
      core.insideWork = true;
      const result: unknown = running.task.work({ attempt: running.attempt, signal: core.signal });
      core.insideWork = false;
      if (isThenable(result)) {
        Promise.resolve(result).then(
          (value) => this.#done(entry, running, value),
          (error: unknown) => this.#failed(entry, running, error),
        );
      } else this.#done(entry, running, result);
    } catch (error) {
      core.insideWork = false;
      this.#failed(entry, running, error);
    }
  }

  #done(entry: Entry, running: Running, result: unknown): void {
    const { core } = this;
    if (core.phase !== 'running' || entry.lost) return;
    try {
      const kept = this.#keep(entry, running.task, result);
      if (!(kept instanceof Promise)) return this.#record(entry, running, kept);
      kept.then(
        (done) => this.#record(entry, running, done),
        (error: unknown) => this.#failed(entry, running, error),
      );
    } catch (error) {
      this.#failed(entry, running, error);
    }
  }

  #keep(entry: Entry, task: Task, result: unknown): Done | Promise<Done> {
    const what = `the result of ${entry.label}`;
    if (task.kind === 'artifact') return { stored: { artifact: ArtifactRef.parse(result) }, bytes: 1000, value: result, usage: undefined };
    const { output, usage } = task.kind === 'model' ? answerOf(result, what) : { output: result, usage: undefined };
    const sized = toJson(output ?? null, what);
    const kept = this.core.store.keep(sized, what);
    if (kept instanceof Promise) return kept.then((large) => ({ ...large, value: sized.value, usage }));
    // The code gets a copy of its own: what it does to it must not change the record, which is yet to be sent.
    const value = typeof sized.value === 'object' && sized.value !== null ? toJson(sized.value, what).value : sized.value;
    return { ...kept, value, usage };
  }

  #record(entry: Entry, running: Running, done: Done): void {
    const { core } = this;
    if (core.phase !== 'running' || entry.lost) return;
    const { task } = running;
    this.#running.delete(entry.step);
    this.#tell(entry.step, running, false, done.usage);
    core.outgoing.record(this.#draft(entry.step, task.kind, task.name, done));
    core.completions.settle(entry, { ok: true, value: done.value });
  }

  #tell(step: Step, { task, attempt, startedAt }: Running, failed: boolean, usage: Usage | undefined): void {
    const { port, run } = this.core;
    if (startedAt !== undefined) port.worked?.({ run, step, kind: task.kind, name: task.name, attempt, startedAt, failed, usage });
  }

  #draft(step: Step, kind: RecordKind, name: string, { stored, bytes, usage }: Done): Draft {
    const data = { step, kind, name, result: stored, ...(usage === undefined ? {} : { usage }), fence: this.core.fence };
    return { message: RecordStep(data), progress: data, bytes: bytes + OVERHEAD_BYTES };
  }

  #failed(entry: Entry, running: Running, error: unknown): void {
    const { core } = this;
    const { task, attempt } = running;
    if (core.phase !== 'running' || entry.lost) return;
    this.#tell(entry.step, running, true, undefined);
    const failure = failureOf(error);
    entry.failure = new StepFailed(`${task.kind} ${task.name}`, entry.step, failure, { cause: error });
    const data = { step: entry.step, kind: task.kind, name: task.name, attempt, failure, fence: core.fence };
    const draft: Draft = { message: ReportTry(data), progress: data, bytes: OVERHEAD_BYTES + MESSAGE_MAX * 6 };
    entry.progress = draft.progress;
    core.outgoing.intent(draft);
  }
}

const isThenable = (value: unknown): value is PromiseLike<unknown> => typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';

/** `{ output, usage? }` and nothing else is an answer with its usage; anything else is the output itself. */
function answerOf(result: unknown, what: string): ModelAnswer<unknown> {
  if (typeof result !== 'object' || result === null || !('output' in result)) return { output: result };
  const { output, ...rest } = result as { output: unknown; usage?: unknown };
  const names = Object.keys(rest);
  if (names.length === 0) return { output };
  if (names.length > 1 || names[0] !== 'usage') return { output: result };
  const usage = Usage.safeParse(rest.usage ?? {});
  // A number that JSON can't carry would be refused with all that is recorded beside it.
  if (!usage.success || Object.values(usage.data).some((figure) => figure !== undefined && !isExactNumber(figure))) throw new InvalidOutput(`${what}: usage takes tokensIn, tokensOut and cost, numbers from 0 on, whole ones up to 2^53`);
  return { output, usage: usage.data };
}
