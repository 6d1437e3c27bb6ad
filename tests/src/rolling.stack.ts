import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { verify } from '@holdfast/cli';
import type { ManagedProcess } from '@holdfast/deploy';
import { defineAgent, HoldfastClient, type RunHandle } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { STACK_LIMIT_MS, TestStack } from './support/stack.js';
import { World } from './support/world.js';

const LIMIT_MS = proof(STACK_LIMIT_MS, 5 * STACK_LIMIT_MS);
jest.setTimeout(LIMIT_MS);

const ROLLS = proof(1, 10);
const RUNS_A_ROLL = proof(20, 100);
const STEPS = 3;
/** What an orchestrator of containers gives before it kills. */
const GRACE_MS = 30_000;
/** One run of each roll has effects that take this long: some are under way whenever a worker is told to go. */
const SLOW_MS = proof(1000, 5000);

let stack: TestStack;
let world: World;
let client: HoldfastClient;
const workers: ManagedProcess[] = [];

const payer = defineAgent({ name: 'payer', version: '1', input: z.object({ steps: z.number(), ms: z.number().optional(), before: z.string().optional() }), output: z.string(), run: () => '' });

beforeAll(async () => {
  stack = await TestStack.start({ instances: { orchestrator: 2, ledger: 2 } });
  world = await World.open(stack);
  client = await HoldfastClient.connect({ brokers: stack.brokers });
  workers.push(...(await Promise.all(['one', 'two'].map((name) => world.startWorker(name)))));
  await eventually('every lane is taken', () => stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length > 0));
}, LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await world?.stop();
  await stack?.stop();
}, LIMIT_MS);

const starts = (prefix: string): Promise<RunHandle<string>[]> =>
  Promise.all(Array.from({ length: RUNS_A_ROLL }, (_, i) => client.start(payer, { steps: STEPS, ms: i === 0 ? SLOW_MS : 20 }, { runId: `${prefix}-${i}` })));

async function allOnce(runs: readonly RunHandle<string>[]): Promise<void> {
  const outcomes = await Promise.all(runs.map((run) => run.outcome({ timeoutMs: 90_000 })));
  expect(outcomes.filter(({ status }) => status !== 'completed')).toEqual([]);
  const rows = (await world.effects()).map(({ run, step }) => `${run}/${step}`);
  const asked = runs.flatMap(({ id }) => Array.from({ length: STEPS }, (_, n) => `${id}/${n + 1}`));
  expect(asked.filter((effect) => !rows.includes(effect))).toEqual([]);
  expect(rows.filter((effect, at) => rows.indexOf(effect) !== at)).toEqual([]);
  expect(await stack.halts()).toEqual([]);
  expect(stack.seen.filter(({ envelope }) => envelope.type === 'DeadLetter' || envelope.type === 'EffectOutcomeUnknown')).toEqual([]);
}

/** Asked to go: by itself, or killed when its grace is over. */
async function go(process: ManagedProcess): Promise<void> {
  await process.stop(GRACE_MS);
  const { name } = process;
  // A worker lets the signal end it once it has put its things in order.
  expect({ name, ...(await process.exited) }).toEqual(workers.includes(process) ? { name, code: null, signal: 'SIGTERM' } : { name, code: 0, signal: null });
}

test('everything is restarted in turn under load, over and over: each process goes within its grace by itself, no outcome is unknown, nothing is lost or done twice', async () => {
  const runs: RunHandle<string>[] = [];
  for (let roll = 1; roll <= ROLLS; roll += 1) {
    const started = await starts(`roll${roll}`);
    runs.push(...started);
    for (const process of [...stack.stack.services, ...workers]) {
      const before = (await world.effects()).length;
      await eventually('effects are under way, or all are done', async () => (await world.effects()).length >= Math.min(before + 3, runs.length * STEPS));
      await go(process);
      await process.start();
    }
  }
  await allOnce(runs);
  await eventually('topics, journals and chains agree', async () => (await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences.length === 0);
});

const connections = async (service: ManagedProcess): Promise<number> =>
  (await stack.rows<{ n: number }>('orchestrator', 'select count(*)::int as n from pg_stat_activity where application_name = $1', [`holdfast-${service.name}`]))[0]?.n ?? 0;

test('services that are told to go while they start are gone within their grace, and the next start is like any other', async () => {
  const runs = await starts('early');
  for (const service of [stack.service('orchestrator'), stack.service('ledger')]) {
    for (const far of [() => true, async () => (await connections(service)) > 0]) {
      await service.stop(GRACE_MS);
      const starting = service.start().then(() => null, (error: unknown) => error);
      await eventually('it has come so far', async () => service.pid !== undefined && (await far()));
      await service.stop(GRACE_MS);
      expect(await service.exited).not.toMatchObject({ signal: 'SIGKILL' });
      await starting;
    }
    await service.start();
  }
  await allOnce(runs);
});
