import type { Command } from 'commander';
import { CompensateRun, DecideCompensation, Digest, Step, topics, type Asking, type Json } from '@holdfast/protocol';
import type { Preview } from '@holdfast/compensation/domain';
import { CliError, EXIT } from '../failure.js';
import { askedAs, command, operatorOf, withOperator, type Asked } from '../operator.js';
import { findPlans, previewOf, readPlans, viewsOf, type PlanView } from '../plans.js';
import { brief, paint, print, table, toAllow } from '../print.js';
import { findStack } from '../stack-file.js';

interface Acting {
  readonly id?: string;
  readonly as?: string;
  readonly role?: string[];
  readonly json?: boolean;
}

interface Deciding extends Acting {
  readonly digest?: string;
}
const DIGEST = 'of the arguments that you were shown (`plans show`): others are refused (default: those of now)';

interface CompensateOptions extends Acting {
  readonly step?: string[];
  readonly amount?: string;
  readonly reason?: string;
  readonly dryRun?: boolean;
}

export function addPlans(program: Command): void {
  withOperator(
    program
      .command('compensate <run>')
      .description('have what a run did answered, as its contracts say')
      .option('--step <step...>', 'only these effects')
      .option('--amount <n>', 'so much of the one effect that is named, in its smallest unit')
      .option('--reason <text>', 'why', 'asked by an operator')
      .option('--dry-run', 'say what would be done, what needs whom, and what would stand; do nothing')
      .option('--json', 'print JSON'),
  ).action(compensate);
  const plans = program.command('plans').description('look at compensations, and decide on them');
  plans.command('list').description('runs with a plan, oldest first').option('--all', 'those that are done, too').option('--json', 'print JSON').action(list);
  plans.command('show <run>').description('a run’s latest plan, effect by effect').option('--json', 'print JSON').action(show);
  withOperator(plans.command('approve <run> <step>').description('let exactly what is shown be called').option('--digest <digest>', DIGEST).option('--json', 'print JSON')).action((run: string, step: string, options: Deciding) => decide(run, step, 'approve', options));
  withOperator(plans.command('reject <run> <step>').description('let the effect stand').option('--digest <digest>', DIGEST).requiredOption('--reason <text>', 'why').option('--json', 'print JSON')).action((run: string, step: string, options: Deciding & { reason: string }) => decide(run, step, 'reject', options));
}

function digestOf(text: string): Digest {
  const parsed = Digest.safeParse(text);
  if (!parsed.success) throw new CliError(`--digest "${text}" is none: \`holdfast plans show\` shows it with the arguments`);
  return parsed.data;
}

function stepOf(text: string): Step {
  const parsed = Step.safeParse(text);
  if (!parsed.success) throw new CliError(`"${text}" is no step such as 3 or 3.1`);
  return parsed.data;
}

async function compensate(run: string, options: CompensateOptions): Promise<void> {
  const { brokers } = await findStack('.');
  const found = await findPlans(brokers, run);
  const amount = options.amount === undefined ? undefined : Number(options.amount);
  if (amount !== undefined && (!Number.isSafeInteger(amount) || amount <= 0)) throw new CliError(`--amount ${options.amount ?? ''} is no whole number above 0`);
  const named = askedAs(options);
  const asked = { command: named.id, by: operatorOf(options), reason: options.reason ?? 'asked by an operator', ...(options.step === undefined ? {} : { steps: options.step.map(stepOf) }), ...(amount === undefined ? {} : { amount }) };
  if (options.dryRun === true) {
    const seen = await previewOf(brokers, found, asked, Date.now());
    print(options.json === true, seen, () => previewed(run, seen));
    if (seen.refused !== null) process.exitCode = EXIT.no;
    return;
  }
  await tell(brokers, run, named, CompensateRun(asked), async () => ({ tenant: found.tenant }), options.json);
}

function previewed(run: string, { refused, would, unsettled, then }: Preview): string {
  if (refused !== null) return `refused (${refused.reason}): ${refused.message}`;
  const lines = [`nothing is done yet; \`holdfast compensate ${run}\` would do, in this order:`];
  lines.push(would.length === 0 ? 'nothing' : table(['step', 'call', 'with', 'amount', 'needs'], would.map(({ of, tool, args, amount, approvers }) => [of, `${tool.name}@${tool.version}`, args === null ? 'computed by its worker' : brief(args), amount === null ? '-' : String(amount), approvers === null ? 'nobody' : `an approval by ${approvers.join(' or ')}`])));
  for (const { step, tool, status } of unsettled) lines.push(`step ${step} (${tool.name}) is ${status.replace('_', ' ')}: it is settled first, and answered if it happened`);
  const stands = (then?.effects ?? []).filter(({ standing }) => standing !== 'compensated' && standing !== 'never_happened');
  if (then !== null) lines.push(stands.length === 0 ? 'then nothing would stand' : `then would stand: ${stands.map(({ step, tool, why }) => `step ${step} (${tool.name}): ${why}`).join('; ')}`);
  return lines.join('\n');
}

async function list({ all, json }: { all?: boolean; json?: boolean }): Promise<void> {
  const { brokers } = await findStack('.');
  const views = (await readPlans(brokers)).flatMap(viewsOf).filter(({ status }) => all === true || status === 'open' || status === 'compensation_failed');
  views.sort((a, b) => a.since.localeCompare(b.since));
  print(json === true, views, () => (views.length === 0 ? 'no open plans' : table(['run', 'plan', 'status', 'since', 'open', 'why'], views.map((view) => [view.run, String(view.plan), paint(view.status), view.since, openOf(view), view.causes.at(0) ?? '']))));
}

const openOf = ({ effects }: PlanView): string => effects.filter(({ stands }) => !['compensated', 'in_part', 'never_happened', 'stands'].includes(stands)).map(({ step, stands }) => `${step} ${stands}`).join(', ') || '-';

async function show(run: string, { json }: { json?: boolean }): Promise<void> {
  const { brokers } = await findStack('.');
  const [view] = viewsOf(await findPlans(brokers, run));
  if (view === undefined) throw new CliError(`run ${run} has no plan: nothing of it was to be compensated so far`);
  print(json === true, view, () => planInWords(view));
}

export const planInWords = ({ run, plan, status, since, causes, effects }: PlanView): string =>
  [
    `run ${run}, plan ${plan}: ${paint(status)} since ${since}`,
    ...causes,
    table(['step', 'tool', 'stands', 'answer', 'arguments', 'why'], effects.map((each) => [each.step, each.tool, each.stands, each.with ?? 'none', brief(each.args), each.approvers.length > 0 ? `by ${each.approvers.join(' or ')}: holdfast plans approve ${run} ${each.step}` : each.why])),
    ...effects.flatMap((each) => (each.approvers.length === 0 || each.digest === null ? [] : [`args ${each.step} ${toAllow(each.with ?? 'none', each.args, each.digest)}`])),
  ].join('\n');

async function decide(run: string, step: string, decision: 'approve' | 'reject', options: Deciding & { reason?: string }): Promise<void> {
  const shown = options.digest === undefined ? undefined : digestOf(options.digest);
  const { brokers } = await findStack('.');
  const asked = askedAs(options);
  const message = (digest: Digest | undefined): Asking =>
    DecideCompensation({ command: asked.id, by: operatorOf(options), step: stepOf(step), decision, ...(digest === undefined ? {} : { digest }), ...(options.reason === undefined ? {} : { reason: options.reason }) });
  const known = async (): Promise<{ tenant: string; message: Asking }> => {
    const found = await findPlans(brokers, run);
    const item = viewsOf(found).at(0)?.effects.find((each) => each.step === step);
    if (item === undefined) throw new CliError(`step ${step} of run ${run} is in no plan`);
    // Exactly what was shown, to whoever decides or at least to this command: should it have changed since, it is refused.
    return { tenant: found.tenant, message: message(shown ?? (item.digest === null ? undefined : Digest.parse(item.digest))) };
  };
  await tell(brokers, run, asked, message(shown), known, options.json);
}

/** Sends a command about a run's plans, and says what came of it. Exit code 1 when it was refused. */
async function tell(brokers: readonly string[], run: string, asked: Asked, message: Asking, known: () => Promise<{ tenant: string; message?: Asking }>, json: boolean | undefined): Promise<void> {
  const answer = await command({ brokers, answersOn: topics.compensationEvents, run, asked, message, known });
  const refused = answer.type === 'PlanCommandRefused';
  print(json === true, { run, event: answer.type, ...answer.data }, () => (refused ? `refused (${String(answer.data['reason'])}): ${String(answer.data['message'])}` : said(run, answer.type, answer.data)));
  if (refused) process.exitCode = EXIT.no;
}

const said = (run: string, type: string, data: { readonly [member: string]: Json }): string => (type === 'CompensationDecided' ? `step ${String(data['of'])}: ${String(data['decision'])}` : `plan ${String(data['plan'])} of run ${run}: \`holdfast plans show ${run}\` says how it goes`);
