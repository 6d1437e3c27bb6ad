import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createDatabase, databaseOf, ManagedProcess } from '@holdfast/deploy';
import { Keys, openGatewayDatabase, type NewKey } from '@holdfast/gateway';
import type { Json } from '@holdfast/protocol';
import type { TestStack } from './stack.js';

type Database = Awaited<ReturnType<typeof openGatewayDatabase>>;

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: { readonly [member: string]: Json };
}

export interface Asked {
  readonly key?: string | undefined;
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** A gateway process of its own beside a test's stack, with what tests ask of it. */
export class TestGateway {
  #url = '';

  private constructor(
    readonly process: ManagedProcess,
    private readonly database: Database,
  ) {}

  static async start(stack: TestStack, env: Readonly<Record<string, string>> = {}, name = 'gateway-1'): Promise<TestGateway> {
    await createDatabase(stack.stack.databaseUrl, databaseOf('gateway'));
    const database = await openGatewayDatabase(stack.stack.databaseUrl, 'test', 2);
    const made: TestGateway[] = [];
    const process = new ManagedProcess({
      name,
      entry: fileURLToPath(new URL('../../../services/gateway/dist/main.js', import.meta.url)),
      dir: path.join(stack.stack.dir, 'services'),
      env: { ...stack.stack.env, HOLDFAST_INSTANCE: name, HOLDFAST_HTTP_PORT: '0', HOLDFAST_SESSION_TIMEOUT_MS: '2000', ...env },
      onOutput: (_, line) => made[0]?.note(line),
    });
    const gateway = new TestGateway(process, database);
    made.push(gateway);
    await process.start();
    return gateway;
  }

  get url(): string {
    return this.#url;
  }

  note(line: string): void {
    const url = /"url":"([^"]+)"/.exec(line)?.[1];
    if (url !== undefined && line.includes('"msg":"ready"')) this.#url = url;
  }

  /** A key that holds what is asked for. */
  async key(of: Partial<NewKey> & Pick<NewKey, 'roles'>): Promise<string> {
    return (await new Keys(this.database, Date.now).create({ tenant: 'default', name: of.roles.join('+'), ...of })).key;
  }

  async ask(address: string, { key, method = 'GET', body, headers = {}, signal }: Asked = {}): Promise<Reply> {
    const response = await fetch(`${this.#url}${address}`, {
      method,
      ...(signal === undefined ? {} : { signal }),
      headers: { ...(key === undefined ? {} : { authorization: `Bearer ${key}` }), ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      ...(body === undefined ? {} : { body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    const json = (response.headers.get('content-type') ?? '').includes('json') && text !== '';
    return { status: response.status, headers: response.headers, text, body: json ? (JSON.parse(text) as Reply['body']) : {} };
  }

  post(address: string, key: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Reply> {
    return this.ask(address, { method: 'POST', key, body, headers });
  }

  async stop(): Promise<void> {
    await this.process.stop();
    await this.database.destroy();
  }
}

export interface StreamedEvent {
  readonly id: string;
  readonly type: string;
  readonly data: { readonly [member: string]: Json };
}

/** Reads a stream of events for as long as somebody takes them; over when the other side ends it, however that is. */
export async function* eventsOf(url: string, key: string, { lastEventId, signal }: { lastEventId?: string; signal?: AbortSignal } = {}): AsyncGenerator<StreamedEvent, void, undefined> {
  const response = await fetch(url, {
    headers: { authorization: `Bearer ${key}`, accept: 'text/event-stream', ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }) },
    ...(signal === undefined ? {} : { signal }),
  });
  if (response.status !== 200 || response.body === null) throw new Error(`the stream answered ${response.status}: ${await response.text()}`);
  let text = '';
  const decoder = new TextDecoder();
  try {
    for await (const chunk of response.body) {
      text += decoder.decode(chunk as Uint8Array, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const fields = new Map(block.split('\n').map((line): [string, string] => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]));
        const id = fields.get('id');
        if (id !== undefined) yield { id, type: fields.get('event') ?? '', data: JSON.parse(fields.get('data') ?? 'null') as StreamedEvent['data'] };
      }
    }
  } catch (error) {
    // Killed in the middle, or no longer wanted: the stream is over either way.
    if (!(error instanceof Error) || !/terminated|abort|other side closed/i.test(`${error.name} ${error.message}`)) throw error;
  }
}
