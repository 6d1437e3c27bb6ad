import { createDatabase, databaseOf, databaseUrl, SERVICES } from '@holdfast/deploy';
import { migrationState, openDatabase, type DatabaseOptions, type MigrationState } from '@holdfast/runtime';
import { gatewayParts } from './gateway.js';
import { withClient } from './pg-client.js';

/** Who has a database of its own. */
export const DATABASES = [...SERVICES, 'gateway'] as const;

export interface ServiceDatabase extends MigrationState {
  readonly service: string;
  readonly database: string;
  readonly exists: boolean;
}

const APPLICATION = 'holdfast-cli';
const optionsOf = async (server: string, service: (typeof DATABASES)[number]): Promise<DatabaseOptions> =>
  service === 'gateway' ? (await gatewayParts()).gatewayDatabase(server, APPLICATION) : { url: databaseUrl(server, databaseOf(service)), applicationName: APPLICATION };

/** How far each service's database has come; changes nothing. */
export async function databaseStates(server: string): Promise<ServiceDatabase[]> {
  const there = await withClient(server, async (client) => new Set((await client.query<{ datname: string }>('select datname from pg_database')).rows.map(({ datname }) => datname)));
  return Promise.all(
    DATABASES.map(async (service) => {
      const database = databaseOf(service);
      const exists = there.has(database);
      return { service, database, exists, ...(exists ? await migrationState(await optionsOf(server, service)) : { applied: [], pending: ['all of them'], foreign: [] }) };
    }),
  );
}

/** Makes what is missing: databases, and what is pending in them. */
export async function migrateAll(server: string, onProgress: (text: string) => void): Promise<void> {
  for (const service of DATABASES) {
    onProgress(`migrating ${databaseOf(service)} ...`);
    await createDatabase(server, databaseOf(service));
    await (await openDatabase(await optionsOf(server, service))).destroy();
  }
}
