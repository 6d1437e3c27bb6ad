import { z } from 'zod';
import { RunId, Step } from './ids.js';
import { StartRun } from './intent.js';
import { message } from './message.js';
import { HistoryStep } from './task.js';

/** Where a run comes from that was forked off another one: `from` is the first step that it does itself. */
export const Origin = z.object({ run: RunId, from: Step });
export type Origin = z.infer<typeof Origin>;

const copied = { steps: z.array(HistoryStep), observed: z.array(Step) };

/** How many pages of steps are still to come; none where it is absent. */
const more = z.number().int().min(0).optional();

/** Told by the orchestrator to itself, across lanes: a run begins with what another has recorded. */
export const StartFork = message('StartFork', z.object({ start: StartRun.schema, origin: Origin, ...copied, more }));

/** What did not fit into the beginning of a fork, page by page. */
export const CopySteps = message('CopySteps', z.object({ origin: Origin, steps: z.array(HistoryStep), more: z.number().int().min(0) }));

/** What a forked run has from its origin: replayed, never fired. */
export const StepsCopied = message('StepsCopied', z.object({ origin: Origin, ...copied, more }));
