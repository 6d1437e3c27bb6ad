export * from './domain/case.js';
export * from './domain/commands.js';
export * from './domain/decide.js';
export { CaseHandlers } from './handlers.js';
export { ReconciliationModule } from './module.js';
export { reconciliation } from './routes.js';
