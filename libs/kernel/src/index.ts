export * from './decider.js';
export * from './exhaustive.js';
export * from './specification.js';
