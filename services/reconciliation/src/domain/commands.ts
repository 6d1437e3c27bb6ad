import type { Decision } from '@holdfast/kernel';
import type { Attempt, AssignCase, EffectOutcomeUnknown, Instant, MessageOf, ProbeAnswer, ResolveCase, Step, ToolContract } from '@holdfast/protocol';
import type { CaseEvent } from './case.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;

/** Facts from outside that a decision about a case needs. */
export interface Looking {
  readonly at: Instant;
  /** The tool's contract; null when no worker declares it any more. */
  readonly contract: ToolContract | null;
  /** In [0, 1): spreads what is looked at again. */
  readonly jitter: number;
}

export type CaseCommand =
  /** The ledger says that nobody knows. `of`: version of the effect's stream that says so. */
  | ({ readonly type: 'open'; readonly of: number; readonly unknown: Data<typeof EffectOutcomeUnknown> & { about: NonNullable<Data<typeof EffectOutcomeUnknown>['about']> } } & Looking)
  | ({ readonly type: 'due'; readonly step: Step } & Looking)
  | ({ readonly type: 'answered'; readonly step: Step; readonly attempt: Attempt; readonly probe: number; /** Of the question that it answers; absent in answers of hosts that don't say. */ readonly issuedAt?: Instant | undefined; readonly answer: ProbeAnswer } & Looking)
  /** The effect has an end, or another attempt is under way, by the ledger's own decision. */
  | ({ readonly type: 'ended'; readonly step: Step; readonly outcome: 'succeeded' | 'rejected' | 'failed' } & Looking)
  /** `resultProblem`: what is wrong with the result that a person states, by the tool's own schema; null when nothing is. */
  | ({ readonly type: 'resolve'; readonly asked: Data<typeof ResolveCase>; readonly resultProblem: string | null } & Looking)
  | ({ readonly type: 'assign'; readonly asked: Data<typeof AssignCase> } & Looking);

export type Command<Type extends CaseCommand['type']> = Extract<CaseCommand, { type: Type }>;

export type IgnoreReason = 'opened_before' | 'case_unknown' | 'already_settled' | 'not_due' | 'other_attempt' | 'probe_unknown' | 'answered_before' | 'command_answered';
export type CaseDecision = Decision<CaseEvent, IgnoreReason, never>;
