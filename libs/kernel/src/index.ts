export * from './decider.js';
export * from './exhaustive.js';
export * from './specification.js';
export * from './thrown.js';
