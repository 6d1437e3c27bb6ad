import type { CaseOpened, CaseSettled, EffectOutcomeUnknown, MessageOf } from '@holdfast/protocol';
import type { JournalRow } from '@holdfast/runtime';
import type { RunEffects } from '@holdfast/ledger';
import { dataOf, foldCases } from './folds.js';
import type { FakeWorld } from './world.js';

export interface Cases {
  readonly id: string;
  /** Of the reconciliation's stream, and of the ledger's. */
  readonly rows: readonly JournalRow[];
  readonly effectRows: readonly JournalRow[];
  readonly effects: RunEffects;
  readonly world: FakeWorld;
  /** What people sent to it: a case's commands, by their ids. */
  readonly commands: readonly string[];
}

/** I5 with cases: each unknown has its one, each is settled, and none against what is so. */
export function judgeCases({ id, rows, effectRows, effects, world, commands }: Cases): string[] {
  const found: string[] = [];
  const opened = new Map<number, number>();
  const answers = new Map<string, number>();
  for (const row of rows) {
    const { type } = row;
    if (type === 'CaseOpened') {
      const { of } = dataOf(row) as MessageOf<typeof CaseOpened>['data'];
      opened.set(of, (opened.get(of) ?? 0) + 1);
    }
    const { command } = dataOf(row) as { command?: string };
    if (command !== undefined) answers.set(command, (answers.get(command) ?? 0) + 1);
    if (type === 'CaseSettled') found.push(...againstTheWorld(id, dataOf(row) as MessageOf<typeof CaseSettled>['data'], world));
  }
  for (const [index, row] of effectRows.entries()) {
    if (row.type !== 'EffectOutcomeUnknown' || (dataOf(row) as MessageOf<typeof EffectOutcomeUnknown>['data']).about === undefined) continue;
    if (opened.get(index + 1) !== 1) found.push(`I5: the unknown of ${id} at version ${index + 1} has ${opened.get(index + 1) ?? 0} cases`);
  }
  for (const { step, status } of foldCases(rows).cases.values()) if (status !== 'settled') found.push(`I5: the case of ${id}/${step} was never settled`);
  for (const { step, status } of effects.values()) if (status === 'unknown') found.push(`I5: ${id}/${step} is left unknown`);
  for (const command of new Set(commands)) if (answers.get(command) !== 1) found.push(`I1: "${command}", said of a case of ${id}, has ${answers.get(command) ?? 0} answers`);
  return found;
}

function againstTheWorld(id: string, { step, key, attempt, verdict, forced }: MessageOf<typeof CaseSettled>['data'], world: FakeWorld): string[] {
  const firings = world.byKey.get(key) ?? [];
  if (verdict.status === 'applied' && !firings.some(({ applied }) => applied)) return [`I5: the case of ${id}/${step} says that attempt ${attempt} was applied, and it never was`];
  const done = firings.some((firing) => firing.applied && firing.attempt === attempt && firing.run === id && firing.step === step && firing.effect === 'irreversible');
  return verdict.status === 'not_applied' && !forced && done ? [`I5: the case of ${id}/${step} says that attempt ${attempt} was not applied, and it was`] : [];
}
