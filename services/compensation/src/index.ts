export * from './domain/index.js';
export { PlanHandlers } from './handlers.js';
export { CompensationModule } from './module.js';
export { compensation } from './routes.js';
