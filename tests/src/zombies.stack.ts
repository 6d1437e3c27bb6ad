import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { verify } from '@holdfast/cli';
import { topics } from '@holdfast/protocol';
import { HoldfastClient, defineAgent } from '@holdfast/sdk';
import { z } from 'zod';
import { eventually } from './support/eventually.js';
import { proof } from './support/proof.js';
import { STACK_LIMIT_MS, TestStack, type ServiceName } from './support/stack.js';
import { World } from './support/world.js';

jest.setTimeout(proof(STACK_LIMIT_MS, 4 * STACK_LIMIT_MS));

const RUNS = proof(8, 40);
/** Longer than it takes until the last of them thinks, milliseconds. */
const THINK_MS = proof(3000, 15_000);
const LOAD_RUNS = proof(40, 200);
const LOAD_STEPS = 3;

let stack: TestStack;
let world: World;
let client: HoldfastClient;

/** As its users know it; the code is in the worker's process. */
const thinker = defineAgent({ name: 'thinker', version: '1', input: z.object({}), output: z.string(), run: () => '' });
const payer = defineAgent({ name: 'payer', version: '1', input: z.object({ steps: z.number(), ms: z.number().optional(), before: z.string().optional() }), output: z.string(), run: () => '' });

beforeAll(async () => {
  stack = await TestStack.start({ instances: { orchestrator: 2, ledger: 2 } });
  world = await World.open(stack);
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await world?.stop();
  await stack?.stop();
}, STACK_LIMIT_MS);

const laneTakers = (): Set<unknown> => new Set(stack.lanes.map((lane) => stack.events(`~lane/default/${lane}`).at(-1)?.data['worker']));
const heldByOne = (before: number): boolean => laneTakers().size === 1 && stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length > before);
const stepsOf = (rows: readonly { run: string; step: string }[]): string[] => rows.map(({ run, step }) => `${run}/${step}`).sort();

test('a worker frozen for longer than its session, while another of its name takes its lanes, does nothing when it is thawed: what it still asks for is refused as stale, what it had fired counts', async () => {
  // What it thinks is over while it is frozen: thawed, it goes on at once, before it can hear that it was given up.
  const zombie = await world.startWorker('desk', { TEST_THINK: String(THINK_MS) });
  await eventually('the worker holds every lane', () => heldByOne(0));
  const runs = await Promise.all(Array.from({ length: RUNS }, (_, i) => client.start(thinker, {}, { runId: `think-${i}` })));
  const late = await client.start(payer, { steps: 2, before: 'late' }, { runId: 'late' });
  // Its report is out: the worker has seen the end, and thinks.
  for (const { id: runId } of runs) await stack.event(runId, 'EffectSucceeded', () => true, topics.effectEvents);
  await stack.event('late', 'EffectDispatched', () => true, topics.effectEvents);
  zombie.signal('SIGSTOP');
  const thoughtBy = Date.now() + THINK_MS;
  const before = Math.max(...stack.lanes.map((lane) => stack.events(`~lane/default/${lane}`).length));

  await world.startWorker('desk', { TEST_THINK: 'thought' });
  await eventually('the other holds every lane', () => stack.lanes.every((lane) => stack.events(`~lane/default/${lane}`).length >= 2) && heldByOne(before - 1));
  for (const { id: runId } of [...runs, late]) await stack.event(runId, 'RunResumed');
  await stack.event('late', 'RunBlocked');
  await eventually('what it thinks is over', () => Date.now() > thoughtBy);

  zombie.signal('SIGCONT');
  for (const { id: runId } of runs) await stack.event(runId, 'IntentRejected', ({ reason, fence }) => reason === 'stale_fence' && fence === 1);
  expect(await world.effects('think-%')).toHaveLength(RUNS);
  await Promise.all([world.openGate('thought'), world.openGate('late')]);
  for (const run of [...runs, late]) expect(await run.outcome({ timeoutMs: 60_000 })).toMatchObject({ status: 'completed' });

  const rows = await world.effects('think-%');
  expect(stepsOf(rows)).toEqual(stepsOf(runs.flatMap(({ id: runId }) => ['1', '3'].map((step) => ({ run: runId, step })))));
  expect(rows.filter(({ step, fence }) => fence < (step === '3' ? 2 : 1))).toEqual([]);
  // The attempt that was frozen amid its work ended as it ended: late evidence, from a worker that has no say any more.
  const [first, second, ...more] = await world.effects('late');
  expect(first).toMatchObject({ step: '1', fence: 1, worker: `desk/${zombie.pid ?? ''}` });
  expect(second).toMatchObject({ step: '2' });
  expect(second?.fence).toBeGreaterThan(1);
  expect(more).toEqual([]);
  // Nothing of the old fence stands in a stream after the new one.
  for (const { id: runId } of runs) {
    const events = stack.events(runId);
    const resumed = events.findIndex(({ envelope }) => envelope.type === 'RunResumed');
    expect(events.slice(resumed).filter(({ envelope, data }) => envelope.type !== 'IntentRejected' && data['fence'] === 1)).toEqual([]);
  }
});

/** Epochs rise when lanes are taken over. */
const epochs = async (service: ServiceName): Promise<number> => (await stack.rows<{ sum: number }>(service, 'select sum(epoch)::int as sum from progress'))[0]?.sum ?? 0;

test.each(['orchestrator', 'ledger'] as const)('an instance of the %s frozen for longer than its session decides nothing on the lanes that another took meanwhile, and each effect is done once', async (service) => {
  const prefix = `frozen-${service}`;
  const runs = await Promise.all(Array.from({ length: LOAD_RUNS }, (_, i) => client.start(payer, { steps: LOAD_STEPS, ms: 30 }, { runId: `${prefix}-${i}` })));
  const done = async (share: number): Promise<boolean> => (await world.effects(`${prefix}-%`)).length >= LOAD_RUNS * LOAD_STEPS * share;
  for (const [number, share] of [[1, 0.15], [2, 0.4]] as const) {
    await eventually('effects under way', () => done(share), 60_000);
    const before = await epochs(service);
    const victim = stack.service(service, number);
    victim.signal('SIGSTOP');
    await eventually('another instance has taken its lanes', async () => (await epochs(service)) > before);
    await eventually('the others go on', () => done(share + 0.1), 60_000);
    victim.signal('SIGCONT');
  }
  const outcomes = await Promise.all(runs.map((run) => run.outcome({ timeoutMs: proof(60_000, 240_000) })));
  expect(outcomes.filter(({ status }) => status !== 'completed')).toEqual([]);
  expect(stepsOf(await world.effects(`${prefix}-%`))).toEqual(stepsOf(runs.flatMap(({ id: runId }) => Array.from({ length: LOAD_STEPS }, (_, n) => ({ run: runId, step: String(n + 1) })))));
  expect(await stack.halts()).toEqual([]);
  await eventually('topics, journals and chains agree', async () => (await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences.length === 0);
});
