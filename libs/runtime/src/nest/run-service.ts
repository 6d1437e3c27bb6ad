import type { Message } from '@holdfast/protocol';
import type { Logger } from 'pino';
import { createLaneGroup, createWriter, ensureTopicsOfPools, laneOf, readLane, tail } from '../kafka/index.js';
import { Loop } from '../loop/index.js';
import type { LogRecord } from '../ports.js';
import { PgStore } from '../store/index.js';
import { systemClock, systemRandom } from '../system.js';
import { journalBehind } from './journal-check.js';
import { watch } from './watch.js';
import { openService, type OpenedService, type RunServiceOptions } from './open-service.js';
import { rebuildService } from './rebuild-service.js';

/** An instance that can't go on is given this long to stop in order, milliseconds. */
const FATAL_STOP_MS = 15_000;

type Opened<State, Event extends Message> = OpenedService<State, Event, PgStore>;

/** A service's whole process: settings, database, topics, Nest application, loop, health, signals. */
export async function runService<State, Event extends Message>(options: RunServiceOptions): Promise<void> {
  const opened = await openInOrder<State, Event>(options);
  const { settings, brokers, instance, groupId, log, store, transport, app, service } = opened;
  const watched = await watch(opened, options.name);
  const writer = await createWriter({ brokers, clientId: instance });
  const fatal = (error: Error): void => {
    log.fatal({ error: error.message, stack: error.stack }, 'the instance can’t go on; it stops so that others take its lanes');
    process.exitCode = 1;
    // Whatever made it unable to go on may also keep it from stopping in order.
    setTimeout(() => process.exit(1), FATAL_STOP_MS).unref();
    void shutDown().finally(() => process.exit(1));
  };
  const loop = new Loop<State, Event>({
    service,
    store,
    writer,
    clock: systemClock,
    random: systemRandom,
    laneOf: (key) => laneOf(key, settings.HOLDFAST_PARTITIONS),
    join: (handlers) =>
      createLaneGroup({ brokers, clientId: instance, groupId, topics: service.inbound.map(({ name }) => name), sessionTimeoutMs: settings.HOLDFAST_SESSION_TIMEOUT_MS, handlers }),
    repair: (names) => ensureTopicsOfPools(brokers, names),
    overduePerSecond: settings.HOLDFAST_OVERDUE_PER_SECOND,
    observer: watched.observer,
    onAlarm: alarm(log),
    onFatal: fatal,
  });
  transport.use(loop);
  watched.serve(loop, service.inbound.map(({ name }) => name));

  let stopping: Promise<void> | null = null;
  // Readiness off, stop fetching, end the turn, publish, and only then the database.
  const shutDown = (): Promise<void> =>
    (stopping ??= (async () => {
      watched.leave();
      await opened.close();
      await writer.close();
      await watched.close();
      log.info({ counts: Object.fromEntries(loop.counts) }, 'stopped');
    })());
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void shutDown().then(() => process.exit(process.exitCode ?? 0)));

  await app.listen();
  // Said whatever the log level is: whoever started the process waits for it.
  say({ level: 30, time: Date.now(), service: options.name, instance, partitions: settings.HOLDFAST_PARTITIONS, msg: 'ready' });
}

/** Opens the service on a journal that holds all that it has published; rebuilds it first where that is asked for. */
async function openInOrder<State, Event extends Message>(options: RunServiceOptions): Promise<Opened<State, Event>> {
  const open = (): Promise<Opened<State, Event>> => openService<State, Event, PgStore>(options, (database) => new PgStore(database));
  const opened = await open();
  const { brokers, service, store, log, settings } = opened;
  const behind = await journalBehind(
    { service: options.name, name: service.ownTopic, last: () => lastRecords(brokers, service.ownTopic), read: (lane, from, to) => readLane(brokers, service.ownTopic, lane, from, to) },
    store,
  );
  if (behind === null) return opened;
  await opened.close();
  if (settings.HOLDFAST_REBUILD === 'refuse') throw new Error(behind);
  log.warn({ because: behind }, 'the journal is rebuilt from the topics before the start');
  const report = await rebuildService<State, Event>(options, { skipMissing: false, onProgress: (what) => log.info(what) });
  log.warn({ report }, 'the journal was rebuilt');
  return open();
}

async function lastRecords(brokers: readonly string[], topic: string): Promise<LogRecord[]> {
  const records: LogRecord[] = [];
  const reader = await tail({ brokers, topics: [topic], from: 'last', onRecord: (record) => records.push(record) });
  try {
    await reader.caughtUp;
    return records;
  } finally {
    await reader.close();
  }
}

const alarm =
  (log: Logger) =>
  (what: string, detail: Record<string, unknown>): void =>
    log.warn(detail, what);

const say = (line: Record<string, unknown>): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

/**
 * A service's `main`: runs it, or, with `rebuild [--skip-missing]` on the command line, makes its
 * journal from the topics and ends. A rebuild says what it does as JSON lines. Where it can't be
 * done the process ends with one clear sentence.
 */
export function startService<State, Event extends Message>(options: RunServiceOptions): void {
  const [command, ...flags] = process.argv.slice(2);
  const work = command === 'rebuild' ? rebuild<State, Event>(options, flags.includes('--skip-missing')) : runService<State, Event>(options);
  work.catch((error: unknown) => {
    process.stderr.write(`${options.name} could not ${command === 'rebuild' ? 'be rebuilt' : 'start'}: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(1);
  });
}

async function rebuild<State, Event extends Message>(options: RunServiceOptions, skipMissing: boolean): Promise<void> {
  const interrupted = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => interrupted.abort());
  const report = await rebuildService<State, Event>(options, { skipMissing, onProgress: (what) => say({ msg: 'progress', service: options.name, what }), signal: interrupted.signal });
  say({ msg: 'rebuilt', report });
  process.exit(0);
}
