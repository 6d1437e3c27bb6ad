export * from './domain/index.js';
export { CaseHandlers } from './handlers.js';
export { ReconciliationModule } from './module.js';
export { reconciliation } from './routes.js';
