import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { archiveKafkaClasses, formatKafka } from './kafka.js';
import { initialisePostgres } from './postgres.js';

const run = promisify(execFile);

/** The folders of a stack that hold its servers' data. */
const SERVERS = ['kafka', 'postgres'] as const;

/**
 * What a first start makes in a stack's folder before the servers run, made once for many stacks that are to be thrown away:
 * Kafka's storage, and PostgreSQL's cluster, whose commits survive no power cut. Starts of Kafka in this checkout are quicker afterwards.
 */
export async function makeSeed(dir: string, log: (line: string) => void = () => undefined): Promise<void> {
  const [kafka, postgres] = SERVERS.map((server) => path.join(dir, server)) as [string, string];
  await Promise.all([formatKafka({ dir: kafka, log }), initialisePostgres({ dir: postgres, durable: false, log })]);
  await archiveKafkaClasses({ dir: path.join(dir, 'training'), log });
}

/** Puts a seed's data into a stack's folder that has none. */
export async function sow(seed: string, dir: string): Promise<void> {
  await mkdir(dir, { recursive: true });
  // Node's own copy doesn't keep whose a file is, and PostgreSQL takes only what is its user's.
  await run('cp', ['-a', ...SERVERS.map((server) => path.join(seed, server)), dir]);
}
