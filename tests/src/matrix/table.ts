import Table from 'cli-table3';

export type Verdict = 'ok' | 'failed' | 'not run';

/** One line of the matrix. */
export interface Row {
  readonly case: string;
  /** From the fault (or its end, where it lasts) to the end of the last run that it hit, milliseconds; null: nothing to recover. */
  readonly recoveredMs: number | null;
  /** Irreversible effects beyond one, and effects under more than one key. */
  readonly duplicates: number;
  /** Steps that a run counts on and the world has not seen, and runs without an end. */
  readonly lost: number;
  /** Runs that still stand before an unknown outcome. */
  readonly unknownLeft: number;
  /** Calls that the world saw for each step. */
  readonly amplification: number | null;
  /** What a person had to do, beyond starting a process again. */
  readonly manualActs: number;
  readonly verdict: Verdict;
  readonly because: string | null;
}

export const notRun = (name: string, because: string): Row => ({ case: name, recoveredMs: null, duplicates: 0, lost: 0, unknownLeft: 0, amplification: null, manualActs: 0, verdict: 'not run', because });

const dash = (value: number | null, show: (value: number) => string): string => (value === null ? '–' : show(value));

export function tableOf(rows: readonly Row[]): string {
  const table = new Table({
    head: ['case', 'recovered in', 'duplicates', 'lost', 'unknown left', 'retry amplification', 'manual acts', 'verdict'],
    style: { head: [], border: [] },
    chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' },
  });
  for (const row of rows) {
    table.push([
      row.case,
      dash(row.recoveredMs, (ms) => `${(ms / 1000).toFixed(1)} s`),
      row.duplicates,
      row.lost,
      row.unknownLeft,
      dash(row.amplification, (factor) => factor.toFixed(2)),
      row.manualActs,
      row.because === null ? row.verdict : `${row.verdict}: ${row.because}`,
    ]);
  }
  return table.toString();
}

export function closing(rows: readonly Row[]): string {
  const count = (verdict: Verdict): number => rows.filter((row) => row.verdict === verdict).length;
  return `${rows.length} cases, ${count('ok')} ok, ${count('failed')} failed, ${count('not run')} not run`;
}
