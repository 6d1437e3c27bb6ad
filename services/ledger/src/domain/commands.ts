import type { Attempt, Evidence, Instant, Json, Outcome, Pool, RequestedCall, Settled, Step, ToolContract, Verdict } from '@holdfast/protocol';
import type { Decision } from '@holdfast/kernel';
import type { Claim } from './claim.js';
import type { EffectEvent } from './effect.js';
import type { Gate } from './health.js';

/** Facts from outside that every decision about an attempt needs. */
export interface Sending {
  readonly at: Instant;
  /** The tool's contract; null when no worker declares it any more. */
  readonly contract: ToolContract | null;
  /** `ce_seq` that the task of a dispatch decided now will have: the row after its event. */
  readonly taskSeq: number;
  /** In [0, 1): jitter of a back-off. */
  readonly jitter: number;
}

export type EffectCommand =
  | ({
      readonly type: 'request';
      readonly call: RequestedCall;
      readonly fence: number;
      /** Who holds the key, for key scope `target`. */
      readonly claim: Claim;
      /** What holds its tool still. */
      readonly held?: { readonly brake: string; readonly by: string; readonly reason: string } | undefined;
      readonly gate: Gate;
    } & Sending)
  /** An attempt's end, from its host or through the run's worker. */
  | ({ readonly type: 'report'; readonly step: Step; readonly attempt: Attempt; readonly outcome: Outcome; readonly local?: Settled['local'] } & Sending)
  /** The run is cancelled: nothing more of it is sent. `immediate`: what has not fired must not any more. */
  | ({ readonly type: 'cancel'; readonly step: Step; readonly because: string } & Sending)
  /** It is held still, or let go, by its run or by a brake on more. */
  | ({ readonly type: 'pause'; readonly step: Step; readonly by: string; readonly because: string } & Sending)
  | ({ readonly type: 'unpause'; readonly step: Step; readonly by: string; readonly because: string } & Sending)
  /** A running attempt shows life. */
  | ({ readonly type: 'alive'; readonly step: Step; readonly attempt: Attempt; readonly progress: Json | undefined } & Sending)
  /** A lane of a pool has a new host; tasks up to `takenSeq` had been taken by former ones. */
  | ({ readonly type: 'host_lost'; readonly step: Step; readonly pool: Pool; readonly takenSeq: number } & Sending)
  /** A case was settled. `readAt`: when the reading that it rests on was issued. */
  | ({
      readonly type: 'verdict';
      readonly step: Step;
      readonly attempt: Attempt;
      readonly verdict: Verdict;
      readonly by: 'late_result' | 'probe' | 'person' | 'policy';
      readonly evidence: Evidence;
      readonly because: string;
      readonly readAt: Instant | null;
      readonly sealing: boolean;
      readonly forced: boolean;
    } & Sending)
  | ({ readonly type: 'due'; readonly step: Step; readonly claim: Claim; readonly gate: Gate } & Sending);

export type Command<Type extends EffectCommand['type']> = Extract<EffectCommand, { type: Type }>;

export type IgnoreReason =
  | 'duplicate'
  | 'already_settled'
  | 'effect_unknown'
  | 'not_due'
  | 'other_pool'
  | 'not_taken'
  | 'still_joined'
  | 'still_held'
  | 'recorded_before'
  | 'retried_since'
  | 'other_attempt'
  | 'not_under_way'
  | 'paused';
export type EffectDecision = Decision<EffectEvent, IgnoreReason, never>;
