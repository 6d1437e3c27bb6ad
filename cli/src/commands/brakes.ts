import type { Command } from 'commander';
import { BrakeTarget, ReleaseBrake, SetBrake } from '@holdfast/protocol';
import { readBrakes, tellLanes } from '../brakes.js';
import { CliError, EXIT } from '../failure.js';
import { askedAs, operatorOf, withOperator } from '../operator.js';
import { moreAfter, pageOf, withPages, type PageOptions } from '../paging.js';
import { print, table } from '../print.js';
import { findStack } from '../stack-file.js';

interface Options {
  readonly id?: string;
  readonly as?: string;
  readonly role?: string[];
  readonly json?: boolean;
}

export function addBrakes(program: Command): void {
  const brakes = program.command('brakes').description('hold a tool, an agent or a tenant still, and let it go');
  withPages(
    brakes
      .command('list')
      .description('what is held still')
      .option('--kind <kind>', 'only tools, agents or tenants: tool, agent, tenant')
      .option('--by <name>', 'by one person')
      .option('--json', 'print JSON'),
    100,
    'brake',
  ).action(async ({ json, kind, by: who, ...paging }: Options & PageOptions & { kind?: string; by?: string }) => {
      const { brokers } = await findStack('.');
      const all = (await readBrakes(brokers)).filter(({ brake, by }) => (kind === undefined || brake.startsWith(`${kind}:`)) && (who === undefined || by === who));
      const { page: found, next } = pageOf(all, ({ brake }) => brake, paging);
      print(json === true, { brakes: found, next }, () => (found.length === 0 ? 'nothing is held still' : [table(['brake', 'by', 'why', 'since', 'lanes'], found.map(({ brake, by, reason, since, lanes }) => [brake, by, reason, since, String(lanes)])), ...moreAfter(next)].join('\n')));
    });
  withOperator(
    brakes
      .command('set <kind> <name>')
      .description('kind: tool, agent or tenant; name: NAME, or NAME@VERSION. Nothing new of it is sent; what is under way ends')
      .requiredOption('--reason <text>', 'why')
      .option('--json', 'print JSON'),
  ).action((kind: string, name: string, options: Options & { reason: string }) => act(kind, name, options, options.reason));
  withOperator(brakes.command('release <kind> <name>').description('let it go').option('--json', 'print JSON')).action((kind: string, name: string, options: Options) => act(kind, name, options));
}

async function act(kind: string, text: string, options: Options, reason?: string): Promise<void> {
  const target = targetOf(kind, text);
  const { json } = options;
  const asked = askedAs(options);
  const { id } = asked;
  const by = operatorOf(options);
  const { brokers } = await findStack('.');
  const told = await tellLanes(brokers, 'default', asked, target, reason === undefined ? ReleaseBrake({ command: id, by, target }) : SetBrake({ command: id, by, target, reason }));
  print(json === true, told, () => (told.refused.length > 0 ? `refused: ${told.refused.join('; ')}` : `${told.brake} is ${reason === undefined ? 'let go' : 'held still'} on ${told.lanes} lanes`));
  if (told.refused.length > 0) process.exitCode = EXIT.no;
}

function targetOf(kind: string, text: string): BrakeTarget {
  const at = kind === 'tenant' ? -1 : text.lastIndexOf('@');
  const parsed = BrakeTarget.safeParse({ kind, name: at < 0 ? text : text.slice(0, at), ...(at < 0 ? {} : { version: text.slice(at + 1) }) });
  if (!parsed.success) throw new CliError(`"${kind} ${text}" names nothing that can be held still: tool NAME[@VERSION], agent NAME[@VERSION] or tenant NAME`);
  return parsed.data;
}
