import { z } from 'zod';
import { Attempt, Fence, Instant, Name, Named, Pool, Step, WorkerId } from './ids.js';
import { Failure, Fire, JsonValue, Report, Stored } from './outcome.js';
import { message } from './message.js';

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
    deadline: Instant.optional(),
    budgets: Budgets.optional(),
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
  }),
);

/** A parallel group of pure or idempotent steps that is recorded as one. */
export const CallGroup = message('CallGroup', z.object({ step: Step, calls: z.array(z.object(call)).min(1).max(100), ...progress }));

export const RecordKind = z.enum(['step', 'model', 'now', 'random', 'uuid', 'artifact']);
export type RecordKind = z.infer<typeof RecordKind>;

export const Usage = z.object({ tokensIn: z.number().nonnegative().optional(), tokensOut: z.number().nonnegative().optional(), cost: z.number().nonnegative().optional() });
export type Usage = z.infer<typeof Usage>;

/** Recorded work: a model call, a pure step, a time, a random number. */
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
  z.object({ status: z.literal('completed_partially'), output: Stored, because: z.string().max(4000) }),
  z.object({ status: z.literal('failed'), failure: Failure }),
]);
export type Ending = z.infer<typeof Ending>;

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

/** Types on the topic `agent.intents`. */
export const intentMessages = [StartRun, CallTool, CallGroup, RecordStep, ReportTry, ReportSteps, FinishRun, ReportDivergence, AnnounceLane] as const;
