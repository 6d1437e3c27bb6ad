export * from './ports.js';
export * from './contracts/index.js';
export * from './crash-point.js';
export * from './environment.js';
export * from './loop/index.js';
export * from './store/index.js';
export * from './system.js';
export * from './rebuild/index.js';
