import { applied, defineAgent, defineTool, MayHaveApplied, notApplied, Rejected, stillUnknown, type AgentDefinition, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';
import { LATE_MS, PROVIDERS, type Provider } from './faults.js';

const TIMEOUT_MS = 1000;
const Trip = z.object({ cents: z.number().int(), calledOff: z.boolean() });
const Booked = z.object({ booking: z.string() });

/** Asks a provider once, and says no more than it said. */
async function ask(url: string, what: 'book' | 'cancel', body: object, signal: AbortSignal): Promise<z.infer<typeof Booked>> {
  const response = await fetch(`${url}/${what}`, { method: 'POST', body: JSON.stringify(body), signal }).catch((error: unknown) => {
    throw new MayHaveApplied(String(error));
  });
  if (response.status === 409) throw new Rejected(((await response.json()) as { why: string }).why);
  if (!response.ok) throw new MayHaveApplied(`the provider answered ${response.status}`);
  return Booked.parse(await response.json());
}

/** What one provider can do: book, and cancel what was booked. */
function toolsOf(provider: Provider, url: string): [ToolDefinition, ToolDefinition] {
  const common = {
    version: '1',
    effect: 'irreversible',
    output: Booked,
    timeout: TIMEOUT_MS,
    queueTimeout: 5000,
    settleDelay: LATE_MS,
    owner: 'the travel desk',
    probe: {
      sealing: false,
      schedule: { initial: 500, factor: 1.5, max: 2000 },
      ask: async (_: unknown, { operationKey }: { operationKey: string }) => {
        const response = await fetch(`${url}/operations/${operationKey}`).catch(() => null);
        if (response?.status === 404) return notApplied('the provider has nothing under this key');
        return response?.ok === true ? applied(Booked.parse(await response.json()), 'the provider has it under this key') : stillUnknown('the provider does not answer');
      },
    },
  } as const;
  const cancel = defineTool({ ...common, name: `${provider}.cancel`, input: z.object({ booking: z.string() }), execute: ({ booking }, { run, operationKey: key, signal }) => ask(url, 'cancel', { run, key, booking }, signal) });
  const book = defineTool({
    ...common,
    name: `${provider}.book`,
    input: z.object({ cents: z.number().int() }),
    // Money goes back first; then what it paid for, side by side.
    compensate: { tool: cancel as unknown as ToolDefinition, args: { booking: { from: 'result', at: '/booking' } }, order: provider === 'payment' ? { before: ['flight.book', 'hotel.book', 'car.book'] } : 'independent' },
    execute: ({ cents }, { run, operationKey: key, signal }) => ask(url, 'book', { run, key, cents }, signal),
  });
  return [book, cancel] as unknown as [ToolDefinition, ToolDefinition];
}

export const tripTools = (urls: Readonly<Record<Provider, string>>): ToolDefinition[] => PROVIDERS.flatMap((provider) => toolsOf(provider, urls[provider]));

export const TRIP_AGENT = { name: 'traveller', version: '1' };

/** Books everything, one after the other. Whatever fails ends the run, and what it did is answered as the contracts say. */
export const tripAgent = (): AgentDefinition =>
  defineAgent({
    ...TRIP_AGENT,
    input: Trip,
    output: z.object({ bookings: z.array(z.string()) }),
    run: async (run, { cents, calledOff }) => {
      const bookings: string[] = [];
      for (const provider of PROVIDERS) bookings.push(Booked.parse(await run.call(`${provider}.book`, { cents })).booking);
      if (calledOff) throw new Error('the traveller has fallen ill');
      return { bookings };
    },
  }) as unknown as AgentDefinition;
