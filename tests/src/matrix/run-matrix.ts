import { verify } from '@holdfast/cli';
import { crashCells, VICTIMS, type CrashCell, type NoCell } from './cells.js';
import { CASES, type Case } from './cases.js';
import { crashProcess } from './crashes.js';
import { Ground, Interrupted } from './ground.js';
import { commitOf, machine } from './place.js';
import { notRun, type Row } from './table.js';

export interface MatrixOptions {
  /** Cases whose name holds it, or fits it as a regular expression. */
  readonly filter?: RegExp | undefined;
  /** Outages last seconds instead of a minute. */
  readonly short: boolean;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface MatrixResult {
  readonly rows: readonly Row[];
  /** Boundaries that a class of effects never comes to. */
  readonly none: readonly NoCell[];
  /** Copies of records that the doubled and reordered cells have sent. */
  readonly copies: number;
  readonly seconds: number;
  /** False when it was ended before its time. */
  readonly whole: boolean;
  /** The commit that it was run on, `+` behind it where files were changed since; null outside a repository. */
  readonly commit: string | null;
  readonly machine: string;
  /** RFC 3339. */
  readonly began: string;
  /** What of it was run: a regular expression; null: all of it. */
  readonly filter: string | null;
  readonly short: boolean;
}

const ranOn = (): string | null => {
  const commit = commitOf('docs');
  return commit === null ? null : `${commit.hash}${commit.changed ? '+' : ''}`;
};

/** The crash matrix and the disturbances on one real stack. */
export async function runMatrix({ filter, short, say, signal }: MatrixOptions): Promise<MatrixResult> {
  const began = Date.now();
  const of = { commit: ranOn(), machine: machine(), began: new Date(began).toISOString(), filter: filter?.source ?? null, short };
  const fits = (name: string): boolean => filter === undefined || filter.test(name);
  const all = crashCells();
  const cells = all.cells.filter(({ name }) => fits(name));
  const cases = CASES.filter(({ name }) => fits(name));
  const rows: Row[] = [];
  let ground: Ground | undefined;
  const result = (whole: boolean): MatrixResult => ({ rows, none: all.none.filter(({ name }) => fits(name)), copies: ground?.copier?.copies ?? 0, seconds: Math.round((Date.now() - began) / 1000), whole, ...of });
  if (cells.length + cases.length === 0) return result(true);
  // The audit at the end is a row as well.
  const total = cells.length + cases.length + 1;
  const note = (more: readonly Row[], what: string, ms: number): void => {
    rows.push(...more);
    const bad = more.filter(({ verdict }) => verdict === 'failed');
    say(`[${rows.length}/${total}] ${what}: ${bad.length === 0 ? (more.every(({ verdict }) => verdict === 'not run') ? 'not run' : 'ok') : `${bad.length} FAILED`} (${(ms / 1000).toFixed(1)} s)`);
    for (const row of bad) say(`    ${row.case}: ${row.because ?? ''}`);
  };
  try {
    say(`Starting Kafka, PostgreSQL, services and a worker for ${total} cases ...`);
    ground = await Ground.open({ say, signal });
    for (const victim of VICTIMS) {
      const mine = cells.filter((cell: CrashCell) => cell.victim === victim);
      if (mine.length > 0) await crashProcess(ground, victim, mine, note);
    }
    for (const each of cases) note([await runCase(ground, each, short)], each.name, Date.now() - began);
    note([await auditRow(ground)], 'audit', Date.now() - began);
    return result(true);
  } catch (error) {
    if (error instanceof Interrupted || signal.aborted) return result(false);
    throw error;
  } finally {
    say('Stopping ...');
    await ground?.close();
  }
}

export async function runCase(ground: Ground, each: Case, short: boolean): Promise<Row> {
  if (each.notRun !== undefined) return notRun(each.name, each.notRun);
  try {
    return await each.run(ground, each.name, short);
  } catch (error) {
    if (ground.options.signal.aborted) throw error;
    return { ...notRun(each.name, error instanceof Error ? error.message : String(error)), verdict: 'failed' };
  }
}

/** Topics, databases and chains agree after all of it, and no lane stands. */
export async function auditRow(ground: Ground): Promise<Row> {
  const { stack } = ground;
  let differences: readonly string[] = [];
  await ground
    .until('topics and databases agree', async () => {
      differences = (await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences.map((difference) => JSON.stringify(difference));
      return differences.length === 0;
    }, 30_000)
    .catch((error: unknown) => {
      if (ground.options.signal.aborted) throw error;
    });
  const halted = (await stack.halts()).map((reason) => `a lane halted: ${JSON.stringify(reason)}`);
  const faults = [...differences, ...halted];
  return { case: 'audit after all of it', recoveredMs: null, duplicates: 0, lost: 0, unknownLeft: 0, amplification: null, manualActs: 0, verdict: faults.length === 0 ? 'ok' : 'failed', because: faults.length === 0 ? null : faults.slice(0, 3).join('; ') };
}
