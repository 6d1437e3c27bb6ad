import type { SpanMark } from '@holdfast/runtime';
import type { PlanEvent } from './domain/plan.js';

/** Each plan, and each answer to an effect from its order to its end. */
export function marks(event: PlanEvent): readonly SpanMark[] {
  switch (event.type) {
    case 'PlanOpened':
      return [{ parts: ['plan', event.data.plan], name: 'compensation plan', mark: 'begins' }];
    case 'PlanConcluded': {
      const { plan, status } = event.data;
      return [{ parts: ['plan', plan], name: 'compensation plan', mark: 'ends', attributes: { 'holdfast.plan': plan, 'holdfast.status': status }, ...(status === 'compensation_failed' ? { failed: status } : {}) }];
    }
    case 'CompensationOrdered':
      return [{ parts: ['compensation', event.data.plan, event.data.of], name: 'compensation', mark: 'begins' }];
    case 'CompensationSettled': {
      const { plan, of, standing } = event.data;
      return [{ parts: ['compensation', plan, of], parent: ['plan', plan], name: 'compensation', mark: 'ends', attributes: { 'holdfast.step': of, 'holdfast.standing': standing.standing }, ...(standing.standing === 'failed' ? { failed: 'failed' } : {}) }];
    }
    default:
      return [];
  }
}
