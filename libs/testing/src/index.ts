export { crashEverywhere, type CrashOptions, type CrashReport, type CrashResult, type Repeated } from './kit/crash-everywhere.js';
export { crash, duplicate, lost, type StepFault } from './kit/faults.js';
export { matchers } from './kit/matchers.js';
export { TestWorld, type Account, type RunEnd, type Setup, type StartedRun, type Surroundings, type ToolCall, type WorldOptions } from './kit/test-world.js';
