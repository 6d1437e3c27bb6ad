import { randomUUID } from 'node:crypto';
import { isoTime, JSON_DEPTH_MAX, parseJson, type Json } from '@holdfast/protocol';
import { HoldfastClient, IntentRefusedError, NotAdmitted, OutcomeTimeout, type RunOutcome } from '@holdfast/sdk';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import type { Command } from 'commander';
import { nameOf, readContracts } from '../contracts.js';
import { durationMs } from '../duration.js';
import { CliError, CliNo, EXIT } from '../failure.js';
import { oneLine, paint, print, progress } from '../print.js';
import { showRun } from '../show-run.js';
import { startOptionsOf, withStartWords, type StartWords } from '../start-options.js';
import { findArtifacts, findBrokers } from '../stack-file.js';

interface Words extends StartWords {
  readonly input: string;
  readonly runId?: string;
  readonly tenant?: string;
  readonly wait?: string | boolean;
  readonly json?: boolean;
}

export function addStart(runs: Command): void {
  withStartWords(
    runs
      .command('start <agent>')
      .description('start a run of NAME@VERSION, or of NAME where one version is declared')
      .option('--input <json>', 'what it is given', 'null')
      .option('--run-id <run>', 'its id: the same one with the same input is the same run (default: a random one)')
      .option('--tenant <tenant>', 'whose run it is'),
  )
    .option('--wait [time]', 'wait for its end, at most so long; exit code 1 where that is another than completed')
    .option('--json', 'print JSON')
    .action(start);
}

async function start(agent: string, options: Words): Promise<void> {
  const input = parseJson(options.input, JSON_DEPTH_MAX);
  if (!input.ok) throw new CliError(`--input is no JSON: ${input.message}`);
  const carried = startOptionsOf(options, input.value, Date.now());
  const timeoutMs = typeof options.wait === 'string' ? durationMs(options.wait, '--wait') : undefined;
  const brokers = await findBrokers('.');
  const declared = await agentOf(brokers, agent);
  const artifacts = await openArtifactStore(await findArtifacts('.'));
  const client = await HoldfastClient.connect({ brokers, tenant: options.tenant, artifacts });
  try {
    const runId = options.runId ?? randomUUID();
    // Said before anything is waited for: whoever stops us here finds the run by it.
    if (options.runId === undefined) progress(`run ${runId}`);
    const run = await client.start(declared, input.value, { pool: declared.pool, ...carried, runId });
    if (options.wait === undefined) return print(options.json === true, { run: run.id, agent: nameOf(declared) }, () => `run ${run.id} of ${nameOf(declared)} is asked for: \`holdfast runs show ${run.id}\``);
    const outcome = await run.outcome({ timeoutMs }).catch(async (error: unknown) => {
      if (error instanceof NotAdmitted) return error;
      if (error instanceof IntentRefusedError) throw new CliNo(error.message);
      if (!(error instanceof OutcomeTimeout)) throw error;
      if (options.json === true) print(true, { run: run.id, agent: nameOf(declared), phase: (await showRun(brokers, run.id))?.['phase'] ?? 'asked', outcome: null }, () => '');
      throw new CliError(`run ${run.id} goes on: \`holdfast runs show ${run.id}\` says where it is`);
    });
    if (outcome instanceof NotAdmitted) {
      const { reason, message, holder = null } = outcome;
      const retryAt = isoTime(outcome.retryAt);
      print(options.json === true, { run: run.id, agent: nameOf(declared), refused: { reason, message, retryAt, holder } }, () => `run ${run.id}: ${message}; it may be started again from ${retryAt} on`);
      process.exitCode = EXIT.no;
      return;
    }
    print(options.json === true, { run: run.id, agent: nameOf(declared), outcome }, () => `run ${run.id}: ${inWords(outcome)}`);
    if (outcome.status !== 'completed') process.exitCode = EXIT.no;
  } finally {
    await client.close();
  }
}

function inWords(outcome: RunOutcome<Json>): string {
  const status = paint(outcome.status);
  switch (outcome.status) {
    case 'completed':
      return `${status} ${oneLine(outcome.output)}`;
    case 'completed_partially':
      return `${status} ${outcome.output === null ? '' : `${oneLine(outcome.output)} `}${outcome.because}`;
    case 'failed':
      return `${status} ${outcome.failure.message}`;
    case 'cancelled':
      return `${status} ${outcome.reason}`;
    case 'expired':
      return `${status} ${isoTime(outcome.deadline)}`;
    case 'quarantined':
      return `${status} ${outcome.because}`;
  }
}

async function agentOf(brokers: readonly string[], text: string): Promise<{ name: string; version: string; pool: string }> {
  const { agents } = await readContracts(brokers);
  const named = agents.filter((each) => nameOf(each) === text);
  const found = named.length > 0 ? named : agents.filter(({ name }) => name === text);
  const [only] = found;
  if (only === undefined) throw new CliError(`no worker has declared ${text}: \`holdfast contracts list --kind agent\` shows those that there are`);
  if (found.length > 1) throw new CliError(`${text} is declared as ${found.map(nameOf).join(', ')}: say which`);
  return { name: only.name, version: only.version, pool: only.pool };
}
