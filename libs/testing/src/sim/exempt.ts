import { unknownSteps, type Run } from '@holdfast/orchestrator';
import { type RunEffects } from '@holdfast/ledger';
import { topics } from '@holdfast/protocol';
import type { SimLog } from './log.js';
import type { Simulation } from './simulation.js';

/** A run that an interruption may leave otherwise than the uninterrupted one, by name. */
export type Exemption = 'unknown_without_evidence' | 'joined_an_unknown';

/** A host has said how the attempt ended: then nothing is unknown any more. */
const isProved = (log: SimLog, run: string, step: string, attempt: number): boolean =>
  log.lane(topics.toolResults, log.laneOf(run)).some(({ key, value, headers }) => {
    if (key !== run || headers['ce_type'] !== 'EffectReported') return false;
    const report = JSON.parse(value ?? '') as { step: string; attempt: number; outcome: { status: string } };
    return report.step === step && report.attempt === attempt && (report.outcome.status === 'succeeded' || report.outcome.status === 'rejected');
  });

/**
 * Where a run may differ from the uninterrupted one: all such cases, here and nowhere else.
 * `unknown_without_evidence`: a crash or a loss between an irreversible call and its report leaves
 * its outcome unknown, and the run blocked, until somebody asks the target (reconciliation).
 * `joined_an_unknown`: it waits for another run's effect that is left so.
 */
export function exemptFrom({ cluster: { core, databases, log } }: Simulation, id: string, run: Run, effects: RunEffects): Exemption | null {
  if (core.faults.length === 0 || run.status !== 'open') return null;
  const unknown = unknownSteps(run);
  if (unknown.some(({ call, attempt }) => isProved(log, id, call.step, attempt))) return null;
  if (unknown.length > 0) return 'unknown_without_evidence';
  const joined = [...effects.values()].find(({ status }) => status === 'joined');
  if (joined === undefined) return null;
  const claim = databases.ledger.shared.get(`effect:${joined.key}`) ?? '';
  return claim.includes('"claimed"') ? 'joined_an_unknown' : null;
}
