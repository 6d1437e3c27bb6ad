import { expect, jest, test } from '@jest/globals';
import { Kafka, logLevel } from 'kafkajs';
import { ensureTopic } from '@holdfast/runtime/kafka';
import pg from 'pg';
import { createDatabase, databaseUrl } from '../src/postgres.js';

jest.setTimeout(120_000);

interface Lent {
  readonly id: number;
  readonly brokers: string[];
  readonly databaseUrl: string;
}
const ask = async (what: string): Promise<unknown> => {
  const response = await fetch(`${process.env['HOLDFAST_TEST_LENDER'] ?? ''}/${what}`, { method: 'POST' });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
};
const borrow = async (): Promise<Lent> => (await ask('lend')) as Lent;

async function found({ brokers, databaseUrl: server }: Lent): Promise<{ topics: string[]; groups: string[]; databases: string[] }> {
  const admin = new Kafka({ brokers, clientId: 'lender-test', logLevel: logLevel.NOTHING }).admin();
  const client = new pg.Client({ connectionString: databaseUrl(server, 'postgres') });
  await Promise.all([admin.connect(), client.connect()]);
  try {
    const [topics, { groups }, { rows }] = await Promise.all([admin.listTopics(), admin.listGroups(), client.query<{ datname: string }>('select datname from pg_database where not datistemplate')]);
    return { topics: topics.filter((name) => !name.startsWith('__')), groups: groups.map(({ groupId }) => groupId), databases: rows.map(({ datname }) => datname) };
  } finally {
    await Promise.all([admin.disconnect(), client.end()]);
  }
}

test('servers that were lent before are lent again without a trace of it, and only once nobody is in a group there', async () => {
  const first = await borrow();
  const kafka = new Kafka({ brokers: first.brokers, clientId: 'lender-test', logLevel: logLevel.NOTHING });
  const [admin, consumer] = [kafka.admin(), kafka.consumer({ groupId: 'stays', sessionTimeout: 6000 })];
  await ensureTopic(first.brokers, { name: 'left', retentionMs: 'forever' }, 2);
  await admin.connect();
  await admin.setOffsets({ groupId: 'gone', topic: 'left', partitions: [{ partition: 0, offset: '0' }] });
  await admin.disconnect();
  await createDatabase(first.databaseUrl, 'left');
  await consumer.connect();
  await consumer.subscribe({ topic: 'left' });
  const joined = new Promise((resolve) => consumer.on('consumer.group_join', resolve));
  await consumer.run({ eachMessage: () => Promise.resolve() });
  await joined;
  await ask(`back/${first.id}`);

  // A group with a member can't be deleted: were it not waited for, these servers would be stopped and never lent again.
  await consumer.disconnect();
  const lent = [await borrow()];
  while (lent.at(-1)?.id !== first.id) lent.push(await borrow());
  expect(await found(first)).toEqual({ topics: [], groups: [], databases: ['postgres'] });
  await Promise.all(lent.map(({ id }) => ask(`back/${id}`)));
});

test('what is given back twice, or was never lent, is refused', async () => {
  await expect(ask('back/1000000')).rejects.toThrow('nothing is lent at /back/1000000');
});
