/** One provider of the trip: a process of its own, with a database of its own, that knows nothing of Holdfast. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { z } from 'zod';
import { Fault, LATE_MS } from './faults.js';

const { PROVIDER_DATABASE, PROVIDER_NAME } = z.object({ PROVIDER_DATABASE: z.string(), PROVIDER_NAME: z.string() }).parse(process.env);
const books = new pg.Pool({ connectionString: PROVIDER_DATABASE, max: 8 });
books.on('error', () => undefined);
// Without any unique constraint, so that what is done twice shows.
await books.query('create table if not exists entries (id bigserial, run text, what text, booking text, key text, cents int)');
await books.query('create table if not exists faults (run text, what text, fault text)');

const Ask = z.object({ run: z.string(), key: z.string(), booking: z.string().optional(), cents: z.number().int().optional() });

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return JSON.parse(text === '' ? '{}' : text);
}

const reply = (response: ServerResponse, status: number, body: unknown): void => void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

async function act(what: 'book' | 'cancel', { run, key, booking = `${PROVIDER_NAME}-${key.slice(0, 12)}`, cents = 0 }: z.infer<typeof Ask>, response: ServerResponse): Promise<void> {
  const enter = (): Promise<unknown> => books.query('insert into entries (run, what, booking, key, cents) values ($1, $2, $3, $4, $5)', [run, what, booking, key, cents]);
  // A refusal is for good; of everything else a second call finds the provider well.
  const { rows } = await books.query<{ fault: string }>(`delete from faults where ctid in (select ctid from faults where run = $1 and what = $2 and fault <> 'fails' limit 1) returning fault`, [run, what]);
  const refused = await books.query(`select 1 from faults where run = $1 and what = $2 and fault = 'fails'`, [run, what]);
  const fault = (refused.rowCount ?? 0) > 0 ? 'fails' : (Fault.safeParse(rows[0]?.fault).data ?? null);
  switch (fault) {
    case 'fails':
      return reply(response, 409, { why: `${PROVIDER_NAME} will not ${what} it` });
    case 'hangs':
      return; // Does nothing, and never says so.
    case 'late':
      setTimeout(() => void enter(), LATE_MS); // Long after the caller gave up.
      return;
    case 'silent':
      await enter();
      return void response.destroy();
    case null:
      await enter();
      return reply(response, 200, { booking });
  }
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const [, first = '', second = ''] = (request.url ?? '').split('/');
  if (request.method === 'GET' && first === 'operations') {
    const { rows } = await books.query<{ booking: string }>('select booking from entries where key = $1', [second]);
    return rows[0] === undefined ? reply(response, 404, {}) : reply(response, 200, { booking: rows[0].booking });
  }
  if (request.method !== 'POST' || (first !== 'book' && first !== 'cancel')) return reply(response, 404, {});
  return act(first, Ask.parse(await bodyOf(request)), response);
}

const server = createServer((request, response) => {
  handle(request, response).catch((error: unknown) => reply(response, 500, { why: String(error) }));
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
process.once('SIGTERM', () => {
  server.closeAllConnections();
  server.close(() => void books.end().then(() => process.exit(0)));
});
process.stdout.write(`${JSON.stringify({ msg: 'ready', url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })}\n`);
