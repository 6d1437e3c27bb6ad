export { AttachedRun, type CallOptions } from './attached-run.js';
export { HoldfastClient, type AttachOptions, type ConnectOptions, type RunHandle, type StartOptions, type WaitOptions } from './client.js';
export type { RunEvent, RunEventRecord } from './log.js';
export type { ClientArtifacts, RunOutcome } from './outcome.js';
export type { RunStanding } from './standing.js';
