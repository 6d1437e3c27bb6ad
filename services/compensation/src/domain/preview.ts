import { compensationStep, digestOf, type Evidence, type Json, type MessageOf, type Named, type PlanCommandRefused, type PlanConcluded, type Step } from '@holdfast/protocol';
import type { Command, Looking, PlanCommand } from './commands.js';
import { decide } from './decide.js';
import { evolve, openPlan, type PlanEvent, type RunPlans } from './plan.js';

type Data<M> = MessageOf<M> extends { data: infer D } ? D : never;

/** One thing that a plan would do, in order. */
export interface Planned {
  readonly of: Step;
  readonly tool: Named;
  /** Null where a host has to compute them. */
  readonly args: Json;
  readonly amount: number | null;
  /** Roles of which whoever approves must have one; null: nobody is asked. */
  readonly approvers: readonly string[] | null;
}

export interface Preview {
  /** Why nothing would be done at all; null when something would. */
  readonly refused: Data<typeof PlanCommandRefused> | null;
  readonly would: readonly Planned[];
  /** Effects that have to be settled first, and what is known of them. */
  readonly unsettled: readonly { readonly step: Step; readonly tool: Named; readonly status: 'unknown' | 'under_way' }[];
  /** How all would stand, were every compensation to work; null while something has to be settled first. */
  readonly then: Data<typeof PlanConcluded> | null;
}

const ASSUMED: Evidence = { kind: 'receipt', note: 'assumed' };

/** What an operator's wish would lead to, were everything to work and everyone to agree. Changes nothing. */
export function preview(before: RunPlans, asked: Command<'compensate'>['asked'], looking: Looking): Preview {
  let run = before;
  const would: Planned[] = [];
  const approvers = new Map<Step, readonly string[]>();
  const computed = new Set<Step>();
  const todo: PlanCommand[] = [{ type: 'compensate', asked, ...looking }];
  let then: Preview['then'] = null;
  for (let command = todo.shift(); command !== undefined; command = todo.shift()) {
    const decision = decide(command, run);
    for (const event of decision.kind === 'record' ? decision.events : []) {
      run = evolve(run, event);
      if (event.type === 'PlanCommandRefused' && event.data.command === asked.command) return { refused: event.data, would, unsettled: [], then };
      if (event.type === 'CompensationApprovalAsked') approvers.set(event.data.of, event.data.approvers);
      if (event.type === 'ArgumentsAsked') computed.add(event.data.of);
      if (event.type === 'CompensationOrdered') {
        const { of, part, tool, args } = event.data;
        const amount = run.items.get(of)?.parts.get(part)?.amount ?? null;
        would.push({ of, tool, args: computed.has(of) ? null : args, amount, approvers: approvers.get(of) ?? null });
      }
      if (event.type === 'PlanConcluded') then = event.data;
      todo.push(...assumed(event, looking));
    }
  }
  const plan = openPlan(run);
  const unsettled = plan === null ? [] : [...run.effects.values()].flatMap(({ step, tool, how }) => {
    const status = run.known.get(step)?.status;
    return how === null || run.items.get(step)?.settled || (status !== undefined && status !== 'unknown') ? [] : [{ step, tool, status: status ?? ('under_way' as const) }];
  });
  return { refused: null, would, unsettled, then };
}

/** What the world would answer, were all to go well. */
function assumed(event: PlanEvent, looking: Looking): PlanCommand[] {
  switch (event.type) {
    case 'ArgumentsAsked':
      return [{ type: 'arguments', step: event.data.of, ask: event.data.ask, answer: { status: 'known', args: {} }, ...looking }];
    case 'CompensationApprovalAsked':
      return [{ type: 'decide', asked: { command: `assumed/${event.data.of}/${digestOf(event.data.args)}`, by: { name: 'somebody', roles: event.data.approvers }, step: event.data.of, decision: 'approve' }, ...looking }];
    case 'CompensationOrdered':
      return [{ type: 'note_answer', changedSince: false, noted: { step: compensationStep(event.data.of, event.data.part), status: 'succeeded', attempt: event.data.after + 1, version: Number.MAX_SAFE_INTEGER, result: { unreadable: 'assumed' }, evidence: ASSUMED }, ...looking }];
    case 'VerificationAsked':
      return [{ type: 'verified', step: event.data.step, attempt: event.data.attempt, probe: event.data.probe, issuedAt: event.data.issuedAt, answer: { status: 'applied', result: { value: null }, evidence: ASSUMED }, ...looking }];
    default:
      return [];
  }
}
