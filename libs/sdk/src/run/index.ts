export { type RunArtifacts } from './artifacts.js';
export { RunExecutor, type RunExecutorOptions, type RunState } from './executor.js';
export { joinGrant, type Grant, type GrantPage } from './grant.js';
export { guardStrayRejections } from './strays.js';
export { CompletedPartially, type Branch, type GroupOptions, type ModelAnswer, type Run, type ToolCallOptions, type Try } from './run.js';
