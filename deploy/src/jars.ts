import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { jarsNotFetched, mavenMissing } from './errors.js';
import { isRunning } from './process-table.js';

const run = promisify(execFile);

/** The same folder from src and from dist. */
const KAFKA_FOLDER = fileURLToPath(new URL('../local/kafka/', import.meta.url));
const LOCK_POLL_MS = 100;

export type JarsOptions = Readonly<{ folder?: string; env?: NodeJS.ProcessEnv }>;

/** Where Kafka's jars are, once they have been fetched. */
export const jarsFolder = (folder = KAFKA_FOLDER): string => path.join(folder, 'libs');

const wantedFor = async (folder: string): Promise<string> => createHash('sha256').update(await readFile(path.join(folder, 'pom.xml'))).digest('hex');

/** Whether those are there that pom.xml names. */
export const jarsAreFetched = async (folder = KAFKA_FOLDER): Promise<boolean> => (await fetchedFor(jarsFolder(folder))) === (await wantedFor(folder));

/** The folder with Kafka's jars, fetched once for a checkout and again when pom.xml names others. */
export async function kafkaJars(log: (line: string) => void, { folder = KAFKA_FOLDER, env = process.env }: JarsOptions = {}): Promise<string> {
  const libs = jarsFolder(folder);
  const pom = path.join(folder, 'pom.xml');
  const wanted = await wantedFor(folder);
  if ((await fetchedFor(libs)) === wanted) return libs;
  await withLock(path.join(folder, 'target', 'fetching.pid'), async () => {
    // Whoever held the lock before us has probably fetched them.
    if ((await fetchedFor(libs)) === wanted) return;
    log("Fetching Kafka's jars with Maven (once, about 45 MB) ...");
    const staging = path.join(folder, 'target', 'libs');
    await rm(staging, { recursive: true, force: true });
    await fetchJars({ pom, into: staging, libs, env });
    await writeFile(path.join(staging, 'pom.sha256'), wanted);
    await rm(libs, { recursive: true, force: true });
    await rename(staging, libs);
  });
  return libs;
}

const fetchedFor = (libs: string): Promise<string | undefined> => readFile(path.join(libs, 'pom.sha256'), 'utf8').catch(() => undefined);

type Fetch = Readonly<{ pom: string; into: string; libs: string; env: NodeJS.ProcessEnv }>;

async function fetchJars({ pom, into, libs, env }: Fetch): Promise<void> {
  try {
    await run('mvn', ['-q', '-B', '-f', pom, 'dependency:copy-dependencies', `-DoutputDirectory=${into}`, '-DincludeScope=runtime'], { env });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw mavenMissing(libs);
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    const said = `${stdout}\n${stderr}`.split('\n').find((line) => line.includes('[ERROR]'));
    throw jarsNotFetched(said?.replace('[ERROR]', '').trim() ?? String(error), error);
  }
}

/** Between processes, by a file that names its holder; a holder that died doesn't keep it. */
async function withLock(file: string, work: () => Promise<void>): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  while (!(await take(file))) {
    const holder = Number(await readFile(file, 'utf8').catch(() => ''));
    // An empty file is one whose holder is about to write its pid: only a pid that is gone makes it stale.
    if (holder > 0 && !(await isRunning(holder))) await rm(file, { force: true });
    else await pause(LOCK_POLL_MS);
  }
  try {
    await work();
  } finally {
    await rm(file, { force: true });
  }
}

async function take(file: string): Promise<boolean> {
  const handle = await open(file, 'wx').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EEXIST') return undefined;
    throw error;
  });
  if (handle === undefined) return false;
  await handle.writeFile(String(process.pid));
  await handle.close();
  return true;
}
