import { unknownSteps, type Run } from '@holdfast/orchestrator';
import { type RunEffects } from '@holdfast/ledger';
import type { Simulation } from './simulation.js';

/** A run that an interruption may leave otherwise than the uninterrupted one, by name. */
export type Exemption = 'unknown_without_evidence' | 'joined_an_unknown';

/**
 * Where a run may differ from the uninterrupted one: all such cases, here and nowhere else.
 * `unknown_without_evidence`: a crash or a loss between an irreversible call and its report leaves
 * its outcome unknown, and the run blocked, until somebody asks the target (reconciliation).
 * `joined_an_unknown`: it waits for another run's effect that is left so.
 */
export function exemptFrom({ core, databases }: Simulation, run: Run, effects: RunEffects): Exemption | null {
  if (core.faults.length === 0 || run.status !== 'open') return null;
  if (unknownSteps(run).length > 0) return 'unknown_without_evidence';
  const joined = [...effects.values()].find(({ status }) => status === 'joined');
  if (joined === undefined) return null;
  const claim = databases.ledger.shared.get(`effect:${joined.key}`) ?? '';
  return claim.includes('"claimed"') ? 'joined_an_unknown' : null;
}
