import type { Json } from '@holdfast/protocol';
import { applied, defineTool, Failed, MayHaveApplied, notApplied, type ToolDefinition } from '@holdfast/sdk';
import { z } from 'zod';

/** One entry in a provider's books. */
export interface Entry {
  readonly run: string;
  readonly what: 'book' | 'cancel';
  readonly thing: string;
  readonly booking: string;
  readonly key: string;
}

/** `fails`: it says so and does nothing. `silent`: it does it, and the answer is lost. `late`: it does it after everyone has given up. */
export type Behaviour = 'works' | 'fails' | 'silent' | 'late';

const TIMEOUT_MS = 600;

/** Providers outside the product, with books that only they write. */
export class Bookings {
  readonly entries: Entry[] = [];
  readonly #behaviours = new Map<string, Behaviour[]>();

  /** How calls of one kind for a run are met, one after the other; then they work. */
  meets(run: string, what: Entry['what'], thing: string, ...behaviours: Behaviour[]): void {
    this.#behaviours.set(`${run}/${what}/${thing}`, behaviours);
  }

  of(run: string, what?: Entry['what']): Entry[] {
    return this.entries.filter((entry) => entry.run === run && (what === undefined || entry.what === what));
  }

  /** Bookings that nothing has cancelled; and what was cancelled twice, or never booked. */
  standing(run: string): string[] {
    const count = new Map<string, number>();
    for (const { booking, what } of this.of(run)) count.set(booking, (count.get(booking) ?? 0) + (what === 'book' ? 1 : -1));
    return [...count].filter(([, sum]) => sum !== 0).map(([booking, sum]) => `${booking}: ${sum}`);
  }

  async act(entry: Entry, signal: AbortSignal): Promise<void> {
    const { run, what, thing } = entry;
    const behaviour = this.#behaviours.get(`${run}/${what}/${thing}`)?.shift() ?? 'works';
    if (behaviour === 'fails') throw new Failed({ class: 'permission_denied', message: `${thing} is closed`, notApplied: true });
    if (behaviour === 'late') await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    this.entries.push(entry);
    if (behaviour === 'silent') throw new MayHaveApplied('the line went dead');
  }

  has(key: string): boolean {
    return this.entries.some((entry) => entry.key === key);
  }

  /** Tools of one provider: what books, and what answers it. */
  tools(thing: string, over: { readonly approvers?: readonly string[]; readonly computed?: boolean } = {}): ToolDefinition[] {
    const common = { version: '1', effect: 'irreversible', timeout: TIMEOUT_MS, queueTimeout: 3000, settleDelay: 200, owner: 'the desk' } as const;
    const probe = <Result>(result: (key: string) => Result) => ({
      sealing: false,
      schedule: { initial: 300, factor: 1.5, max: 1000 },
      ask: (_: unknown, { operationKey }: { operationKey: string }) => (this.has(operationKey) ? applied(result(operationKey), `booked under ${operationKey.slice(0, 8)}`) : notApplied('nothing under the key')),
    });
    const cancel = defineTool({
      ...common,
      name: `${thing}.cancel`,
      input: z.object({ booking: z.string(), why: z.string().optional() }),
      output: z.object({ fee: z.number() }),
      probe: probe(() => ({ fee: 5 })),
      execute: async ({ booking }, { run, operationKey: key, signal }) => {
        await this.act({ run, what: 'cancel', thing, booking, key }, signal);
        return { fee: 5 };
      },
    });
    const book = defineTool({
      ...common,
      name: `${thing}.book`,
      input: z.object({ seats: z.number() }),
      output: z.object({ id: z.string() }),
      probe: probe((key) => ({ id: `${thing}-${key.slice(0, 8)}` })),
      compensate: {
        tool: cancel as unknown as ToolDefinition,
        args: over.computed === true ? (_: unknown, { id }: { id: string }): Json => ({ booking: id, why: 'computed' }) : { booking: { from: 'result', at: '/id' }, why: { value: 'declared' } },
        residual: [{ what: 'cancellation fee', amount: '/fee' }],
        ...(over.approvers === undefined ? {} : { authority: { approvers: over.approvers } }),
      },
      execute: async (_, { run, operationKey: key, signal }) => {
        const id = `${thing}-${key.slice(0, 8)}`;
        await this.act({ run, what: 'book', thing, booking: id, key }, signal);
        return { id };
      },
    });
    return [book, cancel] as unknown as ToolDefinition[];
  }
}
