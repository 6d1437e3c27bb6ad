import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { verify } from '@holdfast/cli';
import { PauseRun, topics, UnpauseRun } from '@holdfast/protocol';
import { defineAgent, HoldfastClient, type ServedWorker } from '@holdfast/sdk';
import { z } from 'zod';
import { cli } from './support/cli.js';
import { eventually } from './support/eventually.js';
import { STACK_LIMIT_MS, TestStack, type ServiceName } from './support/stack.js';
import { countingTool, work, type Firing } from './support/worker.js';

jest.setTimeout(STACK_LIMIT_MS);

/** A service as it was before anything could be paused. */
const older = (changes: readonly { readonly file: string; readonly from: string; readonly to: string }[]): Record<string, string> => ({
  NODE_OPTIONS: `--import ${pathToFileURL(fileURLToPath(new URL('support/older.mjs', import.meta.url))).href}`,
  HOLDFAST_TEST_OLDER: JSON.stringify(changes),
});
const OLDER = {
  /** Its own stream holds what it can't take in. */
  orchestrator: older([{ file: 'orchestrator/dist/domain/run.js', from: "case 'RunPaused':", to: "case 'NothingYet':" }]),
  /** Another service tells what it does not know. */
  ledger: older([{ file: 'protocol/dist/run.js', from: 'RunPaused,\n    RunUnpaused,', to: 'RunUnpaused,' }]),
};
const NEWER = { NODE_OPTIONS: undefined, HOLDFAST_TEST_OLDER: undefined };

const firings: Firing[] = [];
const pay = countingTool('pay', 'irreversible', firings);
const clerk = defineAgent({ name: 'clerk', version: '1', input: z.object({}), output: z.string(), run: async (run) => {
  const word = await run.signal('go', z.string());
  await run.call(pay, { amount: 5 });
  return word;
} });
const by = { name: 'kate', roles: ['operator'] };

let stack: TestStack;
let served: ServedWorker | undefined;
let client: HoldfastClient;

beforeAll(async () => {
  stack = await TestStack.start({ env: { ledger: OLDER.ledger } });
  served = await work(stack.brokers, { agents: [clerk], tools: [pay] });
  client = await HoldfastClient.connect({ brokers: stack.brokers });
}, STACK_LIMIT_MS);

afterAll(async () => {
  await client?.close();
  await served?.stop({ graceMs: 0 });
  await stack?.stop();
}, STACK_LIMIT_MS);

/** What rests in a service, by type and in order. */
async function shelf(service: ServiceName, run: string): Promise<string[]> {
  const rows = await stack.rows<{ record: string }>(service, 'select record from shelf where stream = $1 order by lane, id', [run]);
  return rows.map(({ record }) => (JSON.parse(record) as { headers: { ce_type: string } }).headers.ce_type);
}
const command = (run: string, message: { readonly type: string; readonly data: unknown }) => stack.send({ topic: topics.operatorCommands, key: run, type: message.type, value: JSON.stringify(message.data) });
async function restart(service: 'orchestrator' | 'ledger', env: Record<string, string | undefined>): Promise<void> {
  await stack.service(service).stop();
  await stack.service(service).start(env);
}

test('a run that an older version of a service can’t read rests there, alone of its lane; nothing of it is dropped, nothing of it fires, and the newer version takes it up in order', async () => {
  const [kept, fine] = ['kept', 'fine'].map((name) => stack.runOn(0, name)) as [string, string];
  for (const runId of [kept, fine]) await client.start(clerk, {}, { runId });
  for (const run of [kept, fine]) await stack.event(run, 'RunReleased');
  await command(kept, PauseRun({ command: 'hold', by, reason: 'lunch' }));
  await stack.event(kept, 'RunPaused');
  await eventually('the older ledger keeps what it does not know', async () => (await shelf('ledger', kept)).length === 1);

  await restart('orchestrator', OLDER.orchestrator);
  for (const run of [kept, fine]) await client.signal(run, 'go', `for ${run}`);
  await command(kept, UnpauseRun({ command: 'free', by }));
  expect(await client.outcome(fine, { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: `for ${fine}` });
  await eventually('what came for it is kept', async () => (await shelf('orchestrator', kept)).length === 2);

  // Another start of the old one: it says which run rests and why, and what an operator is to do.
  await restart('orchestrator', {});
  const said = await eventually('it is told', async () => {
    const alarms = (await stack.log(stack.service('orchestrator'))).filter(({ msg, run }) => msg === 'run shelved' && run === kept);
    return alarms.length >= 2 && alarms;
  });
  expect(said.map(({ reason }) => String(reason))).toEqual(said.map(() => expect.stringMatching(/can’t take in its RunPaused .*newer/)));
  expect(await stack.halts()).toEqual([]);
  // Of two topics, in the order in which they came.
  expect([(await shelf('orchestrator', kept)).sort(), await shelf('ledger', kept)]).toEqual([['SignalRun', 'UnpauseRun'], ['RunPaused']]);
  expect(firings.map(({ run }) => run)).toEqual([fine]);
  Object.assign(process.env, { HOLDFAST_BROKERS: stack.brokers.join(','), HOLDFAST_DATABASE_URL: stack.stack.databaseUrl, NO_COLOR: '1' });
  const { out } = await cli('doctor');
  delete process.env['HOLDFAST_BROKERS'];
  delete process.env['HOLDFAST_DATABASE_URL'];
  expect(out).toMatch(new RegExp(`journal of orchestrator.*2 messages rest.*${kept}`));

  await restart('orchestrator', NEWER);
  await eventually('the orchestrator takes it up; the ledger, still the older one, keeps what follows', async () => (await shelf('ledger', kept)).includes('EffectRequested'));
  expect([await shelf('orchestrator', kept), firings.length]).toEqual([[], 1]);
  await restart('ledger', NEWER);
  expect(await client.outcome(kept, { timeoutMs: 60_000 })).toMatchObject({ status: 'completed', output: `for ${kept}` });
  expect([await shelf('ledger', kept), firings.map(({ run }) => run)]).toEqual([[], [fine, kept]]);
  await eventually('topics, journals and chains agree', async () => (await verify({ brokers: stack.brokers, databaseUrl: stack.stack.databaseUrl })).differences.length === 0);
});
