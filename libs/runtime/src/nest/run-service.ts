import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { Module, type DynamicModule } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { topics, type Message } from '@holdfast/protocol';
import type { MigrationInterface } from 'typeorm';
import { pino, type Logger } from 'pino';
import { openContractBook, type ContractBook } from '../contracts/index.js';
import { createLaneGroup, createWriter, durabilityProblem, ensureTopics, ensureTopicsOfPools, laneOf, tail } from '../kafka/index.js';
import { Loop } from '../loop/index.js';
import type { Service } from '../loop/service.js';
import type { LogRecord } from '../ports.js';
import { openDatabase, PgStore } from '../store/index.js';
import { systemClock, systemRandom } from '../system.js';
import { serveHealth } from './health.js';
import { journalBehind } from './journal-check.js';
import { databaseUrl, readSettings } from './settings.js';
import { LoopTransport } from './transport.js';
import { partitionEnds } from '../kafka/topics.js';

/** Nest tokens of what a service's providers may ask for. */
export const CONTRACTS = Symbol('contracts');
/** The service's own `ce_source`. */
export const SOURCE = Symbol('source');
/** Addresses of the brokers: `readonly string[]`. */
export const BROKERS = Symbol('brokers');
/** The process's own log: a `ServiceLog`. */
export const LOG = Symbol('log');
export type ServiceLog = Pick<Logger, 'info' | 'warn' | 'error'>;
/** What the loop runs: a provider of type `Service`. */
export const SERVICE = Symbol('service');

export interface RunServiceOptions {
  readonly name: string;
  /** Provides `SERVICE`; its providers may inject the other tokens. */
  readonly module: new () => object;
  readonly migrations?: readonly (new () => MigrationInterface)[];
}

@Module({})
class PlatformModule {
  static with(contracts: ContractBook, source: string, brokers: readonly string[], log: ServiceLog): DynamicModule {
    return {
      module: PlatformModule,
      global: true,
      providers: [
        { provide: CONTRACTS, useValue: contracts },
        { provide: SOURCE, useValue: source },
        { provide: BROKERS, useValue: brokers },
        { provide: LOG, useValue: log },
      ],
      exports: [CONTRACTS, SOURCE, BROKERS, LOG],
    };
  }
}

/** A service's whole process: settings, database, topics, Nest application, loop, health, signals. */
export async function runService<State, Event extends Message>(options: RunServiceOptions): Promise<void> {
  const settings = readSettings(process.env);
  const brokers = settings.HOLDFAST_BROKERS.split(',').map((broker) => broker.trim());
  const instance = settings.HOLDFAST_INSTANCE ?? `${options.name}-${randomUUID().slice(0, 8)}`;
  const log = pino({ level: settings.HOLDFAST_LOG_LEVEL, base: { service: options.name, instance } }, pino.destination({ fd: 1, sync: true }));

  await ensureTopics(brokers, settings.HOLDFAST_PARTITIONS, settings.HOLDFAST_REPLICATION);
  const weak = await durabilityProblem(brokers, topics.runEvents);
  if (weak !== null) log.warn(weak);
  const database = await openDatabase({
    url: databaseUrl(settings.HOLDFAST_DATABASE_URL, options.name),
    applicationName: `holdfast-${instance}`,
    ...(options.migrations === undefined ? {} : { migrations: options.migrations }),
  });
  const store = new PgStore(database);
  const source = `holdfast/${options.name}/${await store.incarnation()}`;
  const contracts = await openContractBook({
    open: (onRecord) => tail({ brokers, topic: topics.contracts, from: 'beginning', onRecord }),
    ends: () => partitionEnds(brokers, topics.contracts),
  });
  const service = (): Service<State, Event> => app.get<Service<State, Event>>(SERVICE, { strict: false });
  const writer = await createWriter({ brokers, clientId: instance });

  const transport = new LoopTransport();
  const app = await NestFactory.createMicroservice(
    { module: class ServiceModule {}, imports: [PlatformModule.with(contracts, source, brokers, log), options.module] },
    { strategy: transport, logger: ['error', 'warn'], abortOnError: false },
  );
  const fatal = (error: Error): void => {
    log.fatal({ error: error.message, stack: error.stack }, 'the instance can’t go on; it stops so that others take its lanes');
    process.exitCode = 1;
    void shutDown().finally(() => process.exit(1));
  };
  const loop = new Loop<State, Event>({
    service: service(),
    store,
    writer,
    clock: systemClock,
    random: systemRandom,
    laneOf: (key) => laneOf(key, settings.HOLDFAST_PARTITIONS),
    join: (handlers) =>
      createLaneGroup({
        brokers,
        clientId: instance,
        groupId: `holdfast.${options.name}`,
        topics: service().inbound.map(({ name }) => name),
        sessionTimeoutMs: settings.HOLDFAST_SESSION_TIMEOUT_MS,
        handlers,
      }),
    repair: (names) => ensureTopicsOfPools(brokers, names),
    onAlarm: alarm(log),
    onFatal: fatal,
  });
  transport.use(loop);
  const health = settings.HOLDFAST_HEALTH_PORT === undefined ? null : serveHealth(settings.HOLDFAST_HEALTH_PORT, () => loop.health());

  let stopping: Promise<void> | null = null;
  // Readiness off, stop fetching, end the turn, publish, and only then the database.
  const shutDown = (): Promise<void> =>
    (stopping ??= (async () => {
      health?.close();
      await app.close();
      await writer.close();
      await contracts.close();
      await store.close();
      log.info({ counts: Object.fromEntries(loop.counts) }, 'stopped');
    })());
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void shutDown().then(() => process.exit(process.exitCode ?? 0)));

  const last = await lastRecords(brokers, service().ownTopic);
  const behind = journalBehind(source, last, new Map((await store.nextSeqs()).map(({ lane, nextSeq }) => [lane, nextSeq])));
  if (behind !== null) {
    await shutDown();
    throw new Error(behind);
  }
  await app.listen();
  // Said whatever the log level is: whoever started the process waits for it.
  process.stdout.write(`${JSON.stringify({ level: 30, time: Date.now(), service: options.name, instance, partitions: settings.HOLDFAST_PARTITIONS, msg: 'ready' })}\n`);
}

async function lastRecords(brokers: readonly string[], topic: string): Promise<LogRecord[]> {
  const records: LogRecord[] = [];
  const reader = await tail({ brokers, topic, from: 'last', onRecord: (record) => records.push(record) });
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

/** Ends the process with one clear sentence when a service can't start. */
export function startService<State, Event extends Message>(options: RunServiceOptions): void {
  runService<State, Event>(options).catch((error: unknown) => {
    process.stderr.write(`${options.name} could not start: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(1);
  });
}
