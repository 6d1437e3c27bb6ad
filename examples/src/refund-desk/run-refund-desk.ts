import { rm } from 'node:fs/promises';
import { createDatabase, databaseUrl, LOCAL_SESSION_TIMEOUT_MS, makeStackFolder, startHoldfast, type Stack } from '@holdfast/deploy';
import { HoldfastClient, serve } from '@holdfast/sdk';
import Table from 'cli-table3';
import pg from 'pg';
import { REFUND_DESK, refundDesk, refundTools, type Claim } from './agent.js';
import { People } from './people.js';

export interface RefundRow {
  readonly run: string;
  readonly status: string;
  readonly refunded: number | null;
  /** Recorded by Holdfast. */
  readonly approvals: number;
  readonly retries: number;
  /** Counted in the shop's database. */
  readonly refunds: number;
  readonly letters: number;
}

export interface RefundDeskResult {
  readonly runs: readonly RefundRow[];
  readonly tries: number;
}

const RUN_LIMIT_MS = 90_000;
const claims: readonly (Claim & { readonly run: string })[] = [
  { run: 'claim-1', order: 'A-17', paid: 4200, text: 'It came broken.' },
  { run: 'claim-2', order: 'A-18', paid: 9900, text: 'I want my money back.' },
  { run: 'claim-3', order: 'A-19', paid: 5000, text: 'The parcel never came.' },
  { run: 'claim-4', order: 'A-20', paid: 1300, text: 'I changed my mind.' },
  { run: 'claim-5', order: 'A-21', paid: 8000, text: 'One of two cups is missing.' },
];

/** Five claims on a stack of its own: approved, refused and cut to half, left without a parcel, cancelled. */
export async function runRefundDesk({ say }: { readonly say: (text: string) => void }): Promise<RefundDeskResult> {
  const dir = await makeStackFolder('holdfast-demo-');
  let stack: Stack | undefined;
  try {
    stack = await startHoldfast({ dir, log: say });
    await createDatabase(stack.databaseUrl, 'refund_desk');
    const shop = new pg.Pool({ connectionString: databaseUrl(stack.databaseUrl, 'refund_desk'), max: 4 });
    shop.on('error', () => undefined);
    try {
      return await play(stack, shop, say);
    } finally {
      await shop.end();
    }
  } finally {
    await stack?.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

async function play(stack: Stack, shop: pg.Pool, say: (text: string) => void): Promise<RefundDeskResult> {
  await shop.query('create table refunds (id bigserial, order_id text, cents int); create table letters (operation_key text primary key, order_id text, text text); create table tries (operation_key text, attempt int)');
  const tools = refundTools(shop);
  say('starting a worker …');
  const worker = await serve({ agents: [refundDesk(tools)], tools: Object.values(tools), brokers: stack.brokers, worker: 'desk', sessionTimeoutMs: LOCAL_SESSION_TIMEOUT_MS, log: { info: () => undefined, warn: (text) => say(text), error: (text) => say(text) } });
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  try {
    for (const { run, ...claim } of claims) await client.start(REFUND_DESK, claim, { runId: run, principal: 'joe' });
    // No parcel comes back for claim-2: its wait expires.
    for (const run of ['claim-1', 'claim-3', 'claim-4', 'claim-5']) await client.signal(run, 'parcel is back', { shelf: 'B4' });
    const people = new People(stack, say);
    await people.decides('claim-1', 'approve');
    await people.decides('claim-5', 'approve');
    await people.decides('claim-3', 'reject', 'half of it: he has one of them');
    await people.asked('claim-4');
    await people.cancels('claim-4', 'the customer keeps it');
    await people.decides('claim-3', 'approve');
    const runs = await Promise.all(claims.map((claim) => rowOf(client, shop, claim)));
    const { rows } = await shop.query<{ n: number }>('select count(*)::int as n from tries');
    return { runs, tries: rows[0]?.n ?? 0 };
  } finally {
    await client.close();
    await worker.stop();
  }
}

async function rowOf(client: HoldfastClient, shop: pg.Pool, { run, order }: { readonly run: string; readonly order: string }): Promise<RefundRow> {
  const outcome = await client.outcome(run, { timeoutMs: RUN_LIMIT_MS });
  let approvals = 0;
  let retries = 0;
  for await (const { event } of client.events(run)) {
    if (event.type === 'ApprovalDecided') approvals += 1;
    if (event.type === 'RunFinished') retries = event.data.effects.reduce((sum, { attempts }) => sum + attempts - 1, 0);
  }
  const count = async (table: 'refunds' | 'letters'): Promise<number> => (await shop.query<{ n: number }>(`select count(*)::int as n from ${table} where order_id = $1`, [order])).rows[0]?.n ?? 0;
  const refunded = outcome.status === 'completed' ? (outcome.output as { refunded: number }).refunded : null;
  return { run, status: outcome.status, refunded, approvals, retries, refunds: await count('refunds'), letters: await count('letters') };
}

/** What came of each claim, for people. */
export function refundTable({ runs }: RefundDeskResult): string {
  const table = new Table({ head: ['run', 'status', 'refunded', 'decisions', 'retries', 'refunds in the shop', 'letters'], style: { head: [], border: [] }, chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' } });
  for (const { run, status, refunded, approvals, retries, refunds, letters } of runs) table.push([run, status, refunded === null ? '–' : `${(refunded / 100).toFixed(2)} €`, approvals, retries, refunds, letters]);
  return table.toString();
}

/** Whether the world is as the claims should leave it. */
export const isAsItShould = ({ runs, tries }: RefundDeskResult): boolean =>
  JSON.stringify(runs.map(({ status, refunded, refunds, letters }) => [status, refunded, refunds, letters])) ===
    JSON.stringify([
      ['completed', 4200, 1, 1],
      ['completed', 0, 0, 1],
      ['completed', 2500, 1, 1],
      ['cancelled', null, 0, 0],
      ['completed', 4000, 1, 1],
    ]) && tries === 8;
