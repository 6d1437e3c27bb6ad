import { Controller, Inject } from '@nestjs/common';
import { AssignCase, Attempt, EffectStep, Name, ResolveCase, RunId, type Asking, type Json } from '@holdfast/protocol';
import { z } from 'zod';
import { outOfScope } from '../domain/access.js';
import type { CaseView } from '../domain/case-view.js';
import { endpoint, ok, Serves, type Answer, type Call, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { Commands, operatorOf, type Answered } from './commands.js';
import { caseOut, Queries } from './queries.js';
import { AnyJson, CaseOut, Cursor, Decided, Limit, Moment, page, Pending, WaitMs } from './shapes.js';

const CaseId = z
  .string()
  .max(300)
  .meta({ description: 'RUN/STEP/ATTEMPT, percent-encoded', examples: ['ticket-1001/3/1'] })
  .transform((text, context) => {
    const [, run, step, attempt] = /^(.+)\/([^/]+)\/(\d{1,4})$/s.exec(text) ?? [];
    const parsed = z.object({ run: RunId, step: EffectStep, attempt: Attempt }).safeParse({ run, step, attempt: Number(attempt) });
    if (parsed.success) return parsed.data;
    context.addIssue({ code: 'custom', message: 'a case is RUN/STEP/ATTEMPT, percent-encoded' });
    return z.NEVER;
  });
const params = z.object({ case: CaseId });
/** Who owns things, by any name without control characters. */
const Owner = z.string().min(1).max(200).refine((name) => name.isWellFormed() && !/\p{Cc}/u.test(name), 'holds a control character');

export const listCases = endpoint({
  ...{ id: 'listCases', method: 'get', path: '/v1/cases', tag: 'cases', may: 'viewer', summary: 'Cases, those open longest first' },
  query: z.object({ status: z.enum(['open', 'settled']).optional(), owner: Owner.optional(), tool: Name.optional(), run: RunId.optional(), limit: Limit, cursor: Cursor.optional() }),
  answers: { 200: { description: 'A page of cases.', schema: page(CaseOut) } },
});

export const getCase = endpoint({
  ...{ id: 'getCase', method: 'get', path: '/v1/cases/{case}', tag: 'cases', may: 'viewer', summary: 'Read a case' },
  params,
  answers: { 200: { description: 'The case.', schema: CaseOut } },
});

const query = z.object({ waitMs: WaitMs });
const answers = { 200: { description: 'It is decided.', schema: Decided }, 202: { description: 'Nothing was decided in time; look at `location`.', schema: Pending } };

export const assignCase = endpoint({
  ...{ id: 'assignCase', method: 'post', path: '/v1/cases/{case}/assign', tag: 'cases', may: 'operator', summary: 'Give a case to somebody', act: 'case.assign' },
  params,
  query,
  body: z.strictObject({ owner: Owner.nullable() }).meta({ id: 'AssignCase' }),
  answers,
  problems: ['refused'],
});

export const resolveCase = endpoint({
  ...{ id: 'resolveCase', method: 'post', path: '/v1/cases/{case}/resolve', tag: 'cases', may: 'operator', summary: 'Say what became of an effect', act: 'case.resolve' },
  params,
  query,
  body: z
    .strictObject({
      verdict: z.discriminatedUnion('status', [z.strictObject({ status: z.literal('applied'), result: AnyJson.optional().default(null) }), z.strictObject({ status: z.literal('not_applied') })]),
      reason: z.string().min(1).max(2000),
      evidence: z.string().min(1).max(2000),
      readAt: Moment.optional(),
      force: z.boolean().optional(),
    })
    .meta({ id: 'ResolveCase' }),
  answers,
  problems: ['refused'],
});

type CaseCall = Call<z.output<typeof params>, { waitMs: number }>;

@Controller()
export class CasesController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Commands) private readonly commands: Commands,
  ) {}

  @Serves(listCases)
  async list({ query: asked, principal }: CallOf<typeof listCases>): Promise<Answer> {
    const { items, next } = await this.queries.cases(principal.tenant, asked);
    return ok({ items: items.map(({ run, view }) => caseOut(run, view)), next });
  }

  @Serves(getCase)
  async get(call: CallOf<typeof getCase>): Promise<Answer> {
    return ok(caseOut(call.params.case.run, await this.#find(call.principal.tenant, call.params.case)));
  }

  @Serves(assignCase)
  async assign(call: CallOf<typeof assignCase>): Promise<Answer> {
    const { step, attempt } = call.params.case;
    return this.#decide(call, AssignCase({ command: call.command, by: operatorOf(call.principal), step, attempt, owner: call.body.owner }));
  }

  @Serves(resolveCase)
  async resolve(call: CallOf<typeof resolveCase>): Promise<Answer> {
    const { step, attempt } = call.params.case;
    const { verdict, reason, evidence, readAt, force } = call.body;
    const said = verdict.status === 'applied' ? { status: 'applied' as const, result: verdict.result as Json } : verdict;
    return this.#decide(
      call,
      ResolveCase({ command: call.command, by: operatorOf(call.principal), step, attempt, verdict: said, reason, evidence, ...(readAt === undefined ? {} : { readAt }), ...(force === undefined ? {} : { force }) }),
    );
  }

  async #decide(call: CaseCall, message: Asking): Promise<Answer> {
    const { params: { case: of }, principal, command: id, query: { waitMs }, signal } = call;
    const { tool } = await this.#find(principal.tenant, of);
    const barred = outOfScope(principal, { tool: tool.name });
    if (barred !== null) throw new Problem('forbidden', barred);
    const answer = await this.commands.operate({ run: of.run, principal, id, message, waitMs, signal });
    return decided(answer, id, `/v1/cases/${encodeURIComponent(`${of.run}/${of.step}/${of.attempt}`)}`);
  }

  async #find(tenant: string, { run, step, attempt }: z.output<typeof CaseId>): Promise<CaseView> {
    const found = await this.queries.case(tenant, run, step);
    if (found?.attempt !== attempt) throw new Problem('not-found', found === null ? `there is no case ${run}/${step}/${attempt}` : `step ${step} of run ${run} is at attempt ${found.attempt} by now`);
    return found;
  }
}

/** Refusals that are about who asks. */
const NOT_ALLOWED = new Set(['role_missing', 'four_eyes']);

/** What an answer to a command comes to. @throws Problem when it was refused */
export function decided(answer: Answered | null, command: string, location: string): Answer {
  if (answer === null) return { status: 202, body: { command, location }, headers: { location } };
  if (answer.type === 'CaseCommandRefused' || answer.type === 'InputRefused' || answer.type === 'PlanCommandRefused') {
    const reason = String(answer.data['reason']);
    throw new Problem(NOT_ALLOWED.has(reason) ? 'forbidden' : 'refused', String(answer.data['message']), { extra: { reason, command } });
  }
  return ok({ command, event: answer.type, data: answer.data });
}
