import type { Attempt, Fence, Message, Named, OperationKey, Report, RunId, Step, Tenant, WaitEnd } from '@holdfast/protocol';
import type { ToolDefinition } from '../define/tool.js';
import type { Worked } from './observer.js';
import type { Json } from '@holdfast/protocol';

/** What a run's executor may ask of the worker that it lives in. */
export interface RunPort {
  /**
   * Queues intents of one run for `agent.intents`, in order, and resolves when Kafka has
   * acknowledged them. Intents queued in the same tick travel in one produce.
   */
  intend(run: RunId, tenant: Tenant, intents: readonly Message[]): Promise<void>;
  /** The tool when this worker hosts it. */
  hosted(name: string, version: string): ToolDefinition | undefined;
  /** Whether an operator holds the tool still: nothing of it fires until it is let go. */
  heldStill?(run: RunId, tool: Named): boolean;
  /**
   * Fires a local effect; call only after its intent was acknowledged. Checks, last thing before
   * the call, that the worker's hold on the lane is fresh; `lease_lost` means that nothing fired.
   */
  fireLocal(call: LocalCall): Promise<Report | 'lease_lost'>;
  /** Told of recorded work that was done here. */
  worked?: ((worked: Worked) => void) | undefined;
  now(): number;
  random(): number;
  uuid(): string;
  /** Calls back after a delay (milliseconds); returns a canceller. */
  after(delayMs: number, callback: () => void): () => void;
  /** Calls back in a macrotask of its own. */
  soon(callback: () => void): void;
}

export interface LocalCall {
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly step: Step;
  readonly tool: ToolDefinition;
  readonly args: Json;
  readonly operationKey: OperationKey;
  readonly attempt: Attempt;
  readonly fence: Fence;
}

/** What the worker tells a run's executor. */
export interface RunEar {
  /** The tool host of this very process saw a granted attempt end. */
  seen(report: Report): void;
  settled(settled: { step: Step; attempt: Attempt; outcome: Report['outcome'] }): void;
  waitEnded(ended: { step: Step; end: WaitEnd }): void;
  tryAnswered(answer: { step: Step; attempt: Attempt; retryAt: number | null }): void;
  refused(refusal: { intent: string; step?: Step | undefined; reason: string; message: string }): void;
  /** The orchestrator has let the run go (it waits, is paused, is cancelled): the code stops, and asks for nothing more. */
  dropped(because: string, cancelled: boolean): void;
  /** The run has moved elsewhere, or the worker stops: the code must make no further progress. */
  abandon(because: string): void;
}
