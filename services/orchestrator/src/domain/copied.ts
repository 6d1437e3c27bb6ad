import type { HistoryStep, Step } from '@holdfast/protocol';
import type { StepState } from './run.js';

/** A step of another run, as the one that was forked off it has it. */
export function copiedStep(step: HistoryStep): readonly [Step, StepState] {
  switch (step.kind) {
    case 'call':
      return [step.call.step, { kind: 'call', call: step.call, fire: step.fire, attempt: step.attempt, lost: 0, group: step.group ?? null, outcome: step.outcome ?? null, fence: null, bound: false }];
    case 'record':
      return [step.step, { kind: 'record', step: step.step, as: step.as, name: step.name, result: step.result, fence: null }];
    case 'try':
      return [step.step, { kind: 'try', step: step.step, as: step.as, name: step.name, attempt: step.attempt, failure: step.failure, retryAt: step.retryAt, fence: null }];
    case 'wait':
      return [
        step.step,
        {
          kind: 'wait',
          step: step.step,
          wait: step.wait,
          since: 0,
          deadline: null,
          onDeadline: { action: 'expire' },
          nextAt: null,
          reminded: 0,
          escalated: false,
          end: step.end ?? null,
          abandoned: step.abandoned === true,
          // What was approved was approved for the other run.
          approval: null,
          fence: null,
        },
      ];
  }
}
