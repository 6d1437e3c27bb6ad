import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * How the sink answers a `POST /effects/<key>`; `commit` says whether it counts the effect first.
 * `empty`: status 200 with a body that says nothing. `used`: "this key was already used".
 */
export type Answer = 'ok' | '500' | 'hang' | 'empty' | 'used' | 'accepted';
export interface Mode {
  readonly commit: boolean;
  readonly answer: Answer;
  /** For so long a read-back finds nothing, as a replica behind would, milliseconds. */
  readonly unseenForMs?: number;
  /** So many read-backs say that the work goes on. */
  readonly pending?: number;
}

interface Entry {
  readonly at: number;
  unseenForMs: number;
  pending: number;
  count: number;
}

/** A server outside the product that does "effects" and counts them by key, with the ways in which servers leave callers in doubt. */
export class Sink {
  readonly #entries = new Map<string, Entry>();
  readonly #calls = new Map<string, number>();
  readonly #modes = new Map<string, readonly Mode[]>();
  readonly #hanging: ServerResponse[] = [];
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => this.#handle(request, response));
  }

  static async start(): Promise<Sink> {
    const sink = new Sink();
    sink.#server.listen(0, '127.0.0.1');
    await once(sink.#server, 'listening');
    return sink;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** How calls for a run are answered, one after the other; the last mode stays. */
  answers(run: string, ...modes: readonly Mode[]): void {
    this.#modes.set(run, modes);
  }

  /** How often effects of a run were applied. */
  applied(run: string): number {
    return [...this.#entries].filter(([key]) => key.startsWith(`${run}/`)).reduce((sum, [, { count }]) => sum + count, 0);
  }

  /** How often the run's tools called. */
  calls(run: string): number {
    return this.#calls.get(run) ?? 0;
  }

  async close(): Promise<void> {
    for (const response of this.#hanging) response.destroy();
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const [, run = '', operation = ''] = (request.url ?? '').split('/').map(decodeURIComponent);
    const key = `${run}/${operation}`;
    if (request.method === 'GET') return this.#readBack(key, response);
    const nth = this.calls(run);
    this.#calls.set(run, nth + 1);
    const modes = this.#modes.get(run) ?? [];
    const mode = modes[Math.min(nth, modes.length - 1)] ?? { commit: true, answer: 'ok' };
    if (mode.commit) {
      const entry = this.#entries.get(key) ?? { at: Date.now(), unseenForMs: mode.unseenForMs ?? 0, pending: mode.pending ?? 0, count: 0 };
      entry.count += 1;
      this.#entries.set(key, entry);
    }
    switch (mode.answer) {
      case 'hang':
        return void this.#hanging.push(response);
      case '500':
        return void response.writeHead(500).end();
      case 'used':
        return void response.writeHead(409).end('this key was already used');
      case 'empty':
        return void response.end(JSON.stringify({ success: false, message: '' }));
      case 'accepted':
        return void response.writeHead(202).end(JSON.stringify({ operation: `op-${operation.slice(0, 8)}` }));
      default:
        return void response.end(JSON.stringify({ success: true }));
    }
  }

  #readBack(key: string, response: ServerResponse): void {
    const entry = this.#entries.get(key);
    if (entry === undefined || Date.now() < entry.at + entry.unseenForMs) return void response.writeHead(404).end();
    if (entry.pending > 0) {
      entry.pending -= 1;
      return void response.writeHead(202).end();
    }
    response.end(JSON.stringify({ success: true }));
  }
}
