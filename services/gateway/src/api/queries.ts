import { IntentRejected, topics, type Json } from '@holdfast/protocol';
import { z } from 'zod';
import type { BrakeView } from '../domain/brake-view.js';
import type { CaseView } from '../domain/case-view.js';
import type { EffectView } from '../domain/effect-view.js';
import type { PlanView } from '../domain/plan-view.js';
import { inOrder, placeOf, STREAM_TOPICS, type Position } from '../domain/position.js';
import { statusOf, type RunView } from '../domain/run-view.js';
import { approvalStatus, placeOfStep, type StepView, type WaitView } from '../domain/step-view.js';
import { Problem } from '../http/problem.js';
import { rowsOf } from '../store/database.js';
import type { Views } from '../views/views.js';
import { iso, isoOrNull, type ApprovalOut, type CaseOut, type EffectOut, type Run, type RunEventOut, type RunSummary, type StepOut } from './shapes.js';
import { refusedStart, type RefusedStart } from './start-refusal.js';

type Doc = { readonly id: string; readonly doc: string };
export type Page<T> = { readonly items: T[]; readonly next: string | null };

export interface KnownRun {
  readonly id: string;
  readonly view: RunView;
}

export interface EventRow {
  readonly topic: string;
  readonly lane: number;
  readonly offset: number;
  readonly subject: string;
  readonly type: string;
  readonly version: number;
  readonly time: number;
  readonly data: string;
}

/** What the read models know, within one tenant. */
export class Queries {
  constructor(private readonly views: Views) {}

  private rows<Row>(text: (schema: string) => string, values: readonly unknown[]): Promise<Row[]> {
    return rowsOf<Row>(this.views.database, text(this.views.schema), values);
  }

  /** Null where the tenant has no such run. */
  async run(tenant: string, id: string): Promise<KnownRun | null> {
    const [row] = await this.rows<Doc>((schema) => `select id, doc from ${schema}.run where id = $1 and tenant = $2`, [id, tenant]);
    return row === undefined ? null : { id: row.id, view: JSON.parse(row.doc) as RunView };
  }

  /** @throws Problem */
  async runOr404(tenant: string, id: string): Promise<KnownRun> {
    const run = await this.run(tenant, id);
    if (run !== null) return run;
    const none = `there is no run ${id}`;
    const refused = await this.#refusedStart(tenant, id);
    throw refused === null ? new Problem('not-found', none) : new Problem('not-found', `${none}: its start was refused, ${refused.message}`, { extra: refused.extra });
  }

  /** Why there is no such run, where its start was refused: whoever was told to look for it hears of it. */
  async #refusedStart(tenant: string, id: string): Promise<RefusedStart | null> {
    const [last] = await this.rows<Pick<EventRow, 'type' | 'data'>>((schema) => `select type, data from ${schema}.event where subject = $1 and topic = $2 and tenant = $3 order by version desc limit 1`, [id, topics.runEvents, tenant]);
    return last === undefined ? null : refusedStart(last.type, JSON.parse(last.data) as { readonly [member: string]: Json });
  }

  /** Whose run it is, if it is anybody's. */
  async ownerOf(id: string): Promise<string | null> {
    const [row] = await this.rows<{ tenant: string }>((schema) => `select tenant from ${schema}.run where id = $1`, [id]);
    return row?.tenant ?? null;
  }

  /** Newest first. */
  async runs(tenant: string, { status, agent, id: text, limit, cursor }: { status?: readonly string[] | undefined; agent?: string | undefined; id?: string | undefined; limit: number; cursor?: string | undefined }): Promise<Page<KnownRun>> {
    const [at, id] = cursor === undefined ? [null, null] : read(z.tuple([Count, PlainText]), cursor);
    const rows = await this.rows<Doc & { at: number }>(
      (schema) => `select id, doc, accepted_at as at from ${schema}.run
        where tenant = $1 and ($2::text[] is null or status = any($2)) and ($3::text is null or agent = $3) and ($4::bigint is null or (accepted_at, id) < ($4, $5)) and ($7::text is null or id like $7)
        order by accepted_at desc, id desc limit $6`,
      [tenant, status ?? null, agent ?? null, at, id, limit + 1, text === undefined ? null : `${text.replaceAll(/[\\%_]/g, '\\$&')}%`],
    );
    return paged(rows, limit, (row) => [row.at, row.id], (row) => ({ id: row.id, view: JSON.parse(row.doc) as RunView }));
  }

  async steps(run: string, limit: number, cursor?: string): Promise<Page<StepView>> {
    const after = cursor === undefined ? null : placeOfStep(read(Steps, cursor));
    const rows = await this.rows<{ step: string; doc: string }>((schema) => `select step, doc from ${schema}.step where run = $1 and ($2::int[] is null or place > $2) order by place limit $3`, [run, after, limit + 1]);
    return paged(rows, limit, ({ step }) => step, ({ doc }) => JSON.parse(doc) as StepView);
  }

  async effects(run: string, limit: number, cursor?: string): Promise<Page<EffectView>> {
    const after = cursor === undefined ? null : placeOfStep(read(Steps, cursor));
    const rows = await this.rows<{ step: string; doc: string }>((schema) => `select step, doc from ${schema}.effect where run = $1 and ($2::int[] is null or place > $2) order by place limit $3`, [run, after, limit + 1]);
    return paged(rows, limit, ({ step }) => step, ({ doc }) => JSON.parse(doc) as EffectView);
  }

  /** Oldest first: the longer open, the higher up. */
  async cases(tenant: string, of: { status?: string | undefined; owner?: string | undefined; tool?: string | undefined; run?: string | undefined; limit: number; cursor?: string | undefined }): Promise<Page<{ run: string; view: CaseView }>> {
    const [at, run, step] = of.cursor === undefined ? [null, null, null] : read(z.tuple([Count, PlainText, Steps]), of.cursor);
    const rows = await this.rows<{ run: string; step: string; since: number; doc: string }>(
      (schema) => `select run, step, since, doc from ${schema}.matter
        where tenant = $1 and ($2::text is null or status = $2) and ($3::text is null or owner = $3) and ($4::text is null or tool = $4) and ($5::text is null or run = $5)
          and ($6::bigint is null or (since, run, step) > ($6, $7, $8))
        order by since, run, step limit $9`,
      [tenant, of.status ?? null, of.owner ?? null, of.tool ?? null, of.run ?? null, at, run, step, of.limit + 1],
    );
    return paged(rows, of.limit, (row) => [row.since, row.run, row.step], (row) => ({ run: row.run, view: JSON.parse(row.doc) as CaseView }));
  }

  async case(tenant: string, run: string, step: string): Promise<CaseView | null> {
    const [row] = await this.rows<{ doc: string }>((schema) => `select doc from ${schema}.matter where tenant = $1 and run = $2 and step = $3`, [tenant, run, step]);
    return row === undefined ? null : (JSON.parse(row.doc) as CaseView);
  }

  /** Approvals that were asked for, oldest first; with whether the run is over. */
  async approvals(tenant: string, { open, limit, cursor }: { open: boolean; limit: number; cursor?: string | undefined }): Promise<Page<KnownApproval>> {
    const [at, run, step] = cursor === undefined ? [null, null, null] : read(z.tuple([Count, PlainText, Steps]), cursor);
    const rows = await this.rows<ApprovalRow>(
      (schema) => `select a.run, a.step, a.since, a.doc, r.over from ${schema}.approval a join ${schema}.run r on r.id = a.run
        where a.tenant = $1 and (not $2::boolean or (a.status = 'open' and not r.over)) and ($3::bigint is null or (a.since, a.run, a.step) > ($3, $4, $5))
        order by a.since, a.run, a.step limit $6`,
      [tenant, open, at, run, step, limit + 1],
    );
    return paged(rows, limit, (row) => [row.since, row.run, row.step], approvalOf);
  }

  async approval(tenant: string, run: string, step: string): Promise<KnownApproval | null> {
    const [row] = await this.rows<ApprovalRow>((schema) => `select a.run, a.step, a.since, a.doc, r.over from ${schema}.approval a join ${schema}.run r on r.id = a.run where a.tenant = $1 and a.run = $2 and a.step = $3`, [tenant, run, step]);
    return row === undefined ? null : approvalOf(row);
  }

  /** Runs with a plan, those whose latest was opened longest ago first. `unfinished`: open or failed. */
  async plans(tenant: string, { status, limit, cursor }: { status: 'unfinished' | 'awaiting' | 'any'; limit: number; cursor?: string | undefined }): Promise<Page<{ run: string; view: PlanView }>> {
    const [at, run] = cursor === undefined ? [null, null] : read(z.tuple([Count, PlainText]), cursor);
    const rows = await this.rows<{ run: string; since: number; doc: string }>(
      (schema) => `select run, since, doc from ${schema}.plan
        where tenant = $1 and since is not null and ($2 = 'any' or ($2 = 'unfinished' and status in ('open', 'compensation_failed')) or ($2 = 'awaiting' and awaiting > 0)) and ($3::bigint is null or (since, run) > ($3, $4))
        order by since, run limit $5`,
      [tenant, status, at, run, limit + 1],
    );
    return paged(rows, limit, (row) => [row.since, row.run], (row) => ({ run: row.run, view: JSON.parse(row.doc) as PlanView }));
  }

  /** Null where the run did nothing that can be answered. */
  async plan(tenant: string, run: string): Promise<PlanView | null> {
    const [row] = await this.rows<{ doc: string }>((schema) => `select doc from ${schema}.plan where tenant = $1 and run = $2`, [tenant, run]);
    return row === undefined ? null : (JSON.parse(row.doc) as PlanView);
  }

  /** The brakes that each lane has set. */
  async brakes(): Promise<{ lane: number; view: BrakeView }[]> {
    const rows = await this.rows<{ lane: number; doc: string }>((schema) => `select lane, doc from ${schema}.brake where is_set order by name, lane limit 10000`, []);
    return rows.map(({ lane, doc }) => ({ lane, view: JSON.parse(doc) as BrakeView }));
  }

  /** What lanes decided last of a brake, where a command led to it. */
  async brakesUnder(command: string): Promise<{ lane: number; view: BrakeView }[]> {
    const rows = await this.rows<{ lane: number; doc: string }>((schema) => `select lane, doc from ${schema}.brake where doc::json ->> 'command' = $1`, [command]);
    return rows.map(({ lane, doc }) => ({ lane, view: JSON.parse(doc) as BrakeView }));
  }

  /** Events of one of a run's streams, in order, with what their hashes cover. */
  async links(run: string, topic: string, after: number, limit: number): Promise<LinkRow[]> {
    return this.rows<LinkRow>((schema) => `select version, type, time, tenant, hash, data from ${schema}.event where subject = $1 and topic = $2 and version > $3 order by version limit $4`, [run, topic, after, limit]);
  }

  /** A wait of any tenant's run, with whose it is: for who shows its token. */
  async waitOf(run: string, step: string): Promise<{ readonly tenant: string; readonly wait: WaitView } | null> {
    const [row] = await this.rows<{ tenant: string; doc: string }>((schema) => `select r.tenant, s.doc from ${schema}.step s join ${schema}.run r on r.id = s.run where s.run = $1 and s.step = $2`, [run, step]);
    const view = row === undefined ? null : (JSON.parse(row.doc) as StepView);
    return row === undefined || view?.kind !== 'wait' ? null : { tenant: row.tenant, wait: view };
  }

  /** Events of a run that name a command. */
  async eventsUnder(run: string, command: string): Promise<EventRow[]> {
    return this.rows<EventRow>((schema) => `select ${EVENT} from ${schema}.event where subject = $1 and command = $2 order by version limit 100`, [run, command]);
  }

  /** Events of a run behind a position, in order, with the position behind each. */
  async eventsOfRun(run: string, lane: number, from: Position, limit: number): Promise<{ event: EventRow; after: string }[]> {
    const places = Object.values(STREAM_TOPICS).map((topic) => ({ topic, next: from.get(placeOf(topic, lane)) ?? 0 }));
    const rows = await this.rows<EventRow>(
      (schema) => `select e.* from unnest($2::text[], $3::bigint[]) as p(topic, next),
        lateral (select ${EVENT} from ${schema}.event where subject = $1 and topic = p.topic and "offset" >= p.next order by "offset" limit $4) e`,
      [run, places.map(({ topic }) => topic), places.map(({ next }) => next), limit],
    );
    return inOrder(from, rows).slice(0, limit);
  }

  /** The same for all of a tenant. */
  async eventsOfTenant(tenant: string, lanes: number, from: Position, limit: number): Promise<{ event: EventRow; after: string }[]> {
    const places = Object.values(STREAM_TOPICS).flatMap((topic) => Array.from({ length: lanes }, (_, lane) => ({ topic, lane, next: from.get(placeOf(topic, lane)) ?? 0 })));
    const rows = await this.rows<EventRow>(
      (schema) => `select e.* from unnest($2::text[], $3::int[], $4::bigint[]) as p(topic, lane, next),
        lateral (select ${EVENT} from ${schema}.event where tenant = $1 and topic = p.topic and lane = p.lane and "offset" >= p.next order by "offset" limit $5) e`,
      [tenant, places.map(({ topic }) => topic), places.map(({ lane }) => lane), places.map(({ next }) => next), limit],
    );
    return inOrder(from, rows).slice(0, limit);
  }

  /** Where the read models are now, of the topics that streams show. */
  async here(): Promise<Position> {
    const rows = await this.rows<{ topic: string; lane: number; next: number }>((schema) => `select topic, lane, next from ${schema}.position where topic = any($1)`, [Object.values(STREAM_TOPICS)]);
    return new Map(rows.map(({ topic, lane, next }) => [placeOf(topic, lane), next]));
  }

  async contracts(kind: string | undefined, limit: number, cursor?: string): Promise<Page<{ kind: string; doc: unknown }>> {
    const after = cursor === undefined ? null : read(PlainText, cursor);
    const rows = await this.rows<{ key: string; kind: string; doc: string }>((schema) => `select key, kind, doc from ${schema}.contract where ($1::text is null or kind = $1) and ($2::text is null or key > $2) order by key limit $3`, [kind ?? null, after, limit + 1]);
    return paged(rows, limit, ({ key }) => key, (row) => ({ kind: row.kind, doc: JSON.parse(row.doc) as unknown }));
  }

  /** Newest first. */
  async deadLetters(tenant: string, limit: number, cursor?: string): Promise<Page<DeadLetterRow>> {
    const [at, lane, offset] = cursor === undefined ? [null, null, null] : read(z.tuple([Count, Lane, Count]), cursor);
    const rows = await this.rows<DeadLetterRow>(
      (schema) => `select lane, "offset", at, doc from ${schema}.dead_letter where tenant = $1 and ($2::bigint is null or (at, lane, "offset") < ($2, $3, $4)) order by at desc, lane desc, "offset" desc limit $5`,
      [tenant, at, lane, offset, limit + 1],
    );
    return paged(rows, limit, (row) => [row.at, row.lane, row.offset], (row) => row);
  }

  async deadLetter(tenant: string, lane: number, offset: number): Promise<DeadLetterRow | null> {
    const [row] = await this.rows<DeadLetterRow>((schema) => `select lane, "offset", at, doc from ${schema}.dead_letter where tenant = $1 and lane = $2 and "offset" = $3`, [tenant, lane, offset]);
    return row ?? null;
  }

  /** The step of whose intent a run's owner was told that it is refused; null where nobody was. `token`: where the intent stands. */
  async toldOf(run: string, token: string): Promise<string | null> {
    const rows = await this.rows<{ data: string }>((schema) => `select data from ${schema}.event where subject = $1 and topic = $2 and type = $3 and strpos(data, $4) > 0`, [run, topics.runEvents, IntentRejected.type, JSON.stringify(token)]);
    const told = rows.map(({ data }) => IntentRejected.schema.safeParse(JSON.parse(data)).data).find((each) => each?.token === token);
    return told?.step ?? null;
  }

  async workers(): Promise<unknown[]> {
    const rows = await this.rows<{ doc: string }>((schema) => `select doc from ${schema}.worker order by at desc, id limit 1000`, []);
    return rows.map(({ doc }) => JSON.parse(doc) as unknown);
  }
}

export interface LinkRow {
  readonly version: number;
  readonly type: string;
  readonly time: number;
  readonly tenant: string;
  readonly hash: string | null;
  readonly data: string;
}

interface ApprovalRow {
  readonly run: string;
  readonly step: string;
  readonly since: number;
  readonly doc: string;
  readonly over: boolean;
}

export interface KnownApproval {
  readonly run: string;
  readonly view: WaitView;
  readonly scope: Extract<WaitView['wait'], { kind: 'approval' }>;
  readonly over: boolean;
}

function approvalOf({ run, doc, over }: ApprovalRow): KnownApproval {
  const view = JSON.parse(doc) as WaitView;
  if (view.wait.kind !== 'approval') throw new Error(`step ${view.step} of run ${run} is no approval`);
  return { run, view, scope: view.wait, over };
}

export interface DeadLetterRow {
  readonly lane: number;
  readonly offset: number;
  readonly at: number;
  readonly doc: string;
}

const EVENT = 'topic, lane, "offset", subject, type, version, time, data';
/** What a cursor may hold: nothing that the database can't take. */
const Count = z.number().int().nonnegative();
const Lane = z.number().int().min(0).max(9999);
const PlainText = z.string().max(500).refine((text) => text.isWellFormed() && !text.includes('\u0000'));
const Steps = z.string().regex(/^\d{1,7}(\.\d{1,7}){0,7}(~\d{1,4})?$/);

/** @throws Problem when it is none that a page gave out */
function read<Schema extends z.ZodType>(schema: Schema, cursor: string): z.output<Schema> {
  try {
    return schema.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString()));
  } catch {
    throw new Problem('invalid-request', 'query: cursor: no page gave out this cursor');
  }
}

function paged<Row, Item>(rows: readonly Row[], limit: number, key: (row: Row) => unknown, item: (row: Row) => Item): Page<Item> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return { items: shown.map(item), next: rows.length > limit && last !== undefined ? Buffer.from(JSON.stringify(key(last))).toString('base64url') : null };
}

export const runSummary = ({ id, view }: KnownRun): z.input<typeof RunSummary> => ({
  id,
  status: statusOf(view),
  agent: view.agent,
  goal: view.goal,
  principal: view.principal,
  acceptedAt: iso(view.acceptedAt),
  updatedAt: iso(view.updatedAt),
  endedAt: isoOrNull(view.endedAt),
  deadline: isoOrNull(view.deadline),
  resumes: view.resumes,
  unknown: view.unknown.length,
});

export const runOut = (run: KnownRun): z.input<typeof Run> => {
  const { tenant, pool, input, success, budgets, version, hash, fence, worker, rejected, unknown, ending, fresh, replayed, quarantine, waits, paused, cancel, parent, usage, brakes = [], stuck = null, origin = null, compensation = null, trace = null } = run.view;
  return {
    ...runSummary(run),
    ...{ tenant, pool, input, success: [...success], budgets, version, chainHead: hash, fence, worker, rejected, ending, quarantine, paused, parent, usage, origin, compensation, trace, heldBy: [...brakes] },
    stuck: stuck === null ? null : { since: iso(stuck.since), on: stuck.on, steps: [...stuck.steps] },
    unknowns: unknown.map(({ since, ...each }) => ({ ...each, since: iso(since) })),
    waits: waits.map(({ since, deadline, ...each }) => ({ ...each, since: iso(since), deadline: isoOrNull(deadline) })),
    cancel: cancel === null ? null : { ...cancel, at: iso(cancel.at) },
    steps: fresh === null || replayed === null ? null : { fresh, replayed },
  };
};

export const eventOut = ({ event, after }: { event: EventRow; after: string }): z.input<typeof RunEventOut> => ({
  id: after,
  topic: event.topic,
  type: event.type,
  run: event.subject,
  version: event.version,
  time: iso(event.time),
  data: JSON.parse(event.data) as unknown,
});

export function stepOut(step: StepView, fence: number | null): z.input<typeof StepOut> {
  const { kind } = step;
  const common = { step: step.step, kind, askedAt: iso(step.askedAt), endedAt: isoOrNull(step.endedAt), fence: step.fence, replayed: step.fence !== null && fence !== null && step.fence < fence && step.endedAt !== null };
  switch (kind) {
    case 'call': {
      const { tool, effect, fire, key, digest, args, target, group, repairs, fallbackFor, attempt, outcome } = step;
      return { ...common, name: tool.name, call: { tool, effect, fire, key, digest, args, target, group, repairs, fallbackFor, attempt, outcome }, record: null, failed: null, wait: null };
    }
    case 'record':
      return { ...common, name: step.name, call: null, record: { as: step.as, result: step.result, usage: step.usage }, failed: null, wait: null };
    case 'try':
      return { ...common, name: step.name, call: null, record: null, failed: { as: step.as, attempt: step.attempt, failure: step.failure, retryAt: isoOrNull(step.retryAt) }, wait: null };
    case 'wait': {
      const { wait, deadline, onDeadline, reminded, escalatedTo, end, abandoned } = step;
      return { ...common, name: wait.kind, call: null, record: null, failed: null, wait: { for: wait, deadline: isoOrNull(deadline), onDeadline, reminded, escalatedTo, end, abandoned } };
    }
  }
}

export const effectOut = (run: string, { attempts, retryAt, since, updatedAt, ...rest }: EffectView): z.input<typeof EffectOut> => ({
  run,
  ...rest,
  attempts: attempts.map(({ sentAt, notAfter, endedAt, ...each }) => ({ ...each, sentAt: isoOrNull(sentAt), notAfter: isoOrNull(notAfter), endedAt: isoOrNull(endedAt) })),
  retryAt: isoOrNull(retryAt),
  since: iso(since),
  updatedAt: iso(updatedAt),
});

export const caseOut = (run: string, { since, nextLookAt, readingFrom, settledAt, updatedAt: _, escalated, ...rest }: CaseView): z.input<typeof CaseOut> => ({
  id: `${run}/${rest.step}/${rest.attempt}`,
  run,
  ...rest,
  escalated: [...escalated],
  since: iso(since),
  nextLookAt: isoOrNull(nextLookAt),
  readingFrom: isoOrNull(readingFrom),
  settledAt: isoOrNull(settledAt),
});

export function approvalOut({ run, view, scope: { what, scope, approvers, fourEyes }, over }: KnownApproval): z.input<typeof ApprovalOut> {
  const { step, askedAt, endedAt, deadline, reminded, escalatedTo, decided, end } = view;
  return {
    ...{ id: `${run}/${step}`, run, step, status: approvalStatus(view, over), what, tool: scope.tool, target: scope.target ?? null, args: scope.args, digest: scope.digest },
    amount: scope.amount === undefined ? null : { value: scope.amount.value, currency: scope.amount.currency ?? null },
    ...{ approvers: [...approvers], fourEyes, since: iso(askedAt), deadline: isoOrNull(deadline), reminded, escalatedTo },
    decidedBy: decided?.by ?? null,
    feedback: decided?.feedback ?? (end?.status === 'rejected' ? end.feedback : null),
    usableUntil: isoOrNull(decided?.expiresAt ?? null),
    endedAt: isoOrNull(endedAt),
  };
}
