export type { WorkerLog } from './log.js';
export { WorkerStopped } from './outbox.js';
export { pgTool, type PgToolSpec } from './pg-tool.js';
export type { ArtifactPort, LocalCall, RunEar, RunPort } from './port.js';
export type { ServedArtifacts } from './execute.js';
export { serve, type ServedWorker, type ServeOptions } from './serve.js';
