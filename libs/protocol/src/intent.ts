import { z } from 'zod';
import { Attempt, DurationMs, Fence, Instant, Name, Named, NamedInstant, Pool, RunId, Step, WorkerId } from './ids.js';
import { Failure, Fire, JsonValue, Report, Stored } from './outcome.js';
import { message } from './message.js';
import { OnDeadline, Wait } from './wait.js';

/** What a worker adds to each intent: what it saw end since its last one, and in which order its code was told. */
const progress = {
  /** Absent from clients that own their loop; then the intent is taken only while no worker holds the run. */
  fence: Fence.optional(),
  settles: z.array(Report).max(200).optional(),
  observed: z.array(Step).max(1000).optional(),
};

export const Budgets = z.object({
  stepsMax: z.number().int().min(1).max(1_000_000).optional(),
  /** Attempts at effects in all; once they are spent, nothing is tried again. */
  attemptsMax: z.number().int().min(1).max(1_000_000).optional(),
  /** Tokens of recorded model calls, in and out together. */
  tokensMax: z.number().int().min(1).optional(),
  /** Cost of recorded model calls, in whatever unit they are recorded with. */
  costMax: z.number().positive().optional(),
  /** From acceptance on. */
  wallTimeMaxMs: DurationMs.min(1).optional(),
});
export type Budgets = z.infer<typeof Budgets>;

export const StartRun = message(
  'StartRun',
  z.object({
    /** Null for a run whose loop the client owns. */
    agent: Named.nullable(),
    pool: Pool.optional(),
    input: JsonValue,
    goal: z.string().max(10_000).optional(),
    success: z.array(z.string().max(2000)).max(50).optional(),
    principal: z.string().max(200).optional(),
    deadline: NamedInstant.optional(),
    budgets: Budgets.optional(),
    /** What happens at the run's deadline. Default: it expires. */
    onDeadline: OnDeadline.optional(),
    /** Names a conversation, of which one run at most goes on at a time. */
    concurrencyKey: z.string().min(1).max(200).optional(),
    /** Where the conversation has an open run: wait for its end, be refused, cancel it, or cancel it and have what it did compensated. Default: `enqueue`. */
    onConcurrent: z.enum(['enqueue', 'reject', 'interrupt', 'rollback']).optional(),
    /** Who waits longer is let in later. Default 0. */
    priority: z.number().int().min(-100).max(100).optional(),
    /** How long it may wait to be let in; 0: not at all. Milliseconds. */
    queueMs: DurationMs.optional(),
    /** Set by the orchestrator for a child. */
    parent: z.object({ run: RunId, step: Step }).optional(),
  }),
);

const call = {
  step: Step,
  tool: Named,
  args: JsonValue,
  /** The thing in the world that the effect is about; part of the operation key. */
  target: z.string().min(1).max(500).optional(),
};

export const CallTool = message(
  'CallTool',
  z.object({
    ...call,
    ...progress,
    /** Absent: granted. */
    fire: Fire.optional(),
    /** What to do when the step is recorded with other arguments. Absent: refuse. */
    onConflict: z.enum(['refuse', 'adopt']).optional(),
    /** The failed step whose arguments this call mends. Each is mended once. */
    repairs: Step.optional(),
    /** The failed step for which this call takes over; its result is marked degraded. */
    fallbackFor: Step.optional(),
    /** The wait whose approval allows this call. Used up with it. */
    approval: Step.optional(),
  }),
);

/** A parallel group of pure or idempotent steps that is recorded as one. */
export const CallGroup = message('CallGroup', z.object({ step: Step, calls: z.array(z.object(call)).min(1).max(100), ...progress }));

/** `changed`: a marker that the run has come to changed code with nothing recorded beyond it; a history without it took the code of before. */
export const RecordKind = z.enum(['step', 'model', 'now', 'random', 'uuid', 'artifact', 'changed']);
export type RecordKind = z.infer<typeof RecordKind>;

export const Usage = z.object({ tokensIn: z.number().nonnegative().optional(), tokensOut: z.number().nonnegative().optional(), cost: z.number().nonnegative().optional() });
export type Usage = z.infer<typeof Usage>;

/** Recorded work: a model call, a pure step, a time, a random number, the marker of changed code. */
export const RecordStep = message(
  'RecordStep',
  z.object({ step: Step, kind: RecordKind, name: z.string().min(1).max(200), result: Stored, usage: Usage.optional(), ...progress }),
);

/** A try at recorded work failed; the orchestrator answers when to try again, or that the budget is spent. */
export const ReportTry = message(
  'ReportTry',
  z.object({ step: Step, kind: RecordKind, name: z.string().min(1).max(200), attempt: Attempt, failure: Failure, ...progress }),
);

/** Ends of attempts, without a next wish. */
export const ReportSteps = message('ReportSteps', z.object({ ...progress }));

export const Ending = z.discriminatedUnion('status', [
  z.object({ status: z.literal('completed'), output: Stored, verified: z.boolean().optional() }),
  /** Without an output when its time ran out before its code gave one. */
  z.object({ status: z.literal('completed_partially'), output: Stored.optional(), because: z.string().max(4000) }),
  z.object({ status: z.literal('failed'), failure: Failure }),
  /** By an operator's word, or with its parent. */
  z.object({ status: z.literal('cancelled'), reason: z.string().max(4000), by: z.string().max(300) }),
  /** Its deadline passed. */
  z.object({ status: z.literal('expired'), deadline: Instant }),
]);
export type Ending = z.infer<typeof Ending>;

/** The run waits for something named. */
export const StartWait = message(
  'StartWait',
  z.object({ step: Step, wait: Wait.refine((wait) => wait.kind !== 'sleep' || NamedInstant.safeParse(wait.until).success, 'it would sleep beyond the year 9999'), deadline: NamedInstant.optional(), onDeadline: OnDeadline.optional(), ...progress }),
);

/** Nothing that this worker could do for the run is left until one of these waits ends: the run may be let go. */
export const ReleaseRun = message('ReleaseRun', z.object({ waits: z.array(Step).min(1).max(1000), ...progress }));

/** The run's own view of a wait is over: nobody awaits it any more (it lost a race, or its branch is over). */
export const AbandonWait = message('AbandonWait', z.object({ step: Step, ...progress }));

/** Something that a run may wait for, from whoever may write here. Kept until a wait of that name takes it, in order. */
export const SignalRun = message('SignalRun', z.object({ signal: z.string().min(1).max(200), name: z.string().min(1).max(200), payload: JsonValue }));

/** A third party's answer. The token shows that it was asked. */
export const DeliverCallback = message('DeliverCallback', z.object({ step: Step, token: z.string().min(1).max(500), payload: JsonValue }));

/** Told by the orchestrator to itself, across lanes: a child run has ended. */
export const ReportChild = message('ReportChild', z.object({ step: Step, child: RunId, ending: Ending }));

/** Told by the orchestrator to itself, across lanes: the run's turn has come at a gate where it waited. */
export const AdmitRun = message('AdmitRun', z.object({ gate: z.string() }));

export const FinishRun = message('FinishRun', z.object({ ending: Ending, ...progress }));

/** The worker's code asks for another step than its history holds. */
export const ReportDivergence = message('ReportDivergence', z.object({ step: Step, recorded: z.string().max(500), asked: z.string().max(500), fence: Fence }));

/** A worker has taken a lane. Written into that very partition, so that it is ordered with the intents. */
export const AnnounceLane = message(
  'AnnounceLane',
  z.object({
    pool: Pool,
    lane: z.number().int().nonnegative(),
    worker: WorkerId,
    /** Of the worker's consumer group: an announcement that was long under way is told from a newer one. */
    generation: z.number().int().nonnegative().optional(),
    agents: z.array(Named).max(1000),
    tools: z.array(Name).max(5000),
    /** Tasks that former hosts have committed to: last `ce_seq` by `ce_source` of `tool.tasks`. */
    taken: z.record(z.string(), z.number().int().nonnegative()),
  }),
);

/** Types on the topic `agent.intents`, but for forks. */
export const intents = [StartRun, CallTool, CallGroup, RecordStep, ReportTry, ReportSteps, FinishRun, ReportDivergence, AnnounceLane, StartWait, ReleaseRun, AbandonWait, SignalRun, DeliverCallback, ReportChild, AdmitRun] as const;
