import { CopySteps, StartFork, StepsCopied } from './fork.js';
import { intents } from './intent.js';
import { runEvents } from './run.js';

/** Types on the topic `agent.intents`. */
export const intentMessages = [...intents, StartFork, CopySteps] as const;
/** Types on the topic `run.events`. */
export const runMessages = [...runEvents, StepsCopied] as const;
