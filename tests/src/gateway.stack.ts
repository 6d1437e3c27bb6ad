import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { endpoints, ROLES, type Role } from '@holdfast/gateway';
import { topics, type Json } from '@holdfast/protocol';
import { defineAgent, defineTool, HoldfastClient, MayHaveApplied, type ServedWorker } from '@holdfast/sdk';
import { Webhook } from 'standardwebhooks';
import { z } from 'zod';
import { cli } from './support/cli.js';
import { eventually } from './support/eventually.js';
import { eventsOf, TestGateway, type Reply, type StreamedEvent } from './support/gateway.js';
import { badRequests, sampleRequests } from './support/gateway-requests.js';
import { startIssuer, type Issuer } from './support/issuer.js';
import { startReceiver } from './support/receiver.js';
import { everyRecord, everythingWritten } from './support/written.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const order = z.object({ order: z.string() });
const receipt = z.object({ id: z.string() });
const charge = defineTool({
  name: 'charge',
  version: '1',
  effect: 'irreversible',
  input: order,
  output: receipt,
  owner: 'the desk',
  settleDelay: 3_600_000,
  execute: ({ order: of }, { attempt }) => {
    if (of.startsWith('doubt') && attempt === 1) throw new MayHaveApplied('the line went dead');
    return { id: `re-${of}` };
  },
});
const desk = defineAgent({ name: 'desk', version: '1', input: order, output: receipt, run: (run, input) => run.call(charge, input) });
const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'the desk', approval: { approvers: ['approver'], fourEyes: true }, input: order, output: receipt, execute: ({ order: of }) => ({ id: `paid-${of}` }) });
const asker = defineAgent({
  name: 'asker',
  version: '1',
  input: order,
  output: z.string(),
  run: async (run, input) => {
    const approval = await run.approval({ what: `pay ${input.order}`, tool: pay, args: input, amount: { value: '120.50', currency: 'EUR' } });
    const { id } = await run.call(pay, approval.args, { approval });
    const callback = run.callback(z.object({ answer: z.string() }));
    urls.push(callback.url);
    const { answer } = await callback.answer;
    return `${id} ${answer} ${await run.signal('go', z.string())}`;
  },
});
const urls: string[] = [];
/** Secrets that answers have shown. */
const shown: string[] = [];
const howTo = defineAgent({ name: 'refund-desk', version: '1', input: z.looseObject({}), output: z.null(), run: () => Promise.resolve(null) });
const agent = { name: 'desk', version: '1' };

/** Of agents that nobody hosts: their runs are open until they are cancelled. */
const LIMITS = { agents: { narrow: { openMax: 1, queueMax: 0 }, paced: { startsPerMinute: 1 } } };
const WEBHOOK_KEY = 'a webhook key of thirty-two characters or more';

let stack: TestStack;
let gateway: TestGateway;
let issuer: Issuer;
let receiver: Awaited<ReturnType<typeof startReceiver>>;
let worker: ServedWorker | undefined;
const keys: Record<Role | 'foreign', string> = { viewer: '', agent: '', approver: '', operator: '', admin: '', foreign: '' };

beforeAll(async () => {
  [stack, issuer, receiver] = await Promise.all([TestStack.start({ env: { orchestrator: { HOLDFAST_LIMITS: JSON.stringify(LIMITS) } } }), startIssuer(), startReceiver()]);
  [gateway, worker] = await Promise.all([
    TestGateway.start(stack, { ...issuer.env, HOLDFAST_WEBHOOK_KEY: WEBHOOK_KEY, HOLDFAST_HTTP_RATE: '100000', HOLDFAST_HTTP_REFUSED_RATE: '10000' }),
    work(stack.brokers, { agents: [desk, asker, howTo], tools: [charge, pay], callbacks: { secret: 'makes tokens', url: 'http://gateway/v1/callbacks' } }),
  ]);
  for (const role of ROLES) keys[role] = await gateway.key({ roles: [role], name: `the ${role}` });
  keys.foreign = await gateway.key({ roles: ['admin'], tenant: 'elsewhere' });
  process.env['HOLDFAST_BROKERS'] = stack.brokers.join(',');
  process.env['HOLDFAST_DATABASE_URL'] = stack.stack.databaseUrl;
});
afterAll(async () => {
  delete process.env['HOLDFAST_BROKERS'];
  delete process.env['HOLDFAST_DATABASE_URL'];
  await worker?.stop();
  await gateway?.stop();
  await Promise.all([stack?.stop(), issuer?.close(), receiver?.close()]);
});

const start = (runId: string, headers: Record<string, string> = {}) => gateway.post('/v1/runs', keys.agent, { agent, input: { order: runId }, runId }, headers);
const ended = (run: string) =>
  eventually(`the end of run ${run}`, async () => {
    const { body } = await gateway.ask(`/v1/runs/${run}`, { key: keys.viewer });
    return body['endedAt'] !== null && body['endedAt'] !== undefined && body;
  });
const liveSchema = async (): Promise<string> => (await stack.pool('holdfast_gateway').query<{ schema: string }>(`select 'view_' || id as schema from generation where state = 'live'`)).rows[0]?.schema ?? '';
const items = (body: Reply['body']): { readonly [member: string]: Json }[] => body['items'] as { readonly [member: string]: Json }[];

test('a run is started, watched and read', async () => {
  const started = await start('good-1');
  expect(started).toMatchObject({ status: 201, body: { id: 'good-1', agent, input: { order: 'good-1' }, principal: 'the agent' } });
  expect(started.headers.get('location')).toBe('/v1/runs/good-1');
  // The ledger's word on an effect may come after the run's own end: they stand on two topics.
  const missing = new Set(['RunAccepted', 'EffectRequested', 'EffectDispatched', 'EffectSucceeded', 'RunFinished']);
  for await (const { type } of eventsOf(`${gateway.url}/v1/runs/good-1/events`, keys.viewer)) {
    missing.delete(type);
    if (missing.size === 0) break;
  }
  const read = await gateway.ask('/v1/runs/good-1', { key: keys.viewer });
  expect(read).toMatchObject({ status: 200, body: { status: 'completed', steps: { fresh: 1, replayed: 0 } } });
  const etag = read.headers.get('etag') ?? '';
  expect(await gateway.ask('/v1/runs/good-1', { key: keys.viewer, headers: { 'if-none-match': etag } })).toMatchObject({ status: 304, text: '' });
  const [steps, effects] = await Promise.all(['steps', 'effects'].map((what) => gateway.ask(`/v1/runs/good-1/${what}`, { key: keys.viewer })));
  expect(steps?.body).toMatchObject({ items: [{ step: '1', kind: 'call', name: 'charge', replayed: false, call: { outcome: { status: 'succeeded' } } }] });
  expect(effects?.body).toMatchObject({ items: [{ step: '1', status: 'succeeded', attempts: [{ attempt: 1, end: 'succeeded' }] }] });
});

test('the same run id is the same run, and another input is refused', async () => {
  expect(await start('good-1')).toMatchObject({ status: 200, body: { id: 'good-1' } });
  const startOther = () => gateway.post('/v1/runs', keys.agent, { agent, input: { order: 'else' }, runId: 'good-1' });
  const other = await startOther();
  expect(other).toMatchObject({ status: 409, body: { type: 'urn:holdfast:problem:refused', reason: 'run_exists_with_other_input' } });
  expect(other.headers.get('content-type')).toMatch(/^application\/problem\+json/);
  expect((await startOther()).text).toBe(other.text);
  const pages: string[] = [];
  for (let cursor: Json = ''; cursor !== null; ) {
    const { body } = await gateway.ask(`/v1/runs?limit=1${cursor === '' ? '' : `&cursor=${String(cursor)}`}`, { key: keys.viewer });
    pages.push(...items(body).map(({ id }) => String(id)));
    cursor = body['next'] ?? null;
  }
  expect(pages).toEqual(['good-1']);
});

test('a stream goes on where it broke off when the gateway was killed', async () => {
  const all: StreamedEvent[] = [];
  const take = async (until: (event: StreamedEvent) => boolean, lastEventId?: string): Promise<void> => {
    for await (const event of eventsOf(`${gateway.url}/v1/events?after=0`, keys.viewer, lastEventId === undefined ? {} : { lastEventId })) {
      all.push(event);
      if (until(event)) return;
    }
  };
  await take(({ type }) => type === 'EffectDispatched');
  await gateway.process.kill();
  const client = await HoldfastClient.connect({ brokers: stack.brokers });
  await client.start(desk, { order: 'good-2' }, { runId: 'good-2' });
  await client.outcome('good-2', { timeoutMs: 20_000 });
  await client.close();
  await gateway.process.start();
  await take(({ type, data }) => type === 'RunFinished' && data['run'] === 'good-2', all.at(-1)?.id);
  const names = all.map(({ data }) => `${String(data['topic'])} ${String(data['run'])} ${String(data['version'])}`);
  expect(new Set(names).size).toBe(names.length);
  const page = await gateway.ask('/v1/events?limit=200', { key: keys.viewer });
  expect([...names].sort()).toEqual(expect.arrayContaining(items(page.body).filter(({ run, topic }) => run === 'good-1' || topic === 'run.events').map(({ topic, run, version }) => `${String(topic)} ${String(run)} ${String(version)}`)));
});

test('a person settles a case, within role and scope', async () => {
  await start('doubt-1');
  const open = await eventually('the case', async () => items((await gateway.ask('/v1/cases?status=open&run=doubt-1', { key: keys.viewer })).body)[0]);
  expect(open).toMatchObject({ id: 'doubt-1/1/1', tool: { name: 'charge' }, owner: 'the desk', args: { order: 'doubt-1' } });
  // The case comes by one topic and the run by another: either may be known first.
  const blocked = await eventually('the run that waits for it', async () => {
    const { body } = await gateway.ask('/v1/runs/doubt-1', { key: keys.viewer });
    return (body as { status?: unknown }).status === 'blocked' && body;
  });
  expect(blocked).toMatchObject({ status: 'blocked', unknown: 1 });
  const address = '/v1/cases/doubt-1%2F1%2F1';
  const verdict = { verdict: { status: 'not_applied' }, reason: 'I called the bank', evidence: 'statement 7' };
  expect(await gateway.post(`${address}/resolve`, await gateway.key({ roles: ['operator'], tools: ['wire'] }), verdict)).toMatchObject({ status: 403, body: { detail: expect.stringContaining('charge') } });
  expect(await gateway.post(`${address}/assign`, keys.operator, { owner: 'olga' })).toMatchObject({ status: 200, body: { event: 'CaseAssigned' } });
  expect(await gateway.post(`${address}/resolve`, keys.operator, verdict)).toMatchObject({ status: 409, body: { reason: 'too_early' } });
  const resolved = await gateway.post(`${address}/resolve`, keys.operator, { ...verdict, force: true }, { 'idempotency-key': '"resolve-1"' });
  expect(resolved).toMatchObject({ status: 200, body: { event: 'CaseSettled' } });
  expect((await gateway.post(`${address}/resolve`, keys.operator, { ...verdict, force: true }, { 'idempotency-key': '"resolve-1"' })).text).toBe(resolved.text);
  // The key's day is over: the same is answered as before, another is not.
  const dayOver = () => stack.pool('holdfast_gateway').query(`update idempotency set expires_at = 0 where key = 'resolve-1'`);
  await dayOver();
  expect((await gateway.post(`${address}/resolve`, keys.operator, { ...verdict, force: true }, { 'idempotency-key': '"resolve-1"' })).text).toBe(resolved.text);
  await dayOver();
  expect(await gateway.post(`${address}/resolve`, keys.operator, { ...verdict, verdict: { status: 'applied', result: { id: 'c-1' } } }, { 'idempotency-key': '"resolve-1"' })).toMatchObject({ status: 422, body: { detail: expect.stringContaining('(CaseSettled of step 1, attempt 1, with verdict {"status":"not_applied"})') } });
  expect(await gateway.post('/v1/runs/doubt-1/pause', keys.operator, { reason: 'a look' }, { 'idempotency-key': '"resolve-1"' })).toMatchObject({ status: 422, body: { detail: expect.stringContaining('(CaseSettled of step 1, attempt 1)') } });
  expect((await gateway.ask(address, { key: keys.viewer })).body).toMatchObject({ status: 'settled', person: 'the operator', forced: true, owner: 'olga' });
  await ended('doubt-1');
  const effect = await eventually('the end of the effect', async () => items((await gateway.ask('/v1/runs/doubt-1/effects', { key: keys.viewer })).body).find(({ status }) => status === 'succeeded'));
  expect(effect).toMatchObject({ attempts: [{ attempt: 1 }, { attempt: 2, end: 'succeeded' }] });
  const acts = (await everyRecord(stack.brokers, [topics.auditEvents])).map(({ value }) => JSON.parse(value) as { act: string; by: { name: string }; command: string });
  expect(acts).toContainEqual(expect.objectContaining({ act: 'case.resolve', by: expect.objectContaining({ name: 'the operator' }), command: resolved.body['command'] }));
});

const ask = (runId: string) => gateway.post('/v1/runs', keys.agent, { agent: { name: 'asker', version: '1' }, input: { order: runId }, runId });
const approvalOf = (run: string) => eventually(`the approval of ${run}`, async () => items((await gateway.ask('/v1/approvals', { key: keys.viewer })).body).find((each) => each['run'] === run));

test('people approve exactly what is shown, third parties call back, and programs signal', async () => {
  await ask('asks-1');
  const shown = await approvalOf('asks-1');
  expect(shown).toMatchObject({ id: 'asks-1/1', status: 'open', what: 'pay asks-1', amount: { value: '120.50', currency: 'EUR' }, args: { order: 'asks-1' }, fourEyes: true });
  expect((await gateway.ask('/v1/runs/asks-1', { key: keys.viewer })).body).toMatchObject({ waits: [{ step: '1', kind: 'approval' }] });
  const approve = async (of: Parameters<typeof gateway.key>[0], digest = shown['digest']) => gateway.post('/v1/approvals/asks-1%2F1/approve', await gateway.key(of), { digest });
  expect(await approve({ roles: ['approver'], amountMax: 120 })).toMatchObject({ status: 403, body: { detail: expect.stringContaining('120.50') } });
  expect(await approve({ roles: ['approver'], tools: ['charge'] })).toMatchObject({ status: 403 });
  expect(await approve({ roles: ['approver', 'agent'], name: 'the agent' })).toMatchObject({ status: 403, body: { reason: 'four_eyes' } });
  expect(await approve({ roles: ['approver'] }, 'f'.repeat(64))).toMatchObject({ status: 409, body: { reason: 'other_scope' } });
  expect(await approve({ roles: ['approver'], amountMax: 121, tools: ['pay'], name: 'ann' })).toMatchObject({ status: 200, body: { event: 'ApprovalDecided' } });
  expect((await gateway.ask('/v1/approvals/asks-1%2F1', { key: keys.viewer })).body).toMatchObject({ status: 'approved', decidedBy: 'ann' });
  const address = new URL(await eventually('the callback’s address', () => urls[0])).pathname;
  const post = (path: string, answer: unknown) => gateway.ask(path, { method: 'POST', body: { answer } });
  expect(await post(`${address}x`, 'yes')).toMatchObject({ status: 404 });
  expect(await post(address, 7)).toMatchObject({ status: 409, body: { reason: 'payload_invalid' } });
  expect(await post(address, 'yes')).toMatchObject({ status: 200, body: { taken: true } });
  expect(await post(address, 'yes')).toMatchObject({ status: 200, body: { taken: true } });
  expect(await post(address, 'no')).toMatchObject({ status: 409, body: { reason: 'wait_over' } });
  expect(await gateway.post('/v1/runs/asks-1/signal', keys.agent, { name: 'go', payload: 'now' })).toMatchObject({ status: 200, body: { event: 'SignalReceived' } });
  expect(await ended('asks-1')).toMatchObject({ status: 'completed', ending: { output: { value: 'paid-asks-1 yes now' } } });
  await ask('asks-3');
  const act = (what: string, body?: unknown) => gateway.ask(`/v1/runs/asks-3/${what}`, { key: keys.operator, method: 'POST', ...(body === undefined ? {} : { body }) });
  expect(await act('pause', { reason: 'lunch' })).toMatchObject({ status: 200 });
  expect((await gateway.ask('/v1/runs/asks-3', { key: keys.viewer })).body).toMatchObject({ status: 'paused', paused: { by: 'the operator', reason: 'lunch' } });
  expect(await act('resume')).toMatchObject({ status: 200 });
  expect(await act('resume')).toMatchObject({ status: 409, body: { reason: 'not_possible' } });
  expect(await act('release', { reason: 'why not' })).toMatchObject({ status: 409, body: { reason: 'not_possible' } });
  expect(await act('cancel', { reason: 'nobody wants it', manner: 'immediate' })).toMatchObject({ status: 200, body: { event: 'RunCancelRequested' } });
  expect(await ended('asks-3')).toMatchObject({ status: 'cancelled', waits: [] });
});

test('events are posted, signed, tried again, and given up in the open', async () => {
  receiver.answers.set('/flaky', [500]).set('/gone', [410]);
  const made = await Promise.all(['/flaky', '/gone'].map((path) => gateway.post('/v1/webhooks', keys.admin, { url: `${receiver.url}${path}`, types: ['RunFinished'] })));
  const [flaky, gone] = made.map(({ body }) => `/v1/webhooks/${String(body['id'])}`);
  await start('hook-1');
  await ended('hook-1');
  const { body: { secret } } = await gateway.ask(`${flaky ?? ''}/secret`, { key: keys.admin });
  const posts = await eventually('the second try', () => {
    const found = receiver.posted.filter(({ path }) => path === '/flaky');
    return found.length > 1 && found;
  });
  const [one, two] = posts;
  const headersOf = ({ headers }: (typeof posts)[number]) => headers as Record<string, string>;
  for (const post of posts) expect(new Webhook(String(secret)).verify(post.body, headersOf(post))).toMatchObject({ type: 'RunFinished', data: { run: 'hook-1' } });
  expect(one?.headers['webhook-id']).toBe(two?.headers['webhook-id']);
  const dead = await eventually('the dead one', async () => items((await gateway.ask(`${gone ?? ''}/deliveries?state=dead`, { key: keys.admin })).body)[0]);
  expect(dead).toMatchObject({ tries: 1, problem: 'the webhook answered 410' });
  expect(await gateway.ask(`${gone ?? ''}/deliveries/${String(dead['id'])}/redeliver`, { method: 'POST', key: keys.admin })).toMatchObject({ status: 202 });
  await eventually('its delivery', async () => items((await gateway.ask(`${gone ?? ''}/deliveries?state=delivered`, { key: keys.admin })).body)[0]);
});

test('the read models are made anew while they are read', async () => {
  const pages = ['/v1/runs?limit=200', '/v1/events?limit=200', '/v1/cases', '/v1/runs/doubt-1/steps', '/v1/contracts', '/v1/figures?from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z'];
  const readAll = () => Promise.all(pages.map((page) => gateway.ask(page, { key: keys.operator })));
  const generation = async () => Number((await gateway.ask('/readyz')).body['generation']);
  const [before, first] = await Promise.all([readAll(), generation()]);
  let asked = 0;
  let over = false;
  const reading = (async () => {
    while (!over) {
      for (const { status, body } of await readAll()) if (status !== 200 || (body['items'] !== undefined && items(body).length === 0)) throw new Error(`${status} while it was rebuilt`);
      asked += 1;
    }
  })();
  expect(JSON.parse((await cli('gateway', 'rebuild', '--json')).out)).toEqual({ generation: first + 1 });
  await eventually('the new generation', async () => (await generation()) === first + 1);
  over = true;
  await reading;
  expect(asked).toBeGreaterThan(0);
  const stable = (replies: Reply[]) => replies.map(({ body }) => JSON.stringify(body).replaceAll(/"(oldestMs|p50Ms)":\d+/g, ''));
  expect(stable(await readAll())).toEqual(stable(before));
});

test('a message that can’t be taken is shown to its tenant, and may be sent again', async () => {
  await stack.send({ key: 'lost-1', type: 'CallTool', value: '{"step":"x"}' });
  const letter = await eventually('the dead letter', async () => items((await gateway.ask('/v1/dead-letters', { key: keys.operator })).body)[0]);
  expect(letter).toMatchObject({ topic: 'agent.intents', key: 'lost-1', type: 'CallTool' });
  expect(await gateway.ask(`/v1/dead-letters/${String(letter['id'])}/redrive`, { method: 'POST', key: keys.operator })).toMatchObject({ status: 200, body: { topic: 'agent.intents', key: 'lost-1' } });
  await eventually('its second one', async () => items((await gateway.ask('/v1/dead-letters', { key: keys.operator })).body).length === 2);
});

test('an intent whose run was told that its step is refused is not sent again', async () => {
  await stack.intent('told-1', 'StartRun', { agent: null, input: 'told' });
  await stack.intent('told-1', 'CallTool', { step: '1', tool: 'no tool' });
  await stack.event('told-1', 'IntentRejected', (data) => data['step'] === '1');
  const letter = await eventually('its dead letter', async () => items((await gateway.ask('/v1/dead-letters', { key: keys.operator })).body).find(({ key }) => key === 'told-1'));
  await eventually('the refusal is shown', async () => items((await gateway.ask('/v1/runs/told-1/events', { key: keys.viewer })).body).some(({ type }) => type === 'IntentRejected'));
  expect(await gateway.ask(`/v1/dead-letters/${String(letter['id'])}/redrive`, { method: 'POST', key: keys.operator })).toMatchObject({ status: 409, body: { reason: 'answered' } });
  await stack.finish('told-1');
});

test('each role may what it may, and no tenant sees another', async () => {
  await Promise.all([start('doubt-2'), ask('asks-2')]);
  await approvalOf('asks-2');
  await eventually('the case', async () => items((await gateway.ask('/v1/cases?status=open&run=doubt-2', { key: keys.viewer })).body)[0]);
  const hook = await gateway.post('/v1/webhooks', keys.admin, { url: 'https://example.org/table', types: ['CaseOpened'] });
  const letter = items((await gateway.ask('/v1/dead-letters', { key: keys.operator })).body)[0];
  const things = { run: 'doubt-2', case: 'doubt-2/1/1', approval: 'asks-2/1', letter: String(letter?.['id']), webhook: String(hook.body['id']), key: (await gateway.key({ roles: ['viewer'], name: 'spare' })).split('_')[1] ?? '' };
  const requests = sampleRequests(things);
  expect(Object.keys(requests).sort()).toEqual(endpoints.map(({ id }) => id).sort());
  const wrong: string[] = [];
  for (const { id, method, path, may } of endpoints) {
    const request = requests[id];
    if (request === undefined) continue;
    const ask = (key?: string) => gateway.ask(request.address, { key, method: method.toUpperCase(), ...(request.body === undefined ? {} : { body: request.body }) });
    const expectThat = (who: string, reply: Reply, holds: boolean): void => void (!holds && wrong.push(`${id} as ${who}: ${reply.status} ${reply.text.slice(0, 200)}`));
    const nobody = await ask();
    expectThat('nobody', nobody, may === 'public' ? nobody.status === (request.open ?? 200) : nobody.status === 401);
    if (may === 'public') continue;
    const stranger = await ask(`hf_${'0'.repeat(12)}_${'A'.repeat(43)}`);
    expectThat('a stranger', stranger, stranger.status === 401);
    // Before those who may do something about it: afterwards a thing may be gone.
    const foreign = await ask(keys.foreign);
    const about = [things.run, things.letter, things.webhook, things.key].some((thing) => foreign.text.includes(`"${thing}"`));
    expectThat('another tenant', foreign, path.includes('{') ? foreign.status === 404 : foreign.status < 300 && !about);
    for (const role of ROLES) {
      const reply = await ask(keys[role]);
      const allowed = role === 'admin' || may === 'viewer' || role === may;
      expectThat(role, reply, allowed ? reply.status !== 401 && reply.status !== 403 && reply.status < 500 : reply.status === 403);
    }
  }
  expect(wrong).toEqual([]);
  const strange = await gateway.ask('/v1/events?limit=200', { key: keys.foreign });
  expect(new Set(items(strange.body).map(({ run }) => run)).has('doubt-2')).toBe(false);
});

test('tokens of the issuer open the door, and nothing that looks like one does', async () => {
  const ask = async (token: string) => (await gateway.ask('/v1/runs', { key: token })).status;
  expect(await ask(await issuer.token())).toBe(200);
  expect((await gateway.post('/v1/runs', await issuer.token(), { agent, input: {} })).status).toBe(403);
  const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${(await issuer.token()).split('.')[1] ?? ''}.`;
  const bad = await Promise.all([
    Promise.resolve(unsigned),
    issuer.token({}, { audience: 'another' }),
    issuer.token({}, { issuer: 'https://example.org' }),
    issuer.token({}, { expires: '-1m' }),
    issuer.token({}, { stranger: true }),
    issuer.token({}, { secret: issuer.publicKey }),
    issuer.token({ holdfast_tenant: undefined }),
    issuer.token({ holdfast_tenant: 'a\u0000b' }),
    issuer.token({ holdfast_roles: 'admin' }),
  ]);
  expect(await Promise.all(bad.map(ask))).toEqual(bad.map(() => 401));
});

test('keys are made, listed, rotated and revoked from the command line', async () => {
  const made = JSON.parse((await cli('keys', 'create', '--name', 'ci', '--role', 'viewer', '--expires', '1h', '--json')).out) as { key: string; id: string };
  const status = async (key: string) => (await gateway.ask('/v1/runs', { key })).status;
  expect(await status(made.key)).toBe(200);
  const next = JSON.parse((await cli('keys', 'rotate', made.id, '--grace', '0m', '--json')).out) as { key: string; id: string };
  expect(await Promise.all([status(made.key), status(next.key)])).toEqual([401, 200]);
  expect(await cli('keys', 'revoke', next.id)).toMatchObject({ code: 0, out: `key ${next.id} is revoked\n` });
  expect(await status(next.key)).toBe(401);
  const list = await cli('keys', 'list');
  expect(list.out).toContain(next.id);
  expect(list.out).not.toContain(next.key);
});

test('keys are made over HTTP, shown once, by no one who may less', async () => {
  const make = (key: string, of: object, headers = {}) => gateway.post('/v1/keys', key, { name: 'made', roles: ['agent', 'viewer'], ...of }, headers);
  const made = await make(keys.admin, {}, { 'idempotency-key': 'make-1' });
  expect(made).toMatchObject({ status: 201, body: { name: 'made', roles: ['agent', 'viewer'], revokedAt: null } });
  const secret = String(made.body['key']);
  shown.push(secret);
  expect(await make(keys.admin, {}, { 'idempotency-key': 'make-1' })).toMatchObject({ status: 409, body: { reason: 'shown_once' } });
  const bounded = await gateway.key({ roles: ['admin'], tools: ['charge'], amountMax: 10 });
  expect([(await make(bounded, {})).status, (await make(bounded, { tools: ['pay'], amountMax: 1 })).status, (await make(bounded, { tools: ['charge'], amountMax: 11 })).status]).toEqual([403, 403, 403]);
  expect((await make(bounded, { tools: ['charge'], amountMax: 10 })).status).toBe(201);
  const status = async (key: string) => (await gateway.ask('/v1/me', { key })).status;
  const next = await gateway.post(`/v1/keys/${String(made.body['id'])}/rotate`, keys.admin, { graceMs: 0 });
  shown.push(String(next.body['key']));
  expect(await Promise.all([status(secret), status(String(next.body['key']))])).toEqual([401, 200]);
  expect(await gateway.ask(`/v1/keys/${String(next.body['id'])}/revoke`, { method: 'POST', key: keys.admin })).toMatchObject({ status: 200 });
  expect(await status(String(next.body['key']))).toBe(401);
  const list = await gateway.ask('/v1/keys', { key: keys.admin });
  expect(list.text).toContain(String(next.body['id']));
  expect(shown.filter((each) => list.text.includes(each))).toEqual([]);
});

test('a tool is held still on all lanes by whom it belongs to, and let go', async () => {
  const brake = (what: string, key: string, body?: unknown, headers = {}) => gateway.ask(`/v1/brakes/tool%3Acharge/${what}`, { method: 'POST', key, headers, ...(body === undefined ? {} : { body }) });
  expect(await brake('set', keys.foreign, { reason: 'mine' })).toMatchObject({ status: 403, body: { detail: expect.stringContaining('shared by all tenants') } });
  expect(await brake('set', keys.operator, { reason: 'look first' }, { 'idempotency-key': 'brake-1' })).toMatchObject({ status: 200, body: { brake: 'tool:charge', lanes: 4 } });
  expect((await gateway.ask('/v1/brakes', { key: keys.viewer })).body).toMatchObject({ items: [{ brake: 'tool:charge', kind: 'tool', by: 'the operator', reason: 'look first', lanes: 4, of: 4 }] });
  // The gateway died before it could answer: the same command is asked for again, and has its answer.
  await stack.pool('holdfast_gateway').query(`update idempotency set status = null, locked_to = 0 where key = 'brake-1'`);
  expect(await brake('set', keys.operator, { reason: 'look first' }, { 'idempotency-key': 'brake-1' })).toMatchObject({ status: 200, body: { lanes: 4 } });
  // The key's day is over: what it named is no other command's answer.
  await stack.pool('holdfast_gateway').query(`update idempotency set expires_at = 0 where key = 'brake-1'`);
  expect(await brake('release', keys.operator, undefined, { 'idempotency-key': 'brake-1' })).toMatchObject({ status: 422, body: { type: 'urn:holdfast:problem:idempotency-key-reused', detail: 'this Idempotency-Key named another command (BrakeSet of tool:charge); choose a new one' } });
  expect(items((await gateway.ask('/v1/brakes', { key: keys.viewer })).body)).toMatchObject([{ brake: 'tool:charge', lanes: 4 }]);
  expect(await brake('set', keys.operator, { reason: 'again' })).toMatchObject({ status: 409, body: { reason: 'not_possible' } });
  await start('held-1');
  expect(await brake('release', keys.operator)).toMatchObject({ status: 200 });
  expect((await gateway.ask('/v1/brakes', { key: keys.viewer })).body).toEqual({ items: [] });
  await ended('held-1');
});

test('a run is forked from a step, its chains hold, and a changed event shows', async () => {
  expect(await gateway.post('/v1/runs/good-1/fork', keys.operator, { from: '1', runId: 'fork-1' })).toMatchObject({ status: 200, body: { event: 'RunForked' } });
  expect(await eventually('the fork', async () => (await gateway.ask('/v1/runs/fork-1', { key: keys.viewer })).body['origin'])).toEqual({ run: 'good-1', from: '1' });
  const integrity = async () => (await gateway.ask('/v1/runs/good-1/integrity', { key: keys.viewer })).body;
  expect(await integrity()).toMatchObject({ intact: true, streams: [{ topic: 'run.events', problem: null }, { topic: 'effect.events', problem: null }] });
  const schema = await liveSchema();
  await stack.pool('holdfast_gateway').query(`update ${schema}.event set data = replace(data, 'good-1', 'good-7') where subject = 'good-1' and topic = 'run.events' and version = 2`);
  expect(await integrity()).toMatchObject({ intact: false, streams: [{ problem: expect.stringMatching(/^event 2 \(.*\) is not what its hash says$/) }, { problem: null }] });
  await stack.pool('holdfast_gateway').query(`update ${schema}.event set data = replace(data, 'good-7', 'good-1') where subject = 'good-1' and topic = 'run.events' and version = 2`);
});

test('a start for which there is no room is answered with why and until when, and makes no run until it is asked again', async () => {
  const startOf = (name: string, runId: string, more: object = {}) => gateway.post('/v1/runs', keys.agent, { agent: { name, version: '1' }, runId, ...more }, { 'idempotency-key': runId });
  expect(await startOf('narrow', 'narrow-1')).toMatchObject({ status: 201, body: { id: 'narrow-1' } });
  const refused = await startOf('narrow', 'narrow-2');
  const why = { reason: 'limit_reached', retryAt: expect.stringMatching(/^20.*Z$/) };
  expect(refused).toMatchObject({ status: 429, body: { type: 'urn:holdfast:problem:no-room', ...why } });
  expect(refused.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
  for (const address of ['/v1/runs/narrow-2', '/v1/runs/narrow-2/events', '/v1/runs/narrow-2/steps']) expect(await gateway.ask(address, { key: keys.viewer })).toMatchObject({ status: 404, body: { detail: expect.stringContaining('its start was refused'), ...why } });
  expect((await gateway.ask('/v1/runs/narrow-2', { key: keys.foreign })).body).toMatchObject({ status: 404, detail: 'there is no run narrow-2' });
  expect(items((await gateway.ask('/v1/runs?id=narrow', { key: keys.viewer })).body).map(({ id }) => id)).toEqual(['narrow-1']);
  expect(await gateway.post('/v1/runs/narrow-1/cancel', keys.operator, { reason: 'makes room', manner: 'immediate' })).toMatchObject({ status: 200 });
  await ended('narrow-1');
  // The same request under the same key: that there was no room then is no answer to keep.
  expect(await startOf('narrow', 'narrow-2')).toMatchObject({ status: 201, body: { id: 'narrow-2' } });
  expect(await startOf('paced', 'paced-1')).toMatchObject({ status: 201 });
  expect(await startOf('paced', 'paced-2')).toMatchObject({ status: 429, body: { reason: 'rate_limited' } });
  expect(await startOf('chatty', 'chat-1', { concurrencyKey: 'chat-7' })).toMatchObject({ status: 201 });
  expect(await startOf('chatty', 'chat-2', { concurrencyKey: 'chat-7', onConcurrent: 'reject' })).toMatchObject({ status: 409, body: { type: 'urn:holdfast:problem:refused', reason: 'concurrent_run', holder: 'chat-1' } });
  for (const run of ['narrow-2', 'paced-1', 'chat-1']) expect(await gateway.post(`/v1/runs/${run}/cancel`, keys.operator, { reason: 'seen', manner: 'immediate' })).toMatchObject({ status: 200 });
  await Promise.all(['narrow-2', 'paced-1', 'chat-1'].map(ended));
});

test('two gateways beside each other do nothing twice', async () => {
  const second = await TestGateway.start(stack, {}, 'gateway-2');
  try {
    const both = [gateway, second];
    const once = (to: TestGateway) => eventually('an answer', async () => {
      const reply = await to.post('/v1/runs', keys.agent, { agent, input: { order: 'twin' } }, { 'idempotency-key': 'twin' });
      return reply.body['type'] !== 'urn:holdfast:problem:idempotency-in-progress' && reply;
    });
    const [one, two] = await Promise.all(both.map(once));
    expect([one?.body['id'], one?.status]).toEqual([two?.body['id'], two?.status]);
    const run = String(one?.body['id']);
    await ended(run);
    const place = (await gateway.ask('/v1/events?limit=200', { key: keys.viewer })).body['items'] as { id: string }[];
    const after = place.at(0)?.id ?? '0';
    const listen = async (to: TestGateway) => {
      const names: string[] = [];
      for await (const { data, type } of eventsOf(`${to.url}/v1/events`, keys.viewer, { lastEventId: after })) {
        names.push(`${String(data['topic'])} ${String(data['run'])} ${String(data['version'])}`);
        if (type === 'RunFinished' && data['run'] === 'twin-2') return names;
      }
      throw new Error('the stream ended early');
    };
    const heard = both.map(listen);
    await second.post('/v1/runs', keys.agent, { agent, input: { order: 'twin-2' }, runId: 'twin-2' });
    for (const names of await Promise.all(heard)) expect(names).toEqual([...new Set(names)]);
    // One of the two goes, and takes its lanes with it: the other goes on with them.
    await second.process.kill();
    await start('twin-3');
    await ended('twin-3');
    const { rows } = await stack.pool('holdfast_gateway').query<{ n: number }>(`select count(*)::int as n from ${await liveSchema()}.event where type = 'RunAccepted' and subject = $1`, [run]);
    expect(rows).toEqual([{ n: 1 }]);
  } finally {
    await second.stop();
  }
});

test.each([...badRequests])('%s is a problem of %d', async (_, status, address, options) => {
  const reply = await gateway.ask(address, { key: keys.admin, ...options });
  expect([reply.status, reply.headers.get('content-type')]).toEqual([status, 'application/problem+json; charset=utf-8']);
  expect(reply.body).toMatchObject({ type: expect.stringMatching(/^urn:holdfast:problem:/), title: expect.any(String), status, detail: expect.any(String) });
});

test('the page about it says what works', async () => {
  const page = await readFile(new URL('../../docs/how-to/use-the-http-api.md', import.meta.url), 'utf8');
  const lines = [...page.matchAll(/```\n([\s\S]*?)```/g)].flatMap(([, block]) => (block ?? '').trim().split('\n'));
  const said: string[] = [];
  for (const line of lines.filter((each) => each.startsWith('curl '))) {
    said.push((await promisify(execFile)('bash', ['-c', line.replace('--max-time 2', '--max-time 2 || true')], { env: { ...process.env, HOLDFAST: gateway.url, KEY: keys.admin } })).stdout);
  }
  expect(said).toEqual([expect.stringContaining('"id":"ticket-1001"'), expect.stringContaining('"principal":"the admin"'), expect.stringContaining('event: RunAccepted'), expect.stringMatching(/^\{"items":/)]);
  const made: string[] = [];
  for (const line of lines.filter((each) => each.startsWith('holdfast keys '))) {
    const words = line.split(' ').slice(1).map((word) => (word === 'ID' ? (made.at(-1)?.split('_')[1] ?? '') : word));
    const { code, out, err } = await cli(...words);
    expect([line, code, err]).toEqual([line, 0, '']);
    if (out.startsWith('hf_')) made.push(out.split('\n')[0] ?? '');
  }
  expect(made).toHaveLength(3);
  const { rows } = await stack.pool('holdfast_gateway').query('select roles, tools, amount_max from api_key where id = $1', [made[1]?.split('_')[1]]);
  expect(rows).toEqual([{ roles: ['operator', 'approver'], tools: ['refund'], amount_max: '500' }]);
});

test('what opens doors is found in no topic, table or log', async () => {
  const token = await issuer.token();
  await gateway.ask('/v1/runs', { key: token });
  // The secret is what follows `hf_`, twelve digits and `_`; it may itself hold more of them.
  const secrets = [...[...shown, ...Object.values(keys)].map((key) => key.slice(16)), token.split('.')[2] ?? '', WEBHOOK_KEY];
  const text = await everythingWritten(stack);
  expect(text.length).toBeGreaterThan(10_000);
  expect(text).toContain('good-1');
  expect(secrets.filter((secret) => secret === '' || text.includes(secret))).toEqual([]);
});

test('told to stop, it ends streams and takes its leave', async () => {
  const abort = new AbortController();
  const streaming = (async () => {
    for await (const { type } of eventsOf(`${gateway.url}/v1/events?after=0`, keys.viewer, { signal: abort.signal })) if (type === '') return;
  })();
  await eventually('a reader', () => stack.pool('holdfast_gateway').query('select 1').then(() => true));
  await gateway.process.stop();
  await streaming;
  expect(await readFile(gateway.process.logFile, 'utf8')).toMatch(/"msg":"stopped"/);
});
