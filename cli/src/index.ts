import { Command } from 'commander';
import { addAudit } from './commands/audit.js';
import { addCases } from './commands/cases.js';
import { addRuns } from './commands/runs.js';
import { addUp } from './commands/up.js';

export { explainEvents, explain } from './audit/explain.js';
export { makeAnchor, readAnchor } from './audit/anchor.js';
export { exportRun, historyFile } from './export-run.js';
export { readStreams } from './audit/read-events.js';
export { verify } from './audit/verify.js';
export { showRun } from './show-run.js';

export function makeProgram(): Command {
  const program = new Command('holdfast').description('durable agent runs whose side effects happen at most once').showHelpAfterError();
  addUp(program);
  addRuns(program);
  addCases(program);
  addAudit(program);
  return program;
}
