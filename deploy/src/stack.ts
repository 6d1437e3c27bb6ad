import { access, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { entryMissing, noAnswer } from './errors.js';
import { listTopics, startKafka, type KafkaServer } from './kafka.js';
import { describeUnexpectedExit, ManagedProcess } from './managed-process.js';
import type { StackPorts } from './ports.js';
import { createDatabase, startPostgres, type PostgresServer } from './postgres.js';
import { describeExit, type Exit } from './server-process.js';
import { Supervisor, type Restartable } from './supervisor.js';

export type ServiceSpec = Readonly<{ name: string; instances: number; entry: string; env?: NodeJS.ProcessEnv | undefined }>;

export type StackOptions = Readonly<{
  /** Holds all that the stack writes: data, logs, artifacts. One stack a folder. */
  dir: string;
  partitions: number;
  /** false: commits survive killed processes, not a power cut; for tests. */
  durable?: boolean | undefined;
  services: readonly ServiceSpec[];
  /** Creates the topics, once Kafka answers and before any service starts. */
  prepare: (brokers: string[], partitions: number) => Promise<void>;
  ports?: StackPorts | undefined;
  /** For every service; HOLDFAST_BROKERS and HOLDFAST_DATABASE_URL in it (or in the process's own) name servers to use instead of starting them. */
  env?: NodeJS.ProcessEnv | undefined;
  log?: ((line: string) => void) | undefined;
  onOutput?: ((instance: string, line: string) => void) | undefined;
  onServiceExit?: ((process: ManagedProcess, exit: Exit) => void) | undefined;
  /** Starts services and servers of its own again that end unexpectedly, with back-off; a server finds the data that it had. */
  restart?: boolean | undefined;
}>;

export interface Stack {
  readonly dir: string;
  readonly brokers: string[];
  /** The server's, without a database. */
  readonly databaseUrl: string;
  /** What a worker or tool needs in its environment to find this stack. */
  readonly env: Readonly<Record<string, string>>;
  /** Undefined when HOLDFAST_BROKERS names one that is not ours. */
  readonly kafka: KafkaServer | undefined;
  /** Undefined when HOLDFAST_DATABASE_URL names one that is not ours. */
  readonly postgres: PostgresServer | undefined;
  readonly services: readonly ManagedProcess[];
  /** By its instance name, such as `ledger-1`. */
  service(instance: string): ManagedProcess;
  /** Services first, then the servers. Safe to call twice. */
  stop(): Promise<void>;
}

export const databaseOf = (service: string): string => `holdfast_${service.replaceAll('-', '_')}`;

/** The whole local stack, once every service has said that it is ready. A failed start leaves nothing running. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const stack = new LocalStack(options);
  try {
    await stack.start();
    return stack;
  } catch (error) {
    await stack.stop();
    throw error;
  }
}

class LocalStack implements Stack {
  readonly dir: string;
  brokers: string[] = [];
  databaseUrl = '';
  kafka: KafkaServer | undefined;
  postgres: PostgresServer | undefined;
  services: readonly ManagedProcess[] = [];
  readonly #log: (line: string) => void;
  readonly #supervisor: Supervisor;
  #stopped: Promise<void> | undefined;

  constructor(private readonly options: StackOptions) {
    this.dir = path.resolve(options.dir);
    this.#log = options.log ?? (() => undefined);
    this.#supervisor = new Supervisor(this.#log);
  }

  get env(): Readonly<Record<string, string>> {
    return {
      HOLDFAST_BROKERS: this.brokers.join(','),
      HOLDFAST_DATABASE_URL: this.databaseUrl,
      HOLDFAST_PARTITIONS: String(this.options.partitions),
      HOLDFAST_ARTIFACTS: this.artifacts,
    };
  }

  async start(): Promise<void> {
    const { services, prepare, partitions } = this.options;
    await Promise.all(services.map(requireEntry));
    await mkdir(this.artifacts, { recursive: true });
    await settleAll([this.reachKafka(), this.reachPostgres()]);
    await settleAll([prepare(this.brokers, partitions), ...services.map(({ name }) => createDatabase(this.databaseUrl, databaseOf(name)))]);
    this.services = services.flatMap((service) => Array.from({ length: service.instances }, (_, index) => this.process(service, index + 1)));
    if (this.services.length > 0) this.#log(`Starting ${this.services.map(({ name }) => name).join(', ')} ...`);
    await settleAll(this.services.map((service) => service.start()));
  }

  service(instance: string): ManagedProcess {
    const found = this.services.find(({ name }) => name === instance);
    if (found === undefined) throw new Error(`The stack runs no ${instance}; it runs ${this.services.map(({ name }) => name).join(', ')}.`);
    return found;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.stopAll();
    return this.#stopped;
  }

  private get artifacts(): string {
    return path.join(this.dir, 'artifacts');
  }

  private async stopAll(): Promise<void> {
    await this.#supervisor.close();
    await Promise.all(this.services.map((service) => service.stop()));
    await Promise.all([this.kafka?.stop(), this.postgres?.stop()]);
  }

  private setting(name: string): string | undefined {
    const value = this.options.env?.[name] ?? process.env[name];
    return value === '' ? undefined : value;
  }

  private async reachKafka(): Promise<void> {
    const given = this.setting('HOLDFAST_BROKERS');
    if (given !== undefined) {
      this.brokers = given.split(',').map((broker) => broker.trim());
      await listTopics(this.brokers).catch((cause: unknown) => {
        throw noAnswer('Kafka', given, 'HOLDFAST_BROKERS', cause);
      });
      return;
    }
    this.#log('Starting Kafka ...');
    const { kafka: port, kafkaController: controllerPort } = this.options.ports ?? {};
    this.kafka = await startKafka({ dir: path.join(this.dir, 'kafka'), port, controllerPort, log: this.#log });
    this.brokers = [...this.kafka.brokers];
    this.watch('Kafka', this.kafka);
  }

  private async reachPostgres(): Promise<void> {
    const given = this.setting('HOLDFAST_DATABASE_URL');
    if (given !== undefined) {
      this.databaseUrl = given;
      await createDatabase(given, 'postgres').catch((cause: unknown) => {
        // Without the user and the password that the URL may hold.
        throw noAnswer('PostgreSQL', new URL(given).host, 'HOLDFAST_DATABASE_URL', cause);
      });
      return;
    }
    this.#log('Starting PostgreSQL ...');
    const { durable, ports } = this.options;
    this.postgres = await startPostgres({ dir: path.join(this.dir, 'postgres'), port: ports?.postgres, durable, log: this.#log });
    this.databaseUrl = this.postgres.url();
    this.watch('PostgreSQL', this.postgres);
  }

  /** Where it is started again nobody else stops it: whatever ends it is unexpected, but for the end of the stack. */
  private watch(name: string, server: KafkaServer | PostgresServer): void {
    if (this.options.restart !== true) return;
    let runs = false;
    const looked = (): void => {
      runs = true;
      void server.exited.then((exit) => {
        runs = false;
        if (this.#stopped !== undefined) return;
        this.#log(`${name} ended unexpectedly: ${describeExit(exit)}. See ${server.dir}.`);
        this.#supervisor.fell(again);
      });
    };
    const again: Restartable = {
      name,
      get pid() {
        return runs ? server.pid : undefined;
      },
      start: () => server.start().then(looked),
    };
    looked();
  }

  private process(service: ServiceSpec, number: number): ManagedProcess {
    const { env, onOutput, onServiceExit, restart = false } = this.options;
    const name = `${service.name}-${number}`;
    return new ManagedProcess({
      name,
      entry: service.entry,
      dir: path.join(this.dir, 'services'),
      env: { ...env, ...service.env, ...this.env, HOLDFAST_INSTANCE: name },
      onOutput,
      onUnexpectedExit: (process, exit) => {
        this.#log(describeUnexpectedExit(process, exit));
        onServiceExit?.(process, exit);
        if (restart) this.#supervisor.fell(process);
      },
    });
  }
}

async function requireEntry({ name, entry }: ServiceSpec): Promise<void> {
  await access(entry).catch(() => {
    throw entryMissing(name, entry);
  });
}

/** Waits for all before it fails for one, so that nothing is still on its way up when we tidy. */
async function settleAll(work: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason;
}
