export * from './domain/commands.js';
export * from './domain/decide.js';
export * from './domain/run.js';
export { historyOf } from './history.js';
export { RunHandlers } from './handlers.js';
export { OrchestratorModule } from './module.js';
export { orchestrator } from './routes.js';
