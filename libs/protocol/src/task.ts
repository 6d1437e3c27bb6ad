import { z } from 'zod';
import { Attempt, Fence, Instant, Name, Named, Step, Tenant, Version, WorkerId } from './ids.js';
import { Failure, Fire, JsonValue, Outcome, Stored } from './outcome.js';
import { RecordKind } from './intent.js';
import { RejectReason, RequestedCall } from './run.js';
import { message } from './message.js';
import { Wait, WaitEnd } from './wait.js';

/** One step of a run's history, as a resuming worker needs it. */
export const HistoryStep = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('call'),
    call: RequestedCall,
    fire: Fire,
    attempt: Attempt,
    /** Set on the members of a group recorded as one. */
    group: Step.optional(),
    outcome: Outcome.optional(),
  }),
  z.object({ kind: z.literal('wait'), step: Step, wait: Wait, abandoned: z.boolean().optional(), end: WaitEnd.optional() }),
  z.object({ kind: z.literal('record'), step: Step, as: RecordKind, name: z.string(), result: Stored }),
  z.object({ kind: z.literal('try'), step: Step, as: RecordKind, name: z.string(), attempt: Attempt, failure: Failure, retryAt: Instant.nullable() }),
]);
export type HistoryStep = z.infer<typeof HistoryStep>;

/** A worker may now advance this run. A long history comes in pages, `page` of `pages` from 1, in stream order. */
export const RunGranted = message(
  'RunGranted',
  z.object({
    worker: WorkerId,
    fence: Fence,
    /** Of the announcement under which the worker holds the lane: a grant that arrives late is told from a present one. */
    generation: z.number().int().nonnegative().optional(),
    tenant: Tenant,
    agent: Named,
    input: JsonValue,
    page: z.number().int(),
    pages: z.number().int(),
    steps: z.array(HistoryStep),
    /** Order in which completions were handed to the code so far (whole, on the first page). */
    observed: z.array(Step),
  }),
);
/** The ledger's word on a step that the worker has not reported itself. */
export const StepSettled = message('StepSettled', z.object({ worker: WorkerId, fence: Fence, step: Step, attempt: Attempt, outcome: Outcome }));
/** A wait of this run has ended. */
export const WaitSettled = message('WaitSettled', z.object({ worker: WorkerId, fence: Fence, step: Step, end: WaitEnd }));
/**
 * The run was let go, and its worker gets it again when something moves; or it has ended: a worker holds
 * a run until it hears so, since its own word on the end may be refused. `cancelled`: it never gets it
 * again; what of it has not fired is reported so, since nobody will ask.
 */
export const RunDropped = message('RunDropped', z.object({ worker: WorkerId, fence: Fence, because: z.string(), cancelled: z.literal(true).optional() }));
/** Tools that are held still on this lane, all of them: their local calls do not fire until a later word leaves them out. Under the lane's own stream. */
export const ToolsHeld = message('ToolsHeld', z.object({ worker: WorkerId, tools: z.array(z.object({ name: Name, version: Version.optional() })) }));
/** When recorded work may be tried again; null: never, the budget is spent. */
export const TryAnswered = message('TryAnswered', z.object({ worker: WorkerId, fence: Fence, step: Step, attempt: Attempt, retryAt: Instant.nullable() }));
/** An intent of this worker was refused. */
export const IntentRefused = message(
  'IntentRefused',
  z.object({ worker: WorkerId.nullable(), intent: z.string(), fence: z.number().optional(), step: Step.optional(), reason: RejectReason, message: z.string() }),
);

/** Types on `run.tasks.<pool>`. */
export const runTaskMessages = [RunGranted, StepSettled, WaitSettled, RunDropped, ToolsHeld, TryAnswered, IntentRefused] as const;

/** A message that could not be read, with where it is and why. */
export const DeadLetter = message(
  'DeadLetter',
  z.object({
    topic: z.string(),
    partition: z.number().int(),
    offset: z.number().int(),
    key: z.string().nullable(),
    type: z.string().nullable(),
    reason: z.string(),
    message: z.string(),
    /** The first bytes of the value, for whoever looks at it. */
    excerpt: z.string().max(1000),
  }),
);
export const deadLetterMessages = [DeadLetter] as const;
