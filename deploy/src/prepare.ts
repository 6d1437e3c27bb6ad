import { ensureTopics } from '@holdfast/runtime/kafka';
import { createDatabase } from './postgres.js';
import { databaseOf } from './stack.js';

/**
 * `node dist/prepare.js SERVICE...`: topics and each service's database, once, before the services start,
 * where no `startStack` does it: in docker compose.
 */
const services = process.argv.slice(2);
const required = (name: string): string => {
  const value = process.env[name];
  if (value === undefined || value === '') throw new Error(`${name} is not set.`);
  return value;
};

try {
  const brokers = required('HOLDFAST_BROKERS').split(',');
  const databaseServer = required('HOLDFAST_DATABASE_URL');
  await ensureTopics(brokers, Number(required('HOLDFAST_PARTITIONS')));
  for (const service of services) await createDatabase(databaseServer, databaseOf(service));
  process.stdout.write(`${JSON.stringify({ msg: 'prepared', services })}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
