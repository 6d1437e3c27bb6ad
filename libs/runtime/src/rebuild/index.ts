export { RebuildProblem, type Head, type RebuildLog, type RebuildStore } from './ports.js';
export { rebuildJournal, type RebuildOptions, type RebuildReport } from './rebuild.js';
export type { Missing } from './inputs.js';
