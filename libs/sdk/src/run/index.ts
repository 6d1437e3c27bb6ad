export { type RunArtifacts } from './artifacts.js';
export { RunExecutor, type RunExecutorOptions, type RunState } from './executor.js';
export { joinGrant, type Grant, type GrantPage } from './grant.js';
export { guardStrayRejections } from './strays.js';
export { CompletedPartially, type Branch, type Callback, type GroupOptions, type ModelAnswer, type Run, type ToolCallOptions, type Try } from './run.js';
export { type Approval, type ApprovalOptions, type ChildOptions } from '../wait/ask.js';
export { type CallbackSettings } from '../wait/callback.js';
export { type DeadlineAction, type DeadlineOptions, type Duration, type When } from '../wait/when.js';
