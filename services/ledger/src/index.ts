export * from './domain/index.js';
export { EffectHandlers } from './handlers.js';
export { LedgerModule } from './module.js';
export { ledger } from './routes.js';
