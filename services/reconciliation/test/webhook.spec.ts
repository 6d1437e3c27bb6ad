import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import type { Notice } from '../src/notify/notice.js';
import { webhook } from '../src/notify/webhook.js';

const SECRET = `whsec_${Buffer.from('a secret of the receiver’s').toString('base64')}`;
const notice: Notice = {
  id: 'e-1',
  type: 'case.escalated',
  timestamp: '2026-01-31T12:00:00.000Z',
  data: { case: 'r/3/1', tenant: 'acme', run: 'r', step: '3', attempt: 1, to: 'böss', reason: 'too_old', message: 'open since yesterday' },
};

interface Got {
  readonly method: string | undefined;
  readonly path: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const got: Got[] = [];
let answer: (response: ServerResponse) => void;
let server: Server;
let url: string;

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      got.push({ method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(chunks).toString('utf8') });
      answer(response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks?of=cases`;
});

beforeEach(() => {
  got.length = 0;
  answer = (response) => void response.writeHead(204).end();
});

afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const headersOf = ({ headers }: Got): Record<string, string> => ({ 'webhook-id': String(headers['webhook-id']), 'webhook-timestamp': String(headers['webhook-timestamp']), 'webhook-signature': String(headers['webhook-signature']) });

test('a notice is posted as JSON, once, and its signature is one that a receiver can verify', async () => {
  await webhook(url, SECRET)(notice);
  expect(got).toHaveLength(1);
  const [one] = got as [Got];
  expect([one.method, one.path, one.headers['content-type'], one.headers['webhook-id']]).toEqual(['POST', '/hooks?of=cases', 'application/json', 'e-1']);
  expect(new Webhook(SECRET).verify(one.body, headersOf(one))).toEqual(notice);
});

test('a receiver finds another secret, a changed body, a changed id and a changed time', async () => {
  await webhook(url, SECRET)(notice);
  const [one] = got as [Got];
  const headers = headersOf(one);
  const verify = (secret: string, body: string, over: Record<string, string> = {}) => () => new Webhook(secret).verify(body, { ...headers, ...over });
  expect(verify(`whsec_${Buffer.from('another').toString('base64')}`, one.body)).toThrow();
  expect(verify(SECRET, one.body.replace('too_old', 'too_new'))).toThrow();
  expect(verify(SECRET, one.body, { 'webhook-id': 'e-2' })).toThrow();
  expect(verify(SECRET, one.body, { 'webhook-timestamp': String(Number(headers['webhook-timestamp']) - 1) })).toThrow();
});

test('told again it carries the same id, by which a receiver drops it', async () => {
  const tell = webhook(url, SECRET);
  await tell(notice);
  await tell(notice);
  expect(got.map(({ headers }) => headers['webhook-id'])).toEqual(['e-1', 'e-1']);
});

test.each([400, 401, 500, 503])('an answer of %d may not have reached people', async (status) => {
  answer = (response) => void response.writeHead(status).end('no');
  await expect(webhook(url, SECRET)(notice)).rejects.toThrow(`the webhook answered ${status}`);
});

test('a redirect is not followed: what is signed for one address is told to that one alone', async () => {
  answer = (response) => void response.writeHead(302, { location: url.replace('/hooks', '/elsewhere') }).end();
  await expect(webhook(url, SECRET)(notice)).rejects.toThrow();
  expect(got).toHaveLength(1);
});

test('a receiver that drops the connection was not told', async () => {
  answer = (response) => void response.destroy();
  await expect(webhook(url, SECRET)(notice)).rejects.toThrow();
});

test('a secret that can’t sign is found at once', () => {
  expect(() => webhook(url, '')).toThrow();
});
