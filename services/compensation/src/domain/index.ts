export * from './advance.js';
export * from './commands.js';
export * from './decide.js';
export * from './order.js';
export * from './plan.js';
export * from './preview.js';
