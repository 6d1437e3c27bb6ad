import type { Decision } from '@holdfast/kernel';
import type {
  AbandonWait,
  AgentContract,
  CallGroup,
  CallTool,
  CancelRun,
  DecideApproval,
  DeliverCallback,
  Digest,
  Fence,
  FinishRun,
  CopySteps,
  ForkRun,
  Instant,
  MessageOf,
  Named,
  OperationKey,
  Outcome,
  PauseRun,
  PlanConcluded,
  RecordStep,
  ReleaseBrake,
  ReleaseRun,
  Report,
  ReportChild,
  RejectReason,
  ReportDivergence,
  ReportSteps,
  ReportTry,
  SetBrake,
  SignalRun,
  StartFork,
  StartRun,
  StartWait,
  RequestedCall,
  RunId,
  Settled,
  Step,
  Tenant,
  ToolContract,
  UnknownCause,
  UnpauseRun,
  UnquarantineRun,
  WorkerId,
  Attempt,
} from '@holdfast/protocol';
import type { Accepted, Admission } from './admission.js';
import type { Brake, Brakes } from './brakes.js';
import type { RunEvent, StepState } from './run.js';

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

/** An agent that a worker hosts. `compatibleWith`: versions whose runs its code carries on. */
export type Hosted = Named & { readonly compatibleWith?: readonly string[]; readonly resume?: AgentContract['resume'] };

export interface Holder {
  readonly worker: WorkerId;
  readonly agents: readonly Hosted[];
  /** Of its announcement on `agent.intents`. */
  readonly offset: number;
  /** How often the journal was rebuilt since: what was granted before is granted anew. */
  readonly rebuilt: number;
  /** Tools of the run that no worker declares any more. */
  readonly undeclared?: readonly Named[];
}

/** `spent`: what the run's tenant has used up, in words. */
export type RunCommand =
  | { readonly type: 'start'; readonly at: Instant; readonly tenant: Tenant; readonly data: Data<typeof StartRun>; readonly inputDigest: Digest; readonly holder: Holder | null; /** Absent: there is no limit. */ readonly admission?: Admission; /** Of the intent. */ readonly offset?: number; /** What it begins with. */ readonly fork?: Omit<Data<typeof StartFork>, 'start'> }
  /** The run's turn has come where it waited. */
  | { readonly type: 'admit'; readonly at: Instant; readonly gate: string; readonly admission: Accepted }
  | { readonly type: 'call'; readonly at: Instant; readonly spent?: string; readonly data: Data<typeof CallTool>; readonly identity: CallIdentity; /** What holds its tool still. */ readonly brake?: Brake | null }
  | { readonly type: 'group'; readonly at: Instant; readonly spent?: string; readonly data: Data<typeof CallGroup>; readonly identities: readonly CallIdentity[] }
  | { readonly type: 'record'; readonly at: Instant; readonly spent?: string; readonly data: Data<typeof RecordStep> }
  | { readonly type: 'try'; readonly at: Instant; readonly spent?: string; readonly data: Data<typeof ReportTry>; /** In [0, 1). */ readonly jitter: number }
  | { readonly type: 'report'; readonly at: Instant; readonly data: Data<typeof ReportSteps> }
  | { readonly type: 'finish'; readonly at: Instant; readonly data: Data<typeof FinishRun> }
  | { readonly type: 'diverged'; readonly at: Instant; readonly data: Data<typeof ReportDivergence> }
  /** `scopeProblem`: why what an approval is asked for, or what is to be compensated, can't be; `fitting`: kept signals of the name whose payload fits. */
  | { readonly type: 'wait'; readonly at: Instant; readonly spent?: string; readonly data: Data<typeof StartWait>; readonly scopeProblem: string | null; readonly fitting: ReadonlySet<string> }
  | { readonly type: 'let_go'; readonly at: Instant; readonly data: Data<typeof ReleaseRun> }
  | { readonly type: 'abandon'; readonly at: Instant; readonly data: Data<typeof AbandonWait> }
  /** `problems`: why the payload fails the schema of an open wait of that name. */
  | { readonly type: 'signal'; readonly at: Instant; readonly data: Data<typeof SignalRun>; readonly problems: ReadonlyMap<Step, string | null> }
  | { readonly type: 'callback'; readonly at: Instant; readonly data: Data<typeof DeliverCallback>; readonly id: string; readonly tokenHash: Digest; readonly problem: string | null }
  | { readonly type: 'child'; readonly at: Instant; readonly data: Data<typeof ReportChild> }
  | { readonly type: 'approve'; readonly at: Instant; readonly asked: Data<typeof DecideApproval> }
  | { readonly type: 'cancel'; readonly at: Instant; readonly asked: Data<typeof CancelRun> }
  | { readonly type: 'pause'; readonly at: Instant; readonly asked: Data<typeof PauseRun> }
  | { readonly type: 'unpause'; readonly at: Instant; readonly asked: Data<typeof UnpauseRun> }
  | { readonly type: 'unquarantine'; readonly at: Instant; readonly asked: Data<typeof UnquarantineRun> }
  /** `stuckAfterMs`: how long a run may stand still unexplained. */
  /** `bytesBefore`: how large the steps before one are. */
  | { readonly type: 'fork'; readonly at: Instant; readonly asked: Data<typeof ForkRun>; /** Of a step as it travels. */ readonly bytesOf: (step: StepState) => number }
  | { readonly type: 'copy'; readonly at: Instant; readonly data: Data<typeof CopySteps> }
  | { readonly type: 'due'; readonly at: Instant; readonly stuckAfterMs?: number }
  /** The brakes of the run's lane have changed, or are to be looked at. */
  | { readonly type: 'brake'; readonly at: Instant; readonly brakes: Brakes }
  | { readonly type: 'set_brake'; readonly at: Instant; readonly asked: Data<typeof SetBrake> }
  | { readonly type: 'release_brake'; readonly at: Instant; readonly asked: Data<typeof ReleaseBrake> }
  /** Another run waits for this one as its child. */
  | { readonly type: 'join'; readonly at: Instant; readonly parent: { readonly run: RunId; readonly step: Step } }
  /** A worker holds the run's lane now. */
  | { readonly type: 'grant'; readonly at: Instant; readonly holder: Holder }
  /** The ledger's word. */
  | { readonly type: 'settle'; readonly at: Instant; readonly step: Step; readonly attempt: Attempt; readonly outcome: Exclude<Outcome, { status: 'unknown' }> }
  | { readonly type: 'block'; readonly at: Instant; readonly step: Step; readonly attempt: Attempt; readonly cause: UnknownCause; readonly message: string }
  /** The ledger sends another attempt after an unknown one, since that was proved not applied. */
  | { readonly type: 'release'; readonly at: Instant; readonly step: Step; readonly attempt: Attempt; readonly because: string }
  /** The compensation service's word. */
  | { readonly type: 'compensating'; readonly at: Instant; readonly plan: number; readonly because: string }
  | { readonly type: 'compensated'; readonly at: Instant; readonly concluded: Data<typeof PlanConcluded> }
  | { readonly type: 'unreadable'; readonly at: Instant; readonly intent: string; readonly reason: RejectReason; readonly message: string; readonly token: string; /** Where the intent says it. */ readonly step?: Step | undefined; readonly fence?: Fence | undefined; readonly reported?: { readonly settles?: readonly Report[] | undefined; readonly observed?: readonly Step[] | undefined } }
  | { readonly type: 'poison'; readonly at: Instant; readonly message: string };

export type Command<Type extends RunCommand['type']> = Extract<RunCommand, { type: Type }>;

export type IgnoreReason =
  | 'duplicate'
  | 'adopted'
  | 'already_refused'
  | 'already_settled'
  | 'already_held'
  | 'already_quarantined'
  | 'nothing_new'
  | 'moved_on'
  | 'not_due'
  | 'held_back'
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
  /** Recorded before, and now to be told to a new holder. */
  readonly again?: true;
  /** What the refused intent reported: evidence is kept all the same. */
  readonly settles?: readonly Settled[];
  readonly observed?: readonly Step[];
  /** A local call that may have fired before it was refused: it still holds its key. */
  readonly bound?: RequestedCall;
  /** The same of the calls of a group. */
  readonly boundGroup?: readonly RequestedCall[];
}

export type RunDecision = Decision<RunEvent, IgnoreReason, Refusal>;
