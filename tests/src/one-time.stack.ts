import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { topics } from '@holdfast/protocol';
import type { ManagedProcess } from '@holdfast/deploy';
import { defineAgent, HoldfastClient } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { World } from './support/world.js';

jest.setTimeout(STACK_LIMIT_MS);

let stack: TestStack;
let world: World;
let client: HoldfastClient;
let worker: ManagedProcess;

const exchanger = defineAgent({ name: 'exchanger', version: '1', input: z.object({ code: z.string(), after: z.string().optional() }), output: z.string(), run: () => '' });

const uses = async (code: string): Promise<string[]> => (await world.effects()).filter(({ what }) => what === `exchange ${code}`).map(({ run }) => run);
const exchange = (run: string, code: string, after?: string) => client.start(exchanger, { code, ...(after === undefined ? {} : { after }) }, { runId: run });

beforeAll(async () => {
  stack = await TestStack.start();
  world = await World.open(stack);
  client = await HoldfastClient.connect({ brokers: stack.brokers });
  worker = await world.startWorker('desk');
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await world?.stop();
  await stack?.stop();
}, STACK_LIMIT_MS);

test('a one-time code whose exchange was carried out and never answered is not sent again: by no restart of the worker or the services, and by no other run', async () => {
  await exchange('first', 'code-1', 'never');
  await eventually('the code is used up', async () => (await uses('code-1')).length > 0);
  await worker.kill();
  await worker.start();
  await stack.event('first', 'RunBlocked');

  // Another run of the tenant, at once and after everything was started anew: it joins, and waits for what becomes known.
  await exchange('second', 'code-1');
  await stack.event('second', 'EffectJoined', () => true, topics.effectEvents);
  await Promise.all(stack.stack.services.map((service) => service.restart()));
  await exchange('third', 'code-1');
  await stack.event('third', 'EffectJoined', () => true, topics.effectEvents);
  await worker.kill('SIGTERM');
  await worker.start();

  // A new grant is another code: the lanes have passed all that could still have come of the old one.
  for (const lane of stack.lanes) {
    const run = stack.runOn(lane, 'fresh');
    expect(await (await exchange(run, `code-of-${run}`)).outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: `token for code-of-${run}` });
    expect(await uses(`code-of-${run}`)).toEqual([run]);
  }
  expect(await uses('code-1')).toEqual(['first']);
  for (const run of ['first', 'second', 'third']) expect(stack.events(run).some(({ envelope }) => envelope.type === 'RunFinished')).toBe(false);
});

test('runs that refresh at once with one code use it once, and all have what it was exchanged for; asked again later, after a restart, it is the recorded answer', async () => {
  const runs = await Promise.all(stack.lanes.map((lane) => exchange(stack.runOn(lane, 'refresh'), 'code-2')));
  for (const run of runs) expect(await run.outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'token for code-2' });
  await Promise.all([...stack.stack.services.map((service) => service.restart()), worker.kill().then(() => worker.start())]);
  expect(await (await exchange('later', 'code-2')).outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: 'token for code-2' });
  expect(await uses('code-2')).toHaveLength(1);
});
