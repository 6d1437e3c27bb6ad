import type {
  CallGroup,
  CallTool,
  Digest,
  FinishRun,
  Instant,
  MessageOf,
  Named,
  OperationKey,
  Outcome,
  RecordStep,
  RejectReason,
  ReportDivergence,
  ReportSteps,
  ReportTry,
  StartRun,
  RequestedCall,
  Settled,
  Step,
  Tenant,
  ToolContract,
  UnknownCause,
  WorkerId,
  Attempt,
} from '@holdfast/protocol';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;

/** What a call's identity came to, worked out by the shell: keys and digests need a hash, contracts a look-up. */
export interface CallIdentity {
  readonly key: OperationKey;
  readonly digest: Digest;
  readonly digestVersion: number;
  /** Null: no such tool, or no such version of it. */
  readonly contract: ToolContract | null;
  /** Why the arguments fail the contract's schema; null when they don't. */
  readonly invalid: string | null;
}

export interface Holder {
  readonly worker: WorkerId;
  readonly agents: readonly Named[];
  /** Of its announcement on `agent.intents`. */
  readonly offset: number;
}

export type RunCommand =
  | { readonly type: 'start'; readonly at: Instant; readonly tenant: Tenant; readonly data: Data<typeof StartRun>; readonly inputDigest: Digest; readonly holder: Holder | null }
  | { readonly type: 'call'; readonly at: Instant; readonly data: Data<typeof CallTool>; readonly identity: CallIdentity }
  | { readonly type: 'group'; readonly at: Instant; readonly data: Data<typeof CallGroup>; readonly identities: readonly CallIdentity[] }
  | { readonly type: 'record'; readonly at: Instant; readonly data: Data<typeof RecordStep> }
  | { readonly type: 'try'; readonly at: Instant; readonly data: Data<typeof ReportTry>; /** In [0, 1). */ readonly jitter: number }
  | { readonly type: 'report'; readonly at: Instant; readonly data: Data<typeof ReportSteps> }
  | { readonly type: 'finish'; readonly at: Instant; readonly data: Data<typeof FinishRun> }
  | { readonly type: 'diverged'; readonly at: Instant; readonly data: Data<typeof ReportDivergence> }
  /** A worker holds the run's lane now. */
  | { readonly type: 'grant'; readonly at: Instant; readonly holder: Holder }
  /** The ledger's word. */
  | { readonly type: 'settle'; readonly at: Instant; readonly step: Step; readonly attempt: Attempt; readonly outcome: Exclude<Outcome, { status: 'unknown' }> }
  | { readonly type: 'block'; readonly at: Instant; readonly step: Step; readonly attempt: Attempt; readonly cause: UnknownCause; readonly message: string }
  /** The ledger sends another attempt after an unknown one, since that was proved not applied. */
  | { readonly type: 'release'; readonly at: Instant; readonly step: Step; readonly attempt: Attempt; readonly because: string }
  | { readonly type: 'unreadable'; readonly at: Instant; readonly intent: string; readonly reason: RejectReason; readonly message: string; readonly token: string }
  | { readonly type: 'poison'; readonly at: Instant; readonly message: string };

export type IgnoreReason =
  | 'duplicate'
  | 'adopted'
  | 'already_refused'
  | 'already_settled'
  | 'already_held'
  | 'already_quarantined'
  | 'nothing_new'
  | 'not_a_run'
  | 'run_over'
  | 'version_not_hosted'
  | 'step_unknown';

/** A refusal, recorded in the run where there is one. */
export interface Refusal {
  readonly intent: string;
  readonly reason: RejectReason;
  readonly message: string;
  readonly token: string;
  readonly step?: Step;
  readonly fence?: number;
  /** What the refused intent reported: evidence is kept all the same. */
  readonly settles?: readonly Settled[];
  readonly observed?: readonly Step[];
  /** A local call that may have fired before it was refused: it still holds its key. */
  readonly bound?: RequestedCall;
  /** The same of the calls of a group. */
  readonly boundGroup?: readonly RequestedCall[];
}
