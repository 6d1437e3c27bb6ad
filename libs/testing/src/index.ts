export { runSeed, runUninterrupted, type SeedOptions, type SeedResult } from './sim/seeds.js';
export { shrink } from './sim/shrink.js';
