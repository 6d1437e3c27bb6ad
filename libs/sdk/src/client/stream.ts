import type { RunId, Tenant } from '@holdfast/protocol';
import type { Tail, TailOptions } from '@holdfast/runtime/kafka';
import { headOf, type ClientLog, type RunEventRecord } from './log.js';

/** A run's events as one reader of its lane sees them, each once. */
export interface RunStream {
  /** Resolves when everything that was there at the start has been told. */
  readonly caughtUp: Promise<void>;
  close(): Promise<void>;
}

export interface StreamOptions {
  readonly log: ClientLog;
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly from: TailOptions['from'];
  onEvent(record: RunEventRecord): void;
  onError(error: Error): void;
}

/** Follows one run with a reader of its own. */
export async function streamOf({ log, run, tenant, from, onEvent, onError }: StreamOptions): Promise<RunStream> {
  let last = 0;
  return log.tail({
    lane: log.laneOf(run),
    run,
    from,
    onRecord: (record) => {
      const head = headOf(record);
      // Services republish after a crash: a version seen is a duplicate.
      if (head === undefined || head.run !== run || head.tenant !== tenant || head.version <= last) return;
      last = head.version;
      const event = head.read();
      if (event !== undefined) onEvent(event);
    },
    onError,
  });
}

/** Told of the events of the run that it stands for. */
export interface Watcher {
  readonly run: RunId;
  /** When it began, epoch milliseconds: no event of its run is older. */
  readonly since: number;
  /** Version of the last event told; 0 for none. */
  last: number;
  tell(record: RunEventRecord): void;
}

/** Clocks of this process and of the services may differ so much, milliseconds. */
export const CLOCK_SKEW_MS = 60_000;
const REOPEN_MS = 1000;

/**
 * The runs that a client has started, followed with one reader for each lane, opened when somebody
 * first waits. Watchers are held weakly until somebody does: a client that starts runs and never
 * looks keeps nothing of them.
 */
export class LiveRuns {
  readonly #watchers = new Map<RunId, Set<WeakRef<Watcher>>>();
  readonly #pinned = new Set<Watcher>();
  readonly #readers = new Map<number, Promise<Tail>>();
  readonly #gone = new FinalizationRegistry<RunId>((run) => {
    const references = this.#watchers.get(run);
    for (const reference of references ?? []) if (reference.deref() === undefined) references?.delete(reference);
    if (references?.size === 0) this.#watchers.delete(run);
  });
  #closed = false;

  constructor(
    private readonly log: ClientLog,
    private readonly tenant: Tenant,
  ) {}

  /** To be called before the run's first intent is published, so that no event can have passed. */
  add(watcher: Watcher): void {
    const references = this.#watchers.get(watcher.run) ?? new Set();
    this.#watchers.set(watcher.run, references.add(new WeakRef(watcher)));
    this.#gone.register(watcher, watcher.run);
  }

  /** Somebody waits: keeps the watcher, and sees that its lane is read. */
  pin(watcher: Watcher): Promise<Tail> {
    this.#pinned.add(watcher);
    return this.#open(this.log.laneOf(watcher.run));
  }

  unpin(watcher: Watcher): void {
    this.#pinned.delete(watcher);
  }

  async close(): Promise<void> {
    this.#closed = true;
    // A reader that could not be opened needs no closing.
    await Promise.all([...this.#readers.values()].map((reader) => reader.then((tail) => tail.close()).catch(() => undefined)));
  }

  #open(lane: number): Promise<Tail> {
    let reader = this.#readers.get(lane);
    if (reader === undefined) {
      const time = this.#eldest(lane) - CLOCK_SKEW_MS;
      const opening: Promise<Tail> = this.log.tail({ lane, from: { time }, onRecord: (record) => this.#note(record), onError: () => this.#reopen(lane, opening) });
      opening.catch(() => this.#readers.get(lane) === opening && this.#readers.delete(lane));
      this.#readers.set(lane, opening);
      reader = opening;
    }
    return reader;
  }

  #eldest(lane: number): number {
    let eldest = Date.now();
    for (const [run, references] of this.#watchers) {
      if (this.log.laneOf(run) !== lane) continue;
      for (const reference of references) eldest = Math.min(eldest, reference.deref()?.since ?? eldest);
    }
    return eldest;
  }

  /** What is read again is dropped by its version. */
  #reopen(lane: number, broken: Promise<Tail>): void {
    if (this.#readers.get(lane) === broken) this.#readers.delete(lane);
    void broken.then((tail) => tail.close()).catch(() => undefined);
    setTimeout(() => {
      const waiting = [...this.#pinned].some(({ run }) => this.log.laneOf(run) === lane);
      if (this.#closed || !waiting) return;
      const opening = this.#open(lane);
      opening.catch(() => this.#reopen(lane, opening));
    }, REOPEN_MS);
  }

  #note(record: Parameters<typeof headOf>[0]): void {
    const head = headOf(record);
    if (head === undefined || head.tenant !== this.tenant) return;
    const references = this.#watchers.get(head.run as RunId);
    if (references === undefined) return;
    let event: RunEventRecord | undefined;
    for (const reference of references) {
      const watcher = reference.deref();
      if (watcher === undefined || head.version <= watcher.last) continue;
      watcher.last = head.version;
      event ??= head.read();
      if (event !== undefined) watcher.tell(event);
    }
  }
}
