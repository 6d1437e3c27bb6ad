import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { access, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import getPort from 'get-port';
import { Kafka, logLevel } from 'kafkajs';
import { didNotStart } from './errors.js';
import { retryOnTakenPort } from './free-ports.js';
import { kafkaJars } from './jars.js';
import { brokerProperties, loggingProperties, renderProperties } from './kafka-config.js';
import { requireDataDir, requireFreePort, requireJava } from './preflight.js';
import { ServerProcess, stopLeftOver, type Exit } from './server-process.js';

const run = promisify(execFile);

export const KAFKA_PORT_SETTING = 'HOLDFAST_KAFKA_PORT';
export const KAFKA_CONTROLLER_PORT_SETTING = 'HOLDFAST_KAFKA_CONTROLLER_PORT';

const READY_LIMIT_MS = 60_000;
const ASK_LIMIT_MS = 2000;

export type KafkaOptions = Readonly<{
  /** Holds settings, logs and data; made when missing. */
  dir: string;
  /** Free ports when left out. */
  port?: number | undefined;
  controllerPort?: number | undefined;
  log?: ((line: string) => void) | undefined;
}>;

export interface KafkaServer {
  readonly dir: string;
  readonly port: number;
  /** `host:port` of the one broker. */
  readonly brokers: readonly string[];
  readonly pid: number;
  /** Of the present process: a new promise after each start. */
  readonly exited: Promise<Exit>;
  /** In order: SIGTERM, and SIGKILL when that takes too long. */
  stop(): Promise<void>;
  /** SIGKILL, as in a crash. */
  kill(): Promise<void>;
  /** Again, on the same folder and ports, after stop or kill. */
  start(): Promise<void>;
}

/** A real broker, once it answers. */
export async function startKafka(options: KafkaOptions): Promise<KafkaServer> {
  const log = options.log ?? (() => undefined);
  const dir = path.resolve(options.dir);
  const [java] = await Promise.all([requireJava(), requireDataDir(dir)]);
  const libs = await kafkaJars(log);
  await stopLeftOver(identity(dir));
  return retryOnTakenPort(options.port === undefined, async () => {
    const port = options.port ?? (await getPort({ host: '127.0.0.1' }));
    const controllerPort = options.controllerPort ?? (await getPort({ host: '127.0.0.1' }));
    const launch = async (): Promise<ServerProcess> => {
      await requireFreePort('Kafka', port, KAFKA_PORT_SETTING);
      await requireFreePort("Kafka's controller", controllerPort, KAFKA_CONTROLLER_PORT_SETTING);
      return launchBroker({ java, libs, dir, port, controllerPort });
    };
    return new LocalKafka(dir, port, launch, await launch());
  });
}

class LocalKafka implements KafkaServer {
  readonly brokers: readonly string[];

  constructor(
    readonly dir: string,
    readonly port: number,
    private readonly launch: () => Promise<ServerProcess>,
    private server: ServerProcess,
  ) {
    this.brokers = [`127.0.0.1:${port}`];
  }

  get pid(): number {
    return this.server.pid;
  }

  get exited(): Promise<Exit> {
    return this.server.exited;
  }

  stop(): Promise<void> {
    return this.server.stop();
  }

  kill(): Promise<void> {
    return this.server.kill();
  }

  async start(): Promise<void> {
    await stopLeftOver(identity(this.dir));
    this.server = await this.launch();
  }
}

type Launch = Readonly<{ java: string; libs: string; dir: string; port: number; controllerPort: number }>;

async function launchBroker({ java, libs, dir, port, controllerPort }: Launch): Promise<ServerProcess> {
  const dataDir = path.join(dir, 'data');
  const settingsFile = settingsOf(dir);
  const loggingFile = path.join(dir, 'log4j2.properties');
  await mkdir(dataDir, { recursive: true });
  await writeFile(settingsFile, renderProperties(brokerProperties({ port, controllerPort, dataDir })));
  await writeFile(loggingFile, loggingProperties(path.join(dir, 'kafka.log')));
  const classPath = ['-cp', `${libs}/*`, `-Dlog4j2.configurationFile=${loggingFile}`];
  await formatOnce(java, classPath, dataDir, settingsFile);

  const server = await ServerProcess.start({
    ...identity(dir),
    command: java,
    // Serial collection: on two shared cores a second collector thread takes from the tests, not from the pause.
    args: ['-Xms256m', '-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:+ExitOnOutOfMemoryError', ...classPath, 'kafka.Kafka', settingsFile],
    logFile: path.join(dir, 'kafka.out.log'),
  });
  await server.untilReady(() => listTopics([`127.0.0.1:${port}`]), READY_LIMIT_MS);
  return server;
}

const settingsOf = (dir: string): string => path.join(dir, 'server.properties');

const identity = (dir: string) =>
  ({ what: 'Kafka', dir, pidFile: path.join(dir, 'kafka.pid'), marker: settingsOf(dir), stopSignal: 'SIGTERM' }) as const;

async function formatOnce(java: string, classPath: readonly string[], dataDir: string, settingsFile: string): Promise<void> {
  const formatted = await access(path.join(dataDir, 'meta.properties')).then(
    () => true,
    () => false,
  );
  if (formatted) return;
  const clusterId = newClusterId(randomBytes(16));
  const jvm = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:TieredStopAtLevel=1'];
  try {
    await run(java, [...jvm, ...classPath, 'kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', settingsFile]);
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw didNotStart('Kafka', `its storage in ${dataDir} could not be formatted`, settingsFile, `${stdout}\n${stderr}`.trim());
  }
}

/** The fact that a client needs: the broker is registered, not fenced, and answers. */
export async function listTopics(brokers: string[]): Promise<string[]> {
  const client = new Kafka({
    clientId: 'holdfast-start',
    brokers,
    connectionTimeout: ASK_LIMIT_MS,
    requestTimeout: ASK_LIMIT_MS,
    retry: { retries: 0 },
    logLevel: logLevel.NOTHING,
  });
  const admin = client.admin();
  try {
    await admin.connect();
    return await admin.listTopics();
  } finally {
    await admin.disconnect();
  }
}

/** A cluster id out of 16 bytes. One that began with "-" would be taken for an option by Kafka's tools. */
export function newClusterId(bytes: Buffer): string {
  return bytes.toString('base64url').replace(/^-/, 'A');
}
