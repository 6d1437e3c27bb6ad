import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { CancelRun, DecideApproval, ForkRun, JSON_DEPTH_MAX, parseJson, PauseRun, RunId, SignalRun, Step, topics, UnpauseRun, UnquarantineRun, type Asking, type Json, type Operator, type Wait } from '@holdfast/protocol';
import type { Replayed } from '@holdfast/sdk';
import { exportRun } from '../export-run.js';
import { CliError, CliNo, EXIT } from '../failure.js';
import { askedAs, command, operatorOf, withCommandId, withOperator, type Asked } from '../operator.js';
import { momentMs } from '../moment.js';
import { moreAfter, pageOf, withPages, type PageOptions } from '../paging.js';
import { atLength, brief, oneLine, paint, print, table, toAllow } from '../print.js';
import { replayRun } from '../replay-run.js';
import { listRuns, phaseNamed } from '../runs.js';
import { showRun, whyNone } from '../show-run.js';
import { findStack } from '../stack-file.js';
import { addStart } from './start.js';

interface Acting {
  readonly id?: string;
  readonly as?: string;
  readonly role?: string[];
  readonly json?: boolean;
}

export function addRuns(program: Command): void {
  const runs = program.command('runs').description('look at runs, and act on them');
  withPages(
    runs
    .command('list')
    .description('runs, newest first')
    .option('--phase <phase>', 'only those that are running, waiting, blocked, paused, stuck, completed …')
    .option('--status <phase>', 'the same')
    .option('--agent <name>', 'of one agent')
    .option('--tenant <tenant>', 'of one tenant')
    .option('--approver <role>', 'only those that wait for an approval by this role')
    .option('--json', 'print JSON'),
    50,
    'run',
  ).action(list);
  addStart(runs);
  runs
    .command('show <run>')
    .description('print a run’s checkpoint: what it was asked, what it did, what is unknown, what is safe next')
    .option('--json', 'print JSON')
    .action(show);
  withCommandId(runs.command('signal <run> <name> [payload]').description('send a signal; the payload is JSON (default null)'))
    .option('--json', 'print JSON')
    .action(async (run: string, name: string, payload: string | undefined, options: { id?: string; json?: boolean }) => {
      const asked = askedAs(options);
      await act(run, options, asked, SignalRun({ signal: asked.id, name, payload: jsonOf(payload, 'the payload') }), topics.agentIntents);
    });
  runs
    .command('export <run>')
    .description('write a run’s history as JSON, to replay it against changed code')
    .option('--out <file>', 'there instead of to stdout')
    .action(async (id: string, { out }: { out?: string }) => {
      const { brokers } = await findStack('.');
      const text = `${JSON.stringify(await exportRun(brokers, id), null, 2)}\n`;
      if (out === undefined) process.stdout.write(text);
      else await writeFile(out, text);
    });
  runs
    .command('replay <file>')
    .description('replay an exported history against the agent that a module exports, and say where it would diverge; fires nothing')
    .requiredOption('--module <module>', 'a JavaScript module that exports the agent and the tools that it calls by name')
    .option('--artifacts <place>', 'folder or s3://bucket/prefix of large results')
    .option('--json', 'print JSON')
    .action(async (file: string, { module, artifacts, json }: { module: string; artifacts?: string; json?: boolean }) => {
      const replayed = await replayRun(file, module, artifacts);
      print(json === true, replayed, () => inWords(replayed));
      if (replayed.divergence !== null) process.exitCode = EXIT.no;
    });
  acting(runs.command('cancel <run>').description('cancel a run: nothing new of it is sent, what stands is listed'))
    .requiredOption('--reason <text>', 'why')
    .option('--immediate', 'end it at once; what is in flight is recorded when it ends (default: wait for that)')
    .option('--tree', 'its children too')
    .action((run: string, options: Acting & { reason: string; immediate?: boolean; tree?: boolean }) =>
      decide(run, options, (id, by) => CancelRun({ command: id, by, reason: options.reason, scope: options.tree === true ? 'tree' : 'run', manner: options.immediate === true ? 'immediate' : 'graceful' })),
    );
  for (const decision of ['approve', 'reject'] as const) {
    acting(runs.command(`${decision} <run> <step>`).description(decision === 'approve' ? 'approve exactly what the wait at this step shows' : 'say no; the feedback reaches the agent'))
      .option('--feedback <text>', 'what the agent is told')
      .option('--digest <digest>', 'of what you were shown (`approvals list`, `runs show`): anything else is refused')
      .option('--expires <time>', 'until when the approval may be used, RFC 3339')
      .action((run: string, step: string, options: Acting & { feedback?: string; digest?: string; expires?: string }) =>
        decide(run, options, (id, by) => DecideApproval({ command: id, by, step: stepOf(step), decision, ...(options.feedback === undefined ? {} : { feedback: options.feedback }), ...(options.digest === undefined ? {} : { digest: options.digest }), ...(options.expires === undefined ? {} : { expiresAt: momentMs(options.expires, '--expires') }) })),
      );
  }
  for (const how of ['fork', 'retry'] as const) {
    const made = acting(runs.command(`${how} <run>`).description(how === 'fork' ? 'begin a new run with what this one recorded before a step; that is replayed, never fired' : 'the same, from the step that failed on')).option('--run-id <run>', 'the new run’s id').option('--input <json>', 'another input');
    if (how === 'fork') made.requiredOption('--from <step>', 'the first step that the new run does itself');
    made.action((run: string, options: Acting & { from?: string; runId?: string; input?: string }) =>
      decide(run, options, (id, by) => ForkRun({ command: id, by, run: idOf(options.runId ?? forkOf(run, id)), ...(options.from === undefined ? {} : { from: stepOf(options.from) }), ...(options.input === undefined ? {} : { input: jsonOf(options.input, '--input') }) })),
    );
  }
  acting(runs.command('pause <run>').description('hold a run still until it is let go on'))
    .requiredOption('--reason <text>', 'why')
    .action((run: string, options: Acting & { reason: string }) => decide(run, options, (id, by) => PauseRun({ command: id, by, reason: options.reason })));
  acting(runs.command('resume <run>').description('let a paused run go on')).action((run: string, options: Acting) => decide(run, options, (id, by) => UnpauseRun({ command: id, by })));
  acting(runs.command('release <run>').description('let a quarantined run go on, having looked into it'))
    .requiredOption('--reason <text>', 'what was found')
    .action((run: string, options: Acting & { reason: string }) => decide(run, options, (id, by) => UnquarantineRun({ command: id, by, reason: options.reason })));
}

const acting = (made: Command): Command => withOperator(made).option('--json', 'print JSON');

async function list({ status, ...options }: { phase?: string; status?: string; agent?: string; tenant?: string; approver?: string; json?: boolean } & PageOptions): Promise<void> {
  const phase = phaseNamed(options.phase ?? status);
  const { brokers } = await findStack('.');
  const found = await listRuns(brokers, { ...options, phase });
  const { page, next } = pageOf(found, ({ run }) => run, options);
  print(options.json === true, { runs: page, next }, () =>
    page.length === 0
      ? 'no runs'
      : [table(['run', 'phase', 'agent', 'steps', 'waits for', 'started'], page.map((row) => [row.run, paint(row.phase), row.agent ?? '-', String(row.steps), brief(row.stuck ?? row.waits.join('; ')), row.started])), ...moreAfter(next)].join('\n'),
  );
}

async function show(id: string, { json }: { json?: boolean }): Promise<void> {
  const { brokers } = await findStack('.');
  const run = await showRun(brokers, id);
  if (run === null) throw new CliNo(await whyNone(brokers, id));
  print(json === true, run, () => people(run));
}

const decide = (run: string, options: Acting, message: (id: string, by: Operator) => Asking): Promise<void> => {
  const asked = askedAs(options);
  return act(run, options, asked, message(asked.id, operatorOf(options)), topics.operatorCommands);
};

/** Sends something about a run, and says what came of it. Exit code 1 when it was refused. */
async function act(run: string, { json }: { json?: boolean | undefined }, asked: Asked, message: Asking, on: string): Promise<void> {
  const { brokers } = await findStack('.');
  const known = await showRun(brokers, run);
  if (known === null) throw new CliNo(await whyNone(brokers, run));
  const answer = await command({ brokers, answersOn: topics.runEvents, run, asked, message, on, known: async () => ({ tenant: String(known['tenant']) }) });
  const refused = answer.type === 'InputRefused';
  print(json === true, { run, event: answer.type, ...answer.data }, () => (refused ? `refused (${String(answer.data['reason'])}): ${String(answer.data['message'])}` : `run ${run}: ${answer.type}${answer.type === 'RunForked' ? ` as ${String(answer.data['run'])}, from step ${String(answer.data['from'])}` : ''}`));
  if (refused) process.exitCode = EXIT.no;
}

/** The same command names the same run. */
const forkOf = (run: string, command: string): string => `${run}~${createHash('sha256').update(command).digest('hex').slice(0, 8)}`;

function stepOf(text: string): Step {
  const step = Step.safeParse(text);
  if (!step.success) throw new CliError(`"${text}" is no step: one is named by its cursor, such as 3 or 3.1`);
  return step.data;
}

function idOf(text: string): RunId {
  const id = RunId.safeParse(text);
  if (!id.success) throw new CliError(`"${text}" can be no run id`);
  return id.data;
}

function jsonOf(text: string | undefined, what: string): Json {
  if (text === undefined) return null;
  const parsed = parseJson(text, JSON_DEPTH_MAX);
  if (!parsed.ok) throw new CliError(`${what} is no JSON: ${parsed.message}`);
  return parsed.value;
}

function inWords({ run, agent, steps, divergence, adopted, next }: Replayed): string {
  if (divergence !== null) return `run ${run} of ${agent} diverges at ${/^\d/.test(divergence.step) ? 'step ' : 'its '}${divergence.step}: recorded is ${divergence.recorded}, the code asks for ${divergence.asked}`;
  const words = adopted === 0 ? '' : `; ${adopted} calls are worded otherwise, and the recorded ones stand`;
  return `run ${run} of ${agent} replays: ${steps} steps, no divergence${words}${next.length === 0 ? '' : `; it would go on with ${next.join(', ')}`}`;
}

function people(run: Record<string, unknown>): string {
  const steps = (run['steps'] as Record<string, unknown>[]).map((step) => {
    const outcome = step['outcome'] as { status: string } | undefined;
    return [String(step['step']), String(step['tool'] ?? `${String(step['kind'])} ${String(step['name'])}`), String(step['effect'] ?? 'recorded'), paint(outcome?.status ?? 'recorded'), String(step['attempts'] ?? 1), brief(step['args'] ?? step['result'] ?? '')];
  });
  const facts = ['phase', 'held', 'stuck', 'origin', 'goal', 'principal', 'agent', 'cursor', 'fence', 'worker', 'resumes', 'deadline', 'budgets', 'chain', 'next']
    .filter((name) => run[name] !== null)
    .map((name) => `${name.padEnd(10)} ${name === 'phase' ? paint(String(run[name])) : oneLine(run[name])}`);
  const unknown = (run['unknown'] as { step: string; tool: string; why: string; case: string | null; since: string | null; owner: string | null; nextLook: string | null }[]).map(
    ({ step, tool, why, ...of }) => `unknown    step ${step} (${tool}): ${why}${of.case === null ? '' : `; case ${of.case} since ${of.since ?? '?'}, owner ${of.owner ?? 'nobody'}, next look ${of.nextLook ?? 'by a person'}`}`,
  );
  const waits = (run['waits'] as { step: string; kind: string; deadline: string | null }[]).map(({ step, kind, deadline }) => `waits      step ${step} for ${kind}${deadline === null ? '' : `, until ${deadline}`}`);
  const asked = new Set((run['waits'] as { step: string }[]).map(({ step }) => step));
  const allowed = (run['steps'] as { step: string; wait?: Wait }[]).flatMap(({ step, wait }) => {
    if (wait?.kind !== 'approval' || !asked.has(step)) return [];
    const { tool, args, digest } = wait.scope;
    return [`args       step ${step} ${toAllow(`${tool.name}@${tool.version}`, args, digest)}`];
  });
  const held = (run['steps'] as { step: string; tool?: string; outcome?: { status: string; since?: string; why?: string; until?: string | null } }[]).flatMap(({ step, tool = '', outcome }) => {
    if (outcome?.status !== 'held') return [];
    return [`held       step ${step} (${tool}) since ${outcome.since ?? '?'}, not sent yet: ${outcome.why ?? '?'}${typeof outcome.until === 'string' ? `; fails unfired at ${outcome.until}` : ''}`];
  });
  const end = run['ending'] === null ? [] : [`ending     ${atLength(run['ending'])}`];
  return [`run        ${String(run['run'])}`, ...facts, ...waits, ...allowed, ...held, ...unknown, ...end, table(['step', 'what', 'effect', 'outcome', 'attempts', 'arguments or result'], steps)].join('\n');
}
