import type { Decision } from '@holdfast/kernel';
import type { ArgumentsReported, Attempt, CompensateRun, DecideCompensation, EffectNoted, Instant, MessageOf, Named, PlanCause, PlanScope, ProbeAnswer, RunEndNoted, Step, ToolContract } from '@holdfast/protocol';
import type { PlanEvent, Registered } from './plan.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;

/** Facts from outside that a decision about a plan needs. */
export interface Looking {
  readonly at: Instant;
  /** In [0, 1): spreads what is asked again. */
  readonly jitter: number;
  /** A tool's contract; null when no worker has declared it. */
  readonly contract: (tool: Named) => ToolContract | null;
}

export type PlanCommand =
  /** An effect is intended that may have to be answered, or that closes the way back. */
  | ({ readonly type: 'register'; readonly effect: Registered; readonly fence: number } & Looking)
  /** The ledger's word on an effect of the run. */
  | ({ readonly type: 'note'; readonly noted: Data<typeof EffectNoted> } & Looking)
  /** The ledger's word on a compensation. */
  | ({ readonly type: 'note_answer'; readonly noted: Data<typeof EffectNoted>; readonly changedSince: boolean } & Looking)
  | ({ readonly type: 'ended'; readonly end: Data<typeof RunEndNoted>; readonly message: string } & Looking)
  | ({ readonly type: 'open'; readonly cause: PlanCause; readonly scope: PlanScope } & Looking)
  | ({ readonly type: 'arguments'; readonly step: Step; readonly ask: number; readonly answer: Data<typeof ArgumentsReported>['answer'] } & Looking)
  | ({ readonly type: 'verified'; readonly step: Step; readonly attempt: Attempt; readonly probe: number; readonly issuedAt: Instant | undefined; readonly answer: ProbeAnswer } & Looking)
  | ({ readonly type: 'compensate'; readonly asked: Data<typeof CompensateRun> } & Looking)
  | ({ readonly type: 'decide'; readonly asked: Data<typeof DecideCompensation> } & Looking)
  | ({ readonly type: 'due' } & Looking);

export type Command<Type extends PlanCommand['type']> = Extract<PlanCommand, { type: Type }>;

export type IgnoreReason = 'registered_before' | 'noted_before' | 'ended_before' | 'opened_before' | 'effect_unknown' | 'not_asked' | 'answered_before' | 'command_answered' | 'nothing_to_do' | 'not_due';
export type PlanDecision = Decision<PlanEvent, IgnoreReason, never>;
