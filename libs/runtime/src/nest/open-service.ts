import 'reflect-metadata';
import 'typeorm'; // Here, so that it is compiled before (ADR 27); who opens a database elsewhere loads it then.
import { randomUUID } from 'node:crypto';
import { Module, type DynamicModule, type INestMicroservice } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { serviceSource, topics, type Message } from '@holdfast/protocol';
import type { DataSource, MigrationInterface } from 'typeorm';
import type { Logger } from 'pino';
import { openContractBook, type ContractBook } from '../contracts/index.js';
import { durabilityProblem, ensureTopics, tail } from '../kafka/index.js';
import { partitionEnds } from '../kafka/topics.js';
import type { Service } from '../loop/service.js';
import { openDatabase, type DatabaseOptions, type PgStore } from '../store/index.js';
import { openLog } from './log.js';
import { readSettings, serviceDatabaseUrl, type ServiceSettings } from './settings.js';
import { LoopTransport } from './transport.js';

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
  /** Provides `SERVICE`; its providers may inject the other tokens. What works besides the loop starts with the application, which a rebuild never starts. */
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

/** A service's parts, opened and not yet running. */
export interface OpenedService<State, Event extends Message, OwnStore extends PgStore> {
  readonly settings: ServiceSettings;
  readonly brokers: readonly string[];
  readonly instance: string;
  readonly groupId: string;
  readonly log: Logger;
  readonly store: OwnStore;
  readonly database: DataSource;
  readonly transport: LoopTransport;
  readonly app: INestMicroservice;
  readonly service: Service<State, Event>;
  close(): Promise<void>;
}

/** Settings, topics, database, contracts and the Nest application. */
export async function openService<State, Event extends Message, OwnStore extends PgStore>(
  options: RunServiceOptions,
  makeStore: (database: DataSource) => OwnStore,
  database: Pick<DatabaseOptions, 'statementTimeoutMs'> = {},
): Promise<OpenedService<State, Event, OwnStore>> {
  const settings = readSettings(process.env);
  const brokers = settings.HOLDFAST_BROKERS.split(',').map((broker) => broker.trim());
  const instance = settings.HOLDFAST_INSTANCE ?? `${options.name}-${randomUUID().slice(0, 8)}`;
  const log = openLog(options.name, instance, settings.HOLDFAST_LOG_LEVEL);

  await ensureTopics(brokers, settings.HOLDFAST_PARTITIONS, settings.HOLDFAST_REPLICATION);
  const weak = await durabilityProblem(brokers, topics.runEvents);
  if (weak !== null) log.warn(weak);
  const source = await openDatabase({
    ...database,
    url: serviceDatabaseUrl(settings.HOLDFAST_DATABASE_URL, options.name),
    applicationName: `holdfast-${instance}`,
    ...(options.migrations === undefined ? {} : { migrations: options.migrations }),
  });
  const store = makeStore(source);
  const contracts = await openContractBook({
    open: (onRecord) => tail({ brokers, topics: [topics.contracts], from: 'beginning', onRecord }),
    ends: () => partitionEnds(brokers, topics.contracts),
  });
  const transport = new LoopTransport();
  const app = await NestFactory.createMicroservice(
    { module: class ServiceModule {}, imports: [PlatformModule.with(contracts, serviceSource(options.name, await store.incarnation()), brokers, log), options.module] },
    { strategy: transport, logger: ['error', 'warn'], abortOnError: false },
  );
  return {
    settings,
    brokers,
    instance,
    groupId: `holdfast.${options.name}`,
    log,
    store,
    database: source,
    transport,
    app,
    service: app.get<Service<State, Event>>(SERVICE, { strict: false }),
    // Fetching ends and the turn is written before the database goes.
    async close() {
      await app.close();
      await contracts.close();
      await store.close();
    },
  };
}
