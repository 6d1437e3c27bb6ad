import type { Json, Report, Step } from '@holdfast/protocol';
import { DurablePromise } from './durable.js';
import { describeAsked, isWaitKind, type AskedKind } from './history.js';
import type { Progress } from './outgoing.js';
import { ownStray } from './strays.js';

export type Settlement = { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly error: Error };

/** One durable ask of the code that has not been answered yet. */
export class Entry {
  readonly promise: DurablePromise<unknown>;
  settlement: Settlement | null = null;
  /** The arguments of a call, as they are recorded. */
  args: Json = null;
  /** Position in the recorded stream; live ones come after all recorded ones. */
  rank = Number.POSITIVE_INFINITY;
  /** A local attempt is between its intent and its report. */
  inFlight = false;
  /** The attempt has begun. */
  fired = false;
  /** Asked for by a branch that lost a race: nobody is told of its end. */
  lost = false;
  /** A wait that is recorded as awaited by nobody. */
  abandoned = false;
  /** Its intent is in the log, or on the way there. */
  logged = false;
  /** The host of this process has reported a success of a granted attempt. */
  seen = false;
  /** The members of a group that is recorded as one report together. */
  group: GroupReports | null = null;
  /** Why its last try failed: what the code gets should there be no other. */
  failure: Error | null = null;
  /** What its intent carried: sent again should the intent be refused. */
  progress: Progress | null = null;
  /** Cancels a timer. */
  cancel: (() => void) | null = null;
  /** Told when the code lets the entry's error go unhandled. */
  stray: (error: Error) => void = () => undefined;
  #resolve: (value: unknown) => void = () => undefined;
  #reject: (error: Error) => void = () => undefined;

  constructor(
    readonly step: Step,
    readonly kind: AskedKind,
    readonly name: string,
  ) {
    this.promise = new DurablePromise<unknown>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** True for what ends by itself or by somebody else, and needs no process. */
  get waits(): boolean {
    return isWaitKind(this.kind);
  }

  get label(): string {
    return `${describeAsked(this.kind, this.name)} at step ${this.step}`;
  }

  /** Tells the code. */
  handOver(): void {
    const { settlement } = this;
    if (settlement === null) return;
    if (settlement.ok) {
      this.#resolve(settlement.value);
    } else {
      this.promise.hush();
      ownStray(settlement.error, this.stray);
      this.#reject(settlement.error);
    }
  }
}

export interface GroupReports {
  missing: number;
  readonly reported: { readonly report: Report; readonly bytes: number; readonly told: () => void }[];
}
