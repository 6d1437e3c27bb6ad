/** The bench's worker: an agent of five steps, each one insert into an outside table. */
import { defineAgent, defineTool, serve } from '@holdfast/sdk';
import pg from 'pg';
import { z } from 'zod';

const env = z
  .object({ HOLDFAST_BROKERS: z.string(), HOLDFAST_SESSION_TIMEOUT_MS: z.coerce.number(), BENCH_WORLD: z.string(), BENCH_EFFECT: z.enum(['idempotent', 'irreversible']) })
  .parse(process.env);

const world = new pg.Pool({ connectionString: env.BENCH_WORLD, max: 16 });
world.on('error', () => undefined);

const insert = defineTool({
  name: 'insert',
  version: '1',
  effect: env.BENCH_EFFECT,
  input: z.object({ i: z.number().int() }),
  output: z.object({ ok: z.literal(true) }),
  owner: 'the bench',
  execute: async (_, { operationKey, run, step }) => {
    await world.query({ name: 'fire', text: 'insert into fired (operation_key, run, step) values ($1, $2, $3)', values: [operationKey, run, step] });
    return { ok: true as const };
  },
});

const agent = defineAgent({
  name: 'five-steps',
  version: '1',
  input: z.object({ steps: z.number().int() }),
  output: z.object({ steps: z.number().int() }),
  run: async (run, { steps }) => {
    for (let i = 0; i < steps; i += 1) await run.call(insert, { i });
    return { steps };
  },
});

const sleeper = defineAgent({
  name: 'sleeper',
  version: '1',
  input: z.object({ until: z.number() }),
  output: z.null(),
  run: async (run, { until }) => {
    await run.sleep({ until });
    return null;
  },
});

await serve({
  agents: [agent, sleeper],
  tools: [insert],
  brokers: env.HOLDFAST_BROKERS.split(','),
  worker: 'bench',
  sessionTimeoutMs: env.HOLDFAST_SESSION_TIMEOUT_MS,
  concurrency: 256,
  irreversibleConcurrency: 64,
  handleSignals: true,
});
process.stdout.write(`${JSON.stringify({ msg: 'ready' })}\n`);
