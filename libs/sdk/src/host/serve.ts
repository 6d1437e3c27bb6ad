import { hostname } from 'node:os';
import { randomUUID } from 'node:crypto';
import { DEFAULT_POOL, describeIssues, Pool, WorkerId } from '@holdfast/protocol';
import type { CrashPoint } from '@holdfast/runtime';
import { openArtifactStore } from '@holdfast/runtime/artifacts';
import { createLaneGroup, createWriter, ensurePoolTopics, readLane, SESSION_TIMEOUT_MS } from '@holdfast/runtime/kafka';
import { systemClock, systemRandom } from '@holdfast/runtime/system';
import type { z } from 'zod';
import { withBrokers } from '../broker-error.js';
import type { AgentDefinition } from '../define/agent.js';
import type { ToolDefinition } from '../define/tool.js';
import { InvalidDefinition } from '../errors.js';
import { guardStrayRejections } from '../run/index.js';
import { callbackSettings, type CallbackSettings } from '../wait/callback.js';
import type { ServedArtifacts } from './artifacts.js';
import { executeWith } from './execute.js';
import { stderrLog, type WorkerLog } from './log.js';
import { onSignals } from './signals.js';
import { tracedLog, watchWorker } from './watch.js';
import { Worker, type WorkerParts } from './worker.js';

/** What a worker serves, where, and how much at once. */
export interface ServeOptions {
  /** Agents whose runs it takes. Default: none. */
  readonly agents?: readonly AgentDefinition[] | undefined;
  /** Tools that it fires. Default: none. */
  readonly tools?: readonly ToolDefinition[] | undefined;
  /** The group of workers that share this work. Default `default`. */
  readonly pool?: string | undefined;
  /** Kafka's addresses, `host:port`. Default: `HOLDFAST_BROKERS`, comma-separated, else `localhost:9092`. */
  readonly brokers?: readonly string[] | undefined;
  /** How many pure and idempotent effects may be in flight; more wait. Default 64. */
  readonly concurrency?: number | undefined;
  /** How many irreversible effects may be in flight, and so be left unknown by one crash. Default 16. */
  readonly irreversibleConcurrency?: number | undefined;
  /** A name that people know this worker by, at most 150 characters. Default: the host's. Each start has an id of its own. */
  readonly worker?: string | undefined;
  /** Where large values go. Default: the folder or `s3://bucket/prefix` named by `HOLDFAST_ARTIFACTS`, else none. */
  readonly artifacts?: ServedArtifacts | undefined;
  /** How third parties answer `run.callback`. Default: `HOLDFAST_CALLBACK_SECRET` and `HOLDFAST_CALLBACK_URL`. */
  readonly callbacks?: CallbackSettings | undefined;
  /** Where it says what happens. Default: JSON lines on stderr. */
  readonly log?: WorkerLog | undefined;
  /** How long the group keeps a worker that shows no life, milliseconds. Default 6000. */
  readonly sessionTimeoutMs?: number | undefined;
  /** How long `stop` waits for what fired to end, milliseconds. Default 25,000. */
  readonly graceMs?: number | undefined;
  /** Base address of an OTLP/HTTP receiver of traces. Default: `HOLDFAST_OTLP`, else none are kept. */
  readonly otlp?: string | undefined;
  /** Serves /healthz, /readyz and /metrics on this port. Default: `HOLDFAST_WORKER_HEALTH_PORT`, else none. */
  readonly healthPort?: number | undefined;
  /** Stop on SIGTERM and SIGINT, then let the signal end the process. Default false. */
  readonly handleSignals?: boolean | undefined;
}

/** A worker that serves. */
export interface ServedWorker {
  /** Unique for this start: what it holds is held by no other, also after a restart under the same name. */
  readonly worker: WorkerId;
  /** Fires nothing new, lets what fired end within the grace time, writes what is to be written, leaves the group at once. */
  stop(options?: { readonly graceMs?: number }): Promise<void>;
}

const CONCURRENCY = 64;
const IRREVERSIBLE_CONCURRENCY = 16;
const GRACE_MS = 25_000;

/**
 * Runs a worker: it takes lanes of its pool, advances the runs of its agents, and fires the
 * effects of its tools. Resolves when it has joined its group.
 * @throws InvalidDefinition what was given can't be served; BrokersUnavailable, BrokerRefused
 */
export function serve(options: ServeOptions): Promise<ServedWorker> {
  const brokers = options.brokers ?? (process.env['HOLDFAST_BROKERS'] ?? 'localhost:9092').split(',');
  return withBrokers(() => serveOver(brokers, options), `worker ${options.worker ?? hostname()} of pool ${options.pool ?? DEFAULT_POOL} can't start`, brokers, 'start it again');
}

async function serveOver(brokers: readonly string[], options: ServeOptions): Promise<ServedWorker> {
  const { agents = [], tools = [], graceMs = GRACE_MS } = options;
  const log = tracedLog(options.log ?? stderrLog);
  const pool = valid(Pool, options.pool ?? DEFAULT_POOL, 'pool');
  const id = valid(WorkerId, `${options.worker ?? hostname()}.${randomUUID().slice(0, 13)}`, 'worker');
  const artifacts = options.artifacts ?? await artifactsOf(process.env['HOLDFAST_ARTIFACTS']);
  const connection = { brokers, clientId: id };
  await ensurePoolTopics(brokers, pool);
  const watching = await watchWorker({ worker: id, otlp: options.otlp ?? process.env['HOLDFAST_OTLP'], healthPort: portOf(options.healthPort ?? process.env['HOLDFAST_WORKER_HEALTH_PORT']), sessionTimeoutMs: options.sessionTimeoutMs ?? SESSION_TIMEOUT_MS, log });
  const parts: Omit<WorkerParts, 'writer'> = {
    id,
    pool,
    agents,
    tools,
    createGroup: (handlers, about) =>
      createLaneGroup({ ...connection, ...about, handlers, ...(options.sessionTimeoutMs === undefined ? {} : { sessionTimeoutMs: options.sessionTimeoutMs }) }),
    readLane: (topic, lane, from, to) => readLane(brokers, topic, lane, from, to),
    execute: executeWith(tools, artifacts, log, options.callbacks ?? callbackSettings(process.env)),
    artifacts,
    clock: systemClock,
    random: systemRandom,
    log,
    concurrency: positive(options.concurrency ?? CONCURRENCY, 'concurrency'),
    irreversibleConcurrency: positive(options.irreversibleConcurrency ?? IRREVERSIBLE_CONCURRENCY, 'irreversibleConcurrency'),
    observer: watching.observer,
    crashPoint: await armedCrashPoint(),
  };
  const writer = await createWriter(connection);
  const worker = await makeWorker({ ...parts, writer });
  const unguard = guardStrayRejections();
  let ignoreSignals: () => void = () => undefined;
  const stop = ({ graceMs: grace = graceMs }: { readonly graceMs?: number } = {}): Promise<void> => {
    ignoreSignals();
    return worker.stop(grace).finally(unguard).finally(() => watching.close());
  };
  if (options.handleSignals === true) ignoreSignals = onSignals(stop);
  await worker.start().catch(async (error: unknown) => {
    await stop({ graceMs: 0 });
    throw error;
  });
  watching.serve(() => worker.facts());
  log.info('the worker serves', { worker: id, pool, agents: agents.length, tools: tools.length });
  return { worker: id, stop };
}

async function makeWorker(parts: WorkerParts): Promise<Worker> {
  try {
    return new Worker(parts);
  } catch (error) {
    await parts.writer.close();
    throw error;
  }
}

function portOf(given: number | string | undefined): number | undefined {
  if (given === undefined || given === '') return undefined;
  const port = Number(given);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new InvalidDefinition(`the health port is ${given}; it takes a whole number up to 65535`);
  return port;
}

const artifactsOf = async (place: string | undefined): Promise<ServedArtifacts | undefined> => (place === undefined || place === '' ? undefined : openArtifactStore(place));

/** Loaded only when a test has armed one: the runtime's other parts are not a worker's business. */
async function armedCrashPoint(): Promise<CrashPoint> {
  if (process.env['HOLDFAST_CRASH_AT'] === undefined) return () => undefined;
  return (await import('@holdfast/runtime')).crashPoint;
}

function valid<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw new InvalidDefinition(`${what} ${JSON.stringify(value)}: ${describeIssues(parsed.error)}`);
  return parsed.data;
}

function positive(value: number, what: string): number {
  if (!Number.isInteger(value) || value < 1) throw new InvalidDefinition(`${what} is ${value}; it takes a whole number from 1 on`);
  return value;
}
