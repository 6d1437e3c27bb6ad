import type { Outcome, Report } from '@holdfast/protocol';
import type { CrashPoint } from '@holdfast/runtime';
import type { Firing } from './firing.js';
import type { Hold } from './hold.js';
import type { LocalCall } from './port.js';
import type { Runs } from './runs.js';
import type { Slots } from './slots.js';

export interface LocalFiringParts {
  readonly firing: Firing;
  readonly hold: Hold;
  readonly runs: Runs;
  readonly slots: Slots;
  /** Passed by name where a test may kill the process. */
  readonly crashPoint: CrashPoint;
}

/**
 * Fires the effects that a run's own worker may fire at once: pure and idempotent ones, after
 * their intent was acknowledged, while the hold on the lane is fresh, looked at last thing before
 * the call.
 */
export class LocalFiring {
  readonly #parts: LocalFiringParts;
  #stopping = false;
  #inFlight = 0;
  #idle: (() => void)[] = [];

  constructor(parts: LocalFiringParts) {
    this.#parts = parts;
  }

  /** `lease_lost`: nothing was fired, and the run has been given up here. */
  async fire(call: LocalCall): Promise<Report | 'lease_lost'> {
    const { hold, runs } = this.#parts;
    const { run, fence, step, attempt, tool } = call;
    if (tool.effect === 'irreversible') throw new TypeError(`tool ${tool.name}@${tool.version} is irreversible: it fires only when the ledger grants it`);
    const claimed = (): boolean => !this.#stopping && runs.holds(run, fence);
    // The hold may grow stale while the call waits for room: then it waits for the hold again.
    while (hold.fresh() ? claimed() : await hold.untilFresh(claimed)) {
      const outcome = await this.#once(call, () => (claimed() && hold.fresh() ? undefined : 'stale'));
      if (outcome !== 'stale') return { step, attempt, outcome };
    }
    runs.giveUp(run, fence, 'this worker no longer holds the lane of the run');
    return 'lease_lost';
  }

  /** Fires nothing more; what fired goes on. */
  stop(): void {
    this.#stopping = true;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Resolves when everything that fired has ended. */
  idle(): Promise<void> {
    return this.#inFlight === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  async #once(call: LocalCall, check: () => 'stale' | undefined): Promise<Outcome | 'stale'> {
    const { slots, firing, crashPoint } = this.#parts;
    if (slots.free > 0) slots.reserve(1);
    else await new Promise<void>((enter) => slots.acquire(enter));
    this.#inFlight += 1;
    try {
      const about = (): string[] => [`${call.run}/${call.step}`];
      crashPoint('local.before-call', about);
      const outcome = await firing.fire(
        {
          tool: call.tool,
          effect: call.tool.effect,
          run: call.run,
          tenant: call.tenant,
          step: call.step,
          args: call.args,
          operationKey: call.operationKey,
          attempt: call.attempt,
          fence: call.fence,
          timeoutMs: call.tool.timeoutMs,
          local: true,
          heartbeat: () => undefined, // Nobody waits for a local attempt but its own run.
        },
        check,
      );
      crashPoint('local.after-call', about);
      return outcome;
    } finally {
      slots.release();
      this.#inFlight -= 1;
      if (this.#inFlight === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }
}
