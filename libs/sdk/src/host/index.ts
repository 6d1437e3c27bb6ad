export type { ArtifactPort, ServedArtifacts } from './artifacts.js';
export type { WorkerLog } from './log.js';
export { pgTool, type PgToolSpec } from './pg-tool.js';
export { serve, type ServedWorker, type ServeOptions } from './serve.js';
