import { Command, CommanderError } from 'commander';
import { addArtifacts } from './commands/artifacts.js';
import { addAudit } from './commands/audit.js';
import { addBrakes } from './commands/brakes.js';
import { addCases } from './commands/cases.js';
import { addContracts } from './commands/contracts.js';
import { addGateway } from './commands/gateway.js';
import { addKeys } from './commands/keys.js';
import { addRebuild } from './commands/rebuild.js';
import { addRuns } from './commands/runs.js';
import { addUp } from './commands/up.js';
import { EXIT } from './failure.js';

export { explainEvents, explain } from './audit/explain.js';
export { makeAnchor, readAnchor } from './audit/anchor.js';
export { exportRun, historyFile } from './export-run.js';
export { readStreams } from './audit/read-events.js';
export { verify } from './audit/verify.js';
export { rebuildService } from './rebuild.js';
export { showRun } from './show-run.js';

export function makeProgram(): Command {
  const program = new Command('holdfast').description('durable agent runs whose side effects happen at most once').showHelpAfterError().exitOverride();
  addUp(program);
  addRuns(program);
  addCases(program);
  addBrakes(program);
  addContracts(program);
  addAudit(program);
  addRebuild(program);
  addKeys(program);
  addGateway(program);
  addArtifacts(program);
  return program;
}

/** Runs one command line, without the program's name, and says with which exit code it ends. Never rejects. */
export async function runProgram(args: readonly string[]): Promise<number> {
  try {
    await makeProgram().parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? EXIT.ok);
  } catch (error) {
    // It has said already what is wrong with the words, or given the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode;
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return EXIT.cannot;
  }
}
