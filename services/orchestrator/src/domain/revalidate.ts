import type { MessageOf, RunResumed } from '@holdfast/protocol';
import { budgetState } from './budget.js';
import type { KnownRun } from './run.js';

type Revalidated = MessageOf<typeof RunResumed>['data']['revalidated'];

/** What a resume looks at, point by point, as it is now. */
export function revalidated(run: KnownRun, agentVersion: Revalidated['agentVersion']): Revalidated {
  return { history: 'intact', agentVersion, deadline: run.deadline === null ? 'none' : 'open', budgets: budgetState(run) };
}
