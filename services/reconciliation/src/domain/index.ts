export * from './case.js';
export * from './commands.js';
export * from './decide.js';
