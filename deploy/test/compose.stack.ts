import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import getPort from 'get-port';
import { startKafka, type KafkaServer } from '../src/kafka.js';
import { ManagedProcess } from '../src/managed-process.js';
import { startPostgres, type PostgresServer } from '../src/postgres.js';
import { parseCompose, readRootFile, ROOT, type ComposeService } from './compose-file.js';
import { freshFolder, removeFolders } from './folders.js';
import { SERVICES } from '../src/holdfast.js';

const LIMIT_MS = 120_000;

/** Compose's own substitution, without a variable set: `${NAME:-default}`. */
const substituted = (value: string): string => value.replace(/\$\{\w+:-([^}]*)\}/g, '$1');

/** Each service as docker compose would run it, but as a plain process of this checkout and against servers here. */
describe('the services in docker-compose.yml', () => {
  let kafka: KafkaServer;
  let postgres: PostgresServer;
  let services: Readonly<Record<string, ComposeService>>;
  const started: ManagedProcess[] = [];

  async function processOf(name: string, isReady?: (line: string) => boolean): Promise<{ service: ManagedProcess; healthPort: number }> {
    const { command = [], environment = {} } = services[name] ?? {};
    const [node, entry = '', ...args] = command;
    expect(node).toBe('node');
    const healthPort = await getPort({ host: '127.0.0.1' });
    const dir = await freshFolder();
    const here: Record<string, string> = {
      'kafka:9092': kafka.brokers.join(','),
      'postgres://holdfast:holdfast@postgres:5432': postgres.url(),
      '/var/lib/holdfast/artifacts': dir,
      '8080': String(healthPort),
      '8081': '0',
    };
    const env = Object.fromEntries(Object.entries(environment).map(([key, value]) => [key, here[String(value)] ?? substituted(String(value))]));
    const service = new ManagedProcess({ name, entry: fileURLToPath(new URL(entry, ROOT)), args, env, dir, isReady });
    started.push(service);
    return { service, healthPort };
  }

  beforeAll(async () => {
    ({ services } = parseCompose(await readRootFile('docker-compose.yml')));
    [kafka, postgres] = await Promise.all([startKafka({ dir: await freshFolder() }), startPostgres({ dir: await freshFolder(), durable: false })]);
  }, LIMIT_MS);

  afterAll(async () => {
    await Promise.all(started.map((service) => service.stop()));
    await Promise.all([kafka.stop(), postgres.stop()]);
    await removeFolders();
  }, LIMIT_MS);

  test('are those that are tried here', () => {
    expect(Object.keys(services).filter((name) => services[name]?.build !== undefined)).toEqual(['prepare', ...SERVICES, 'gateway']);
  });

  test('prepare topics and databases, as often as they are started', async () => {
    for (let round = 1; round <= 2; round += 1) {
      const { service } = await processOf('prepare', (line) => line.includes('"msg":"prepared"'));
      await service.start();
      await expect(service.exited).resolves.toEqual({ code: 0, signal: null });
    }
  }, LIMIT_MS);

  test.each([...SERVICES, 'gateway'])('run as plain processes with that command and environment: %s', async (name) => {
    const { service, healthPort } = await processOf(name);
    await service.start();
    let status = 0;
    while (status !== 200) {
      status = await fetch(`http://127.0.0.1:${healthPort}/readyz`).then((response) => response.status, () => 0);
      if (status !== 200) await pause(50);
    }
    await expect(service.kill('SIGTERM')).resolves.toEqual({ code: 0, signal: null });
  }, LIMIT_MS);
});
