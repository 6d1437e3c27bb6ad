import { randomBytes, randomUUID } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { userInfo } from 'node:os';
import { createDatabase, databaseOf } from '@holdfast/deploy';
import { createWriter } from '@holdfast/runtime/kafka';
import { STATE_DIR, type StackFile } from './stack-file.js';

/** The gateway brings a whole web server along: loaded by those commands alone that need it. */
export const gatewayParts = () => import('@holdfast/gateway');

export type GatewayParts = Awaited<ReturnType<typeof gatewayParts>>;
export type GatewayDatabase = Awaited<ReturnType<GatewayParts['openGatewayDatabase']>>;

/** Works on the gateway's database, which is made where it is missing. */
export async function withGatewayDatabase<T>({ databaseUrl }: Pick<StackFile, 'databaseUrl'>, work: (database: GatewayDatabase, parts: GatewayParts) => Promise<T>): Promise<T> {
  await createDatabase(databaseUrl, databaseOf('gateway'));
  const parts = await gatewayParts();
  const database = await parts.openGatewayDatabase(databaseUrl, `holdfast-cli-${process.pid}`, 2);
  try {
    return await work(database, parts);
  } finally {
    await database.destroy();
  }
}

/** Writes down who does what with the gateway, before it is done. */
export async function audited(brokers: readonly string[], act: string, tenant: string, about: string): Promise<void> {
  const { Audit } = await gatewayParts();
  const writer = await createWriter({ brokers, clientId: 'cli-audit' });
  try {
    const name = process.env['HOLDFAST_OPERATOR'] ?? userInfo().username;
    await new Audit(writer, 'holdfast-cli', Date.now).publish({ act, tenant, by: { id: 'cli', name, roles: [] }, about, command: randomUUID() });
  } finally {
    await writer.close();
  }
}

/** The development key of a local stack: made once, good while the stack's state is. */
export async function developmentKey(dir: string, stack: Pick<StackFile, 'brokers' | 'databaseUrl'>): Promise<string> {
  const file = path.join(dir, STATE_DIR, 'dev-key');
  return withGatewayDatabase(stack, async (database, { Keys }) => {
    const keys = new Keys(database, Date.now);
    const known = await readFile(file, 'utf8').then((text) => text.trim(), () => null);
    if (known !== null && (await keys.principalOf(known)) !== null) return known;
    await audited(stack.brokers, 'key.create', 'default', 'the development key of a local stack');
    const { key } = await keys.create({ tenant: 'default', name: 'development', roles: ['admin'] });
    await writeFile(file, `${key}\n`, { mode: 0o600 });
    return key;
  });
}

/** What makes the secrets of a local stack's webhooks. */
export async function webhookKey(dir: string): Promise<string> {
  const file = path.join(dir, STATE_DIR, 'webhook-key');
  const known = await readFile(file, 'utf8').then((text) => text.trim(), () => null);
  if (known !== null && known.length >= 32) return known;
  await mkdir(path.dirname(file), { recursive: true });
  const made = randomBytes(32).toString('base64');
  await writeFile(file, `${made}\n`, { mode: 0o600 });
  return made;
}
