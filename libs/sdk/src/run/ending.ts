import { FinishRun, type Failure, type MessageOf } from '@holdfast/protocol';
import type { AgentDefinition } from '../define/agent.js';
import { toJson } from '../define/json.js';
import { classOf, clipped, InvalidOutput, MESSAGE_MAX, messageOf, NotAwaited } from '../errors.js';
import type { Core } from './core.js';
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
  onFinished(): void;
}

const REFUSED_FOR_OPEN_STEPS: readonly string[] = ['outcome_unknown', 'steps_open'];

/**
 * The end of a run: what the code came to, said once nothing local is under way, and said again
 * when the orchestrator refused it for a step that has since been settled.
 */
export class Ending {
  #prepared: Prepared | null = null;
  #waitForLocal = true;
  #sent = false;
  #acknowledged = false;
  #refused = false;
  #finished = false;

  constructor(private readonly options: EndingOptions) {}

  /** The code returned. */
  returned(result: unknown): void {
    const { core } = this.options;
    if (!this.#enter()) return;
    const unawaited = core.tracker.unawaited();
    if (unawaited.length > 0) {
      const more = unawaited.length > 5 ? ` and ${unawaited.length - 5} more` : '';
      const error = new NotAwaited(`the agent returned while nobody had awaited ${unawaited.slice(0, 5).join(', ')}${more}: await each durable call, or put it into run.all`);
      this.#waitForLocal = false;
      return this.#conclude(this.#failed(error));
    }
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
    if (this.#finished || this.#prepared === null) return;
    this.#acknowledged = false;
    if (REFUSED_FOR_OPEN_STEPS.includes(reason)) {
      this.#refused = true;
      return;
    }
    if (this.#prepared.ending.status === 'failed') return this.#finish();
    this.#sent = false;
    this.#conclude(this.#failed(new InvalidOutput(`the run's ending was refused (${reason}): ${message}`)));
  }

  /** A step that was open has ended, or a local attempt has reported. */
  progressed(settled: boolean): void {
    if (this.#prepared === null || this.#finished) return;
    if (settled && this.#refused) {
      this.#refused = false;
      this.#sent = false;
    }
    if (!this.#sent) this.#send();
    else this.#finishIfQuiet();
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
    core.completions.end();
    return true;
  }

  #completed(result: unknown): Prepared | Promise<Prepared> {
    const { core, agent } = this.options;
    const partly = result instanceof CompletedPartially ? result : null;
    const what = `the output of ${agent.name}@${agent.version}`;
    const parsed = agent.output.safeParse(partly === null ? result : partly.output);
    if (!parsed.success) {
      throw new InvalidOutput(`${what} doesn't fit its schema: ${parsed.error.issues.slice(0, 5).map(({ path, message }) => `${path.join('.') || 'value'}: ${message}`).join('; ')}`);
    }
    const kept = core.store.keep(toJson(parsed.data, what), what);
    const end = ({ stored, bytes }: Awaited<typeof kept>): Prepared => ({
      ending: partly === null ? { status: 'completed', output: stored } : { status: 'completed_partially', output: stored, because: clipped(partly.because) },
      bytes: bytes + OVERHEAD_BYTES + MESSAGE_MAX * 3,
    });
    return kept instanceof Promise ? kept.then(end) : end(kept);
  }

  #failed(error: unknown): Prepared {
    const failure: Failure = { class: classOf(error), message: messageOf(error) };
    return { ending: { status: 'failed', failure }, bytes: OVERHEAD_BYTES + MESSAGE_MAX * 6 };
  }

  #conclude(prepared: Prepared): void {
    if (this.options.core.phase === 'stopped') return;
    this.#prepared = prepared;
    this.#send();
  }

  #send(): void {
    const { core } = this.options;
    const prepared = this.#prepared;
    if (prepared === null || this.#sent) return;
    // Their reports ride on it; without them the steps would be open and the ending refused.
    if (this.#waitForLocal && this.options.inFlight() > 0) return;
    this.#sent = true;
    const data = { ending: prepared.ending, fence: core.fence };
    core.outgoing.intent({
      message: FinishRun(data),
      progress: data,
      bytes: prepared.bytes,
      onAcknowledged: () => {
        this.#acknowledged = true;
        this.#finishIfQuiet();
      },
    });
  }

  /** While a call is open the ending may yet be refused, so the run is kept. */
  #finishIfQuiet(): void {
    if (!this.#acknowledged || this.#refused) return;
    for (const { kind } of this.options.core.completions.open.values()) if (kind === 'call') return;
    this.#finish();
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.options.onFinished();
  }
}
