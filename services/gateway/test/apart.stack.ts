import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { digestOf, encodeHeaders, RunAccepted, topics } from '@holdfast/protocol';
import { openDatabase, type LaneGroup, type LaneGroupHandlers, type LogRecord, type Outgoing } from '@holdfast/runtime';
import type { ServiceLog } from '@holdfast/runtime/nest';
import type { DataSource } from 'typeorm';
import { rowsOf } from '../src/store/database.js';
import { gatewayMigrations } from '../src/store/migrations.js';
import { LaneReader } from '../src/views/lane-reader.js';
import { Projector } from '../src/views/projector.js';
import { createViews } from '../src/views/schema.js';
import { SetApart } from '../src/views/set-apart.js';

const LIMIT_MS = 60_000;
jest.setTimeout(LIMIT_MS);

const DATABASE = 'gateway_apart';
const errors: unknown[] = [];
const warnings: unknown[] = [];
const log = { info: () => undefined, warn: (said: unknown) => warnings.push(said), error: (said: unknown) => errors.push(said) } as unknown as ServiceLog;
let database: DataSource;

beforeAll(async () => {
  const at = new URL(process.env['HOLDFAST_TEST_DATABASE_URL'] ?? '');
  const urlOf = (name: string): string => Object.assign(new URL(at), { pathname: `/${name}` }).href;
  const admin = await openDatabase({ url: urlOf('postgres'), applicationName: 'apart', migrations: [], journal: false, poolSize: 2 });
  await admin.query(`create database ${DATABASE}`);
  await admin.destroy();
  database = await openDatabase({ url: urlOf(DATABASE), applicationName: 'apart', migrations: gatewayMigrations, journal: false, poolSize: 4 });
  await database.transaction((tx) => createViews(tx, 1));
}, LIMIT_MS);
afterAll(() => database?.destroy());

function accepted(run: string, offset: number): LogRecord {
  const { type, data } = RunAccepted({ tenant: 'default' as never, agent: null, pool: 'default' as never, input: 1, inputDigest: digestOf(1) });
  const headers = encodeHeaders({ id: `o/${offset}`, type, source: 'holdfast/orchestrator/1', subject: run, time: 1_700_000_000_000 + offset, tenant: 'default', lane: 0, seq: offset + 1, prev: offset, version: 1 });
  return { topic: topics.runEvents, lane: 0, offset, key: run, headers, value: JSON.stringify(data), time: 1_700_000_000_000 };
}

test('a record that the database never takes is found, shown and passed over; what stands around it is taken in, and outages are waited out', async () => {
  // No index of PostgreSQL holds so long a value.
  const guilty = randomBytes(6000).toString('base64');
  const records = Array.from({ length: 40 }, (_, offset) => accepted(offset === 17 ? guilty : `run-${offset}`, offset));
  const published: Outgoing[] = [];
  let away = 2;
  const writer = {
    publish: async (letters: readonly Outgoing[]): Promise<void> => {
      if ((away -= 1) >= 0) throw new Error('the broker is away');
      published.push(...letters);
    },
    close: async () => undefined,
  };
  let handlers: LaneGroupHandlers | undefined;
  const group = { start: async () => undefined, stop: async () => undefined, offsets: async () => new Map([[0, { first: 0, next: 40 }]]), open: () => undefined, heartbeatAgeMs: () => 0 } as unknown as LaneGroup;
  const apart = new SetApart(writer, 'holdfast-gateway/test', log);
  const reader = new LaneReader({
    ...{ brokers: [], groupId: 'view', topics: [topics.runEvents], sessionTimeoutMs: 1000, sink: new Projector(database, 1, () => undefined), apart, log },
    createGroup: (options) => {
      ({ handlers } = options);
      return group;
    },
  });
  await reader.start();
  handlers?.onAssigned({ lanes: [0] } as never);
  await reader.assigned;
  await handlers?.onRecords(records, null as never);
  await handlers?.onRecords([accepted('run-40', 40)], null as never);
  await reader.stop();

  const runs = await rowsOf<{ id: string }>(database, 'select id from view_1.run');
  expect(runs.map(({ id }) => id).sort()).toEqual([...Array.from({ length: 40 }, (_, n) => n).filter((n) => n !== 17), 40].map((n) => `run-${n}`).sort());
  expect(await rowsOf(database, `select next from view_1.position`)).toEqual([{ next: 41 }]);
  expect(published.map(({ topic, value }) => ({ topic, ...(JSON.parse(value) as object) }))).toEqual([
    expect.objectContaining({ topic: 'run.events', partition: 0, offset: 17, type: 'RunAccepted', reason: 'not_storable', message: expect.stringMatching(/^what is made of it can’t be stored by view.*index row/) }),
  ]);
  expect(published[0]?.topic).toBe(topics.deadLetters);
  expect(errors).toEqual([expect.objectContaining({ topic: 'run.events', lane: 0, offset: 17 })]);
  expect(apart.count).toBe(1);
});
