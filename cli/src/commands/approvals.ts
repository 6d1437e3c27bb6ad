import type { Command } from 'commander';
import { listApprovals, type ApprovalRow } from '../approvals.js';
import { moreAfter, pageOf, withPages, type PageOptions } from '../paging.js';
import { brief, print, table, toAllow } from '../print.js';
import { findBrokers } from '../stack-file.js';

export function addApprovals(program: Command): void {
  const approvals = program.command('approvals').description('what waits for somebody’s yes or no; `holdfast runs approve` and `reject` say it');
  withPages(
    approvals
      .command('list')
      .description('open approvals, oldest first, with all that is approved')
      .option('--role <role>', 'only those that this role may decide')
      .option('--run <run>', 'of one run')
      .option('--tenant <tenant>', 'of one tenant')
      .option('--json', 'print JSON'),
    50,
    'approval',
  ).action(async ({ role, run, tenant, json, ...paging }: PageOptions & { role?: string; run?: string; tenant?: string; json?: boolean }) => {
    const all = await listApprovals(await findBrokers('.'), { role, run, tenant });
    const { page, next } = pageOf(all, ({ approval }) => approval, paging);
    print(json === true, { approvals: page, next }, () => (page.length === 0 ? 'nothing waits for an approval' : [table(['run', 'step', 'what', 'call', 'with', 'amount', 'by', 'until'], page.map(row)), ...page.map(({ approval, tool, args, digest }) => `args ${approval} ${toAllow(tool, args, digest)}`), ...moreAfter(next)].join('\n')));
  });
}

const row = ({ run, step, what, tool, args, amount, approvers, fourEyes, principal, deadline }: ApprovalRow): string[] => [
  run,
  step,
  brief(what),
  tool,
  brief(args),
  amount ?? '-',
  `${approvers.join(' or ')}${fourEyes ? `, not ${principal ?? 'the one who asked'}` : ''}`,
  deadline ?? '-',
];
