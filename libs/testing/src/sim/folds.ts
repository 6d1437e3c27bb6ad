import { evolve as evolvePlans, noPlans, type PlanEvent, type RunPlans } from '@holdfast/compensation';
import { evolveAt as evolveEffectsAt, noEffects, type EffectEvent, type RunEffects } from '@holdfast/ledger';
import { absent, evolveAt, type Run, type RunEvent } from '@holdfast/orchestrator';
import { topics } from '@holdfast/protocol';
import { evolve as evolveCases, noCases, type CaseEvent, type RunCases } from '@holdfast/reconciliation';
import type { JournalRow } from '@holdfast/runtime';
import type { ServiceKind } from './faults.js';

const parsed = new WeakMap<JournalRow, unknown>();

/** What a row says, parsed once however many judges look at it: nobody changes it. */
export function dataOf(row: JournalRow): unknown {
  let data = parsed.get(row);
  if (data === undefined) parsed.set(row, (data = JSON.parse(row.data)));
  return data;
}

/** The events of rows, as they were recorded. */
export const eventsOf = <Event>(rows: readonly JournalRow[]): Event[] => rows.map((row) => ({ type: row.type, data: dataOf(row) }) as Event);

/** With the times of its rows, as the loop folds it. */
export const foldRun = (rows: readonly JournalRow[]): Run => eventsOf<RunEvent>(rows).reduce<Run>((run, event, i) => evolveAt(run, event, rows[i]?.time ?? 0), absent);
export const foldEffects = (rows: readonly JournalRow[]): RunEffects => eventsOf<EffectEvent>(rows).reduce<RunEffects>((effects, event, i) => evolveEffectsAt(effects, event, rows[i]?.time ?? 0), noEffects);
export const foldCases = (rows: readonly JournalRow[]): RunCases => eventsOf<CaseEvent>(rows).reduce(evolveCases, noCases);
export const foldPlans = (rows: readonly JournalRow[]): RunPlans => eventsOf<PlanEvent>(rows).reduce(evolvePlans, noPlans);

/** What each service writes, how that folds, and what it reads. */
export const STREAMS: Readonly<Record<ServiceKind, { readonly topic: string; readonly reads: readonly string[]; fold(rows: readonly JournalRow[]): unknown }>> = {
  orchestrator: { topic: topics.runEvents, reads: [topics.agentIntents, topics.effectEvents, topics.operatorCommands, topics.compensationEvents], fold: foldRun },
  ledger: { topic: topics.effectEvents, reads: [topics.runEvents, topics.toolResults, topics.reconciliationEvents, topics.compensationEvents], fold: foldEffects },
  reconciliation: { topic: topics.reconciliationEvents, reads: [topics.effectEvents, topics.toolResults, topics.operatorCommands], fold: foldCases },
  compensation: { topic: topics.compensationEvents, reads: [topics.runEvents, topics.effectEvents, topics.toolResults, topics.operatorCommands], fold: foldPlans },
};

/** The step whose key a former holder's refused call holds. */
export function boundIn(row: JournalRow): string[] {
  if (row.type !== 'IntentRejected') return [];
  const { step, reason, bound } = dataOf(row) as { step?: string; reason: string; bound?: object };
  return step !== undefined && bound !== undefined && reason === 'stale_fence' ? [step] : [];
}
