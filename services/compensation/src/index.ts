export * from './domain/advance.js';
export * from './domain/commands.js';
export * from './domain/decide.js';
export * from './domain/order.js';
export * from './domain/plan.js';
export * from './domain/preview.js';
export { PlanHandlers } from './handlers.js';
export { CompensationModule } from './module.js';
export { compensation } from './routes.js';
