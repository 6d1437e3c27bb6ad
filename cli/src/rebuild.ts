import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { createDatabase, databaseOf, serviceEntry, type ServiceName } from '@holdfast/deploy';
import { topics } from '@holdfast/protocol';
import { partitionsOf } from '@holdfast/runtime/kafka';
import { z } from 'zod';
import { CliError } from './failure.js';

const Missing = z.object({ topic: z.string(), lane: z.number(), from: z.number(), to: z.number() });
/** What a rebuild came to, as the service's own process says it. */
const Report = z.object({
  service: z.string(),
  incarnation: z.string(),
  added: z.number(),
  known: z.number(),
  streams: z.number(),
  open: z.number(),
  foreign: z.number(),
  recovered: z.number(),
  republished: z.number(),
  missing: z.array(Missing),
});
export type RebuildReport = z.infer<typeof Report>;

const Line = z.discriminatedUnion('msg', [z.object({ msg: z.literal('progress'), what: z.string() }), z.object({ msg: z.literal('rebuilt'), report: Report })]);

export interface RebuildOptions {
  readonly brokers: readonly string[];
  readonly databaseUrl: string;
  readonly skipMissing?: boolean;
  /** The service's own program; as built, when absent. */
  readonly entry?: string;
  readonly onProgress?: (text: string) => void;
  /** Stops the rebuild between two writes. */
  readonly signal?: AbortSignal;
}

/**
 * Makes a service's journal from the topics, in a process of the service itself. No instance of it
 * may run; its database is created where it is missing.
 * @throws CliError what stands in the way, and what to do about it
 */
export async function rebuildService(service: ServiceName, { brokers, databaseUrl, skipMissing = false, entry = serviceEntry(service), onProgress, signal }: RebuildOptions): Promise<RebuildReport> {
  const partitions = await partitionsOf(brokers, topics.runEvents);
  if (partitions === 0) throw new CliError(`there is no topic ${topics.runEvents}: nothing to rebuild from`);
  await createDatabase(databaseUrl, databaseOf(service));
  const child = spawn(process.execPath, [entry, 'rebuild', ...(skipMissing ? ['--skip-missing'] : [])], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, HOLDFAST_BROKERS: brokers.join(','), HOLDFAST_DATABASE_URL: databaseUrl, HOLDFAST_PARTITIONS: String(partitions) },
    // A Ctrl-C in the terminal reaches us, and through us the child, once.
    detached: true,
  });
  const stop = (): void => void child.kill('SIGTERM');
  signal?.addEventListener('abort', stop);
  let report: RebuildReport | undefined;
  let complaints = '';
  child.stderr.on('data', (chunk: Buffer) => (complaints += chunk.toString()));
  createInterface({ input: child.stdout }).on('line', (text) => {
    const line = parseLine(text);
    if (line?.msg === 'progress') onProgress?.(`${service}: ${line.what}`);
    if (line?.msg === 'rebuilt') report = line.report;
  });
  const code = await new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve));
  signal?.removeEventListener('abort', stop);
  if (code !== 0 || report === undefined) throw new CliError(complaints.trim() || `the rebuild of ${service} ended with ${String(code)}`);
  return report;
}

function parseLine(text: string): z.infer<typeof Line> | undefined {
  try {
    return Line.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
