import { applied, defineTool, Failed, notApplied, Rejected } from '@holdfast/sdk';
import { z } from 'zod';

const airline = (path: string, init?: RequestInit): Promise<Response> => fetch(`${process.env['AIRLINE_URL'] ?? ''}${path}`, init);

const common = { version: '1', effect: 'irreversible', settleDelay: 60_000, owner: 'the travel desk' } as const;

export const cancelFlight = defineTool({
  ...common,
  name: 'flight.cancel',
  input: z.object({ booking: z.string(), ifVersion: z.number() }),
  output: z.object({ fee: z.number() }),
  // Who finds it changed once finds it changed again.
  recovery: { concurrency_conflict: 'fail' },
  // Found by its operation key, it counts as done.
  probe: {
    sealing: false,
    ask: async (_, { operationKey }) => {
      const answer = await airline(`/cancellations/${operationKey}`);
      return answer.status === 404 ? notApplied('no cancellation has this reference') : applied((await answer.json()) as { fee: number });
    },
  },
  execute: async ({ booking, ifVersion }, { operationKey, signal }) => {
    const answer = await airline(`/bookings/${booking}`, { method: 'DELETE', headers: { 'idempotency-key': operationKey, 'if-match': String(ifVersion) }, signal });
    if (answer.status === 412) throw new Failed({ class: 'concurrency_conflict', message: 'the booking was changed since', notApplied: true });
    return (await answer.json()) as { fee: number };
  },
});

export const bookFlight = defineTool({
  ...common,
  name: 'flight.book',
  input: z.object({ from: z.string(), to: z.string() }),
  output: z.object({ id: z.string(), version: z.number() }),
  compensate: {
    tool: cancelFlight,
    // From the result; or a function, (args, result) => …, which any worker that serves this tool may run.
    args: { booking: { from: 'result', at: '/id' } },
    // Somebody's later change is not overwritten: the cancellation is told which version it is for, and the booking
    // stands where it fails with `concurrency_conflict`. With any other failure people are told.
    precondition: { version: '/version', as: 'ifVersion' },
    authority: { approvers: ['travel-manager'] },
    deadline: 86_400_000,
    escalateTo: 'the travel desk',
    residual: [{ what: 'cancellation fee', amount: '/fee' }],
  },
  execute: async (route, { operationKey, signal }) => {
    const answer = await airline('/bookings', { method: 'POST', headers: { 'idempotency-key': operationKey }, body: JSON.stringify(route), signal });
    if (answer.status === 409) throw new Rejected('no seat is left');
    return (await answer.json()) as { id: string; version: number };
  },
});
