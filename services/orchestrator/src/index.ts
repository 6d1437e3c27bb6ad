export * from './domain/commands.js';
export * from './domain/decide.js';
export * from './domain/run.js';
export { historyOf } from './history.js';
export { dueAt, runOverAt } from './domain/waiting.js';
export { WaitHandlers } from './wait-handlers.js';
export { RunHandlers } from './handlers.js';
export { OrchestratorModule } from './module.js';
export { orchestrator } from './routes.js';
