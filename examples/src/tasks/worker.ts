/** A worker process of the demo: hosts the task agent and its tools. */
import { serve } from '@holdfast/sdk';
import { decodeHeaders, topics, type Json } from '@holdfast/protocol';
import { tail } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { reworded, taskAgent, worldTool } from './agent.js';
import { openWorld } from './world.js';

const env = z
  .object({
    HOLDFAST_BROKERS: z.string(),
    HOLDFAST_SESSION_TIMEOUT_MS: z.coerce.number(),
    DEMO_WORLD: z.string(),
    DEMO_SEED: z.coerce.number(),
    DEMO_TOOLS: z.string().transform((text) => z.array(z.string()).parse(JSON.parse(text))),
    DEMO_WORKER: z.string(),
    DEMO_BLIND: z.stringbool().default(false),
    DEMO_REWORD: z.stringbool().default(false),
  })
  .parse(process.env);

const brokers = env.HOLDFAST_BROKERS.split(',');
const world = await openWorld(env.DEMO_WORLD);
const tools = new Map(env.DEMO_TOOLS.map((name) => [name, worldTool(name, world, { seed: env.DEMO_SEED, blind: env.DEMO_BLIND })]));
const intended = env.DEMO_REWORD ? await intendedSteps() : new Set<string>();
const word = (run: string, step: number, args: Json): Json => (intended.has(`${run}/${step}`) ? reworded(args) : args);

await serve({
  agents: [taskAgent(tools, word)],
  tools: [...tools.values()],
  brokers,
  worker: env.DEMO_WORKER,
  sessionTimeoutMs: env.HOLDFAST_SESSION_TIMEOUT_MS,
  // One at a time: a crash leaves no more than one effect unknown.
  irreversibleConcurrency: 1,
  handleSignals: true,
});
process.stdout.write(`${JSON.stringify({ msg: 'ready', worker: env.DEMO_WORKER })}\n`);

/** Steps that are on the record already: of these the stand-in for the model says other words. */
async function intendedSteps(): Promise<Set<string>> {
  const steps = new Set<string>();
  const reader = await tail({
    brokers,
    topics: [topics.runEvents],
    from: 'beginning',
    onRecord: (record) => {
      const envelope = decodeHeaders(record.headers, record.key, record.time);
      if (envelope?.type === 'EffectRequested') steps.add(`${envelope.subject}/${(JSON.parse(record.value ?? '{}') as { call: { step: string } }).call.step}`);
    },
  });
  await reader.caughtUp;
  await reader.close();
  return steps;
}
