import { describeIssues, type EffectClass, type Json } from '@holdfast/protocol';
import { systemClock } from '@holdfast/runtime/system';
import type { Pool, PoolClient } from 'pg';
import type { z } from 'zod';
import { applied, notApplied, type Probe, type ProbeAnswer, type ProbeContext } from '../define/probe.js';
import { defineTool, type ToolContext, type ToolDefinition, type ToolSpec } from '../define/tool.js';
import { Failed, messageOf } from '../errors.js';
import { Transaction, type Connect, type Deadlined } from './pg-transaction.js';
import { claim, createTable, record, seal } from './pg-operations.js';
import { resultJson } from './stored.js';

type Without<T, Members extends string> = T extends unknown ? Omit<T, Members> : never;

/** Like a tool's, but its code gets a client on which a transaction is open. */
export type PgToolSpec<Input extends z.ZodType, Output extends z.ZodType> = Without<ToolSpec<Input, Output>, 'effect' | 'execute' | 'probe'> & {
  /** Default `irreversible`. `idempotent` is true of every such tool, and lets it fire without a grant. */
  readonly effect?: Exclude<EffectClass, 'pure'> | undefined;
  /** How its probe is asked. The probe itself comes with the tool, and seals. */
  readonly probe?: Pick<Probe<unknown>, 'timeout' | 'schedule'> | undefined;
  /** The user's own database: a pool of node-postgres, or what opens a connection. */
  readonly pool: Pool | (() => Promise<PoolClient>);
  /**
   * The change itself, all of it through `client`: its transaction also holds the operation key,
   * and commits or rolls back with it. Must not begin or end transactions, nor touch anything else.
   */
  execute(args: z.output<Input>, client: PoolClient, context: ToolContext): Promise<z.input<Output>> | z.input<Output>;
};

/**
 * A tool whose effect is a change in the user's own PostgreSQL. The operation key is written in
 * the same transaction, so the change happens exactly once however often the tool is called, and
 * its probe, which voids the key while it reads, proves what became of an attempt.
 *
 * Keys stay in the table `holdfast_operations`, made when it is missing (or by `pgTool.migrate`).
 * @throws InvalidDefinition naming what is wrong
 */
export function pgTool<Input extends z.ZodType, Output extends z.ZodType>(spec: PgToolSpec<Input, Output>): ToolDefinition<Input, Output> {
  const { pool, execute, effect = 'irreversible', probe: probing, ...rest } = spec;
  // Node-postgres reports a lost idle connection as an event that would end the process if nobody listened.
  if (typeof pool !== 'function' && pool.listenerCount('error') === 0) pool.on('error', () => undefined);
  const database = new Operations(typeof pool === 'function' ? pool : () => pool.connect());
  const attempt = (args: z.output<Input>, context: ToolContext): Promise<unknown> =>
    database.run(context, async (client) => {
      const known = await claim(client, context);
      if (known?.state === 'applied') return known.result;
      if (known !== undefined) throw failed('transient', `attempt ${context.attempt} was voided by a probe before it began`);
      const result: unknown = await execute(args, client, context);
      await record(client, context, checked(result, spec.output));
      if (systemClock.now() > context.deadline) throw failed('transient', 'the attempt took longer than its time-out');
      return result;
    });
  // Voids this attempt and all before it unless the operation is applied, by whichever attempt: final either way.
  const ask = (context: ProbeContext): Promise<ProbeAnswer<z.input<Output>>> =>
    database.run(context, async (client) => {
      const known = await seal(client, context);
      if (known === undefined) return notApplied(`attempt ${context.attempt} of operation ${context.operationKey} is void in holdfast_operations`);
      // It was recorded by this tool, which had checked it.
      return applied(known.result as z.input<Output>, `operation ${context.operationKey} was applied by attempt ${known.attempt}, in one transaction with its row in holdfast_operations`);
    });
  const probe: Probe<z.output<Input>, z.input<Output>> = { ...probing, sealing: true, ask: (_args, context) => ask(context) };
  const tool = { ...rest, effect, execute: attempt, probe };
  return defineTool(tool as unknown as ToolSpec<Input, Output>);
}

/** Makes the table `holdfast_operations` where it is missing: for databases whose workers may not create tables. */
pgTool.migrate = async (pool: Pool): Promise<void> => {
  const client = await pool.connect();
  let failed = true;
  try {
    await client.query('begin');
    await createTable(client);
    await client.query('commit');
    failed = false;
  } finally {
    client.release(failed);
  }
};

/** Judged before the commit: a result that no run could read rolls the change back. */
function checked(result: unknown, output: z.ZodType): Json {
  const parsed = output.safeParse(result);
  if (!parsed.success) throw failed('invalid_output', `the result does not fit the output schema: ${describeIssues(parsed.error)}`);
  try {
    return resultJson(result).value;
  } catch (error) {
    throw failed('invalid_output', messageOf(error));
  }
}

/** The user's database, in which the table of keys is looked for until it was seen once. */
class Operations {
  #tableKnown = false;

  constructor(private readonly connect: Connect) {}

  async run<T>(context: Deadlined, work: (client: PoolClient) => Promise<T>): Promise<T> {
    const result = await Transaction.run(this.connect, context, async ({ client }) => {
      if (!this.#tableKnown) await createTable(client);
      return work(client);
    });
    this.#tableKnown = true;
    return result;
  }
}

const failed = (failureClass: 'transient' | 'invalid_output', message: string): Failed => new Failed({ class: failureClass, message, notApplied: true });
