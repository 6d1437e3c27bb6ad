import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import { openDatabase } from '@holdfast/runtime';
import type { ServiceLog } from '@holdfast/runtime/nest';
import type { DataSource } from 'typeorm';
import { WebhookSender } from '../src/hooks/sender.js';
import { REMOVED_AFTER_MS, sweepDeliveries } from '../src/hooks/sweep.js';
import { rowsOf } from '../src/store/database.js';
import { gatewayMigrations } from '../src/store/migrations.js';

const LIMIT_MS = 60_000;
jest.setTimeout(LIMIT_MS);

const KEY = 'a webhook key of thirty-two characters or more';
const DATABASE = 'gateway_webhooks';
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined } as unknown as ServiceLog;

let database: DataSource;
let server: Server;
let url: string;
/** Posts by path, and those that are not answered yet. */
const posts = new Map<string, number>();
const held: ServerResponse[] = [];
const senders: WebhookSender[] = [];

beforeAll(async () => {
  const at = new URL(process.env['HOLDFAST_TEST_DATABASE_URL'] ?? '');
  const admin = await openDatabase({ url: urlOf(at, 'postgres'), applicationName: 'webhooks', migrations: [], journal: false, poolSize: 2 });
  await admin.query(`create database ${DATABASE}`);
  await admin.destroy();
  database = await openDatabase({ url: urlOf(at, DATABASE), applicationName: 'webhooks', migrations: gatewayMigrations, journal: false, poolSize: 4 });
  server = createServer((request, response) => {
    const path = request.url ?? '';
    posts.set(path, (posts.get(path) ?? 0) + 1);
    request.resume().on('end', () => (path.startsWith('/hangs') ? held.push(response) : response.writeHead(204).end()));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}, LIMIT_MS);
afterAll(async () => {
  server?.close();
  server?.closeAllConnections();
  await database?.destroy();
});
beforeEach(async () => {
  await database.query('delete from delivery');
  await database.query('delete from webhook');
  posts.clear();
});

const urlOf = (at: URL, name: string): string => Object.assign(new URL(at), { pathname: `/${name}` }).href;

/** As many deliveries of a new webhook as are asked for, due since `dueAt`. */
async function due(path: string, count: number, dueAt: number): Promise<void> {
  await database.query(`insert into webhook (id, tenant, url, types, created_at) values ($1, 'default', $2, '{RunFinished}', 0)`, [path, `${url}${path}`]);
  await database.query(`insert into delivery (id, webhook, event, type, body, state, next_at, created_at) select $1 || '.' || n, $1, 'event-' || n, 'RunFinished', '{}', 'pending', $2::bigint + n, 0 from generate_series(1, $3) n`, [path, dueAt, count]);
}
const deliveries = (path: string) => rowsOf<{ state: string; tries: number }>(database, 'select state, tries from delivery where webhook = $1', [path]);
const delivered = async (path: string): Promise<number> => (await deliveries(path)).filter(({ state }) => state === 'delivered').length;

function sending(): WebhookSender {
  const sender = new WebhookSender(database, KEY, quiet);
  senders.push(sender);
  sender.start();
  return sender;
}
/** Whoever hangs answers, so that nothing is waited for. */
async function stop(): Promise<void> {
  const letGo = (): void => held.splice(0).forEach((response) => response.writeHead(204).end());
  const stopped = Promise.all(senders.splice(0).map((sender) => sender.stop())).then(() => true);
  while (!(await Promise.race([stopped, soon()]))) letGo();
}
const soon = (): Promise<false> => new Promise((resolve) => setTimeout(() => resolve(false), 25));

async function eventually(what: string, check: () => boolean | Promise<boolean>): Promise<void> {
  for (const until = Date.now() + LIMIT_MS / 2; !(await check()); await soon()) if (Date.now() > until) throw new Error(`${what}: not so in time`);
}

test('a receiver that hangs delays nothing but its own', async () => {
  await due('/hangs', 60, 0);
  await due('/takes', 30, 1000);
  sending();
  await eventually('what the other takes', async () => (await delivered('/takes')) === 30);
  // No post to the one that hangs has come to an end meanwhile, not even by its time.
  expect((await deliveries('/hangs')).filter(({ state, tries }) => state !== 'pending' || tries > 0)).toEqual([]);
  await eventually('posts to the one that hangs', () => (posts.get('/hangs') ?? 0) > 0);
  expect(posts.get('/hangs')).toBeLessThan(10);
  await stop();
});

test('instances beside each other send each delivery once', async () => {
  for (const path of ['/takes-1', '/takes-2', '/takes-3']) await due(path, 40, 0);
  for (let n = 0; n < 3; n += 1) sending();
  for (const path of ['/takes-1', '/takes-2', '/takes-3']) await eventually(`what ${path} takes`, async () => (await delivered(path)) === 40);
  expect([...posts.values()]).toEqual([40, 40, 40]);
  await stop();
});

test('what an instance had begun when it died is another’s after a while', async () => {
  await due('/takes', 2, 0);
  await database.query(`update delivery set next_at = $1 where id = '/takes.1'`, [Date.now() + 30_000]);
  sending();
  await eventually('the one that is nobody’s', async () => (await delivered('/takes')) === 1);
  await database.query(`update delivery set next_at = $1 where id = '/takes.1'`, [Date.now()]);
  await eventually('both', async () => (await delivered('/takes')) === 2);
  expect(posts.get('/takes')).toBe(2);
  await stop();
});

test('told to stop it ends what it has begun, and begins nothing more', async () => {
  await due('/hangs', 30, 0);
  const sender = sending();
  await eventually('posts', () => held.length > 0);
  const stopped = stop();
  await stopped;
  const sent = posts.get('/hangs') ?? 0;
  sender.look();
  expect(await delivered('/hangs')).toBe(sent);
  expect((await deliveries('/hangs')).filter(({ tries }) => tries > 0)).toHaveLength(sent);
  expect(sent).toBeLessThan(30);
});

test('what is posted when its webhook is removed is not due again', async () => {
  await due('/hangs', 1, 0);
  sending();
  await eventually('the post', () => held.length === 1);
  await database.query(`update webhook set removed_at = 1`);
  await database.query(`update delivery set state = 'dead', ended_at = 1, next_at = null`);
  held.splice(0).forEach((response) => response.writeHead(500).end());
  await stop();
  expect(await deliveries('/hangs')).toEqual([{ state: 'dead', tries: 0 }]);
});

test('deliveries that have ended are kept for their time, dead ones longer, and what is due is kept', async () => {
  const now = 1_000_000;
  const keep = { deliveredMs: 1000, deadMs: 5000 };
  await database.query(`insert into webhook (id, tenant, url, types, created_at) values ('here', 'default', $1, '{RunFinished}', 0)`, [url]);
  const add = (id: string, webhook: string, state: string, endedAt: number | null, nextAt: number | null) =>
    database.query(`insert into delivery (id, webhook, event, type, body, state, next_at, ended_at, created_at) values ($1, $2, $1, 'RunFinished', '{}', $3, $4, $5, 0)`, [id, webhook, state, nextAt, endedAt]);
  await add('delivered long ago', 'here', 'delivered', now - 1000, null);
  await add('delivered', 'here', 'delivered', now - 999, null);
  await add('dead long ago', 'here', 'dead', now - 5000, null);
  await add('dead', 'here', 'dead', now - 4999, null);
  await add('due for long', 'here', 'pending', null, 0);
  // More than one statement removes.
  await database.query(`insert into delivery (id, webhook, event, type, body, state, ended_at, created_at) select 'old ' || n, 'here', 'e', 'RunFinished', '{}', 'delivered', n, 0 from generate_series(1, 2500) n`);
  await sweepDeliveries(database, keep, now);
  expect((await rowsOf<{ id: string }>(database, 'select id from delivery order by id')).map(({ id }) => id)).toEqual(['dead', 'delivered', 'due for long']);
});

test('of a removed webhook nothing is kept once no event of it can be on its way any more', async () => {
  const now = 10_000_000;
  const hook = (id: string, removedAt: number | null) => database.query(`insert into webhook (id, tenant, url, types, created_at, removed_at) values ($1, 'default', $2, '{RunFinished}', 0, $3)`, [id, url, removedAt]);
  const add = (id: string, webhook: string, state: string, at: number) => database.query(`insert into delivery (id, webhook, event, type, body, state, next_at, ended_at, created_at) values ($1, $2, $1, 'RunFinished', '{}', $3, $4, $5, 0)`, [id, webhook, state, ...(state === 'pending' ? [at, null] : [null, at])]);
  await hook('here', null);
  await hook('just removed', now - REMOVED_AFTER_MS + 1);
  await hook('removed', now - REMOVED_AFTER_MS);
  await hook('removed, and never posted to', 1);
  // An event that came while its webhook was removed: nobody is to get it, and nobody can look at it.
  for (const webhook of ['here', 'just removed', 'removed']) for (const state of ['pending', 'delivered', 'dead']) await add(`${state} of ${webhook}`, webhook, state, now - 1);
  await database.query(`insert into delivery (id, webhook, event, type, body, state, next_at, created_at) select 'more ' || n, 'removed', 'e', 'RunFinished', '{}', 'pending', $1::bigint + n, 0 from generate_series(1, 2500) n`, [now]);
  await sweepDeliveries(database, { deliveredMs: 1000, deadMs: 5000 }, now);
  expect((await rowsOf<{ id: string }>(database, 'select id from webhook order by id')).map(({ id }) => id)).toEqual(['here', 'just removed']);
  expect((await rowsOf<{ webhook: string; count: number }>(database, 'select webhook, count(*)::int as count from delivery group by webhook order by webhook'))).toEqual([{ webhook: 'here', count: 3 }, { webhook: 'just removed', count: 3 }]);
});

test('a delivery that is being ended keeps its removed webhook until the next sweep', async () => {
  await due('/takes', 2, 0);
  await database.query(`update webhook set removed_at = 1`);
  const posting = database.createQueryRunner();
  await posting.startTransaction();
  await posting.query(`update delivery set tries = 1 where event = 'event-1'`);
  await sweepDeliveries(database, { deliveredMs: 1, deadMs: 1 }, REMOVED_AFTER_MS * 2);
  await posting.commitTransaction();
  await posting.release();
  expect(await deliveries('/takes')).toEqual([{ state: 'pending', tries: 1 }]);
  await sweepDeliveries(database, { deliveredMs: 1, deadMs: 1 }, REMOVED_AFTER_MS * 2);
  expect(await rowsOf(database, 'select id from webhook')).toEqual([]);
});

test('a dead delivery that is being sent again is not swept from under it', async () => {
  await due('/takes', 1, 0);
  await database.query(`update delivery set state = 'dead', ended_at = 0, next_at = null`);
  const again = database.createQueryRunner();
  await again.startTransaction();
  await again.query(`update delivery set state = 'pending', tries = 0, next_at = 0, ended_at = null where state = 'dead'`);
  await sweepDeliveries(database, { deliveredMs: 1, deadMs: 1 }, 1000);
  await again.commitTransaction();
  await again.release();
  expect(await deliveries('/takes')).toEqual([{ state: 'pending', tries: 0 }]);
});
