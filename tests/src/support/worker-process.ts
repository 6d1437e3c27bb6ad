/** A worker in a process of its own, to be frozen, killed and stopped. Its effects are rows in the outside world. */
import { defineAgent, defineTool, serve, type ToolContext } from '@holdfast/sdk';
import pg from 'pg';
import { z } from 'zod';

const env = z
  .object({ HOLDFAST_BROKERS: z.string(), HOLDFAST_SESSION_TIMEOUT_MS: z.coerce.number(), TEST_WORLD: z.string(), TEST_WORKER: z.string(), TEST_THINK: z.string().default('0') })
  .parse(process.env);
const world = new pg.Pool({ connectionString: env.TEST_WORLD, max: 20 });
world.on('error', () => undefined);
const me = `${env.TEST_WORKER}/${process.pid}`;
const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

async function gate(name: string): Promise<void> {
  while ((await world.query('select from gates where name = $1', [name])).rowCount === 0) await pause(20);
}

const insert = (what: string, { run, step, fence }: ToolContext): Promise<unknown> => world.query('insert into effects (run, step, what, worker, fence) values ($1, $2, $3, $4, $5)', [run, step, what, me, fence]);

const args = z.object({
  n: z.number(),
  /** A pause before the row is written, milliseconds. */
  ms: z.number().optional(),
  /** Waits there before the row is written. */
  before: z.string().optional(),
});

/** Writes one row. Fires at most once. */
const pay = defineTool({
  name: 'pay',
  version: '1',
  effect: 'irreversible',
  input: args,
  output: z.string(),
  owner: 'tests',
  execute: async ({ n, ms, before }, context) => {
    if (before !== undefined) await gate(before);
    if (ms !== undefined) await pause(ms);
    await insert(`pay ${n}`, context);
    return `${n}`;
  },
});

/** Uses up a one-time code, known here by its reference; then, where a gate is named, gives no answer until it is open. */
const exchange = defineTool({
  name: 'exchange',
  version: '1',
  effect: 'irreversible',
  keyScope: 'target',
  target: ({ code }) => code,
  input: z.object({ code: z.string(), after: z.string().optional() }),
  output: z.string(),
  material: ['code'],
  owner: 'tests',
  execute: async ({ code, after }, context) => {
    await insert(`exchange ${code}`, context);
    if (after !== undefined) await gate(after);
    return `token for ${code}`;
  },
});

/** Pays, thinks, pays. How long it thinks is the worker's own matter: milliseconds, or until a gate opens. */
const thinker = defineAgent({
  name: 'thinker',
  version: '1',
  input: z.object({}),
  output: z.string(),
  run: async (run) => {
    await run.call(pay, { n: 1 });
    await run.step('think', async () => {
      if (/^\d+$/.test(env.TEST_THINK)) await pause(Number(env.TEST_THINK));
      else await gate(env.TEST_THINK);
      return me;
    });
    await run.call(pay, { n: 2 });
    return 'done';
  },
});

const payer = defineAgent({
  name: 'payer',
  version: '1',
  input: z.object({ steps: z.number(), ms: z.number().optional(), before: z.string().optional() }),
  output: z.string(),
  run: async (run, { steps, ms, before }) => {
    for (let n = 1; n <= steps; n += 1) await run.call(pay, { n, ...(ms === undefined ? {} : { ms }), ...(before === undefined ? {} : { before }) });
    return 'done';
  },
});

const exchanger = defineAgent({
  name: 'exchanger',
  version: '1',
  input: z.object({ code: z.string(), after: z.string().optional() }),
  output: z.string(),
  run: (run, input) => run.call(exchange, input),
});

await serve({
  agents: [thinker, payer, exchanger],
  tools: [pay, exchange],
  brokers: env.HOLDFAST_BROKERS.split(','),
  worker: env.TEST_WORKER,
  sessionTimeoutMs: env.HOLDFAST_SESSION_TIMEOUT_MS,
  handleSignals: true,
});
process.stdout.write(`${JSON.stringify({ msg: 'ready' })}\n`);
