import { isA } from '@holdfast/kernel';
import { FinishRun, type MessageOf } from '@holdfast/protocol';
import type { AgentDefinition } from '../define/agent.js';
import { toJson } from '../define/json.js';
import { clipped, InvalidOutput, MESSAGE_MAX, NotAwaited } from '../errors.js';
import { failureOf } from '../failure.js';
import { halted, type Core } from './core.js';
import type { Entry } from './entry.js';
import { OVERHEAD_BYTES } from './outgoing.js';
import { CompletedPartially } from './run.js';

export type EndingData = MessageOf<typeof FinishRun>['data']['ending'];

interface Prepared {
  readonly ending: EndingData;
  readonly bytes: number;
}

export interface EndingOptions {
  readonly core: Core;
  readonly agent: AgentDefinition;
  /** Local attempts whose report is still to come. */
  inFlight(): number;
  /** Nobody awaits it any more. */
  abandon(entry: Entry): void;
  onFinished(): void;
}

const REFUSED_FOR_OPEN_STEPS: readonly string[] = ['outcome_unknown', 'steps_open'];

/**
 * The end of a run: what the code came to. A completion is said once every call is closed, since it
 * would be refused before; any other ending once nothing local is under way.
 */
export class Ending {
  #prepared: Prepared | null = null;
  #waits = true;
  #sent = false;
  /** Refused for a step that this worker takes for closed: said again whenever one is settled. */
  #contradicted = false;
  #finished = false;
  #failureRefused = false;

  constructor(private readonly options: EndingOptions) {}

  /** The code returned. */
  returned(result: unknown): void {
    const { core } = this.options;
    if (!this.#enter()) return;
    const unawaited = core.tracker.unawaited();
    if (unawaited.length > 0) {
      const more = unawaited.length > 5 ? ` and ${unawaited.length - 5} more` : '';
      const error = new NotAwaited(`the agent returned while nobody had awaited ${unawaited.slice(0, 5).join(', ')}${more}: await each durable call, or put it into run.all`);
      this.#waits = false;
      return this.#conclude(this.#failed(error));
    }
    // The log lacks a result that the output may rest on.
    if (core.refusedAfterwards !== null && !isA(result, CompletedPartially)) return this.#conclude(this.#failed(core.refusedAfterwards));
    try {
      const prepared = this.#completed(result);
      if (prepared instanceof Promise) {
        prepared.then(
          (kept) => this.#conclude(kept),
          (error: unknown) => this.#conclude(this.#failed(error)),
        );
      } else this.#conclude(prepared);
    } catch (error) {
      this.#conclude(this.#failed(error));
    }
  }

  /** The code threw. */
  threw(error: unknown): void {
    if (this.#enter()) this.#conclude(this.#failed(error));
  }

  /** The orchestrator refused the ending. */
  refused(reason: string, message: string): void {
    if (this.#prepared === null) return;
    if (REFUSED_FOR_OPEN_STEPS.includes(reason)) {
      this.#contradicted = true;
      return;
    }
    const error = new InvalidOutput(`the run's ending was refused (${reason}): ${message}`);
    // A failure is said in words that are known to be taken, and once: refused again, it is for people.
    if (this.#prepared.ending.status === 'failed') {
      this.options.core.trouble(error.message);
      if (this.#failureRefused) return;
      this.#failureRefused = true;
    }
    this.#sent = false;
    this.#conclude(this.#failed(error));
  }

  /** A local attempt has reported, or (`settled`) a call was closed. */
  progressed(settled: boolean): void {
    if (halted(this.options.core)) return;
    if (settled && this.#contradicted) this.#sent = false;
    this.#send();
  }

  /** False when the code's end is of no interest any more. */
  #enter(): boolean {
    const { core } = this.options;
    if (core.phase !== 'running') return false;
    const mismatch = core.history.endOfRun();
    if (mismatch !== undefined) {
      try {
        core.diverge(mismatch);
      } catch {
        return false; // The run has stopped; that is all there is to it.
      }
    }
    core.phase = 'ended';
    for (const entry of core.completions.end()) this.options.abandon(entry);
    return true;
  }

  #completed(result: unknown): Prepared | Promise<Prepared> {
    const { core, agent } = this.options;
    const partly = isA(result, CompletedPartially) ? result : null;
    const what = `the output of ${agent.name}@${agent.version}`;
    const parsed = agent.output.safeParse(partly === null ? result : partly.output);
    if (!parsed.success) {
      throw new InvalidOutput(`${what} doesn't fit its schema: ${parsed.error.issues.slice(0, 5).map(({ path, message }) => `${path.join('.') || 'value'}: ${message}`).join('; ')}`);
    }
    const kept = core.store.keep(toJson(parsed.data, what), what);
    const end = ({ stored, bytes }: Awaited<typeof kept>): Prepared => ({
      ending: partly === null ? { status: 'completed', output: stored } : { status: 'completed_partially', output: stored, because: clipped(partly.because) },
      bytes: bytes + OVERHEAD_BYTES + MESSAGE_MAX * 6,
    });
    return kept instanceof Promise ? kept.then(end) : end(kept);
  }

  #failed(error: unknown): Prepared {
    const { retryAfterMs: _, ...failure } = failureOf(error);
    return { ending: { status: 'failed', failure }, bytes: OVERHEAD_BYTES + MESSAGE_MAX * 6 };
  }

  #conclude(prepared: Prepared): void {
    if (halted(this.options.core)) return;
    this.#prepared = prepared;
    this.#send();
  }

  #send(): void {
    const { core } = this.options;
    const prepared = this.#prepared;
    if (prepared === null || this.#sent || this.#mustWait(prepared.ending)) return;
    this.#sent = true;
    const data = { ending: prepared.ending, fence: core.fence };
    core.outgoing.intent({ message: FinishRun(data), progress: data, bytes: prepared.bytes, onAcknowledged: () => this.#finish() });
  }

  /** What is reported before the ending is in it; and a run with an open call can't be completed. */
  #mustWait(ending: EndingData): boolean {
    if (!this.#waits) return false;
    return this.options.inFlight() > 0 || (ending.status === 'completed' && this.options.core.completions.open.size > 0);
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.options.onFinished();
  }
}
