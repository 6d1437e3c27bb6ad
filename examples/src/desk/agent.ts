import { appendFile, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { defineAgent, defineTool, pgTool } from '@holdfast/sdk';
import type pg from 'pg';
import { z } from 'zod';

export const Ticket = z.object({ ticket: z.string(), customer: z.string(), order: z.string(), paid: z.number().int(), text: z.string() });
export type Ticket = z.infer<typeof Ticket>;

export const DESK_AGENT = { name: 'refund-desk', version: '1' } as const;

/** The desk's tools change something real: rows in a shop's own database, and a file of letters. */
export function deskTools(shop: pg.Pool, letters: string) {
  const refund = pgTool({
    name: 'refund',
    version: '1',
    input: z.object({ order: z.string(), cents: z.number().int().positive() }),
    output: z.object({ refund: z.string() }),
    pool: shop,
    owner: 'the shop’s accountant',
    execute: async ({ order, cents }, client) => {
      const { rows } = await client.query<{ id: string }>('insert into refunds (order_id, cents) values ($1, $2) returning id::text', [order, cents]);
      return { refund: rows[0]?.id ?? '' };
    },
  });
  const sendLetter = defineTool({
    name: 'send_letter',
    version: '1',
    effect: 'irreversible',
    input: z.object({ to: z.string(), text: z.string() }),
    output: z.object({ sent: z.literal(true) }),
    owner: 'the mail room',
    execute: async ({ to, text }, { operationKey }) => {
      await mkdir(path.dirname(letters), { recursive: true });
      await appendFile(letters, `${JSON.stringify({ to, text, operationKey })}\n`);
      return { sent: true as const };
    },
  });
  return { refund, sendLetter };
}

/** Stands in for a model: what it says is recorded, so a crash never asks it twice. */
const judge = ({ paid, text }: Ticket): { refund: number; reply: string } => {
  if (/where is/i.test(text)) return { refund: 0, reply: 'We asked the carrier and will write again tomorrow.' };
  const refund = /one of two/i.test(text) ? Math.round(paid / 2) : paid;
  return { refund, reply: `We refund ${(refund / 100).toFixed(2)}. Sorry for the trouble.` };
};

export const deskAgent = ({ refund, sendLetter }: ReturnType<typeof deskTools>) =>
  defineAgent({
    ...DESK_AGENT,
    input: Ticket,
    output: z.object({ refunded: z.number() }),
    run: async (run, ticket) => {
      const decision = await run.model('judge the ticket', () => ({ output: judge(ticket), usage: { tokensIn: ticket.text.length, tokensOut: 20 } }));
      if (decision.refund > 0) await run.call(refund, { order: ticket.order, cents: decision.refund });
      await run.call(sendLetter, { to: ticket.customer, text: decision.reply });
      return { refunded: decision.refund };
    },
  });
