export * from './domain/claim.js';
export * from './domain/commands.js';
export * from './domain/decide.js';
export * from './domain/effect.js';
export { ToolHealth } from './domain/health.js';
export * from './domain/recovery-policy.js';
export { EffectHandlers } from './handlers.js';
export { LedgerModule } from './module.js';
export { ledger } from './routes.js';
