import { createServer, type Server } from 'node:http';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { accepted, AlreadyDone, applied, Failed, MayHaveApplied, notApplied, pending, Rejected, stillUnknown } from '@holdfast/sdk';
import { charge } from '../src/charge.js';

const root = new URL('../../', import.meta.url);
const context = { operationKey: 'key-1', attempt: 1, fence: 1, deadline: 0, signal: new AbortController().signal, heartbeat: () => undefined, run: 'run-1', step: '1', operationId: undefined, probe: 1 } as never;

let server: Server;
let asked: { method: string | undefined; url: string | undefined; body: string }[];
let answer: { status: number; headers?: Record<string, string>; body?: unknown };

beforeEach(async () => {
  asked = [];
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => { body += String(chunk); });
    request.on('end', () => {
      asked.push({ method: request.method, url: request.url, body });
      response.writeHead(answer.status, answer.headers).end(answer.body === undefined ? '' : JSON.stringify(answer.body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  process.env['BANK_URL'] = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  delete process.env['BANK_URL'];
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const fire = async (): Promise<unknown> => charge.execute({ account: 'a', cents: 5 }, context);
const ask = async (operationId?: string): Promise<unknown> => charge.probe?.ask({ account: 'a', cents: 5 }, { ...(context as object), operationId } as never);
const thing = (state: string, reference = 'key-1'): object => ({ id: 'ch_1', reference, state });

describe('how to write a probe', () => {
  it('shows the tool as it stands in the examples', async () => {
    const [page, code] = await Promise.all(['docs/how-to/write-a-probe.md', 'examples/src/charge.ts'].map((file) => readFile(new URL(file, root), 'utf8')));
    expect(page).toContain(`\`\`\`ts\n${code}\`\`\``);
  });

  it('which sends the operation key, and returns what the bank books', async () => {
    answer = { status: 201, body: thing('booked') };
    expect(await fire()).toEqual({ charge: 'ch_1' });
    expect(asked).toEqual([{ method: 'POST', url: '/charges', body: JSON.stringify({ account: 'a', cents: 5, reference: 'key-1' }) }]);
    answer = { status: 202, body: thing('processing') };
    expect(await fire()).toEqual(accepted('ch_1'));
  });

  it.each<[number, object, unknown]>([
    [402, {}, new Rejected('the account is not covered')],
    [409, {}, new AlreadyDone('the bank knows this reference')],
    [500, {}, new MayHaveApplied('the bank answered 500')],
    [429, { 'retry-after': '7' }, new Failed({ class: 'overloaded', message: 'the bank is busy', notApplied: true, retryAfterMs: 7000 })],
  ])('and says what an answer of %d means', async (status, headers, error) => {
    answer = { status, headers: { ...headers } };
    const thrown: unknown = await fire().catch((caught: unknown) => caught);
    expect(thrown).toBeInstanceOf((error as Error).constructor);
    expect(thrown).toEqual(error);
    if (error instanceof Failed) expect((thrown as Failed).failure).toEqual(error.failure);
  });

  it.each<[string, typeof answer, string | undefined, unknown]>([
    ['booked', { status: 200, body: [thing('booked')] }, undefined, applied({ charge: 'ch_1' }, 'charge ch_1 has the operation key as its reference')],
    ['in work', { status: 200, body: [thing('processing')] }, undefined, pending('charge ch_1 is being processed')],
    ['declined', { status: 200, body: [thing('declined')] }, undefined, notApplied('charge ch_1 was declined')],
    ['not there', { status: 200, body: [] }, undefined, notApplied('no charge has this reference')],
    ['one like it', { status: 200, body: [thing('booked', 'key-2')] }, undefined, notApplied('no charge has this reference')],
    ['not there, though accepted', { status: 200, body: [] }, 'ch_1', stillUnknown('the bank accepted ch_1 and does not show it')],
    ['away', { status: 503 }, undefined, stillUnknown('the bank answered 503')],
  ])('and whose probe answers: %s', async (_, answered, operationId, expected) => {
    answer = answered;
    expect(await ask(operationId)).toEqual(expected);
    expect(asked).toMatchObject([{ method: 'GET', url: '/charges?reference=key-1' }]);
  });
});
