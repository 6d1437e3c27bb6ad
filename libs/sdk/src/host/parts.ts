/** A worker's parts, for those that bring broker, clock and chance of their own: the simulation. */
export { executeWith } from './execute.js';
export type { Execute, Execution } from './runs.js';
export { Worker, type LaneGroupFactory, type WorkerParts } from './worker.js';
