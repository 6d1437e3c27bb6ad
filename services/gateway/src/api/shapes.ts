import { Attempt, Budgets, EffectClass, isoTime, Named, RunId, Step } from '@holdfast/protocol';
import { z } from 'zod';
import { EFFECT_STATUSES } from '../domain/effect-view.js';
import { APPROVAL_STATUSES } from '../domain/step-view.js';
import { COMPENSATION_STATUSES, RUN_STATUSES } from '../domain/run-view.js';
import { parsePosition } from '../domain/position.js';

/** RFC 3339, UTC, milliseconds. */
export const Time = z.string().meta({ id: 'Time', format: 'date-time', description: 'RFC 3339, UTC, milliseconds' });
export const iso = isoTime;
export const isoOrNull = (at: number | null): string | null => (at === null ? null : iso(at));

/** Any JSON value. */
export const AnyJson = z.unknown().meta({ description: 'any JSON value' });

/** A time in a request, as epoch milliseconds. */
export const Moment = z
  .string()
  .max(40)
  .meta({ format: 'date-time', description: 'RFC 3339 with a time zone', examples: ['2026-01-31T12:00:00.000Z'] })
  .transform((text, context) => {
    const at = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$/.test(text) ? Date.parse(text) : NaN;
    if (!Number.isNaN(at) && at >= 0) return at;
    context.addIssue({ code: 'custom', message: `"${text}" is no time such as 2026-01-31T12:00:00Z` });
    return z.NEVER;
  });

export const RunParams = z.object({ run: RunId });
export const Limit = z.coerce.number().int().min(1).max(200).default(50).meta({ description: 'how many at most' });
export const Cursor = z.string().min(1).max(1000).meta({ description: 'the `next` of the page before' });
export const EventPlace = z
  .string()
  .regex(/^[0-9recp._-]{1,8000}$/, 'this is the id of no event')
  .meta({ description: 'the id of an event, or "0" for the beginning' })
  .transform((text, context) => {
    const position = parsePosition(text);
    if (position !== null) return position;
    context.addIssue({ code: 'custom', message: 'this is the id of no event' });
    return z.NEVER;
  });
/** How long an answer is waited for. Milliseconds. */
export const WaitMs = z.coerce.number().int().min(0).max(30_000).default(10_000).meta({ description: 'how long the owning service’s decision is waited for, milliseconds; 202 when it takes longer' });

export const page = <Item extends z.ZodType>(item: Item) => z.object({ items: z.array(item), next: z.string().nullable().meta({ description: 'the `cursor` of the next page; null on the last' }) });

export const RunSummary = z
  .object({
    id: z.string(),
    status: z.enum(RUN_STATUSES),
    agent: Named.nullable(),
    goal: z.string().nullable(),
    principal: z.string().nullable(),
    acceptedAt: Time,
    updatedAt: Time,
    endedAt: Time.nullable(),
    deadline: Time.nullable(),
    resumes: z.number().int(),
    unknown: z.number().int().meta({ description: 'how many outcomes nobody knows' }),
  })
  .meta({ id: 'RunSummary' });

export const Run = z
  .object({
    ...RunSummary.shape,
    tenant: z.string(),
    pool: z.string(),
    input: AnyJson,
    success: z.array(z.string()),
    budgets: Budgets,
    version: z.number().int().meta({ description: 'events in the run’s stream' }),
    chainHead: z.string().nullable().meta({ description: 'head of the hash chain of the run’s events' }),
    fence: z.number().int().nullable(),
    worker: z.string().nullable(),
    rejected: z.number().int().meta({ description: 'intents that were refused' }),
    unknowns: z.array(z.object({ step: z.string(), attempt: Attempt, cause: z.string(), message: z.string(), since: Time })),
    ending: AnyJson,
    steps: z.object({ fresh: z.number().int(), replayed: z.number().int() }).nullable().meta({ description: 'by the worker that finished the run' }),
    quarantine: z.string().nullable(),
    waits: z.array(z.object({ step: z.string(), kind: z.string(), name: z.string().nullable(), since: Time, deadline: Time.nullable() })),
    paused: z.object({ by: z.string(), reason: z.string() }).nullable(),
    cancel: z.object({ by: z.string(), reason: z.string(), manner: z.string(), at: Time }).nullable(),
    parent: z.object({ run: z.string(), step: z.string() }).nullable(),
    usage: z.object({ tokens: z.number(), cost: z.number() }).meta({ description: 'of recorded model calls' }),
    heldBy: z.array(z.string()).meta({ description: 'brakes on its tenant or agent that hold it, such as `agent:desk`' }),
    stuck: z.object({ since: Time, on: z.string(), steps: z.array(z.string()) }).nullable().meta({ description: 'it makes no progress, and nothing on record explains it' }),
    origin: z.object({ run: z.string(), from: z.string() }).nullable().meta({ description: 'the run that it was forked off, and the first step that it does itself' }),
    compensation: z.enum(COMPENSATION_STATUSES).nullable().meta({ description: 'how its latest plan stands' }),
    trace: z.string().nullable().meta({ description: 'id of its OpenTelemetry trace' }),
  })
  .meta({ id: 'Run' });

export const RunEventOut = z
  .object({ id: z.string(), topic: z.string(), type: z.string(), run: z.string(), version: z.number().int(), time: Time, data: AnyJson })
  .meta({ id: 'RunEvent', description: '`id` names the place behind the event: what Last-Event-ID and `after` take' });

export const StepOut = z
  .object({
    step: z.string(),
    kind: z.enum(['call', 'record', 'try', 'wait']),
    name: z.string(),
    askedAt: Time,
    endedAt: Time.nullable(),
    fence: z.number().int().nullable(),
    replayed: z.boolean().meta({ description: 'recorded before the run last changed hands: replayed since, not done again' }),
    call: z
      .object({
        tool: Named,
        effect: EffectClass,
        fire: z.enum(['local', 'granted']),
        key: z.string(),
        digest: z.string(),
        args: AnyJson,
        target: z.string().nullable(),
        group: z.string().nullable(),
        repairs: z.string().nullable(),
        fallbackFor: z.string().nullable(),
        attempt: z.number().int(),
        outcome: AnyJson,
      })
      .nullable(),
    record: z.object({ as: z.string(), result: AnyJson, usage: AnyJson }).nullable(),
    failed: z.object({ as: z.string(), attempt: z.number().int(), failure: AnyJson, retryAt: Time.nullable() }).nullable(),
    wait: z
      .object({ for: AnyJson, deadline: Time.nullable(), onDeadline: AnyJson, reminded: z.number().int(), escalatedTo: z.string().nullable(), end: AnyJson, abandoned: z.boolean() })
      .nullable()
      .meta({ description: '`for`: sleep, signal, approval, callback or child; of a callback only that it is one' }),
  })
  .meta({ id: 'Step' });

export const EffectOut = z
  .object({
    run: z.string(),
    step: z.string(),
    key: z.string(),
    tool: Named.nullable(),
    effect: EffectClass.nullable(),
    status: z.enum(EFFECT_STATUSES),
    args: AnyJson,
    attempts: z.array(z.object({ attempt: z.number().int(), because: z.string().nullable(), sentAt: Time.nullable(), notAfter: Time.nullable(), endedAt: Time.nullable(), end: z.string().nullable(), message: z.string().nullable() })),
    outcome: AnyJson,
    owner: z.object({ run: z.string(), step: z.string() }).nullable(),
    reconciled: z.object({ by: z.string(), forced: z.boolean() }).nullable(),
    alarm: z.string().nullable(),
    retryAt: Time.nullable(),
    since: Time,
    updatedAt: Time,
  })
  .meta({ id: 'Effect' });

export const CaseOut = z
  .object({
    id: z.string().meta({ description: 'RUN/STEP/ATTEMPT' }),
    run: z.string(),
    step: z.string(),
    attempt: Attempt,
    status: z.enum(['open', 'settled']),
    tool: Named,
    effect: EffectClass,
    key: z.string(),
    args: AnyJson,
    cause: z.string(),
    message: z.string(),
    operationId: z.string().nullable(),
    since: Time,
    owner: z.string().nullable(),
    escalated: z.array(z.string()),
    nextLookAt: Time.nullable(),
    readingFrom: Time.nullable().meta({ description: 'from when on a look that finds nothing proves "not applied"; null: only a probe that seals does' }),
    probes: z.number().int(),
    lastAnswer: AnyJson,
    verdict: AnyJson,
    by: z.string().nullable(),
    person: z.string().nullable(),
    forced: z.boolean(),
    settledAt: Time.nullable(),
  })
  .meta({ id: 'Case' });

export const ApprovalOut = z
  .object({
    id: z.string().meta({ description: 'RUN/STEP' }),
    run: z.string(),
    step: z.string(),
    status: z.enum(APPROVAL_STATUSES),
    what: z.string(),
    tool: Named,
    target: z.string().nullable(),
    amount: z.object({ value: z.string(), currency: z.string().nullable() }).nullable(),
    args: AnyJson,
    digest: z.string().meta({ description: 'of what is shown: whoever approves sends it back' }),
    approvers: z.array(z.string()),
    fourEyes: z.boolean(),
    since: Time,
    deadline: Time.nullable(),
    reminded: z.number().int(),
    escalatedTo: z.string().nullable(),
    decidedBy: z.string().nullable(),
    feedback: z.string().nullable(),
    usableUntil: Time.nullable(),
    endedAt: Time.nullable(),
  })
  .meta({ id: 'Approval' });

/** What came of a command. */
export const Decided = z.object({ command: z.string(), event: z.string(), data: AnyJson }).meta({ id: 'Decided', description: 'the event by which the owning service answered the command' });
export const Pending = z.object({ command: z.string(), location: z.string() }).meta({ id: 'Pending', description: 'the command is written and will be decided; `location` shows what became of it' });
export { RunId, Step };
