export * from './claim.js';
export * from './commands.js';
export * from './decide.js';
export * from './effect.js';
export { ToolHealth } from './health.js';
export * from './recovery-policy.js';
