import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { z } from 'zod';

const Fire = z.object({ op: z.literal('fire'), run: z.string(), step: z.string(), key: z.string(), attempt: z.number(), fence: z.number(), effect: z.enum(['pure', 'idempotent', 'irreversible']), worker: z.string(), /** The arrival that this one answers. */ of: z.number().optional() });
const Ask = z.object({ op: z.literal('ask'), key: z.string(), attempt: z.number() });
const Gate = z.object({ op: z.literal('gate'), name: z.string() });
const Request = z.discriminatedUnion('op', [Fire, Ask, Gate]);

export interface Arrival extends z.infer<typeof Fire> {
  readonly id: number;
  /** Epoch milliseconds, by the sink's own clock. */
  readonly at: number;
  /** False when a probe had voided this attempt before it came. */
  readonly accepted: boolean;
}

/**
 * The world outside, as a small HTTP server that neither broker nor database can take along: it
 * counts each call that arrives and refuses none for being there already. A probe that finds nothing
 * voids the attempt and those before it.
 */
export class Sink {
  readonly arrivals: Arrival[] = [];
  readonly #byKey = new Map<string, Arrival>();
  readonly #voided = new Map<string, number>();
  readonly #open = new Set<string>();
  #waiting: { readonly name: string; readonly go: () => void }[] = [];

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async open(): Promise<Sink> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('the sink has no port');
    const sink = new Sink(server, `http://127.0.0.1:${address.port}`);
    server.on('request', (request, response) => {
      sink.#answer(request).then(
        (answer) => response.end(JSON.stringify(answer)),
        (error: unknown) => {
          response.statusCode = 400;
          response.end(String(error));
        },
      );
    });
    return sink;
  }

  /** Lets those pass who wait at a gate, or come to it later. */
  openGate(name: string): void {
    this.#open.add(name);
    for (const { go } of this.#waiting.filter((each) => each.name === name)) go();
    this.#waiting = this.#waiting.filter((each) => each.name !== name);
  }

  async close(): Promise<void> {
    this.server.close();
    this.server.closeAllConnections();
    await once(this.server, 'close');
  }

  async #answer(request: IncomingMessage): Promise<unknown> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const asked = Request.parse(JSON.parse(Buffer.concat(chunks).toString('utf8')));
    switch (asked.op) {
      case 'fire':
        return this.#fire(asked);
      case 'ask':
        return this.#ask(asked);
      case 'gate':
        if (!this.#open.has(asked.name)) await new Promise<void>((go) => this.#waiting.push({ name: asked.name, go }));
        return {};
    }
  }

  #fire(asked: z.infer<typeof Fire>): { id: number } | { voided: true } {
    const accepted = asked.attempt > (this.#voided.get(asked.key) ?? 0);
    const before = this.#byKey.get(asked.key);
    const arrival = { ...asked, id: this.arrivals.length + 1, at: Date.now(), accepted };
    this.arrivals.push(arrival);
    if (!accepted) return { voided: true };
    if (before === undefined) this.#byKey.set(asked.key, arrival);
    // Only what is idempotent is answered by its key: else a second call is a second effect.
    return { id: asked.effect === 'idempotent' ? (before?.id ?? arrival.id) : arrival.id };
  }

  #ask({ key, attempt }: z.infer<typeof Ask>): { id: number | null } {
    const fired = this.#byKey.get(key);
    if (fired !== undefined) return { id: fired.id };
    this.#voided.set(key, Math.max(attempt, this.#voided.get(key) ?? 0));
    return { id: null };
  }
}
