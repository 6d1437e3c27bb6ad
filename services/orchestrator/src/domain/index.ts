export * from './commands.js';
export * from './decide.js';
export { historyOf } from './history.js';
export * from './run.js';
export { dueAt, runOverAt } from './waiting.js';
