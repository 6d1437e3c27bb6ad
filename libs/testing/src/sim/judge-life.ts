import { openWaits, type Run } from '@holdfast/orchestrator';
import type { RunEffects } from '@holdfast/ledger';
import type { JournalRow } from '@holdfast/runtime';
import { dataOf } from './folds.js';
import type { Input } from './people.js';

export interface Life {
  readonly id: string;
  readonly rows: readonly JournalRow[];
  readonly run: Extract<Run, { readonly status: 'open' | 'ended' | 'quarantined' }>;
  readonly effects: RunEffects;
  readonly inputs: readonly Input[];
}

/** By these a run moves, or is handed to a worker: nothing of it comes once it is cancelled. */
const MOVES: ReadonlySet<string> = new Set(['LeaseGranted', 'RunResumed', 'EffectRequested', 'GroupRequested', 'StepRecorded', 'StepRetryScheduled', 'StepFailed', 'WaitStarted', 'WaitEnded', 'RunReleased', 'RunUnpaused', 'RunUnquarantined']);

/** Waits, inputs and cancels of one run, once the world has come to rest: what must never be, in words. */
export const judgeLife = (life: Life): string[] => [...ledgerHasHeard(life), ...cancelStands(life), ...waitsEnd(life), ...inputsAreAnswered(life), ...approvalsAllowOnce(life)];

/** I1: whatever an end was reported with, the ledger has it. */
const ledgerHasHeard = ({ id, run, effects }: Life): string[] =>
  [...run.steps.values()].flatMap((step) => (step.kind === 'call' && step.outcome !== null && !effects.has(step.call.step) ? [`I1: ${id}/${step.call.step} ended ${step.outcome.status}, and the ledger has not heard of it`] : []));

/** I9 */
function cancelStands({ id, rows, run, effects }: Life): string[] {
  const at = rows.findIndex(({ type }) => type === 'RunCancelRequested');
  if (at === -1) return [];
  const found = rows.slice(at).filter(({ type }) => MOVES.has(type)).map(({ type }) => `I9: ${type} of ${id} came after its cancel`);
  const ends = rows.filter(({ type }) => type === 'RunFinished').length;
  if (ends !== 1) found.push(`I9: ${id} was cancelled and has ${ends} ends`);
  if (run.status !== 'ended' || run.ending.status !== 'cancelled') found.push(`I9: ${id} was cancelled and is ${run.status === 'ended' ? run.ending.status : run.status}`);
  for (const { step, status, effect } of effects.values()) {
    // A read that the ledger gave up with the run may have been answered meanwhile: nothing stands from it.
    if (effect === 'pure') continue;
    const of = 'steps' in run ? run.steps.get(step) : undefined;
    if (of?.kind === 'call' && (status === 'succeeded' || status === 'rejected' || status === 'failed') && of.outcome?.status !== status) found.push(`I9: ${id}/${step} is ${status}, and its cancelled run holds it ${of.outcome?.status ?? 'open'}`);
  }
  return found;
}

/** I11 */
function waitsEnd({ id, rows, run }: Life): string[] {
  const ended = new Map<string, number>();
  for (const row of rows) {
    if (row.type !== 'WaitEnded') continue;
    const { step } = dataOf(row) as { step: string };
    ended.set(step, (ended.get(step) ?? 0) + 1);
  }
  const found = [...ended].filter(([, times]) => times > 1).map(([step, times]) => `I11: the wait ${id}/${step} ended ${times} times`);
  if (run.status === 'open') for (const { step, wait } of openWaits(run)) found.push(`I11: the wait ${id}/${step} (${wait.kind}) never ended`);
  return found;
}

/** I1: signals and commands that Kafka has acknowledged have one answer. */
function inputsAreAnswered({ id, rows, inputs }: Life): string[] {
  const answers = new Map<string, number>();
  for (const row of rows) {
    const { type } = row;
    const { signal, command, id: input } = dataOf(row) as { signal?: string; command?: string; id?: string };
    const of = type === 'SignalReceived' ? signal : type === 'InputRefused' ? input : type === 'ApprovalDecided' || type === 'RunCancelRequested' ? command : undefined;
    if (of !== undefined) answers.set(of, (answers.get(of) ?? 0) + 1);
  }
  const sent = new Set(inputs.flatMap((input) => (input.acknowledged && input.id !== null && input.run === id ? [input.id] : [])));
  return [...sent].filter((input) => answers.get(input) !== 1).map((input) => `I1: "${input}", sent to ${id}, has ${answers.get(input) ?? 0} answers`);
}

/** What needs an approval is asked for after a yes, once for each. */
function approvalsAllowOnce({ id, rows }: Life): string[] {
  const yes = new Set<string>();
  const found: string[] = [];
  for (const row of rows) {
    const { type } = row;
    const { step, decision, call } = dataOf(row) as { step?: string; decision?: string; call?: { step: string; approval?: { step: string }; tool: { name: string } } };
    if (type === 'ApprovalDecided' && decision === 'approved' && step !== undefined) yes.add(step);
    if (type !== 'EffectRequested' || call === undefined || call.tool.name !== 'vault.open') continue;
    if (call.approval === undefined || !yes.delete(call.approval.step)) found.push(`approval: ${id}/${call.step} was taken without a yes of its own`);
  }
  return found;
}
