export { plannedRuns, Simulation } from './sim/simulation.js';
