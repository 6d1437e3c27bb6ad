import { EventEmitter, once } from 'node:events';
import { access, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import { Kafka, logLevel } from 'kafkajs';
import pg from 'pg';
import { ensureTopic } from '@holdfast/runtime/kafka';
import { listTopics } from '../src/kafka.js';
import { databaseUrl } from '../src/postgres.js';
import { isRunning } from '../src/process-table.js';
import { startStack, type Stack, type StackOptions } from '../src/stack.js';
import { freshFolder, removeFolders } from './folders.js';

const ENTRY = fileURLToPath(new URL('fixtures/service.mjs', import.meta.url));
const LIMIT_MS = 90_000;

/** What every test run shares: a stack on servers that are not its own starts in no time. */
const SHARED = { HOLDFAST_BROKERS: process.env['HOLDFAST_TEST_BROKERS'], HOLDFAST_DATABASE_URL: process.env['HOLDFAST_TEST_DATABASE_URL'] };

const createTopic = (brokers: string[], partitions: number): Promise<void> => ensureTopic(brokers, { name: 'prepared', retentionMs: 'forever' }, partitions);

describe('a stack', () => {
  const stacks: Stack[] = [];

  async function start(options: Partial<StackOptions>): Promise<Stack> {
    const stack = await startStack({ dir: await freshFolder(), partitions: 4, services: [], prepare: createTopic, durable: false, ...options });
    stacks.push(stack);
    return stack;
  }

  afterEach(async () => {
    await Promise.all(stacks.splice(0).map((stack) => stack.stop()));
  }, LIMIT_MS);

  afterAll(removeFolders);

  test('starts servers and services, tells each where things are, and leaves nothing running', async () => {
    const dir = await freshFolder();
    const stack = await start({
      dir,
      services: [
        { name: 'ledger', instances: 2, entry: ENTRY, env: { FIXTURE_REPORT: path.join(dir, 'report.json') } },
        { name: 'run-keeper', instances: 1, entry: ENTRY },
      ],
      env: { LOG_LEVEL: 'warn' },
    });

    expect(stack.services.map(({ name }) => name)).toEqual(['ledger-1', 'ledger-2', 'run-keeper-1']);
    expect(JSON.parse(await readFile(path.join(dir, 'report.json'), 'utf8'))).toMatchObject({
      HOLDFAST_BROKERS: stack.brokers.join(','),
      HOLDFAST_DATABASE_URL: stack.databaseUrl,
      HOLDFAST_PARTITIONS: '4',
      HOLDFAST_INSTANCE: expect.stringMatching(/^ledger-[12]$/),
      HOLDFAST_ARTIFACTS: path.join(dir, 'artifacts'),
      LOG_LEVEL: 'warn',
    });
    await expect(access(path.join(dir, 'artifacts'))).resolves.toBeUndefined();

    const client = new pg.Client({ connectionString: databaseUrl(stack.databaseUrl, 'postgres') });
    await client.connect();
    const { rows } = await client.query("select datname from pg_database where datname like 'holdfast_%' order by 1");
    await client.end();
    expect(rows).toEqual([{ datname: 'holdfast_ledger' }, { datname: 'holdfast_run_keeper' }]);

    const admin = new Kafka({ brokers: stack.brokers, logLevel: logLevel.NOTHING }).admin();
    await admin.connect();
    const { topics } = await admin.fetchTopicMetadata({ topics: ['prepared'] });
    await admin.disconnect();
    expect(topics[0]?.partitions).toHaveLength(4);

    const pids = [...stack.services, stack.kafka, stack.postgres].map((one) => one?.pid ?? Number.NaN);
    await stack.stop();
    await stack.stop();
    await expect(Promise.all(pids.map(isRunning))).resolves.toEqual([false, false, false, false, false]);
  }, LIMIT_MS);

  test('uses the servers that it is told of, and leaves them running', async () => {
    const stack = await start({ env: SHARED, services: [{ name: 'fixture', instances: 1, entry: ENTRY }], prepare: () => Promise.resolve() });
    expect([stack.kafka, stack.postgres]).toEqual([undefined, undefined]);
    expect(stack.brokers.join(',')).toBe(SHARED.HOLDFAST_BROKERS);
    await stack.stop();
    await expect(start({ env: SHARED, prepare: () => Promise.resolve() })).resolves.toBeDefined();
  });

  test('says when a server that it is told of does not answer', async () => {
    await expect(start({ env: { ...SHARED, HOLDFAST_BROKERS: '127.0.0.1:1' } })).rejects.toThrow('No Kafka answers at 127.0.0.1:1: start it, correct HOLDFAST_BROKERS, or unset it');
    const secret = 'postgres://holdfast:s3cret@127.0.0.1:1';
    const failure = start({ env: { ...SHARED, HOLDFAST_DATABASE_URL: secret } });
    await expect(failure).rejects.toThrow('No PostgreSQL answers at 127.0.0.1:1: start it, correct HOLDFAST_DATABASE_URL, or unset it');
    await expect(failure).rejects.not.toThrow(/s3cret/);
  });

  test('with a service that does not start fails with the end of its log, and leaves nothing running', async () => {
    const well = { name: 'well', instances: 1, entry: ENTRY };
    const broken = { name: 'broken', instances: 1, entry: ENTRY, env: { FIXTURE_MODE: 'broken' } };
    const dir = await freshFolder();
    await expect(start({ dir, env: SHARED, services: [well, broken], prepare: () => Promise.resolve() })).rejects.toThrow(
      /broken-1 did not start: it exited with code 3\..*the fixture has no lanes/s,
    );
    // The other one had got ready: its own log says under which process id.
    const log = await readFile(path.join(dir, 'services', 'well-1.log'), 'utf8');
    const pid = Number(/"pid":(\d+)/.exec(log)?.[1]);
    expect(pid).toBeGreaterThan(0);
    await expect(isRunning(pid)).resolves.toBe(false);
  });

  test('with a service that was never built says so', async () => {
    await expect(start({ env: SHARED, services: [{ name: 'ledger', instances: 1, entry: '/nowhere/main.js' }] })).rejects.toThrow(
      'The service ledger has no program at /nowhere/main.js: run npm run build first.',
    );
  });

  test('reports a service that falls, and starts it again', async () => {
    const said: string[] = [];
    const world = new EventEmitter();
    const fallen = once(world, 'fallen');
    const risen = once(world, 'fixture-1 runs again.');
    const stack = await start({
      env: SHARED,
      services: [{ name: 'fixture', instances: 1, entry: ENTRY }],
      prepare: () => Promise.resolve(),
      restart: true,
      log: (line) => {
        said.push(line);
        world.emit(line);
      },
      onServiceExit: (service, exit) => world.emit('fallen', service.name, exit.code),
    });
    const service = stack.service('fixture-1');
    const first = service.pid;
    service.signal('SIGUSR2');
    await expect(fallen).resolves.toEqual(['fixture-1', 7]);
    await risen;
    expect(service.pid).not.toBe(first);
    expect(said).toContain(`fixture-1 ended unexpectedly: it exited with code 7. See ${service.logFile}.`);
  });

  test('starts its Kafka and its PostgreSQL again when they are killed, with what they held', async () => {
    const said: string[] = [];
    const world = new EventEmitter();
    const stack = await start({
      restart: true,
      log: (line) => {
        said.push(line);
        world.emit(line);
      },
    });
    await stack.postgres?.createDatabase('kept');
    for (const [name, server] of [['Kafka', stack.kafka], ['PostgreSQL', stack.postgres]] as const) {
      const first = server?.pid ?? 0;
      const risen = once(world, `${name} runs again.`);
      process.kill(first, 'SIGKILL');
      await risen;
      expect([server?.pid === first, await isRunning(server?.pid ?? 0)]).toEqual([false, true]);
      expect(said).toContain(`${name} ended unexpectedly: it was ended by SIGKILL. See ${server?.dir ?? ''}.`);
    }
    expect(await listTopics(stack.brokers)).toContain('prepared');
    const client = new pg.Client({ connectionString: databaseUrl(stack.databaseUrl, 'kept') });
    await client.connect();
    await client.end();
    const { length } = said;
    await stack.stop();
    expect(said).toHaveLength(length);
  }, LIMIT_MS);
});
