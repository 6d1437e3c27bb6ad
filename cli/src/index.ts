import { createRequire } from 'node:module';
import { Command, CommanderError } from 'commander';
import { z } from 'zod';
import { addApprovals } from './commands/approvals.js';
import { addArtifacts } from './commands/artifacts.js';
import { addAudit } from './commands/audit.js';
import { addBrakes } from './commands/brakes.js';
import { addCases } from './commands/cases.js';
import { addPlans } from './commands/plans.js';
import { addCompletion } from './commands/completion.js';
import { addContracts } from './commands/contracts.js';
import { addDemo } from './commands/demo.js';
import { addDoctor } from './commands/doctor.js';
import { addGateway } from './commands/gateway.js';
import { addKeys } from './commands/keys.js';
import { addMigrate } from './commands/migrate.js';
import { addRebuild } from './commands/rebuild.js';
import { addRuns } from './commands/runs.js';
import { addTail } from './commands/tail.js';
import { addTopics } from './commands/topics.js';
import { addUp } from './commands/up.js';
import { CliNo, EXIT, EXIT_CODES } from './failure.js';

const { version: VERSION } = z.object({ version: z.string() }).parse(createRequire(import.meta.url)('../package.json'));


export { EXIT_CODES } from './failure.js';
export { compare, compareEvents } from './audit/compare.js';
export { explainEvents, explain } from './audit/explain.js';
export { makeAnchor, readAnchor } from './audit/anchor.js';
export { exportRun, historyFile } from './export-run.js';
export { readStreams } from './audit/read-events.js';
export { verify } from './audit/verify.js';
export { rebuildService } from './rebuild.js';
export { showRun } from './show-run.js';

export function makeProgram(): Command {
  const program = new Command('holdfast')
    .description('durable agent runs whose side effects happen at most once')
    .version(VERSION, '--version', 'print the version')
    .addHelpText('after', `\n${EXIT_CODES}`)
    .showHelpAfterError('(--help says what can be said)')
    .exitOverride();
  addUp(program);
  addDemo(program);
  addDoctor(program);
  addTail(program);
  addRuns(program);
  addApprovals(program);
  addCases(program);
  addPlans(program);
  addBrakes(program);
  addContracts(program);
  addAudit(program);
  addRebuild(program);
  addKeys(program);
  addGateway(program);
  addArtifacts(program);
  addTopics(program);
  addMigrate(program);
  addCompletion(program);
  return program;
}

/** Runs one command line, without the program's name, and says with which exit code it ends. Never rejects. */
export async function runProgram(args: readonly string[]): Promise<number> {
  try {
    await makeProgram().parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? EXIT.ok);
  } catch (error) {
    // It has said already what is wrong with the words, or given the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.cannot;
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return error instanceof CliNo ? EXIT.no : EXIT.cannot;
  }
}
