import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { defineAgent, defineTool, MayHaveApplied, type ServedWorker, type ToolDefinition } from '@holdfast/sdk';
import getPort from 'get-port';
import type { Page, Request } from 'playwright-core';
import { z } from 'zod';
import { Bookings } from './support/bookings.js';
import { barriers, TestBrowser } from './support/browser.js';
import { eventually } from './support/eventually.js';
import { TestGateway } from './support/gateway.js';
import { proof } from './support/proof.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { work } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

const order = z.object({ order: z.string() });
const receipt = z.object({ id: z.string() });
const pay = defineTool({ name: 'pay', version: '1', effect: 'irreversible', owner: 'the desk', approval: { approvers: ['approver'], fourEyes: false }, input: order, output: receipt, execute: ({ order: of }) => ({ id: `paid-${of}` }) });
const charge = defineTool({
  ...{ name: 'charge', version: '1', effect: 'irreversible', owner: 'the desk', input: order, output: receipt, settleDelay: 3_600_000 },
  execute: () => {
    throw new MayHaveApplied('the line went dead');
  },
});
const about = { version: '1', input: order, output: z.string() };
const asker = defineAgent({
  name: 'asker',
  ...about,
  run: async (run, input) => {
    const approval = await run.approval({ what: `pay ${input.order}`, tool: pay, args: input, amount: { value: '120.50', currency: 'EUR' }, deadline: '1h' });
    return (await run.call(pay, approval.args, { approval })).id;
  },
});
const doubter = defineAgent({ name: 'doubter', ...about, run: async (run, input) => (await run.call(charge, input)).id });
const waiter = defineAgent({ name: 'waiter', ...about, run: (run) => run.signal('go', z.string()) });
const traveller = defineAgent({
  name: 'traveller',
  ...about,
  run: async (run) => {
    await run.call('flight.book', { seats: 1 });
    await run.call('suite.book', { seats: 2 });
    return 'away';
  },
});
const books = new Bookings();

let stack: TestStack;
let gateway: TestGateway;
let browser: TestBrowser;
let worker: ServedWorker | undefined;
let page: Page;
let key = '';
const env: Record<string, string> = {};

beforeAll(async () => {
  [stack, browser] = await Promise.all([TestStack.start(), TestBrowser.start()]);
  // It comes back at the address that pages know.
  Object.assign(env, { HOLDFAST_HTTP_PORT: String(await getPort()), HOLDFAST_HTTP_RATE: '100000', HOLDFAST_TRACE_URL: 'https://traces.example/{trace}' });
  [gateway, worker] = await Promise.all([
    TestGateway.start(stack, env),
    work(stack.brokers, { agents: [asker, doubter, waiter, traveller], tools: [pay, charge, ...books.tools('flight'), ...books.tools('suite', { approvers: ['approver'] })] as ToolDefinition[] }),
  ]);
  key = await gateway.key({ roles: ['admin'], name: 'olga' });
  page = await browser.page();
}, STACK_LIMIT_MS);
afterAll(async () => {
  await browser?.stop();
  await worker?.stop();
  await gateway?.stop();
  await stack?.stop();
}, STACK_LIMIT_MS);

const named = (of: Page, name: string | RegExp) => of.getByRole('button', { name, exact: true });
const dialog = (of: Page) => of.getByRole('dialog');
const go = (of: Page, to: string) => of.goto(`${gateway.url}${to}`);
const start = (agent: string, runId: string) => gateway.post('/v1/runs', key, { agent: { name: agent, version: '1' }, input: { order: runId }, runId });
const inState = (run: string, status: string) => eventually(`run ${run} ${status}`, async () => (await gateway.ask(`/v1/runs/${run}`, { key })).body['status'] === status);
/** The compensation service has heard of the run's end, too: before, it refuses. */
const plansEnd = (run: string) => eventually(`the end of ${run} in its plan`, async () => (await gateway.ask(`/v1/plans/${run}`, { key })).body['ending'] === 'completed');

async function signIn(of: Page): Promise<void> {
  await go(of, '/');
  await of.getByLabel('API key').fill(key);
  await named(of, 'Sign in').click();
  await of.getByRole('heading', { name: 'Runs', level: 1 }).waitFor();
}

test('a key that opens nothing is refused in words, and a good one is kept in this tab alone', async () => {
  await go(page, '/runs');
  await page.getByLabel('API key').fill('hf_000000000000_nothing');
  await named(page, 'Sign in').click();
  await page.getByText('The gateway does not know this key').waitFor();
  await signIn(page);
  expect(await page.evaluate('[localStorage.length, document.cookie, sessionStorage.getItem("holdfast.key") !== null]')).toEqual([0, '', true]);
});

test('a run is started, watched live, approved, and seen to end, without loading a page again', async () => {
  await page.getByText('live', { exact: true }).waitFor();
  await named(page, 'Start a run').click();
  await dialog(page).getByLabel('Agent').first().fill('asker@1');
  await dialog(page).getByRole('textbox', { name: 'Input' }).fill('{"order":"A-17"}');
  await dialog(page).getByRole('textbox', { name: 'Run id' }).fill('ask.1');
  await named(page, 'Start').click();
  await page.getByRole('heading', { name: 'ask.1', level: 1 }).waitFor();
  await page.getByText('Step 1 waits for an approval.').waitFor();
  await page.evaluate('window.stayed = true');
  await page.getByRole('link', { name: 'Look at it' }).click();
  const decision = page.getByRole('region', { name: 'What is to be decided' });
  for (const said of ['120.50 EUR', 'agent asker@1', 'olga', '"order": "A-17"']) await decision.getByText(said).first().waitFor();
  await named(page, 'Approve').click();
  await dialog(page).getByRole('button', { name: 'Approve' }).click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await dialog(page).getByRole('button', { name: 'Close' }).last().click();
  await decision.getByRole('link', { name: 'ask.1' }).click();
  await page.getByText('Run ended').waitFor();
  await page.getByText(/^intact, \d+ events in \d streams?$/).waitFor();
  await page.getByText('1 · wait for approval').waitFor();
  await page.getByText('2 · call pay').waitFor();
  expect(await page.evaluate('window.stayed')).toBe(true);
});

/** Presses Tab until what is focused has this name. */
async function tabTo(of: Page, name: RegExp): Promise<void> {
  const seen: string[] = [];
  for (let pressed = 0; pressed < 80; pressed += 1) {
    await of.keyboard.press('Tab');
    const focused = await of.evaluate<string>(`(() => { const at = document.activeElement; return at === null ? '' : (at.getAttribute('aria-label') ?? at.labels?.[0]?.textContent ?? at.textContent ?? ''); })()`);
    seen.push(focused.slice(0, 40));
    if (name.test(focused)) return;
  }
  throw new Error(`Tab does not lead to ${String(name)}: ${seen.join(' | ')}`);
}

test('the keyboard alone is enough to find an approval and to decide it', async () => {
  await start('asker', 'ask-2');
  await go(page, '/inbox');
  await page.getByRole('link', { name: /pay ask-2/ }).waitFor();
  await tabTo(page, /^pay ask-2/);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'pay ask-2' }).waitFor();
  await named(page, 'Reject').waitFor();
  await tabTo(page, /^Reject$/);
  await page.keyboard.press('Enter');
  await dialog(page).waitFor();
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  await page.keyboard.press('Enter');
  await dialog(page).getByRole('textbox', { name: 'Why' }).waitFor();
  await page.keyboard.type('not this one');
  await tabTo(page, /^Reject$/);
  await page.keyboard.press('Enter');
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  expect((await gateway.ask('/v1/approvals/ask-2%2F1', { key })).body).toMatchObject({ status: 'rejected', decidedBy: 'olga', feedback: 'not this one' });
});

test('a case is settled with all that is known of it on one screen', async () => {
  await start('doubter', 'doubt-1');
  await inState('doubt-1', 'blocked');
  await go(page, '/inbox');
  await page.getByRole('link', { name: /charge of run doubt-1/ }).click();
  for (const said of ['the line went dead', /it happens twice/, '"order": "doubt-1"', 'the desk', /attempt 1: unknown/]) await page.getByText(said).first().waitFor();
  await named(page, 'It happened').click();
  await dialog(page).getByRole('textbox', { name: 'How you know' }).fill('I called the bank');
  await dialog(page).getByRole('textbox', { name: 'Evidence' }).fill('statement 7');
  await dialog(page).getByRole('textbox', { name: 'Result' }).fill('{"id":"re-7"}');
  await dialog(page).getByRole('button', { name: 'It happened' }).click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await inState('doubt-1', 'completed');
});

test('a page goes on by itself after the gateway was killed and came back, and a run is cancelled', async () => {
  await start('waiter', 'wait-1');
  await inState('wait-1', 'waiting');
  await go(page, '/runs');
  const row = page.locator('tr[data-row="wait-1"]');
  await row.getByText('waiting').waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  await gateway.process.kill();
  await page.getByText('reconnecting', { exact: true }).waitFor();
  await row.getByText('waiting').waitFor();
  await gateway.process.start();
  await page.getByText('live', { exact: true }).waitFor();
  await row.getByRole('link', { name: 'wait-1' }).click();
  await named(page, 'Cancel').click();
  await dialog(page).getByRole('textbox', { name: 'Why' }).fill('nobody wants it');
  await named(page, 'Cancel the run').click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await dialog(page).getByRole('button', { name: 'Close' }).last().click();
  await page.getByText('Cancellation asked for').waitFor();
  await go(page, '/runs');
  await page.locator('tr[data-row="wait-1"]').getByText('cancelled').waitFor();
  // What begins while one looks comes by itself.
  await page.getByText('live', { exact: true }).waitFor();
  await start('waiter', 'wait-2');
  await page.locator('tr[data-row="wait-2"]').waitFor();
});

test('a run is compensated: looked at first, approved step by step, and seen to be answered', async () => {
  await start('traveller', 'trip-1');
  await plansEnd('trip-1');
  await go(page, '/runs/trip-1');
  await named(page, 'Compensate').click();
  await dialog(page).getByText('a yes by approver').waitFor();
  await dialog(page).getByRole('textbox', { name: 'Why' }).fill('wrong guest');
  await dialog(page).getByRole('button', { name: 'Compensate' }).click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await dialog(page).getByRole('button', { name: 'Close' }).last().click();
  await go(page, '/plans');
  await page.getByText('olga: wrong guest').waitFor();
  await page.getByRole('link', { name: 'trip-1' }).click();
  const suite = page.getByRole('region', { name: 'Step 2' });
  await suite.getByText('waits for a yes').waitFor();
  await suite.getByRole('button', { name: 'Approve' }).click();
  await dialog(page).getByRole('button', { name: 'Approve' }).click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await dialog(page).getByRole('button', { name: 'Close' }).last().click();
  await page.getByRole('region', { name: 'Step 1' }).getByText('answered in full').waitFor();
  await suite.getByText('answered in full').waitFor();
  await suite.getByText(/authorised by olga/).first().waitFor();
  expect(books.standing('trip-1')).toEqual([]);
  // Of a run with nothing left to answer, the dialog says so before anybody presses anything.
  await page.getByRole('link', { name: 'trip-1' }).click();
  await named(page, 'Compensate').click();
  expect(await dialog(page).getByRole('button', { name: 'Compensate' }).isDisabled()).toBe(true);
  await dialog(page).getByRole('button', { name: 'Back' }).click();
});

test('a dead letter says why it is one, and is sent again', async () => {
  await stack.send({ key: 'lost-1', type: 'CallTool', value: '{"step":"x"}' });
  await eventually('the dead letter', async () => (await gateway.ask('/v1/dead-letters', { key })).text.includes('lost-1'));
  await go(page, '/dead-letters');
  const row = page.locator('tr', { hasText: 'CallTool for lost-1' });
  await row.first().waitFor();
  await row.first().getByRole('button', { name: 'Send again' }).click();
  await dialog(page).getByRole('button', { name: 'Send again' }).click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await eventually('the second one', async () => ((await gateway.ask('/v1/dead-letters', { key })).body['items'] as unknown[]).length === 2);
});

test('a tool is held still and let go', async () => {
  await go(page, '/brakes');
  await named(page, 'Hold something still').click();
  await dialog(page).getByRole('textbox', { name: 'Name' }).fill('pay');
  await dialog(page).getByRole('textbox', { name: 'Why' }).fill('look first');
  await named(page, 'Hold still').click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
  await dialog(page).getByRole('button', { name: 'Close' }).last().click();
  await page.getByRole('cell', { name: 'tool:pay', exact: true }).waitFor();
  await page.getByRole('button', { name: /^Let go/ }).click();
  await dialog(page).getByRole('button', { name: 'Let go' }).click();
  await dialog(page).getByText('It is on record, with your name.').waitFor();
});

const MANY = proof(10_000, 100_000);

test('of very many runs only those that are looked at are asked for', async () => {
  const schema = (await stack.pool('holdfast_gateway').query<{ schema: string }>(`select 'view_' || id as schema from generation where state = 'live'`)).rows[0]?.schema ?? '';
  await stack.pool('holdfast_gateway').query(`insert into ${schema}.run (id, tenant, status, over, agent, accepted_at, doc)
    select id, 'default', 'completed', true, 'bulk', at, replace(replace(doc, '"wait-1"', '"' || id || '"'), '"acceptedAt":' || (doc::json->>'acceptedAt'), '"acceptedAt":' || at)
    from (select 'bulk-' || lpad(n::text, 6, '0') as id, 1700000000000 + n as at, (select doc from ${schema}.run where id = 'wait-1') as doc from generate_series(1, ${MANY}) as n) as made`);
  const fresh = await browser.page();
  const asked: { limit: number; rows: number }[] = [];
  const reading: Promise<void>[] = [];
  fresh.on('requestfinished', (request: Request) => {
    const url = new URL(request.url());
    if (url.pathname !== '/v1/runs') return;
    reading.push(request.response().then(async (response) => void asked.push({ limit: Number(url.searchParams.get('limit')), rows: ((await response?.json()) as { items: unknown[] }).items.length })));
  });
  await signIn(fresh);
  await fresh.getByText('50 shown, and there are more').waitFor();
  await named(fresh, 'Show more').click();
  await fresh.getByText('100 shown, and there are more').waitFor();
  expect(await fresh.locator('tbody tr').count()).toBe(100);
  await fresh.getByRole('textbox', { name: 'Id begins with' }).fill('bulk-00500');
  await fresh.getByText('10 shown, that is all').waitFor();
  await Promise.all(reading);
  expect(asked.every(({ limit, rows }) => limit === 50 && rows <= 50)).toBe(true);
  // Two pages, the filtered one, and one more look when the stream began.
  expect(asked.reduce((sum, { rows }) => sum + rows, 0)).toBeLessThanOrEqual(50 * 6);
  await fresh.context().close();
});

const shots = process.env['HOLDFAST_TEST_SHOTS'];
/** One width for all: what is barred is looked for on the narrow page, where the full form looks on the wide one too. */
const SHORT = proof(true, false);

test('every page is there for everybody: light and dark, wide and 400 px, without a barrier', async () => {
  await start('asker', 'ask-3');
  await start('doubter', 'doubt-2');
  await start('traveller', 'trip-2');
  await inState('doubt-2', 'blocked');
  await plansEnd('trip-2');
  expect(await gateway.post('/v1/runs/trip-2/compensate', key, { reason: 'for the pages' })).toMatchObject({ status: 200, body: { event: 'PlanOpened' } });
  await eventually('the plan of trip-2', async () => (await gateway.ask('/v1/plans?status=awaiting', { key })).text.includes('trip-2'));
  const pages: readonly (readonly [string, string])[] = [
    ['/runs?agent=asker', 'that is all'],
    ['/runs?id=nothing-like-it', 'No run is like that'],
    ['/runs/trip-2', 'What happened'],
    ['/runs/nobody', 'There is no such thing here'],
    ['/runs/doubt-2', 'Look at the case'],
    ['/inbox', 'pay ask-3'],
    ['/inbox/approval/ask-3%2F1', 'Before you decide'],
    ['/inbox/case/doubt-2%2F1%2F1', 'Before you decide'],
    ['/plans', 'trip-2'],
    ['/plans/trip-2', 'waits for a yes'],
    ['/board', 'Verified outcomes'],
    ['/dead-letters', 'lost-1'],
    ['/brakes', 'Nothing is held still'],
  ];
  const found: string[] = [];
  const small = await browser.page({ width: 400, height: 800 });
  const look = async (of: Page, where: string, name: string): Promise<void> => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await of.emulateMedia({ colorScheme });
      await of.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor();
      if (of !== small || SHORT) found.push(...(await barriers(of, colorScheme === 'light' ? 'all' : 'contrast')).map((barrier) => `${where}, ${colorScheme}: ${barrier}`));
      if (shots !== undefined) await of.screenshot({ path: path.join(shots, `${name}-${of === small ? 'small' : 'wide'}-${colorScheme}.png`), fullPage: true });
    }
    // What follows `hf_`, twelve digits and `_` opens the gateway.
    if ((await of.content()).includes(key.slice(16))) found.push(`${where} shows the key`);
    const width = await of.evaluate<number>('document.documentElement.scrollWidth');
    if (of === small && width > 400) found.push(`${where} is ${width} px wide on 400`);
  };
  if (shots !== undefined) await mkdir(shots, { recursive: true });
  await go(small, '/');
  await small.getByLabel('API key').waitFor();
  await look(small, 'sign-in', 'sign-in');
  await signIn(small);
  for (const looking of SHORT ? [small] : [page, small]) {
    for (const [where, shows] of pages) {
      await go(looking, where);
      await looking.getByText(shows).first().waitFor();
      await look(looking, where, where.replaceAll(/[^a-z0-9]+/g, '-').slice(1));
    }
    await go(looking, '/runs/trip-2');
    await named(looking, 'Compensate').click();
    await dialog(looking).getByText(/suite|That did not work/).first().waitFor();
    await look(looking, 'a dialog', 'dialog');
  }
  await small.context().close();
  const out = await browser.page();
  await go(out, '/');
  await out.getByLabel('API key').waitFor();
  await look(out, 'sign-in', 'sign-in');
  // Off whatever dialog it was left with.
  await go(page, '/board');
  await page.getByRole('button', { name: /^Switch to the/ }).click();
  await named(page, 'Sign out').click();
  await page.getByLabel('API key').waitFor();
  expect(await page.evaluate('sessionStorage.length')).toBe(0);
  expect(found).toEqual([]);
  expect(browser.complaints).toEqual([]);
}, 2 * STACK_LIMIT_MS);
