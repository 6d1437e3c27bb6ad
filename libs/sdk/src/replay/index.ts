export { InvalidHistory, parseHistory, RunHistory } from './history-file.js';
export { replayHistory, type Divergence, type Replayed, type ReplayOptions } from './replay.js';
