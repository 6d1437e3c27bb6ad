import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import { createDatabase, databaseUrl, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, startHoldfast, type Stack } from '@holdfast/deploy';
import { HoldfastClient, serve } from '@holdfast/sdk';
import { z } from 'zod';
import type { TaskRow } from '../tasks/run-tasks.js';
import { DESK_AGENT, deskAgent, deskTools, Ticket } from './agent.js';

export interface DeskResult {
  readonly runs: number;
  readonly completed: number;
  /** Counted in the shop's database and in the file of letters, not at Holdfast. */
  readonly refunds: number;
  readonly letters: number;
}

const INPUT = new URL('../../input/tickets.json', import.meta.url);
const RUN_LIMIT_MS = 60_000;

/** One run for each ticket, on a stack of its own. */
export async function runDesk({ say }: { say: (text: string) => void }): Promise<{ result: DeskResult; rows: TaskRow[] }> {
  const tickets = z.array(Ticket).parse(JSON.parse(await readFile(INPUT, 'utf8')));
  const dir = await makeStackFolder('holdfast-demo-');
  let stack: Stack | undefined;
  try {
    stack = await startHoldfast({ dir, log: say });
    await createDatabase(stack.databaseUrl, 'demo_shop');
    const shop = new pg.Pool({ connectionString: databaseUrl(stack.databaseUrl, 'demo_shop'), max: 4 });
    shop.on('error', () => undefined);
    try {
      return await work(stack, shop, path.join(dir, 'letters', 'out.jsonl'), tickets, say);
    } finally {
      await shop.end();
    }
  } finally {
    await stack?.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

async function work(stack: Stack, shop: pg.Pool, letters: string, tickets: readonly Ticket[], say: (text: string) => void): Promise<{ result: DeskResult; rows: TaskRow[] }> {
  await shop.query('create table refunds (id bigserial, order_id text, cents int)');
  const tools = deskTools(shop, letters);
  say('starting a worker …');
  const worker = await serve({ agents: [deskAgent(tools)], tools: Object.values(tools), brokers: stack.brokers, worker: 'desk', sessionTimeoutMs: LOCAL_SESSION_TIMEOUT_MS, log: { info: () => undefined, warn: (text) => say(text), error: (text) => say(text) } });
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  try {
    const rows = await Promise.all(
      tickets.map(async (ticket): Promise<TaskRow> => {
        const run = await client.start(DESK_AGENT, ticket, { runId: ticket.ticket, goal: `answer ${ticket.customer}` });
        const startedAt = Date.now();
        const outcome = await run.outcome({ timeoutMs: RUN_LIMIT_MS });
        const steps = await stepsOf(client, ticket.ticket);
        say(`${ticket.ticket} ${outcome.status}`);
        return { run: ticket.ticket, status: outcome.status, ...steps, ms: Date.now() - startedAt, unknown: [] };
      }),
    );
    const refunds = Number((await shop.query<{ n: string }>('select count(*)::text as n from refunds')).rows[0]?.n ?? 0);
    const lines = (await readFile(letters, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '').length;
    return { rows, result: { runs: rows.length, completed: rows.filter(({ status }) => status === 'completed').length, refunds, letters: lines } };
  } finally {
    await client.close();
    await worker.stop();
  }
}

async function stepsOf(client: HoldfastClient, run: string): Promise<{ steps: number; effects: number }> {
  let steps = 0;
  let effects = 0;
  for await (const { event } of client.events(run)) {
    if (event.type === 'EffectRequested' || event.type === 'StepRecorded') steps += 1;
    if (event.type === 'RunFinished') effects = event.data.effects.length;
  }
  return { steps, effects };
}
