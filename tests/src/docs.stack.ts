import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { makeStackFolder, startStack, type Stack } from '@holdfast/deploy';
import getPort from 'get-port';
import { Page, ROOT, says } from './support/page.js';
import { proof } from './support/proof.js';
import { TestStack } from './support/stack.js';

const LIMIT_MS = 240_000;
jest.setTimeout(LIMIT_MS);

const undo: (() => Promise<unknown>)[] = [];
let bin: string;

beforeAll(async () => {
  bin = await mkdtemp(path.join(tmpdir(), 'hf-docs-'));
  // npx takes a second to find what it runs; the full form lets it.
  if (proof(true, false)) await writeFile(path.join(bin, 'npx'), `#!/bin/sh\ncommand=$1\nshift\nexec "${process.execPath}" "${path.join(ROOT, 'node_modules/.bin')}/$command" "$@"\n`, { mode: 0o755 });
});

afterAll(() => rm(bin, { recursive: true, force: true }));
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each();
});

const shell = (): NodeJS.ProcessEnv => ({ PATH: `${bin}:${process.env['PATH'] ?? ''}`, HOLDFAST_BROKERS: undefined, HOLDFAST_DATABASE_URL: undefined });

test('what a page says that a command says is looked for line by line, word by word', () => {
  expect(says('a table\n| ticket-2 | completed |', 'ticket-2 completed')).toBe(true);
  expect(says('| ticket-2 | open |\n| ticket-1 | completed |', 'ticket-2 completed')).toBe(false);
  expect(says('one', 'one\ntwo')).toBe(false);
  expect(says('3 + 3', '3 + 3')).toBe(true);
});

test('the first agent of README is compiled and run as README says, and refunds', async () => {
  const dir = await mkdtemp(path.join(tmpdir(), 'hf-readme-'));
  undo.push(() => rm(dir, { recursive: true, force: true }));
  await symlink(path.join(ROOT, 'node_modules'), path.join(dir, 'node_modules'));
  await copyFile(path.join(ROOT, 'package.json'), path.join(dir, 'package.json'));
  const stack = await TestStack.start();
  undo.push(() => stack.stop());
  const page = new Page({ page: 'README.md', dir, env: () => ({ ...shell(), HOLDFAST_BROKERS: stack.brokers.join(',') }) });
  undo.push(() => page.close());
  await page.follow();
  expect(page.ran).toHaveLength(1);
  expect(await readFile(path.join(dir, 'refunds.log'), 'utf8')).toMatch(/^\w+ A-17 4200\n$/);
});

test('the tutorial is followed from its first command to its last, and so is the page on upgrades in its folder', async () => {
  // Packages are found from there as from a folder of the clone; PostgreSQL's own user may enter it.
  const dir = await makeStackFolder('hf-tutorial-');
  undo.push(() => rm(dir, { recursive: true, force: true }));
  await symlink(path.join(ROOT, 'node_modules'), path.join(dir, 'node_modules'));
  const [kafka, controller, postgres, http] = await Promise.all([getPort(), getPort(), getPort(), getPort()]);
  const ports = { HOLDFAST_KAFKA_PORT: String(kafka), HOLDFAST_KAFKA_CONTROLLER_PORT: String(controller), HOLDFAST_POSTGRES_PORT: String(postgres), HOLDFAST_HTTP_PORT: String(http) };
  const env = (code: string): NodeJS.ProcessEnv => ({ ...shell(), ...ports, ...(code.includes('worker.mjs') ? { HOLDFAST_BROKERS: `127.0.0.1:${kafka}` } : {}) });
  const tutorial = new Page({ page: 'docs/tutorial.md', dir, env });
  undo.push(() => tutorial.close());
  await tutorial.follow();
  expect(tutorial.ran.length).toBeGreaterThan(10);
  const upgrade = new Page({ page: 'docs/how-to/upgrade.md', dir: path.join(dir, 'mine'), env });
  undo.push(() => upgrade.close());
  await upgrade.follow();
  expect(upgrade.ran.length).toBeGreaterThan(0);
});

test('the page on deploying brings up a stack that its own doctor finds well', async () => {
  const dir = await makeStackFolder('hf-deploy-');
  undo.push(() => rm(dir, { recursive: true, force: true }));
  const stack: Stack = await startStack({ dir, partitions: 4, services: [], prepare: async () => undefined, durable: false });
  undo.push(() => stack.stop());
  const [health, http] = await Promise.all([getPort(), getPort()]);
  const env = (): NodeJS.ProcessEnv => ({ ...shell(), HOLDFAST_BROKERS: stack.brokers.join(','), HOLDFAST_DATABASE_URL: stack.databaseUrl, HOLDFAST_ARTIFACTS: path.join(dir, 'artifacts') });
  await mkdir(path.join(dir, 'artifacts'), { recursive: true });
  const page = new Page({ page: 'docs/how-to/deploy.md', dir: ROOT, env, replace: { 8081: String(health), 18080: String(http) } });
  undo.push(() => page.close());
  await page.follow();
  expect(page.ran.length).toBeGreaterThan(8);
});
