import { isAfter, type PlanScope, type Step } from '@holdfast/protocol';
import type { Registered, RunPlans } from './plan.js';

/** Whether a scope means an effect. */
export function covers(scope: PlanScope, step: Step): boolean {
  switch (scope.kind) {
    case 'run':
      return true;
    case 'after':
      return isAfter(step, scope.step);
    case 'steps':
      return scope.steps.includes(step);
  }
}

/** Whether an effect may have changed the world, as far as is known. */
export const mayStand = ({ known }: RunPlans, step: Step): boolean => {
  const status = known.get(step)?.status;
  return status === undefined || status === 'succeeded' || status === 'unknown';
};

/** The way back from an effect: closed by a point of no return that has happened, or unclear while nobody knows whether one has. */
export type WayBack = { readonly is: 'open' } | { readonly is: 'closed' | 'unclear'; readonly at: Step };

/** A point of no return closes it for what was asked for before it, and for itself. */
export function wayBack(run: RunPlans, step: Step): WayBack {
  const effects = [...run.effects.values()];
  const points = effects.slice(effects.findIndex((effect) => effect.step === step)).filter((effect) => effect.pointOfNoReturn);
  const closing = points.findLast((point) => run.known.get(point.step)?.status === 'succeeded');
  if (closing !== undefined) return { is: 'closed', at: closing.step };
  const unclear = points.findLast((point) => mayStand(run, point.step));
  return unclear === undefined ? { is: 'open' } : { is: 'unclear', at: unclear.step };
}

/**
 * What has to be answered before each effect, of those in `effects` (in the order in which they were
 * asked for). What contracts say of each other may go round in a circle: those in it are then
 * answered in reverse order.
 */
export function blockers(effects: readonly Registered[]): ReadonlyMap<Step, ReadonlySet<Step>> {
  const reversed = new Set<Step>();
  for (;;) {
    const waits = graph(effects, reversed);
    const circle = circular(waits);
    if (circle.size === 0) return waits;
    const before = reversed.size;
    for (const step of circle) reversed.add(step);
    // What is left of the circle is held by wishes of others: then nobody's count.
    if (reversed.size === before) for (const { step } of effects) reversed.add(step);
  }
}

function graph(effects: readonly Registered[], reversed: ReadonlySet<Step>): Map<Step, Set<Step>> {
  const waits = new Map<Step, Set<Step>>(effects.map(({ step }) => [step, new Set()]));
  const orderOf = ({ step, how }: Registered): NonNullable<Registered['how']>['order'] => (reversed.has(step) ? 'reverse' : (how?.order ?? 'independent'));
  effects.forEach((effect, index) => {
    const order = orderOf(effect);
    if (order === 'reverse') {
      for (const later of effects.slice(index + 1)) if (orderOf(later) === 'reverse') waits.get(effect.step)?.add(later.step);
      return;
    }
    if (order === 'independent') return;
    for (const other of effects) {
      if (other.step === effect.step) continue;
      // Whoever is put into reverse order because of a circle is held by nobody's wishes.
      if (order.after?.includes(other.tool.name) === true) waits.get(effect.step)?.add(other.step);
      if (order.before?.includes(other.tool.name) === true && !reversed.has(other.step)) waits.get(other.step)?.add(effect.step);
    }
  });
  return waits;
}

/** Steps from which one comes back to themselves. */
function circular(waits: ReadonlyMap<Step, ReadonlySet<Step>>): Set<Step> {
  const found = new Set<Step>();
  for (const start of waits.keys()) {
    const seen = new Set<Step>();
    const next = [...(waits.get(start) ?? [])];
    for (let step = next.pop(); step !== undefined; step = next.pop()) {
      if (step === start) found.add(start);
      if (seen.has(step)) continue;
      seen.add(step);
      next.push(...(waits.get(step) ?? []));
    }
  }
  return found;
}
