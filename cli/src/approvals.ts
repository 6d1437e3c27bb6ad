import { isoTime, topics, type Json } from '@holdfast/protocol';
import { openWaits } from '@holdfast/orchestrator/domain';
import { readStreams } from './audit/read-events.js';
import { runOf } from './run-of.js';

/** An approval that somebody must decide. Times are RFC 3339. */
export interface ApprovalRow {
  /** RUN/STEP. */
  readonly approval: string;
  readonly run: string;
  readonly step: string;
  readonly tenant: string;
  readonly what: string;
  readonly tool: string;
  readonly args: Json;
  readonly digest: string;
  readonly amount: string | null;
  readonly approvers: readonly string[];
  readonly fourEyes: boolean;
  /** On whose behalf the run acts. */
  readonly principal: string | null;
  readonly since: string;
  readonly deadline: string | null;
}

/** Open approvals, oldest first, from `run.events` alone. */
export async function listApprovals(brokers: readonly string[], filter: { role?: string | undefined; run?: string | undefined; tenant?: string | undefined } = {}): Promise<ApprovalRow[]> {
  const rows: ApprovalRow[] = [];
  for (const { stream, events } of (await readStreams(brokers, topics.runEvents, filter.run)).values()) {
    const run = runOf({ events });
    if (run.status !== 'open' || (filter.tenant !== undefined && run.tenant !== filter.tenant)) continue;
    for (const { step, since, deadline, wait } of openWaits(run)) {
      if (wait.kind !== 'approval' || (filter.role !== undefined && !wait.approvers.includes(filter.role))) continue;
      const { tool, args, digest, amount } = wait.scope;
      rows.push({
        ...{ approval: `${stream}/${step}`, run: stream, step, tenant: run.tenant, what: wait.what, tool: `${tool.name}@${tool.version}`, args, digest },
        amount: amount === undefined ? null : `${amount.value}${amount.currency === undefined ? '' : ` ${amount.currency}`}`,
        ...{ approvers: wait.approvers, fourEyes: wait.fourEyes, principal: run.principal },
        ...{ since: isoTime(since), deadline: deadline === null ? null : isoTime(deadline) },
      });
    }
  }
  return rows.sort((a, b) => a.since.localeCompare(b.since) || a.approval.localeCompare(b.approval));
}
