import type { Plan, Run } from '../api/client.js';

/** How a state is meant: `bad` needs a person, `warn` may soon. Colour is never all that says it: the word is always there. */
export type Tone = 'good' | 'bad' | 'warn' | 'busy' | 'quiet';

const RUN: Record<Run['status'], Tone> = {
  queued: 'quiet',
  running: 'busy',
  waiting: 'busy',
  blocked: 'bad',
  paused: 'warn',
  stuck: 'bad',
  cancelling: 'warn',
  completed: 'good',
  completed_partially: 'warn',
  failed: 'bad',
  cancelled: 'quiet',
  expired: 'warn',
  quarantined: 'bad',
};
export const runTone = (status: Run['status']): Tone => RUN[status];

const PLAN: Record<NonNullable<Plan['status']>, Tone> = { open: 'busy', compensated: 'good', compensated_partially: 'warn', compensation_failed: 'bad' };
export const planTone = (status: Plan['status']): Tone => (status === null ? 'quiet' : PLAN[status]);

const OUTCOME: Readonly<Record<string, Tone>> = { succeeded: 'good', rejected: 'warn', failed: 'bad', unknown: 'bad', dispatched: 'busy', held: 'warn', joined: 'busy', conflicted: 'bad', retry_scheduled: 'warn', compensated: 'good', in_part: 'warn', never_happened: 'quiet', stands: 'warn', not_meant: 'quiet', settle_first: 'bad', in_case: 'bad', answering: 'busy', verifying: 'busy', approval: 'bad', arguments: 'busy', turn: 'busy', no_answer: 'quiet' };
export const outcomeTone = (outcome: string): Tone => OUTCOME[outcome] ?? 'quiet';

export const RUN_STATUSES = Object.keys(RUN) as Run['status'][];
/** States in which nothing goes on until somebody does something. */
export const NEEDS_SOMEBODY: readonly Run['status'][] = ['blocked', 'stuck', 'quarantined', 'failed', 'paused'];
export const isOver = (run: Pick<Run, 'endedAt'>): boolean => run.endedAt !== null;
