import { appendFile } from 'node:fs/promises';
import { defineAgent, defineTool, HoldfastClient, serve } from '@holdfast/sdk';
import { z } from 'zod';

const refund = defineTool({
  name: 'refund',
  version: '1',
  effect: 'irreversible', // fires at most once; nobody retries it without evidence
  input: z.object({ order: z.string(), cents: z.number().int().positive() }),
  output: z.object({ receipt: z.string() }),
  owner: 'payments on call', // who settles it when nobody knows whether it happened
  execute: async ({ order, cents }, { operationKey }) => {
    await appendFile('refunds.log', `${operationKey} ${order} ${cents}\n`); // your payment provider
    return { receipt: operationKey.slice(0, 8) };
  },
});

const agent = defineAgent({
  name: 'refund-desk',
  version: '1',
  input: z.object({ order: z.string(), text: z.string() }),
  output: z.object({ receipt: z.string() }),
  run: async (run, { order }) => {
    const cents = await run.model('decide', () => ({ output: 4200 })); // your model: recorded, never asked twice
    return run.call(refund, { order, cents });
  },
});

const brokers = (process.env['HOLDFAST_BROKERS'] ?? '127.0.0.1:19092').split(',');
const worker = await serve({ agents: [agent], tools: [refund], brokers });
const client = await HoldfastClient.connect({ brokers });
const run = await client.start(agent, { order: 'A-17', text: 'it came broken' }, { runId: 'ticket-1001' });
console.log(await run.outcome()); // { status: 'completed', output: { receipt: '…' } }
await client.close();
await worker.stop();
