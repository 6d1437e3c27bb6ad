import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Replayed } from '@holdfast/sdk';
import { exportRun } from '../export-run.js';
import { replayRun } from '../replay-run.js';
import { EXIT } from '../failure.js';
import { brief, paint, print, table } from '../print.js';
import { showRun } from '../show-run.js';
import { findStack } from '../stack-file.js';

export function addRuns(program: Command): void {
  const runs = program.command('runs').description('look at runs');
  runs
    .command('show <run>')
    .description('print a run’s checkpoint: what it was asked, what it did, what is unknown, what is safe next')
    .option('--json', 'print JSON')
    .action(async (id: string, { json }: { json?: boolean }) => {
      const { brokers } = await findStack('.');
      const run = await showRun(brokers, id);
      if (run === null) {
        process.stderr.write(`run ${id} has no events: it was never accepted here\n`);
        process.exitCode = EXIT.no;
        return;
      }
      print(json === true, run, () => people(run));
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
  const facts = ['phase', 'goal', 'principal', 'agent', 'cursor', 'fence', 'worker', 'resumes', 'deadline', 'budgets', 'chain', 'next']
    .filter((name) => run[name] !== null)
    .map((name) => `${name.padEnd(10)} ${name === 'phase' ? paint(String(run[name])) : brief(run[name])}`);
  const unknown = (run['unknown'] as { step: string; tool: string; why: string; case: string | null; since: string | null; owner: string | null; nextLook: string | null }[]).map(
    ({ step, tool, why, ...of }) => `unknown    step ${step} (${tool}): ${why}${of.case === null ? '' : `; case ${of.case} since ${of.since ?? '?'}, owner ${of.owner ?? 'nobody'}, next look ${of.nextLook ?? 'by a person'}`}`,
  );
  const end = run['ending'] === null ? [] : [`ending     ${brief(run['ending'])}`];
  return [`run        ${String(run['run'])}`, ...facts, ...unknown, ...end, table(['step', 'what', 'effect', 'outcome', 'attempts', 'arguments or result'], steps)].join('\n');
}
