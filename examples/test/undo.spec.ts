import { createServer, type Server } from 'node:http';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { DEFAULT_POOL } from '@holdfast/protocol';
import { applied, notApplied, Rejected } from '@holdfast/sdk';
import { bookFlight, cancelFlight } from '../src/book-flight.js';

const root = new URL('../../', import.meta.url);
const context = { operationKey: 'key-1', signal: new AbortController().signal } as never;

let server: Server;
let asked: { readonly method: string | undefined; readonly url: string | undefined; readonly version: string | undefined }[];
let answer: { readonly status: number; readonly body: unknown };

beforeEach(async () => {
  asked = [];
  server = createServer((request, response) => {
    asked.push({ method: request.method, url: request.url, version: request.headers['if-match'] });
    request.resume().on('end', () => response.writeHead(answer.status).end(JSON.stringify(answer.body)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  process.env['AIRLINE_URL'] = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  delete process.env['AIRLINE_URL'];
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

describe('how to undo what was done', () => {
  it('shows the tools as they stand in the examples', async () => {
    const [page, code] = await Promise.all(['docs/how-to/undo-what-was-done.md', 'examples/src/book-flight.ts'].map((file) => readFile(new URL(file, root), 'utf8')));
    expect(page).toContain(`\`\`\`ts\n${code}\`\`\``);
  });

  it('whose contract says what answers it, by whose leave, and what remains', () => {
    expect(bookFlight.contract(DEFAULT_POOL).compensate).toMatchObject({
      tool: { name: 'flight.cancel', version: '1' },
      args: { booking: { from: 'result', at: '/id' } },
      order: 'reverse',
      authority: { approvers: ['travel-manager'] },
      verify: true,
      precondition: { version: '/version', as: 'ifVersion' },
      residual: [{ what: 'cancellation fee', amount: '/fee' }],
    });
  });

  it('and whose cancellation is for one version, and is found by its key', async () => {
    answer = { status: 200, body: { fee: 5 } };
    expect(await cancelFlight.execute({ booking: 'b-1', ifVersion: 7 }, context)).toEqual({ fee: 5 });
    expect(asked).toEqual([{ method: 'DELETE', url: '/bookings/b-1', version: '7' }]);
    expect(await cancelFlight.probe?.ask({ booking: 'b-1', ifVersion: 7 }, context)).toEqual(applied({ fee: 5 }));
    answer = { status: 404, body: {} };
    expect(await cancelFlight.probe?.ask({ booking: 'b-1', ifVersion: 7 }, context)).toEqual(notApplied('no cancellation has this reference'));
    answer = { status: 412, body: {} };
    await expect(cancelFlight.execute({ booking: 'b-1', ifVersion: 7 }, context)).rejects.toMatchObject({ name: 'Failed', failure: { class: 'concurrency_conflict' } });
    answer = { status: 409, body: {} };
    await expect(bookFlight.execute({ from: 'VIE', to: 'LIS' }, context)).rejects.toBeInstanceOf(Rejected);
  });
});
