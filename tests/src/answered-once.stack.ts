import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import type { Json } from '@holdfast/protocol';
import { eventually } from './support/eventually.js';
import { TestGateway, type Reply } from './support/gateway.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';

jest.setTimeout(STACK_LIMIT_MS);

let stack: TestStack;
let gateway: TestGateway;
let key: string;

beforeAll(async () => {
  stack = await TestStack.start();
  gateway = await TestGateway.start(stack, { HOLDFAST_WEBHOOK_KEY: 'a webhook key of thirty-two characters or more' });
  key = await gateway.key({ roles: ['admin'] });
});
afterAll(async () => {
  await gateway?.stop();
  await stack?.stop();
});

const items = ({ body }: Reply): { readonly [member: string]: Json }[] => body['items'] as { readonly [member: string]: Json }[];

test('an idempotency key gives one answer to one request', async () => {
  const database = stack.pool('holdfast_gateway');
  const once = (order: string) => gateway.post('/v1/runs', key, { agent: null, input: { order } }, { 'idempotency-key': 'once' });
  const first = await once('idem');
  expect(first.status).toBe(201);
  const again = await once('idem');
  expect([again.status, again.text, again.headers.get('location'), again.headers.get('idempotency-replayed')]).toEqual([201, first.text, first.headers.get('location'), 'true']);
  expect(await once('other')).toMatchObject({ status: 422, body: { type: 'urn:holdfast:problem:idempotency-key-reused' } });
  await database.query(`update idempotency set status = null, locked_to = $1 where key = 'once'`, [Date.now() + 60_000]);
  expect(await once('idem')).toMatchObject({ status: 409, body: { type: 'urn:holdfast:problem:idempotency-in-progress' } });
  // Whoever was at it has died: the same request is the same run.
  await database.query(`update idempotency set locked_to = 0 where key = 'once'`);
  expect(await once('idem')).toMatchObject({ status: 200, body: { id: first.body['id'] } });
});

test('a request stays its gateway’s for as long as it is being answered, and not for long after its death', async () => {
  type Row = { readonly locked_to: string; readonly expires_at: string };
  const row = async (): Promise<Row | undefined> => (await stack.pool('holdfast_gateway').query<Row>(`select locked_to, expires_at from idempotency where key = 'slow'`)).rows[0];
  const DAY_MS = 24 * 60 * 60 * 1000;
  const orchestrator = stack.service('orchestrator');
  orchestrator.signal('SIGSTOP');
  try {
    const asked = gateway.post('/v1/runs?waitMs=30000', key, { agent: null, runId: 'slow', input: { order: 'slow' } }, { 'idempotency-key': 'slow' });
    const first = await eventually('the request is begun', row);
    // Its answer is kept for a day from its beginning.
    const lockedMs = Number(first.locked_to) - (Number(first.expires_at) - DAY_MS);
    expect(lockedMs).toBeGreaterThanOrEqual(10_000);
    expect(lockedMs).toBeLessThan(60_000);
    await eventually('it is put off', async () => Number((await row())?.locked_to) > Number(first.locked_to));
    orchestrator.signal('SIGCONT');
    expect(await asked).toMatchObject({ status: 201, body: { id: 'slow' } });
  } finally {
    orchestrator.signal('SIGCONT');
  }
});

test('what a gateway did when it died is not done twice, whoever takes its request up', async () => {
  const database = stack.pool('holdfast_gateway');
  const died = (key: string) => database.query('update idempotency set status = null, locked_to = 0 where key = $1', [key]);
  const forgotten = (key: string) => database.query('delete from idempotency where key = $1', [key]);
  const hook = (path: string) => gateway.post('/v1/webhooks', key, { url: `https://example.org${path}`, types: ['CaseOpened'] }, { 'idempotency-key': 'hook-1' });
  const first = await hook('/once');
  await died('hook-1');
  expect(await hook('/once')).toMatchObject({ status: 201, body: { id: first.body['id'] } });
  await forgotten('hook-1');
  expect(await hook('/other')).toMatchObject({ status: 422, body: { type: 'urn:holdfast:problem:idempotency-key-reused' } });
  await gateway.ask(`/v1/webhooks/${String(first.body['id'])}`, { method: 'DELETE', key });

  const makeKey = () => gateway.post('/v1/keys', key, { name: 'died', roles: ['viewer'] }, { 'idempotency-key': 'key-1' });
  const made = await makeKey();
  const rotated = () => gateway.post(`/v1/keys/${String(made.body['id'])}/rotate`, key, {}, { 'idempotency-key': 'key-2' });
  const next = await rotated();
  await Promise.all([died('key-1'), died('key-2')]);
  expect(await makeKey()).toMatchObject({ status: 409, body: { reason: 'shown_once', key: made.body['id'] } });
  expect(await rotated()).toMatchObject({ status: 409, body: { reason: 'shown_once', key: next.body['id'] } });
  expect(items(await gateway.ask('/v1/keys', { key })).filter(({ name }) => name === 'died')).toHaveLength(2);
});
