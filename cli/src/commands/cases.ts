import type { Command } from 'commander';
import { AssignCase, JSON_DEPTH_MAX, parseJson, ResolveCase, topics, type Asking, type Json } from '@holdfast/protocol';
import { caseHistory, parseCaseName, readAlarms, readCases, type CaseName, type CaseView } from '../cases.js';
import { CliError, EXIT } from '../failure.js';
import { momentMs } from '../moment.js';
import { askedAs, command, operatorOf, withOperator, type Asked } from '../operator.js';
import { moreAfter, pageOf, withPages, type PageOptions } from '../paging.js';
import { atLength, paint, print, table } from '../print.js';
import { findStack } from '../stack-file.js';

interface ListOptions extends PageOptions {
  readonly all?: boolean;
  readonly run?: string;
  readonly tool?: string;
  readonly owner?: string;
  readonly escalated?: boolean;
  readonly json?: boolean;
}

interface ResolveOptions {
  readonly applied?: string | boolean;
  readonly notApplied?: boolean;
  readonly reason: string;
  readonly evidence: string;
  readonly readAt?: string;
  readonly force?: boolean;
  readonly id?: string;
  readonly as?: string;
  readonly role?: string[];
  readonly json?: boolean;
}

export function addCases(program: Command): void {
  const cases = program.command('cases').description('look at unknown outcomes, and settle them');
  withPages(
    cases
    .command('list')
    .description('open cases, oldest first, and what contradicts itself')
    .option('--all', 'settled ones too')
    .option('--run <run>', 'of one run')
    .option('--tool <name>', 'of one tool')
    .option('--owner <name>', 'of one owner')
    .option('--escalated', 'only those that were brought to people')
    .option('--json', 'print JSON'),
    100,
    'case',
  ).action(list);
  cases.command('show <case>').description('one case: what it is about, what was tried, when it is looked at next').option('--json', 'print JSON').action(show);
  withOperator(cases.command('assign <case> <owner>').description('give a case to somebody; "-" to nobody').option('--json', 'print JSON')).action(assign);
  withOperator(
    cases
      .command('resolve <case>')
      .description('settle a case: what you found at the target')
      .option('--applied [result]', 'it happened; the tool’s result as JSON (default null)')
      .option('--not-applied', 'it did not happen, and can’t any more')
      .requiredOption('--reason <text>', 'why you say so')
      .requiredOption('--evidence <text>', 'where anyone can see it: a link, a record’s number')
      .option('--read-at <time>', 'when you looked, RFC 3339 (default: now)')
      .option('--force', 'overrule a proof, or a time that has not come; it is marked so')
      .option('--json', 'print JSON'),
  ).action(resolve);
}

async function list(options: ListOptions): Promise<void> {
  const { brokers } = await findStack('.');
  const [found, alarms] = await Promise.all([readCases(brokers, options.run), readAlarms(brokers)]);
  const shown = found
    .filter((each) => options.all === true || each.status === 'open')
    .filter((each) => options.tool === undefined || each.tool.split('@')[0] === options.tool)
    .filter((each) => options.owner === undefined || each.owner === options.owner)
    .filter((each) => options.escalated !== true || each.escalated.length > 0)
    .sort((a, b) => a.since.localeCompare(b.since));
  const { page, next } = pageOf(shown, (each) => each.case, options);
  const raised = alarms.filter(({ run }) => options.run === undefined || run === options.run);
  print(options.json === true, { cases: page, alarms: raised, next }, () => [listed(page, raised), ...moreAfter(next)].join('\n'));
}

function listed(cases: readonly CaseView[], alarms: readonly { at: string; run: string; event: string; message: string }[]): string {
  const lines = alarms.map(({ at, run, event, message }) => `${paint('alarm')} ${event} ${at} run ${run}: ${message}`);
  if (cases.length === 0) return [...lines, 'no open cases'].join('\n');
  const rows = cases.map((each) => [each.case, each.tool, each.status === 'open' ? paint('open') : each.status, each.cause, each.since, each.owner ?? '-', each.nextLook ?? (each.status === 'open' ? 'a person' : '-')]);
  return [...lines, table(['case', 'tool', 'status', 'why', 'since', 'owner', 'next look'], rows)].join('\n');
}

async function find(brokers: readonly string[], name: string): Promise<CaseView> {
  const { run, step, attempt } = parseCaseName(name);
  const found = (await readCases(brokers, run)).find((each) => each.step === step);
  if (found === undefined) throw new CliError(`there is no case ${name}: \`holdfast cases list --all\` shows those that there are`);
  if (found.attempt !== attempt) throw new CliError(`step ${step} of run ${run} is at attempt ${found.attempt} by now: look at ${found.case}`);
  return found;
}

async function show(name: string, { json }: { json?: boolean }): Promise<void> {
  const { brokers } = await findStack('.');
  const found = await find(brokers, name);
  const history = await caseHistory(brokers, found.run, found.step, found.attempt);
  print(json === true, { ...found, history }, () => {
    const { case: _, ...facts } = found;
    const lines = Object.entries(facts).filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0)).map(([what, value]) => `${what.padEnd(13)} ${atLength(value)}`);
    return [`case          ${found.case}`, ...lines, table(['at', 'event', 'what'], history.map(({ at, event, what }) => [at, event, what]))].join('\n');
  });
}

async function assign(name: string, owner: string, options: { id?: string; as?: string; role?: string[]; json?: boolean }): Promise<void> {
  const asked = askedAs(options);
  await decide(name, options, asked, (of) => AssignCase({ command: asked.id, ...of, owner: owner === '-' ? null : owner, by: operatorOf(options) }));
}

async function resolve(name: string, options: ResolveOptions): Promise<void> {
  const asked = askedAs(options);
  if ((options.applied === undefined) === (options.notApplied === undefined)) throw new CliError('say what you found: --applied [result] or --not-applied');
  const verdict = options.applied === undefined ? ({ status: 'not_applied' } as const) : ({ status: 'applied', result: resultOf(options.applied) } as const);
  const readAt = options.readAt === undefined ? undefined : momentMs(options.readAt, '--read-at');
  await decide(name, options, asked, (of) =>
    ResolveCase({
      command: asked.id,
      ...of,
      verdict,
      reason: options.reason,
      evidence: options.evidence,
      by: operatorOf(options),
      ...(readAt === undefined ? {} : { readAt }),
      ...(options.force === true ? { force: true } : {}),
    }),
  );
}

function resultOf(text: string | boolean): Json {
  if (typeof text === 'boolean') return null;
  const parsed = parseJson(text, JSON_DEPTH_MAX);
  if (!parsed.ok) throw new CliError(`--applied takes the tool’s result as JSON: ${parsed.message}`);
  return parsed.value;
}

/** Sends a command about a case, and says what came of it. Exit code 1 when it was refused. */
async function decide(name: string, { json }: { json?: boolean }, asked: Asked, message: (of: Pick<CaseName, 'step' | 'attempt'>) => Asking): Promise<void> {
  const { brokers } = await findStack('.');
  const { run, ...of } = parseCaseName(name);
  const answer = await command({ brokers, answersOn: topics.reconciliationEvents, run, asked, message: message(of), known: async () => ({ tenant: (await find(brokers, name)).tenant }) });
  const refused = answer.type === 'CaseCommandRefused';
  print(json === true, { case: name, event: answer.type, ...answer.data }, () => (refused ? `refused (${String(answer.data['reason'])}): ${String(answer.data['message'])}` : `${name}: ${said(answer.type, answer.data)}`));
  if (refused) process.exitCode = EXIT.no;
}

const said = (type: string, data: { readonly [member: string]: Json }): string => (type === 'CaseAssigned' ? `given to ${String(data['owner'] ?? 'nobody')}` : `settled: ${JSON.stringify(data['verdict'])}`);
