import { ApprovalRejected, defineAgent, defineTool, Failed, pgTool, WaitExpired } from '@holdfast/sdk';
import type pg from 'pg';
import { z } from 'zod';

export const Claim = z.object({ order: z.string(), paid: z.number().int(), text: z.string() });
export type Claim = z.infer<typeof Claim>;

const PARCEL_WITHIN_MS = 8000;
const refundArgs = z.object({ order: z.string(), cents: z.number().int().positive() });

/** Both change the shop's own database: the refund under an approval, the letter at a post office that is busy at first. */
export function refundTools(shop: pg.Pool) {
  const refund = pgTool({
    name: 'refund',
    version: '1',
    input: refundArgs,
    output: z.object({ refund: z.string() }),
    pool: shop,
    owner: 'the shop’s accountant',
    approval: { approvers: ['finance'], fourEyes: true },
    execute: async ({ order, cents }, client) => {
      const { rows } = await client.query<{ id: string }>('insert into refunds (order_id, cents) values ($1, $2) returning id::text', [order, cents]);
      return { refund: rows[0]?.id ?? '' };
    },
  });
  const letter = defineTool({
    name: 'letter',
    version: '1',
    effect: 'idempotent', // The post office knows the key: the same letter, posted again, is one.
    input: z.object({ order: z.string(), text: z.string() }),
    output: z.null(),
    retry: { initialMs: 100 },
    execute: async ({ order, text }, { operationKey, attempt }) => {
      await shop.query('insert into tries (operation_key, attempt) values ($1, $2)', [operationKey, attempt]);
      if (attempt === 1) throw new Failed({ class: 'overloaded', message: 'the post office is busy', notApplied: true });
      await shop.query('insert into letters (operation_key, order_id, text) values ($1, $2, $3) on conflict (operation_key) do nothing', [operationKey, order, text]);
      return null;
    },
  });
  return { refund, letter };
}

/** Stands in for a model, so that the example needs no API key: ask yours here. What it says is recorded, and never asked again. */
const judge = ({ paid, text }: Claim, feedback: string | null): number => (feedback === null && !/one of two/i.test(text) ? paid : Math.round(paid / 2));

export const REFUND_DESK = { name: 'refund-desk', version: '2' } as const;

export const refundDesk = ({ refund, letter }: ReturnType<typeof refundTools>) =>
  defineAgent({
    ...REFUND_DESK,
    input: Claim,
    output: z.object({ refunded: z.number() }),
    run: async (run, claim) => {
      const { order } = claim;
      try {
        await run.signal('parcel is back', z.object({ shelf: z.string() }), { deadline: PARCEL_WITHIN_MS });
      } catch (error) {
        if (!(error instanceof WaitExpired)) throw error;
        await run.call(letter, { order, text: 'Nothing came back, so we keep the money.' });
        return { refunded: 0 };
      }
      for (let feedback: string | null = null; ; ) {
        const said: string | null = feedback;
        const cents = await run.model('judge the claim', () => ({ output: judge(claim, said), usage: { tokensIn: claim.text.length, tokensOut: 4 } }));
        try {
          const approval = await run.approval({ what: `refund ${(cents / 100).toFixed(2)} € for order ${order}`, tool: refund, args: { order, cents }, deadline: '1 h' });
          await run.call(refund, refundArgs.parse(approval.args), { approval });
          await run.call(letter, { order, text: `We refund ${(cents / 100).toFixed(2)} €.` });
          return { refunded: cents };
        } catch (error) {
          if (!(error instanceof ApprovalRejected) || feedback !== null) throw error;
          feedback = error.feedback; // Another amount needs another approval.
        }
      }
    },
  });
