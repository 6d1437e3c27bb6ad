import { spawn, type ChildProcess } from 'node:child_process';
import { open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { didNotStart, folderInUse } from './errors.js';
import { guard } from './guardian.js';
import { commandLine, isRunning, startMark } from './process-table.js';

export type Exit = Readonly<{ code: number | null; signal: NodeJS.Signals | null }>;

export type ServerSpec = Readonly<{
  /** How people call it: Kafka, PostgreSQL. */
  what: string;
  command: string;
  args: readonly string[];
  dir: string;
  /** Its working directory; `dir` when left out. */
  cwd?: string | undefined;
  logFile: string;
  pidFile: string;
  /** Stands in its command line: what a left-over process must show before it is stopped. */
  marker: string;
  stopSignal: NodeJS.Signals;
  owner?: Readonly<{ uid: number; gid: number }> | undefined;
  env?: NodeJS.ProcessEnv;
}>;

/** Pids are given out again: with its start mark, a pid names one process. */
type PidFile = Readonly<{ pid: number; mark?: string | undefined; parent: number; parentMark?: string | undefined }>;

const STOP_LIMIT_MS = 20_000;
const POLL_MS = 50;
const TAIL_BYTES = 2000;

export const describeExit = ({ code, signal }: Exit): string =>
  signal === null ? `it exited with code ${code ?? 'unknown'}` : `it was ended by ${signal}`;

/** A child with a log, a pid file and a guardian, that this process started and answers for. */
export class ServerProcess {
  readonly exited: Promise<Exit>;
  #exit: Exit | undefined;

  private constructor(
    readonly spec: ServerSpec,
    readonly pid: number,
    readonly logOffset: number,
    private readonly child: ChildProcess,
  ) {
    const release = guard(pid, spec.stopSignal);
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.#exit = { code, signal };
        release();
        resolve(this.#exit);
      });
    });
  }

  static async start(spec: ServerSpec): Promise<ServerProcess> {
    const log = await open(spec.logFile, 'a');
    try {
      const logOffset = (await log.stat()).size;
      const child = spawn(spec.command, [...spec.args], {
        cwd: spec.cwd ?? spec.dir,
        env: spec.env ?? process.env,
        // Its own session: a ctrl-C in our terminal is for us, who stop things in order.
        detached: true,
        stdio: ['ignore', log.fd, log.fd],
        ...spec.owner,
      });
      const pid = await new Promise<number>((resolve, reject) => {
        child.once('error', (error) => reject(didNotStart(spec.what, error.message, spec.logFile, '')));
        child.once('spawn', () => resolve(Number(child.pid)));
      });
      const server = new ServerProcess(spec, pid, logOffset, child);
      try {
        const [mark, parentMark] = await Promise.all([startMark(pid), startMark(process.pid)]);
        await writePidFile(spec.pidFile, { pid, mark, parent: process.pid, parentMark });
      } catch (error) {
        await server.kill();
        throw error;
      }
      return server;
    } finally {
      await log.close();
    }
  }

  get exit(): Exit | undefined {
    return this.#exit;
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  async stop(limitMs = STOP_LIMIT_MS): Promise<void> {
    if (this.#exit === undefined) this.signal(this.spec.stopSignal);
    const limit = setTimeout(() => this.signal('SIGKILL'), limitMs);
    await this.exited;
    clearTimeout(limit);
    await rm(this.spec.pidFile, { force: true });
  }

  async kill(): Promise<void> {
    if (this.#exit === undefined) this.signal('SIGKILL');
    await this.exited;
    await rm(this.spec.pidFile, { force: true });
  }

  /** What it has written to its log since this start. */
  logTail(): Promise<string> {
    return tail(this.spec.logFile, this.logOffset);
  }

  /** Asks until it answers; fails with the log's tail when it ends or the time is over. Never leaves it running then. */
  async untilReady<T>(ask: () => Promise<T>, limitMs: number): Promise<T> {
    const deadline = Date.now() + limitMs;
    let last: unknown;
    for (;;) {
      // Taken before we ask: what a process said just before its end still counts.
      const exit = this.#exit;
      try {
        return await ask();
      } catch (error) {
        last = error;
      }
      if (exit !== undefined) throw await this.failure(describeExit(exit));
      if (Date.now() > deadline) {
        await this.kill();
        throw await this.failure(`it did not answer within ${limitMs / 1000} s (${last instanceof Error ? last.message : String(last)})`);
      }
      await Promise.race([pause(POLL_MS), this.exited]);
    }
  }

  private async failure(why: string): Promise<Error> {
    await rm(this.spec.pidFile, { force: true });
    return didNotStart(this.spec.what, why, this.spec.logFile, await this.logTail());
  }
}

/** A server that a dead process left in this folder is stopped; one whose starter lives is not ours to touch. */
export async function stopLeftOver(spec: Pick<ServerSpec, 'what' | 'dir' | 'pidFile' | 'marker' | 'stopSignal'>, limitMs = STOP_LIMIT_MS): Promise<void> {
  const left = await readPidFile(spec.pidFile);
  if (left === undefined) return;
  const isOurs = async (): Promise<boolean> =>
    ((await commandLine(left.pid))?.includes(spec.marker) ?? false) && (await startMark(left.pid)) === left.mark;
  if (await isOurs()) {
    const starterLives = (await isRunning(left.parent)) && (await startMark(left.parent)) === left.parentMark;
    if (starterLives) throw folderInUse(spec.what, spec.dir, left.parent);
    const deadline = Date.now() + limitMs;
    signalIfThere(left.pid, spec.stopSignal);
    while (await isOurs()) {
      if (Date.now() > deadline) signalIfThere(left.pid, 'SIGKILL');
      await pause(POLL_MS);
    }
  }
  await rm(spec.pidFile, { force: true });
}

export async function tail(file: string, from = 0): Promise<string> {
  const { size } = await stat(file).catch(() => ({ size: 0 }));
  if (size <= from) return '';
  const start = Math.max(from, size - TAIL_BYTES);
  const handle = await open(file, 'r');
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - start), 0, size - start, start);
    return buffer.toString('utf8', 0, bytesRead).trim();
  } finally {
    await handle.close();
  }
}

function signalIfThere(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It went by itself in between.
  }
}

/** Renamed into place, so that a reader never sees half of it. */
async function writePidFile(file: string, content: PidFile): Promise<void> {
  await writeFile(`${file}.new`, JSON.stringify(content));
  await rename(`${file}.new`, file);
}

async function readPidFile(file: string): Promise<PidFile | undefined> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  try {
    const { pid, mark, parent, parentMark } = JSON.parse(text) as Partial<PidFile>;
    return typeof pid === 'number' && typeof parent === 'number' ? { pid, mark, parent, parentMark } : undefined;
  } catch {
    return undefined;
  }
}
