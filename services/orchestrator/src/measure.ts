import type { Run, RunEvent } from './domain/run.js';
import type { Turn } from '@holdfast/runtime';

/** Counts what recorded work cost, and what a run that changes hands does not pay again since it replays its record. */
export function measure(turn: Pick<Turn<Run, RunEvent>, 'count'>, before: Run, event: RunEvent): void {
  if (event.type === 'StepRecorded' && event.data.usage !== undefined) {
    const { tokensIn = 0, tokensOut = 0, cost = 0 } = event.data.usage;
    turn.count('tokens', 'fresh', tokensIn + tokensOut);
    turn.count('cost', 'fresh', cost);
  }
  if (event.type === 'RunResumed' && 'usage' in before) {
    turn.count('tokens', 'replayed', before.usage.tokens);
    turn.count('cost', 'replayed', before.usage.cost);
  }
}
