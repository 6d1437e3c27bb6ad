import { accepted, AlreadyDone, applied, defineTool, Failed, MayHaveApplied, notApplied, pending, Rejected, stillUnknown } from '@holdfast/sdk';
import { z } from 'zod';

const bank = (): string => process.env['BANK_URL'] ?? 'http://localhost:4000';
const Charge = z.object({ id: z.string(), reference: z.string(), state: z.enum(['booked', 'processing', 'declined']) });

export const charge = defineTool({
  name: 'charge',
  version: '1',
  effect: 'irreversible',
  input: z.object({ account: z.string(), cents: z.number().int() }),
  output: z.object({ charge: z.string() }),
  timeout: 5_000,
  settleDelay: 30_000, // the bank drops a request after 20 s, and its replica is at most 10 s behind
  owner: 'payments desk',
  async execute({ account, cents }, { operationKey, signal }) {
    const answer = await fetch(`${bank()}/charges`, { method: 'POST', body: JSON.stringify({ account, cents, reference: operationKey }), signal });
    if (answer.status === 429) throw new Failed({ class: 'overloaded', message: 'the bank is busy', notApplied: true, retryAfter: answer.headers.get('retry-after') });
    if (answer.status === 402) throw new Rejected('the account is not covered');
    if (answer.status === 409) throw new AlreadyDone('the bank knows this reference'); // by which attempt, the probe will tell
    if (!answer.ok) throw new MayHaveApplied(`the bank answered ${answer.status}`);
    const { id } = Charge.parse(await answer.json());
    return answer.status === 202 ? accepted(id) : { charge: id };
  },
  probe: {
    sealing: false,
    timeout: 3_000,
    schedule: { initial: 2_000, max: 60_000 },
    async ask(_args, { operationKey, operationId, signal }) {
      const answer = await fetch(`${bank()}/charges?reference=${operationKey}`, { signal });
      if (!answer.ok) return stillUnknown(`the bank answered ${answer.status}`);
      const found = z.array(Charge).parse(await answer.json()).find(({ reference }) => reference === operationKey);
      if (found === undefined) return operationId === undefined ? notApplied('no charge has this reference') : stillUnknown(`the bank accepted ${operationId} and does not show it`);
      switch (found.state) {
        case 'booked':
          return applied({ charge: found.id }, `charge ${found.id} has the operation key as its reference`);
        case 'processing':
          return pending(`charge ${found.id} is being processed`);
        case 'declined':
          return notApplied(`charge ${found.id} was declined`);
      }
    },
  },
});
