export { defineAgent, type AgentDefinition, type AgentReference, type AgentResult, type AgentSpec } from './define/agent.js';
export { Accepted, accepted } from './define/accepted.js';
export type { JsonCompatible } from './define/json.js';
export * from './define/probe.js';
export * from './define/tool.js';
export * from './errors.js';
export * from './client/index.js';
export * from './host/index.js';
export * from './run/index.js';
