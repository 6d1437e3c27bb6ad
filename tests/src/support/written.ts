import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { tail } from '@holdfast/runtime/kafka';
import type { TestStack } from './stack.js';

export interface Written {
  readonly topic: string;
  readonly headers: string;
  readonly value: string;
}

/** All that topics hold now. */
export async function everyRecord(brokers: readonly string[], names: readonly string[]): Promise<Written[]> {
  const found: Written[] = [];
  await Promise.all(
    names.map(async (topic) => {
      const headersOf = (headers: object): string => JSON.stringify(Object.entries(headers).map(([name, value]) => [name, String(value)]));
      const reader = await tail({ brokers, topics: [topic], from: 'beginning', onRecord: ({ headers, value }) => found.push({ topic, headers: headersOf(headers), value: value ?? '' }) });
      await reader.caughtUp;
      await reader.close();
    }),
  );
  return found;
}

/** Every record, every row of every table and every log line of a stack, as one text. */
export async function everythingWritten(stack: TestStack): Promise<string> {
  const names = (await stack.admin.listTopics()).filter((name) => !name.startsWith('__'));
  const records = await everyRecord(stack.brokers, names);
  const parts = records.map(({ topic, headers, value }) => `${topic} ${headers} ${value}`);
  const databases = await stack.pool('postgres').query<{ name: string }>(`select datname as name from pg_database where datname like 'holdfast%'`);
  for (const { name } of databases.rows) {
    const pool = stack.pool(name);
    const tables = await pool.query<{ name: string }>(`select format('%I.%I', table_schema, table_name) as name from information_schema.tables where table_schema not in ('pg_catalog', 'information_schema')`);
    for (const table of tables.rows) {
      const { rows } = await pool.query<{ row: string }>(`select t::text as row from ${table.name} t`);
      parts.push(...rows.map(({ row }) => `${name} ${table.name} ${row}`));
    }
  }
  const folder = path.join(stack.stack.dir, 'services');
  for (const file of await readdir(folder)) parts.push(await readFile(path.join(folder, file), 'utf8'));
  return parts.join('\n');
}
