import type { FireEffect, MessageOf, OperationKey, RunId, Tenant } from '@holdfast/protocol';
import type { Membership } from '@holdfast/runtime';
import { sameMembership } from './hold.js';
import type { Seen } from './seen.js';

/** One task of `tool.tasks`, as it was polled. */
export interface Task {
  readonly lane: number;
  readonly offset: number;
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly data: MessageOf<typeof FireEffect>['data'];
  readonly irreversible: boolean;
  readonly bytes: number;
  /** What the lane had seen before this task, and with it: the metadata of a commit that ends here. */
  readonly before: Seen;
  readonly seen: Seen;
  /** The membership under which it was polled last; its commit carries the same. */
  polled: Membership;
  /** `committing` and later: no longer in the lane's queue. */
  state: 'waiting' | 'committing' | 'firing' | 'dropped' | 'over';
}

/** What names an attempt. */
interface AttemptName {
  readonly key: OperationKey;
  readonly attempt: number;
}
const nameOf = ({ key, attempt }: AttemptName): string => `${key}/${attempt}`;

/** Of so many revoked attempts a lane remembers that they must not fire; the oldest are long past their `notAfter`. */
const REVOKED_MAX = 10_000;

/**
 * One lane of `tool.tasks`, from its taking to its loss: what was received, what waits for its
 * commit, and how far the group's offset has come. No input or output of its own.
 */
export class TaskLane {
  /** A commit is in flight: no other may be sent for this lane. */
  committing: Promise<void> | null = null;
  /** A commit's end is unknown: the lane must be taken anew. */
  doubtful = false;
  /** Stands still, alarmed: nothing more is received. */
  stopped = false;
  /** Tasks finished since the offset was last to be saved. */
  unsaved = 0;
  #next: number;
  #received: Seen;
  #floor: number;
  #irreversible: Task[] = [];
  /** Everything received that no commit covers as ended yet, in offset order. */
  #open: Task[] = [];
  readonly #dropped = new Map<number, Task>();
  readonly #revoked = new Set<string>();

  constructor(
    readonly number: number,
    from: { readonly offset: number; readonly seen: Seen },
  ) {
    this.#next = from.offset;
    this.#floor = from.offset;
    this.#received = from.seen;
  }

  /** Next offset that was not received yet. */
  get next(): number {
    return this.#next;
  }
  get received(): Seen {
    return this.#received;
  }
  /** No commit may name a lower offset than this. */
  get floor(): number {
    return this.#floor;
  }

  /** Where to read on after a rebalance that left the lane here: what was dropped unfired is polled again. */
  reopenAt(): number {
    return Math.min(this.#next, ...this.#dropped.keys());
  }

  /** Notes that a record was received, whatever it was. */
  passed(offset: number, seen: Seen = this.#received): void {
    this.#next = offset + 1;
    this.#received = seen;
  }

  add(task: Task): void {
    this.#open.push(task);
    this.#queue(task);
  }

  /** A dropped task that was polled again. */
  retake(offset: number, polled: Membership): Task | undefined {
    const task = this.#dropped.get(offset);
    if (task === undefined) return undefined;
    this.#dropped.delete(offset);
    task.state = 'waiting';
    task.polled = polled;
    this.#queue(task);
    return task;
  }

  /** The next irreversible tasks in offset order, all polled under one membership; they leave the queue. */
  takeIrreversible(most: number): Task[] {
    const [first] = this.#irreversible;
    if (first === undefined) return [];
    let count = 1;
    while (count < most && sameMembership(this.#irreversible[count]?.polled ?? null, first.polled)) count += 1;
    const taken = this.#irreversible.slice(0, count);
    this.#irreversible = this.#irreversible.slice(count);
    for (const task of taken) task.state = 'committing';
    return taken;
  }

  get waitsForCommit(): boolean {
    return this.#irreversible.length > 0;
  }

  /** A commit up to an offset was accepted. */
  committed(offset: number): void {
    this.#floor = Math.max(this.#floor, offset);
    this.unsaved = 0;
    this.#prune();
  }

  /** Puts a task back as dropped: it fires only if it is polled again. */
  drop(task: Task): void {
    task.state = 'dropped';
    this.#dropped.set(task.offset, task);
  }

  /** Drops every task that has not begun; returns them. Those whose commit is in flight are its sender's to drop. */
  dropWaiting(): Task[] {
    this.#irreversible = [];
    const waiting = this.#open.filter((task) => task.state === 'waiting');
    for (const task of waiting) this.drop(task);
    return waiting;
  }

  /**
   * An attempt is not wanted any more. Returns its tasks that were waiting: they are over. Of any
   * other, whoever fires it asks last thing before the call.
   */
  revoke(attempt: AttemptName): Task[] {
    const name = nameOf(attempt);
    this.#revoked.add(name);
    if (this.#revoked.size > REVOKED_MAX) for (const oldest of [...this.#revoked].slice(0, REVOKED_MAX / 10)) this.#revoked.delete(oldest);
    const waiting = this.#open.filter((task) => task.state === 'waiting' && nameOf(task.data) === name);
    for (const task of waiting) task.state = 'over';
    this.#irreversible = this.#irreversible.filter(({ state }) => state === 'waiting');
    return waiting;
  }

  isRevoked(attempt: AttemptName): boolean {
    return this.#revoked.size > 0 && this.#revoked.has(nameOf(attempt));
  }

  /** Up to where everything received has ended, with what had been seen there. */
  lowWater(): { offset: number; seen: Seen } {
    this.#prune();
    const [head] = this.#open;
    return head === undefined ? { offset: this.#next, seen: this.#received } : { offset: head.offset, seen: head.before };
  }

  /** More has ended than a commit says. */
  get isUnsaved(): boolean {
    return this.lowWater().offset > this.#floor;
  }

  #prune(): void {
    const first = this.#open.findIndex(({ state }) => state !== 'over');
    if (first !== 0) this.#open = first === -1 ? [] : this.#open.slice(first);
  }

  #queue(task: Task): void {
    if (!task.irreversible) return;
    // Polled again, a task may stand before one that is still waiting; offset order is what a commit relies on.
    let at = this.#irreversible.length;
    while (at > 0 && (this.#irreversible[at - 1]?.offset ?? 0) > task.offset) at -= 1;
    this.#irreversible.splice(at, 0, task);
  }
}
