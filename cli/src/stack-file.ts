import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { CliError } from './failure.js';

/** What `holdfast up` leaves for other commands in the same folder. */
const StackFile = z.object({ brokers: z.array(z.string()).min(1), databaseUrl: z.string(), artifacts: z.string(), gateway: z.url().optional() });
export type StackFile = z.infer<typeof StackFile>;

export const STATE_DIR = '.holdfast';
const file = (dir: string): string => path.join(dir, STATE_DIR, 'stack.json');

export async function writeStackFile(dir: string, stack: StackFile): Promise<void> {
  await mkdir(path.dirname(file(dir)), { recursive: true });
  await writeFile(file(dir), `${JSON.stringify(stack, null, 2)}\n`, { mode: 0o600 });
}

export const removeStackFile = (dir: string): Promise<void> => rm(file(dir), { force: true });

/** What runs in this folder, or null. */
export const runningIn = (dir: string): Promise<StackFile | null> => readFile(file(dir), 'utf8').then((text) => StackFile.parse(JSON.parse(text)), () => null);

/** Where large values are: the environment first, then the stack of this folder, whether or not it runs. */
export async function findArtifacts(dir: string): Promise<string> {
  return process.env['HOLDFAST_ARTIFACTS'] ?? (await runningIn(dir))?.artifacts ?? path.join(dir, STATE_DIR, 'artifacts');
}

/** Where Kafka is, for what needs no more: the environment first, then the stack that runs in this folder. */
export async function findBrokers(dir: string): Promise<readonly string[]> {
  const brokers = brokersOf(process.env['HOLDFAST_BROKERS']) ?? (await runningIn(dir))?.brokers;
  if (brokers === undefined) throw new CliError('no stack runs in this folder: start one with `holdfast up`, or set HOLDFAST_BROKERS');
  return brokers;
}

const brokersOf = (text: string | undefined): string[] | undefined => text?.split(',').map((broker) => broker.trim());

/** Where the stack is: the environment first, then the stack that runs in this folder. */
export async function findStack(dir: string): Promise<StackFile> {
  const { HOLDFAST_BROKERS: brokers, HOLDFAST_DATABASE_URL: databaseUrl } = process.env;
  const running = await runningIn(dir);
  const found = {
    brokers: brokersOf(brokers) ?? running?.brokers,
    databaseUrl: databaseUrl ?? running?.databaseUrl,
  };
  if (found.brokers === undefined || found.databaseUrl === undefined) {
    throw new CliError('no stack runs in this folder: start one with `holdfast up`, or set HOLDFAST_BROKERS and HOLDFAST_DATABASE_URL');
  }
  return { brokers: found.brokers, databaseUrl: found.databaseUrl, artifacts: await findArtifacts(dir) };
}
