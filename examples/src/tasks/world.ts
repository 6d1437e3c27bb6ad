import { isDeepStrictEqual } from 'node:util';
import pg from 'pg';
import { isPure, type Task } from './task-file.js';

/** The world outside Holdfast: a table without any unique constraint, so that a second firing shows. */
export async function openWorld(url: string): Promise<pg.Pool> {
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  pool.on('error', () => undefined);
  await pool.query(`create table if not exists effects (id bigserial, run text, step text, tool text, args jsonb, operation_key text, at timestamptz)`);
  return pool;
}

export const lastRow = async (world: pg.Pool): Promise<string> => (await world.query<{ id: string }>('select coalesce(max(id), 0)::text as id from effects')).rows[0]?.id ?? '0';

export interface WorldCount {
  /** Changes that the file asks for. */
  readonly effects: number;
  /** Rows that came about. */
  readonly fired: number;
  readonly duplicates: number;
  /** Asked for and not there, or there with other arguments than the file's. */
  readonly missing: number;
  readonly outOfOrder: number;
}

interface Row {
  readonly run: string;
  readonly step: string;
  readonly tool: string;
  readonly args: unknown;
}

/** Counts what the world holds after a row, against what the file asks for. */
export async function countWorld(world: pg.Pool, tasks: readonly Task[], after: string): Promise<WorldCount> {
  const { rows } = await world.query<Row>('select run, step, tool, args from effects where id > $1 and run = any($2::text[]) order by id', [after, tasks.map(({ task }) => task)]);
  return compare(rows, tasks);
}

export function compare(rows: readonly Row[], tasks: readonly Task[]): WorldCount {
  let effects = 0;
  let duplicates = 0;
  let missing = 0;
  let outOfOrder = 0;
  for (const { task, actions } of tasks) {
    const mine = rows.filter(({ run }) => run === task);
    const steps = mine.map(({ step }) => Number(step));
    duplicates += steps.length - new Set(steps).size;
    const firsts = [...new Set(steps)];
    outOfOrder += firsts.filter((step, i) => i > 0 && step < (firsts[i - 1] ?? 0)).length;
    for (const [i, { tool, args }] of actions.entries()) {
      if (isPure(tool)) continue;
      effects += 1;
      const row = mine.find(({ step }) => step === String(i + 1));
      if (row === undefined || row.tool !== tool || !isDeepStrictEqual(row.args, args)) missing += 1;
    }
  }
  return { effects, fired: rows.length, duplicates, missing, outOfOrder };
}
