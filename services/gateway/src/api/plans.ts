import { Controller, Inject } from '@nestjs/common';
import { CompensateRun, DecideCompensation, Digest, Named, RunId, Step, type MessageOf } from '@holdfast/protocol';
import { z } from 'zod';
import { outOfScope } from '../domain/access.js';
import { awaiting, forecast, latestPlan, PLAN_STATUSES, STANDS, standsOf, type AnswerView, type PlanView } from '../domain/plan-view.js';
import { endpoint, ok, Serves, type Answer, type Call, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { decided } from './cases.js';
import { Commands, operatorOf } from './commands.js';
import { Queries } from './queries.js';
import { AnyJson, Cursor, Decided, iso, isoOrNull, Limit, page, Pending, RunParams, Time, WaitMs } from './shapes.js';

const Cause = z.object({ kind: z.string(), message: z.string(), by: z.string().nullable(), at: Time });
const Summary = z.object({
  run: z.string(),
  plan: z.number().int().meta({ description: 'the latest of the run; they are numbered from 1' }),
  status: z.enum(PLAN_STATUSES),
  since: Time,
  concludedAt: Time.nullable(),
  causes: z.array(Cause),
  awaiting: z.number().int().meta({ description: 'compensations that wait for somebody’s yes' }),
  steps: z.number().int().meta({ description: 'effects of the run that may have to be answered' }),
});
const PlanSummary = Summary.meta({ id: 'PlanSummary' });

const Compensation = z
  .object({
    step: z.string(),
    tool: Named,
    args: AnyJson,
    stands: z.enum(STANDS).meta({ description: 'how it stands in the end, or what it waits for' }),
    why: z.string().nullable(),
    effect: z.object({ status: z.string(), message: z.string(), at: Time }).nullable().meta({ description: 'the ledger’s word on the effect itself; null while there is none' }),
    pointOfNoReturn: z.boolean(),
    with: Named.nullable().meta({ description: 'what answers it; null: nothing does' }),
    authority: z.array(z.string()).nullable().meta({ description: 'roles of which whoever approves must have one; null: nobody is asked' }),
    verify: z.boolean().meta({ description: 'it counts only once the compensating tool’s probe has found it' }),
    deadline: Time.nullable(),
    next: z.object({ args: AnyJson, digest: z.string(), amount: z.number().nullable() }).nullable().meta({ description: 'exactly what would be called; `digest` goes back with the decision' }),
    approval: z.object({ status: z.enum(['asked', 'approved', 'rejected']), approvers: z.array(z.string()), askedAt: Time.nullable(), by: z.string().nullable(), reason: z.string().nullable() }).nullable(),
    parts: z.array(z.object({ step: z.string(), plan: z.number().int(), tool: Named, args: AnyJson, authorisedBy: z.string(), because: z.string(), orderedAt: Time, status: z.string().nullable(), attempt: z.number().int().nullable(), message: z.string().nullable(), verified: z.string().nullable() })),
    answers: AnyJson.meta({ description: 'what answered it, with evidence; null while it is not settled' }),
    residual: AnyJson.meta({ description: 'what remains all the same, such as a fee' }),
    escalated: z.array(z.object({ to: z.string().nullable(), reason: z.string(), message: z.string(), at: Time })),
  })
  .meta({ id: 'Compensation' });
const PlanOut = z
  .object({
    ...Summary.shape,
    plan: z.number().int().nullable().meta({ description: 'null: nothing of the run was to be compensated so far' }),
    status: z.enum(PLAN_STATUSES).nullable(),
    since: Time.nullable(),
    ending: z.string().nullable().meta({ description: 'how the run ended' }),
    effects: z.array(Compensation),
    others: z.array(z.object({ step: z.string(), tool: Named, outcome: z.string() })).meta({ description: 'effects that nothing answers' }),
    earlier: z.array(z.object({ plan: z.number().int(), status: z.enum(PLAN_STATUSES), since: Time, concludedAt: Time.nullable(), causes: z.array(Cause) })),
  })
  .meta({ id: 'Plan' });
const Forecast = z
  .object({
    would: z.array(z.object({ step: z.string(), tool: Named, args: AnyJson, approvers: z.array(z.string()).nullable() })).meta({ description: 'what would be called, in this order; `args` null where they are not known yet' }),
    unsettled: z.array(z.object({ step: z.string(), tool: Named })).meta({ description: 'what is settled first, and answered if it happened' }),
    stand: z.array(z.object({ step: z.string(), tool: Named, why: z.string() })),
  })
  .meta({ id: 'CompensationForecast', description: 'by what is known now; nothing was done' });

const query = z.object({ waitMs: WaitMs });
const answers = { 200: { description: 'It is decided.', schema: Decided }, 202: { description: 'Nothing was decided in time; look at `location`.', schema: Pending } };
const OfStep = z.object({ run: RunId, step: Step });

export const listPlans = endpoint({
  ...{ id: 'listPlans', method: 'get', path: '/v1/plans', tag: 'plans', may: 'viewer', summary: 'Compensation plans, those open longest first' },
  query: z.object({ status: z.enum(['unfinished', 'awaiting', 'any']).default('unfinished').meta({ description: '`unfinished`: open or failed; `awaiting`: somebody has to say yes or no' }), limit: Limit, cursor: Cursor.optional() }),
  answers: { 200: { description: 'A page of plans, the latest of each run.', schema: page(PlanSummary) } },
});
export const getPlan = endpoint({
  ...{ id: 'getPlan', method: 'get', path: '/v1/plans/{run}', tag: 'plans', may: 'viewer', summary: 'What a run did that can be answered, and how its latest plan stands' },
  params: RunParams,
  answers: { 200: { description: 'The plan.', schema: PlanOut } },
});
export const approveCompensation = endpoint({
  ...{ id: 'approveCompensation', method: 'post', path: '/v1/plans/{run}/steps/{step}/approve', tag: 'plans', may: 'approver', summary: 'Let exactly what is shown be called', act: 'compensation.approve', description: 'And one of the roles that the contract names.' },
  params: OfStep,
  query,
  body: z.strictObject({ digest: Digest.meta({ description: 'of what you were shown' }), reason: z.string().max(2000).optional() }).meta({ id: 'ApproveCompensation' }),
  answers,
  problems: ['refused'],
});
export const rejectCompensation = endpoint({
  ...{ id: 'rejectCompensation', method: 'post', path: '/v1/plans/{run}/steps/{step}/reject', tag: 'plans', may: 'approver', summary: 'Let the effect stand', act: 'compensation.reject', description: 'And one of the roles that the contract names.' },
  params: OfStep,
  query,
  body: z.strictObject({ digest: Digest.optional(), reason: z.string().min(1).max(2000) }).meta({ id: 'RejectCompensation' }),
  answers,
  problems: ['refused'],
});
export const compensateRun = endpoint({
  ...{ id: 'compensateRun', method: 'post', path: '/v1/runs/{run}/compensate', tag: 'plans', may: 'operator', summary: 'Have what a run did answered, as its contracts say', act: 'run.compensate' },
  params: RunParams,
  query,
  body: z
    .strictObject({
      reason: z.string().min(1).max(2000),
      steps: z.array(Step).min(1).max(1000).optional().meta({ description: 'only these effects' }),
      amount: z.number().int().positive().max(Number.MAX_SAFE_INTEGER).optional().meta({ description: 'so much of the one effect that is named, in its smallest unit' }),
      dryRun: z.boolean().default(false).meta({ description: 'true: only say what it would lead to' }),
    })
    .meta({ id: 'CompensateRun' }),
  answers: { 200: { description: 'It is decided; or, for a dry run, what it would lead to.', schema: z.union([Decided, Forecast]) }, 202: answers[202] },
  problems: ['refused'],
});

type StepCall = Call<z.output<typeof OfStep>, { waitMs: number }>;

@Controller()
export class PlansController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Commands) private readonly commands: Commands,
  ) {}

  @Serves(listPlans)
  async list({ query: { status, limit, cursor }, principal }: CallOf<typeof listPlans>): Promise<Answer> {
    const { items, next } = await this.queries.plans(principal.tenant, { status, limit, cursor });
    return ok({ items: items.map(({ run, view }) => planSummary(run, view)), next });
  }

  @Serves(getPlan)
  async get({ params: { run }, principal }: CallOf<typeof getPlan>): Promise<Answer> {
    return ok(planOut(run, await this.#find(principal.tenant, run)));
  }

  @Serves(approveCompensation)
  approve(call: CallOf<typeof approveCompensation>): Promise<Answer> {
    return this.#decide(call, { decision: 'approve', ...defined(call.body) });
  }

  @Serves(rejectCompensation)
  reject(call: CallOf<typeof rejectCompensation>): Promise<Answer> {
    return this.#decide(call, { decision: 'reject', ...defined(call.body) });
  }

  @Serves(compensateRun)
  async compensate({ params: { run }, principal, command: id, query: { waitMs }, signal, body: { dryRun, reason, ...scope } }: CallOf<typeof compensateRun>): Promise<Answer> {
    await this.queries.runOr404(principal.tenant, run);
    const plan = await this.queries.plan(principal.tenant, run);
    const seen = plan === null ? null : forecast(plan, scope.steps ?? null);
    for (const { tool } of seen?.would ?? []) this.#within(principal, tool.name, scope.amount ?? null);
    if (dryRun) {
      if (seen === null) throw new Problem('refused', `run ${run} has done nothing whose contract names a compensation`, { extra: { reason: 'nothing_registered' } });
      return ok(seen);
    }
    const answer = await this.commands.operate({ run, principal, id, message: CompensateRun({ command: id, by: operatorOf(principal), reason, ...defined(scope) }), waitMs, signal });
    return decided(answer, id, locationOf(run));
  }

  async #decide({ params: { run, step }, principal, command: id, query: { waitMs }, signal }: StepCall, said: Pick<MessageOf<typeof DecideCompensation>['data'], 'decision' | 'digest' | 'reason'>): Promise<Answer> {
    const effect = (await this.#find(principal.tenant, run)).effects.find((each) => each.step === step);
    if (effect === undefined) throw new Problem('not-found', `step ${step} of run ${run} is in no plan`);
    this.#within(principal, effect.how?.tool.name ?? effect.tool.name, effect.next?.amount ?? null);
    const answer = await this.commands.operate({ run, principal, id, message: DecideCompensation({ command: id, by: operatorOf(principal), step, ...said }), waitMs, signal });
    return decided(answer, id, locationOf(run));
  }

  #within(principal: Call['principal'], tool: string, amount: number | null): void {
    const barred = outOfScope(principal, { tool, amount: amount === null ? null : String(amount) });
    if (barred !== null) throw new Problem('forbidden', barred);
  }

  async #find(tenant: string, run: RunId): Promise<PlanView> {
    const found = await this.queries.plan(tenant, run);
    if (found === null) throw new Problem('not-found', `run ${run} has done nothing whose contract names a compensation`);
    return found;
  }
}

const locationOf = (run: string): string => `/v1/plans/${encodeURIComponent(run)}`;

function planSummary(run: string, view: PlanView): z.input<typeof PlanSummary> {
  const plan = latestPlan(view);
  if (plan === null) throw new Error(`run ${run} has no plan`);
  return { run, plan: plan.number, status: plan.status, since: iso(plan.openedAt), concludedAt: isoOrNull(plan.concludedAt), causes: causesOut(plan), awaiting: awaiting(view), steps: view.effects.length };
}

const causesOut = ({ causes }: Pick<PlanView['plans'][number], 'causes'>): z.input<typeof Cause>[] => causes.map(({ at, ...cause }) => ({ ...cause, at: iso(at) }));

function planOut(run: string, view: PlanView): z.input<typeof PlanOut> {
  const plan = latestPlan(view);
  return {
    ...(plan === null ? { run, plan: null, status: null, since: null, concludedAt: null, causes: [], awaiting: 0, steps: view.effects.length } : planSummary(run, view)),
    ending: view.ending,
    effects: view.effects.map((effect) => compensationOut(view, effect)),
    others: view.others.map((other) => ({ ...other })),
    earlier: view.plans.slice(0, -1).map((each) => ({ plan: each.number, status: each.status, since: iso(each.openedAt), concludedAt: isoOrNull(each.concludedAt), causes: causesOut(each) })),
  };
}

function compensationOut(view: PlanView, effect: AnswerView): z.input<typeof Compensation> {
  const { step, tool, args, known, pointOfNoReturn, how, next, approval, parts, settled, escalated } = effect;
  const plan = latestPlan(view);
  return {
    ...{ step, tool, args, stands: standsOf(view, effect), why: settled?.why ?? null, pointOfNoReturn, with: how?.tool ?? null, verify: how?.verify ?? false },
    effect: known === null ? null : { status: known.status, message: known.message, at: iso(known.at) },
    authority: how === null || how.authority === 'automatic' ? null : how.authority.approvers,
    deadline: how === null || plan?.status !== 'open' ? null : iso(plan.openedAt + how.deadlineMs),
    next: next === null ? null : { args: next.args, digest: next.digest, amount: next.amount },
    approval: approval === null ? null : { ...approval, approvers: [...approval.approvers], askedAt: isoOrNull(approval.askedAt) },
    parts: parts.map(({ known: word, orderedAt, part: _, ...each }) => ({ ...each, orderedAt: iso(orderedAt), status: word?.status ?? null, attempt: word?.attempt ?? null, message: word?.message ?? null })),
    answers: settled?.answers ?? null,
    residual: settled?.residual ?? null,
    escalated: escalated.map(({ at, ...each }) => ({ ...each, at: iso(at) })),
  };
}

/** Leaves out members without a value. */
const defined = <T extends object>(members: T): { [K in keyof T]: Exclude<T[K], undefined> } => Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as { [K in keyof T]: Exclude<T[K], undefined> };
