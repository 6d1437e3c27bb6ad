import pg from 'pg';
import { databaseUrl } from '@holdfast/deploy';

const CONNECT_MS = 3000;

/** A moment's look at a server; `database` is the server's own when absent. */
export async function withClient<T>(server: string, work: (client: pg.Client) => Promise<T>, database = 'postgres'): Promise<T> {
  const client = new pg.Client({ connectionString: databaseUrl(server, database), application_name: 'holdfast-cli', connectionTimeoutMillis: CONNECT_MS, statement_timeout: 10_000 });
  // Cut while nobody listens, it would end the process; whoever asks next is told.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
