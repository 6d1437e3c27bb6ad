import { isA } from '@holdfast/kernel';
import { systemClock } from '@holdfast/runtime/system';
import type { PoolClient } from 'pg';
import { classOf, Failed, MayHaveApplied, messageOf, Rejected } from '../errors.js';

/** What bounds a transaction: epoch milliseconds. */
export interface Deadlined {
  readonly deadline: number;
}

export type Connect = () => Promise<PoolClient>;

/** SQLSTATE of an error that PostgreSQL itself sent. */
function sqlState(error: unknown): string | undefined {
  const code: unknown = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/** A refused commit: a constraint or a serialization conflict found at its end. Anything else may have been committed. */
const refusesCommit = (error: unknown): boolean => {
  const state = sqlState(error);
  return state !== undefined && state !== '40003' && (state.startsWith('23') || state.startsWith('40'));
};

/**
 * One transaction on a connection of the user's pool. Whatever ends it, the connection goes back
 * once: to be used again when the transaction has ended in order, else to be closed.
 */
export class Transaction {
  #clean = true;

  private constructor(readonly client: PoolClient) {}

  /**
   * Runs `work` inside a transaction, and commits it.
   * @throws Rejected, Failed with `notApplied` when it was not committed for certain
   * @throws MayHaveApplied when the commit's answer was lost
   */
  static async run<T>(connect: Connect, context: Deadlined, work: (transaction: Transaction) => Promise<T>): Promise<T> {
    const transaction = new Transaction(await connectInTime(connect, context));
    const { client } = transaction;
    // A cut connection is told as an event too, which would end the process if nobody listened.
    client.on('error', ignored);
    try {
      const result = await transaction.#uncommitted(context, work);
      await transaction.#commit();
      return result;
    } finally {
      client.removeListener('error', ignored);
      client.release(!transaction.#clean);
    }
  }

  /** Until the commit is sent nothing can have been applied: every error rolls back, and says so. */
  async #uncommitted<T>({ deadline }: Deadlined, work: (transaction: Transaction) => Promise<T>): Promise<T> {
    try {
      const ms = Math.min(TIMEOUT_MS_MAX, Math.max(1, Math.ceil(deadline - systemClock.now())));
      // A frozen host must not hold the key for ever, since the probe waits for this transaction; nor may anybody wait for ever.
      await this.client.query(`begin isolation level read committed; set local idle_in_transaction_session_timeout = ${ms}; set local lock_timeout = ${ms}`);
      return await work(this);
    } catch (error) {
      await this.client.query('rollback').catch(() => {
        this.#clean = false;
      });
      if (isA(error, Rejected) || isA(error, MayHaveApplied)) throw error;
      if (isA(error, Failed)) throw new Failed({ ...error.failure, notApplied: true }, { cause: error });
      throw new Failed({ class: classOf(error), message: `rolled back: ${messageOf(error)}`, notApplied: true }, { cause: error });
    }
  }

  async #commit(): Promise<void> {
    try {
      // After an error that the code has swallowed, PostgreSQL answers COMMIT with ROLLBACK, and no error.
      const { command } = await this.client.query('commit');
      if (command === 'COMMIT') return;
    } catch (error) {
      if (!refusesCommit(error)) {
        this.#clean = false;
        throw new MayHaveApplied(`the answer to COMMIT was lost: ${messageOf(error)}`, { cause: error });
      }
      throw new Failed({ class: 'transient', message: `PostgreSQL refused the commit: ${messageOf(error)}`, notApplied: true }, { cause: error });
    }
    throw new Failed({ class: 'transient', message: 'PostgreSQL rolled the transaction back: a statement in it had failed, and the tool went on', notApplied: true });
  }
}

/** PostgreSQL's own limit on a time-out. */
const TIMEOUT_MS_MAX = 2_147_483_647;

const ignored = (): void => undefined;

/** Waits for a connection until the attempt's deadline; one that comes later goes straight back. */
async function connectInTime(connect: Connect, { deadline }: Deadlined): Promise<PoolClient> {
  const remainingMs = Math.max(0, deadline - systemClock.now());
  let cancel: () => void = ignored;
  let late = false;
  const connecting = connect();
  connecting.then((client) => late && client.release(), ignored);
  try {
    return await Promise.race([
      connecting,
      new Promise<never>((_, reject) => {
        cancel = systemClock.after(remainingMs, () => {
          late = true;
          reject(new Failed({ class: 'overloaded', message: `no connection of the pool came free within ${remainingMs} ms`, notApplied: true }));
        });
      }),
    ]);
  } catch (error) {
    if (isA(error, Failed)) throw error;
    throw new Failed({ class: 'transient', message: `no connection to PostgreSQL: ${messageOf(error)}`, notApplied: true }, { cause: error });
  } finally {
    cancel();
  }
}
