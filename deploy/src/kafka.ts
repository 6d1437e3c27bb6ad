import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { access, mkdir, rename, rm, writeFile } from 'node:fs/promises';
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
/** How long one look whether it is up may take. */
const LOOK_MS = 2000;
/** How long a cluster that is up may take to answer. */
const ANSWER_MS = 10_000;
/** Stands in settings that no broker is started with. */
const ANY_PORT = 19_092;

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

type Java = Readonly<{ java: string; libs: string }>;
type Launch = Java & Readonly<{ dir: string; port: number; controllerPort: number; archive?: string }>;

/** Serial collection: on two shared cores a second collector thread takes from the tests, not from the pause. */
const SMALL_JVM = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'];

async function launchBroker({ java, libs, dir, port, controllerPort, archive }: Launch): Promise<ServerProcess> {
  const classPath = await prepareFolder({ java, libs }, dir, port, controllerPort);
  const classes = archive === undefined ? await archivedClasses(libs) : [`-XX:ArchiveClassesAtExit=${archive}`];
  const server = await ServerProcess.start({
    ...identity(dir),
    command: java,
    args: ['-Xms256m', '-Xmx512m', ...SMALL_JVM, '-XX:+ExitOnOutOfMemoryError', ...classes, ...classPath, 'kafka.Kafka', settingsOf(dir)],
    logFile: path.join(dir, 'kafka.out.log'),
  });
  await server.untilReady(() => listTopics([`127.0.0.1:${port}`], LOOK_MS), READY_LIMIT_MS);
  return server;
}

/** Settings and a formatted storage; says how Java finds Kafka's classes. */
async function prepareFolder({ java, libs }: Java, dir: string, port: number, controllerPort: number): Promise<readonly string[]> {
  const dataDir = path.join(dir, 'data');
  const loggingFile = path.join(dir, 'log4j2.properties');
  await mkdir(dataDir, { recursive: true });
  await writeFile(settingsOf(dir), renderProperties(brokerProperties({ port, controllerPort, dataDir })));
  await writeFile(loggingFile, loggingProperties(path.join(dir, 'kafka.log')));
  const classPath = ['-cp', `${libs}/*`, `-Dlog4j2.configurationFile=${loggingFile}`];
  await formatOnce(java, [...(await archivedClasses(libs)), ...classPath], dataDir, settingsOf(dir));
  return classPath;
}

/** Makes the storage of a broker that is started later, on whatever ports. */
export async function formatKafka({ dir, log = () => undefined }: Pick<KafkaOptions, 'dir' | 'log'>): Promise<void> {
  const [java, libs] = await Promise.all([requireJava(), kafkaJars(log)]);
  await prepareFolder({ java, libs }, path.resolve(dir), ANY_PORT, ANY_PORT + 1);
}

const archiveOf = (libs: string): string => path.join(libs, 'classes.jsa');

/** Java loads archived classes in half the time, and looks at one that another Java or other jars have made no further. */
async function archivedClasses(libs: string): Promise<string[]> {
  return access(archiveOf(libs)).then(
    () => [`-XX:SharedArchiveFile=${archiveOf(libs)}`],
    () => [],
  );
}

/** Keeps what a broker, run once in `dir`, has loaded, beside the jars: with them it goes when others are fetched. */
export async function archiveKafkaClasses({ dir, log = () => undefined }: Pick<KafkaOptions, 'dir' | 'log'>): Promise<void> {
  const [java, libs] = await Promise.all([requireJava(), kafkaJars(log)]);
  if ((await archivedClasses(libs)).length > 0) return;
  const archive = `${archiveOf(libs)}.${process.pid}`;
  const [port, controllerPort] = [await getPort({ host: '127.0.0.1' }), await getPort({ host: '127.0.0.1' })];
  const broker = await launchBroker({ java, libs, dir: path.resolve(dir), port, controllerPort, archive });
  await broker.stop();
  // Nothing depends on it: where Java wrote none, starts take as long as before.
  await rename(archive, archiveOf(libs)).catch(() => rm(archive, { force: true }));
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
  try {
    await run(java, ['-Xmx128m', ...SMALL_JVM, ...classPath, 'kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', settingsFile]);
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw didNotStart('Kafka', `its storage in ${dataDir} could not be formatted`, settingsFile, `${stdout}\n${stderr}`.trim());
  }
}

/** The fact that a client needs: the broker is registered, not fenced, and answers. */
export async function listTopics(brokers: string[], answerMs = ANSWER_MS): Promise<string[]> {
  const client = new Kafka({
    clientId: 'holdfast-start',
    brokers,
    connectionTimeout: answerMs,
    requestTimeout: answerMs,
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
