import { Controller, Inject } from '@nestjs/common';
import { DecideApproval, Digest, RunId, Step } from '@holdfast/protocol';
import { z } from 'zod';
import { outOfScope } from '../domain/access.js';
import { endpoint, ok, Serves, type Answer, type Call, type CallOf } from '../http/endpoint.js';
import { Problem } from '../http/problem.js';
import { decided } from './cases.js';
import { Commands, operatorOf } from './commands.js';
import { approvalOut, Queries, type KnownApproval } from './queries.js';
import { ApprovalOut, Cursor, Decided, Limit, Moment, page, Pending, WaitMs } from './shapes.js';

const ApprovalId = z
  .string()
  .max(300)
  .meta({ description: 'RUN/STEP, percent-encoded', examples: ['ticket-1001/3'] })
  .transform((text, context) => {
    const [, run, step] = /^(.+)\/([^/]+)$/s.exec(text) ?? [];
    const parsed = z.object({ run: RunId, step: Step }).safeParse({ run, step });
    if (parsed.success) return parsed.data;
    context.addIssue({ code: 'custom', message: 'an approval is RUN/STEP, percent-encoded' });
    return z.NEVER;
  });
const params = z.object({ approval: ApprovalId });
const shared = { tag: 'approvals', params, query: z.object({ waitMs: WaitMs }), problems: ['refused'] } as const;
const answers = { 200: { description: 'It is decided.', schema: Decided }, 202: { description: 'Nothing was decided in time; look at `location`.', schema: Pending } };

export const listApprovals = endpoint({
  ...{ id: 'listApprovals', method: 'get', path: '/v1/approvals', tag: 'approvals', may: 'viewer', summary: 'Approvals that runs ask for, oldest first' },
  query: z.object({ status: z.enum(['open', 'any']).default('open'), limit: Limit, cursor: Cursor.optional() }),
  answers: { 200: { description: 'A page of approvals.', schema: page(ApprovalOut) } },
});
export const getApproval = endpoint({
  ...{ id: 'getApproval', method: 'get', path: '/v1/approvals/{approval}', tag: 'approvals', may: 'viewer', summary: 'Read an approval' },
  params,
  answers: { 200: { description: 'The approval.', schema: ApprovalOut } },
});
export const approve = endpoint({
  ...{ ...shared, id: 'approve', method: 'post', path: '/v1/approvals/{approval}/approve', may: 'approver', summary: 'Say yes to exactly what is shown', act: 'approval.approve' },
  body: z.strictObject({ digest: Digest.meta({ description: 'of what you were shown' }), feedback: z.string().max(4000).optional(), expiresAt: Moment.optional() }).meta({ id: 'Approve' }),
  answers,
});
export const reject = endpoint({
  ...{ ...shared, id: 'reject', method: 'post', path: '/v1/approvals/{approval}/reject', may: 'approver', summary: 'Say no; the feedback reaches the agent', act: 'approval.reject' },
  body: z.strictObject({ digest: Digest.optional(), feedback: z.string().max(4000).default('') }).meta({ id: 'Reject' }),
  answers,
});

type ApprovalCall = Call<z.output<typeof params>, { waitMs: number }>;

@Controller()
export class ApprovalsController {
  constructor(
    @Inject(Queries) private readonly queries: Queries,
    @Inject(Commands) private readonly commands: Commands,
  ) {}

  @Serves(listApprovals)
  async list({ query: { status, limit, cursor }, principal }: CallOf<typeof listApprovals>): Promise<Answer> {
    const { items, next } = await this.queries.approvals(principal.tenant, { open: status === 'open', limit, cursor });
    return ok({ items: items.map(approvalOut), next });
  }

  @Serves(getApproval)
  async get({ params: { approval }, principal }: CallOf<typeof getApproval>): Promise<Answer> {
    return ok(approvalOut(await this.#find(principal.tenant, approval)));
  }

  @Serves(approve)
  approve(call: CallOf<typeof approve>): Promise<Answer> {
    const { digest, feedback, expiresAt } = call.body;
    return this.#decide(call, { decision: 'approve', digest, ...(feedback === undefined ? {} : { feedback }), ...(expiresAt === undefined ? {} : { expiresAt }) });
  }

  @Serves(reject)
  reject(call: CallOf<typeof reject>): Promise<Answer> {
    const { digest, feedback } = call.body;
    return this.#decide(call, { decision: 'reject', feedback, ...(digest === undefined ? {} : { digest }) });
  }

  async #decide({ params: { approval }, principal, command: id, query: { waitMs }, signal }: ApprovalCall, said: Pick<z.output<typeof DecideApproval.schema>, 'decision' | 'digest' | 'feedback' | 'expiresAt'>): Promise<Answer> {
    const { run, scope, view } = await this.#find(principal.tenant, approval);
    const barred = outOfScope(principal, { tool: scope.scope.tool.name, amount: scope.scope.amount?.value ?? null });
    if (barred !== null) throw new Problem('forbidden', barred);
    const answer = await this.commands.operate({ run, principal, id, message: DecideApproval({ command: id, by: operatorOf(principal), step: view.step, ...said }), waitMs, signal });
    return decided(answer, id, `/v1/approvals/${encodeURIComponent(`${run}/${view.step}`)}`);
  }

  async #find(tenant: string, { run, step }: z.output<typeof ApprovalId>): Promise<KnownApproval> {
    const found = await this.queries.approval(tenant, run, step);
    if (found === null) throw new Problem('not-found', `there is no approval ${run}/${step}`);
    return found;
  }
}
