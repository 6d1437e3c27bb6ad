import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { createDatabase, databaseUrl, LOCAL_SESSION_TIMEOUT_MS, ManagedProcess } from '@holdfast/deploy';
import type pg from 'pg';
import type { TestStack } from './stack.js';

/** Built, not source: a worker that is to be frozen or killed is a process of its own. */
const WORKER = fileURLToPath(new URL('../../dist/support/worker-process.js', import.meta.url));

export interface EffectRow {
  readonly run: string;
  readonly step: string;
  readonly what: string;
  readonly worker: string;
  /** Under which it was fired. */
  readonly fence: number;
}

/** The world outside: a table without any unique constraint, so that a second firing shows, and gates that tools wait at. */
export class World {
  readonly #workers: ManagedProcess[] = [];

  private constructor(
    private readonly stack: TestStack,
    private readonly pool: pg.Pool,
  ) {}

  static async open(stack: TestStack): Promise<World> {
    await createDatabase(stack.stack.databaseUrl, 'world');
    const pool = stack.pool('world');
    await pool.query('create table effects (id bigserial, run text, step text, what text, worker text, fence int); create table gates (name text)');
    return new World(stack, pool);
  }

  /** What was done, in order. */
  async effects(run = '%'): Promise<EffectRow[]> {
    return (await this.pool.query<EffectRow & pg.QueryResultRow>('select run, step, what, worker, fence from effects where run like $1 order by id', [run])).rows;
  }

  async note({ run, step, what, worker, fence }: EffectRow): Promise<void> {
    await this.pool.query('insert into effects (run, step, what, worker, fence) values ($1, $2, $3, $4, $5)', [run, step, what, worker, fence]);
  }

  async openGate(name: string): Promise<void> {
    await this.pool.query('insert into gates values ($1)', [name]);
  }

  /** A worker process that serves `worker-process.ts`; its settings are the environment's. */
  async startWorker(name: string, env: NodeJS.ProcessEnv = {}): Promise<ManagedProcess> {
    const worker = new ManagedProcess({
      name: `worker-${this.#workers.length + 1}`,
      entry: WORKER,
      dir: path.join(this.stack.stack.dir, 'workers'),
      env: { ...this.stack.stack.env, HOLDFAST_SESSION_TIMEOUT_MS: String(LOCAL_SESSION_TIMEOUT_MS), TEST_WORLD: databaseUrl(this.stack.stack.databaseUrl, 'world'), TEST_WORKER: name, ...env },
    });
    this.#workers.push(worker);
    await worker.start();
    return worker;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#workers.map(async (worker) => {
      if (worker.pid !== undefined) await worker.kill();
    }));
  }
}
