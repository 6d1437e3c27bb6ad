import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { LineFollower } from './line-follower.js';
import { describeExit, ServerProcess, stopLeftOver, type Exit } from './server-process.js';

const READY_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 15_000;
const FOLLOW_MS = 100;

export type ProcessSpec = Readonly<{
  /** Names its log and pid file: unique in its folder. */
  name: string;
  /** The module that Node.js runs. */
  entry: string;
  args?: readonly string[] | undefined;
  /** Options for Node.js itself. */
  execArgv?: readonly string[] | undefined;
  /** Added to this process's environment; undefined takes a variable away. */
  env?: NodeJS.ProcessEnv | undefined;
  /** Holds `<name>.log` and `<name>.pid`. */
  dir: string;
  /** Tells the line that says it is ready; by default JSON with `"msg":"ready"`. */
  isReady?: ((line: string) => boolean) | undefined;
  readyLimitMs?: number | undefined;
  onOutput?: ((name: string, line: string) => void) | undefined;
  /** It ended and neither stop, kill nor restart asked it to. */
  onUnexpectedExit?: ((process: ManagedProcess, exit: Exit) => void) | undefined;
}>;

/** `{"msg":"ready",…}`, as every Holdfast service prints once it has its lanes. */
export function isReadyLine(line: string): boolean {
  if (!line.startsWith('{')) return false;
  try {
    return (JSON.parse(line) as { msg?: unknown }).msg === 'ready';
  } catch {
    return false;
  }
}

/** A Node.js child that can be killed and started again: a service, a worker, a victim of a crash test. */
export class ManagedProcess {
  readonly logFile: string;
  #child: ServerProcess | undefined;
  #exitAsked = false;
  #env: NodeJS.ProcessEnv;

  constructor(readonly spec: ProcessSpec) {
    this.logFile = path.join(spec.dir, `${spec.name}.log`);
    this.#env = spec.env ?? {};
  }

  get name(): string {
    return this.spec.name;
  }

  get pid(): number | undefined {
    return this.running?.pid;
  }

  /** Of the last start: a new promise after each. */
  get exited(): Promise<Exit> {
    return this.child.exited;
  }

  /** Ends when it says that it is ready; a child that doesn't is ended and the error quotes its log. */
  async start(env: NodeJS.ProcessEnv = {}): Promise<void> {
    const { spec } = this;
    await mkdir(spec.dir, { recursive: true });
    const identity = {
      what: spec.name,
      dir: spec.dir,
      pidFile: path.join(spec.dir, `${spec.name}.pid`),
      marker: spec.entry,
      stopSignal: 'SIGTERM',
    } as const;
    await stopLeftOver(identity);
    this.#exitAsked = false;
    this.#env = { ...this.#env, ...env };
    const child = await ServerProcess.start({
      ...identity,
      command: process.execPath,
      args: [...(spec.execArgv ?? []), spec.entry, ...(spec.args ?? [])],
      // A relative path in someone's environment means our folder, not the log's.
      cwd: process.cwd(),
      logFile: this.logFile,
      env: { ...process.env, ...this.#env },
    });
    this.#child = child;
    await this.untilReady(child);
    void child.exited.then((exit) => {
      if (!this.#exitAsked) spec.onUnexpectedExit?.(this, exit);
    });
  }

  /** A signal that need not end it: SIGSTOP and SIGCONT freeze and thaw it. */
  signal(signal: NodeJS.Signals): void {
    this.child.signal(signal);
  }

  /** The signal, and nothing else: ends when the process has. */
  async kill(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<Exit> {
    this.#exitAsked = true;
    this.child.signal(signal);
    return this.child.exited;
  }

  /** SIGTERM, and SIGKILL when that takes too long. */
  async stop(limitMs = STOP_LIMIT_MS): Promise<void> {
    this.#exitAsked = true;
    await this.#child?.stop(limitMs);
  }

  /** With `env` on top of the environment that it had; undefined takes a variable away. */
  async restart(env: NodeJS.ProcessEnv = {}): Promise<void> {
    await this.stop();
    await this.start(env);
  }

  async logTail(): Promise<string> {
    return (await this.#child?.logTail()) ?? '';
  }

  private get child(): ServerProcess {
    if (this.#child === undefined) throw new Error(`${this.name} was never started`);
    return this.#child;
  }

  private get running(): ServerProcess | undefined {
    return this.#child?.exit === undefined ? this.#child : undefined;
  }

  private async untilReady(child: ServerProcess): Promise<void> {
    const { onOutput, isReady = isReadyLine, readyLimitMs = READY_LIMIT_MS } = this.spec;
    let ready = false;
    const follower = new LineFollower(this.logFile, child.logOffset, (line) => {
      ready ||= isReady(line);
      onOutput?.(this.name, line);
    });
    await child.untilReady(async () => {
      await follower.look();
      if (!ready) throw new Error('it did not say that it is ready');
    }, readyLimitMs);
    if (onOutput !== undefined) this.follow(child, follower);
  }

  /** The child writes to its file by itself, so that it never waits for us; we read along. */
  private follow(child: ServerProcess, follower: LineFollower): void {
    const look = (): void => {
      follower.look().then(
        () => {
          if (child.exit === undefined) setTimeout(look, FOLLOW_MS).unref();
        },
        () => undefined,
      );
    };
    void child.exited.then(look);
    look();
  }
}

export const describeUnexpectedExit = (process: ManagedProcess, exit: Exit): string => `${process.name} ended unexpectedly: ${describeExit(exit)}. See ${process.logFile}.`;
