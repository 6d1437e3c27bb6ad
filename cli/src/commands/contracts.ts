import type { Command } from 'commander';
import { agentLines, nameOf, problems, readContracts, toolLines, type Line } from '../contracts.js';
import { CliError, EXIT } from '../failure.js';
import { moreAfter, pageOf, withPages, type PageOptions } from '../paging.js';
import { print, table } from '../print.js';
import { findStack } from '../stack-file.js';

interface ListOptions extends PageOptions {
  readonly kind?: string;
  readonly name?: string;
  readonly effect?: string;
  readonly json?: boolean;
}

export function addContracts(program: Command): void {
  const contracts = program.command('contracts').description('what tools and agents declare of recovery and resume');
  withPages(
    contracts
    .command('list')
    .description('every tool and agent, by name and version')
    .option('--kind <kind>', 'only tools, or only agents: tool, agent')
    .option('--name <name>', 'of one name')
    .option('--effect <class>', 'tools of one effect class')
    .option('--json', 'print JSON'),
    100,
    'name@version',
  ).action(list);
  contracts.command('show <name@version>').description('a contract, line by line, and whence each line is known').option('--json', 'print JSON').action(show);
  contracts.command('check').description('fails where an irreversible tool lacks a line, or a contract can’t do what it says').option('--json', 'print JSON').action(check);
}

async function list({ kind, name, effect, json, ...paging }: ListOptions): Promise<void> {
  const { brokers } = await findStack('.');
  const { tools, agents } = await readContracts(brokers);
  const all = [
    ...tools.map((tool) => ({ kind: 'tool', name: nameOf(tool), pool: tool.pool as string, effect: tool.effect as string | null, owner: tool.owner })),
    ...agents.map((agent) => ({ kind: 'agent', name: nameOf(agent), pool: agent.pool as string, effect: null, owner: null })),
  ].filter((row) => (kind === undefined || row.kind === kind) && (name === undefined || row.name.split('@')[0] === name) && (effect === undefined || row.effect === effect));
  const { page, next } = pageOf(all, (row) => row.name, paging);
  print(json === true, { contracts: page, next }, () => (page.length === 0 ? 'none is declared' : [table(['kind', 'name', 'pool', 'effect', 'owner'], page.map((row) => [row.kind, row.name, row.pool, row.effect ?? '-', row.owner ?? '-'])), ...moreAfter(next)].join('\n')));
}

async function show(name: string, { json }: { json?: boolean }): Promise<void> {
  const { brokers } = await findStack('.');
  const { tools, agents } = await readContracts(brokers);
  const found: { kind: string; lines: Line[] }[] = [
    ...tools.filter((tool) => nameOf(tool) === name).map((tool) => ({ kind: 'tool', lines: toolLines(tool) })),
    ...agents.filter((agent) => nameOf(agent) === name).map((agent) => ({ kind: 'agent', lines: agentLines(agent) })),
  ];
  if (found.length === 0) throw new CliError(`no worker has declared ${name}: \`holdfast contracts list\` shows what there is`);
  print(json === true, { name, contracts: found }, () => found.map(({ kind, lines }) => `${kind} ${name}\n${table(['line', 'says', 'known from'], lines.map(({ line, says, from, missing }) => [line, missing ? `MISSING: ${says}` : says, from]))}`).join('\n'));
}

async function check({ json }: { json?: boolean }): Promise<void> {
  const { brokers } = await findStack('.');
  const { tools, agents } = await readContracts(brokers);
  const found = tools.flatMap(problems);
  print(json === true, { tools: tools.length, agents: agents.length, problems: found }, () => (found.length === 0 ? `${tools.length} tools and ${agents.length} agents: nothing is missing` : found.join('\n')));
  if (found.length > 0) process.exitCode = EXIT.no;
}
