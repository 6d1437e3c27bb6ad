export * from './domain/index.js';
export { WaitHandlers } from './wait-handlers.js';
export { RunHandlers } from './handlers.js';
export { OrchestratorModule } from './module.js';
export { orchestrator } from './routes.js';
