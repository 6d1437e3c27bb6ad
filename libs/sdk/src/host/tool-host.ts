import { unreachable } from '@holdfast/kernel';
import { answeredBy, EffectHeartbeat, EffectReported, topics, type Json, type Message, type Outcome, type Report, type RunId, type WorkerId } from '@holdfast/protocol';
import type { Clock, CommitEnd, CrashPoint, LaneGroup, LogRecord, Membership } from '@holdfast/runtime';
import type { ToolDefinition } from '../define/tool.js';
import { messageOf } from '../errors.js';
import { argue } from './arguing.js';
import type { Firing, Shot } from './firing.js';
import { sameMembership, type Hold } from './hold.js';
import type { WorkerLog } from './log.js';
import type { HostObserver } from './observer.js';
import { WorkerStopped, type Outbox } from './outbox.js';
import type { ArtifactPort } from './artifacts.js';
import { Probing } from './probing.js';
import { encodeSeen, type Seen } from './seen.js';
import type { Slots } from './slots.js';
import { TaskLane, type Task } from './task-lane.js';
import { readTask, type Received } from './task-reader.js';

export interface ToolHostParts {
  readonly group: LaneGroup;
  /** `tool.tasks.<pool>`. */
  readonly topic: string;
  readonly hold: Hold;
  readonly firing: Firing;
  readonly outbox: Outbox;
  /** Where large results go. */
  readonly artifacts: ArtifactPort | undefined;
  readonly clock: Clock;
  readonly log: WorkerLog;
  readonly worker: WorkerId;
  hosted(name: string, version: string): ToolDefinition | undefined;
  /** For effects that may fire again; shared with local firing. */
  readonly slots: Slots;
  /** For irreversible effects: what one crash can leave unknown at most. */
  readonly irreversibleSlots: Slots;
  readonly observer?: HostObserver | undefined;
  /** Passed by name where a test may kill the process. */
  readonly crashPoint: CrashPoint;
  /** Told of every end, for the run that may live in this process. */
  readonly onReport: (run: RunId, report: Report) => void;
}

/** What may wait in memory before reading is held back. */
const WAITING_TASKS_MAX = 2000;
const WAITING_BYTES_MAX = 32 * 1024 * 1024;
/** Finished tasks that no commit covers yet: after so many, or so long (milliseconds), the offset is saved. */
const UNSAVED_MAX = 500;
const SAVE_AFTER_MS = 1000;

const NOT_FIRED = 'the lane was lost between the commit of the task and its call; nothing was fired';

/**
 * Fires what the ledger grants. An irreversible task fires only after the broker has accepted the
 * commit of its offset under the very membership in which the task was polled; nothing that was
 * dropped, refused or left in doubt fires or is reported.
 */
export class ToolHost {
  readonly #parts: ToolHostParts;
  readonly #probing: Probing;
  readonly #lanes = new Map<number, TaskLane>();
  readonly #leaving = new Map<number, Promise<void>>();
  #turn = 0;
  #stopping = false;
  #waitingTasks = 0;
  #waitingBytes = 0;
  #held: (() => void)[] = [];
  #inFlight = 0;
  #idle: (() => void)[] = [];
  #saveTimer: (() => void) | null = null;

  constructor(parts: ToolHostParts) {
    this.#parts = parts;
    const { clock, artifacts, worker, hosted, crashPoint, observer } = parts;
    this.#probing = new Probing({ clock, artifacts, worker, hosted, crashPoint, observer, send: (run, tenant, message) => this.#send(run, tenant, message) });
  }

  /** A lane begins, from the group's committed offset. */
  take(lane: number, from: { readonly offset: number; readonly seen: Seen }): void {
    this.forget(lane);
    this.#lanes.set(lane, new TaskLane(lane, from));
  }

  forget(number: number): void {
    const lane = this.#lanes.get(number);
    if (lane === undefined) return;
    this.#drop(lane);
    this.#lanes.delete(number);
    if (lane.committing !== null) this.#leaving.set(number, lane.committing);
  }

  /** Resolves when no commit of a lane that was forgotten is in flight. */
  async quiet(number: number): Promise<void> {
    await this.#leaving.get(number);
    this.#leaving.delete(number);
  }

  /** Where a retained lane reads on, `stopped` when it stands still, `anew` when a commit's end is unknown: then it must be taken anew. */
  async reopenAt(number: number): Promise<number | 'stopped' | 'anew'> {
    const lane = this.#lanes.get(number);
    if (lane === undefined) return 'anew';
    await lane.committing; // Its end decides what was dropped.
    if (lane.doubtful) return 'anew';
    return lane.stopped ? 'stopped' : lane.reopenAt();
  }

  /** Records of one lane, in order. The promise holds back further reading while too much waits. */
  receive(records: readonly LogRecord[], polled: Membership): Promise<void> {
    const [first] = records;
    const lane = first === undefined ? undefined : this.#lanes.get(first.lane);
    if (lane === undefined || this.#stopping || !sameMembership(polled, this.#parts.hold.membership)) return Promise.resolve();
    const received: Received[] = [];
    for (const record of records) {
      if (lane.stopped) break;
      const read = readTask(lane, record, polled, this.#parts);
      if (read !== undefined) received.push(read);
    }
    this.#take(received, lane);
    this.#pump();
    if (this.#waitingTasks <= WAITING_TASKS_MAX && this.#waitingBytes <= WAITING_BYTES_MAX) return Promise.resolve();
    return new Promise((resolve) => this.#held.push(resolve));
  }

  /** A rebalance has begun: every unfired task is dropped. */
  revoked(): void {
    for (const lane of this.#lanes.values()) this.#drop(lane);
  }

  /** Drops what has not fired and fires nothing more. What fired goes on. */
  stop(): void {
    this.#stopping = true;
    this.revoked();
    this.#probing.stop();
    this.#saveTimer?.();
  }

  /** Tells the probes that their worker won't wait for them any longer. */
  abort(because: string): void {
    this.#probing.abort(because);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Resolves when every commit is answered, and every effect that fired, and every probe that was asked, has ended and its report is acknowledged. */
  async idle(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map(async (lane) => lane.committing));
    await this.#probing.idle();
    if (this.#inFlight > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** Commits how far everything has ended, so that the next holder begins there. */
  async save(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map(async (lane) => {
      await lane.committing;
      this.#save(lane);
      await lane.committing;
    }));
  }

  /** Nothing begins before all has been looked at: an attempt that is revoked in the same breath must be found unfired. */
  #take(received: readonly Received[], lane: TaskLane): void {
    for (const read of received) {
      if (read.kind !== 'fire') continue;
      this.#waitingTasks += 1;
      this.#waitingBytes += read.task.bytes;
    }
    for (const read of received) if (read.kind === 'revoke') for (const task of lane.revoke(read.attempt)) this.#dequeue(task);
    for (const read of received) {
      if (read.kind === 'probe') this.#probing.receive(read.task);
      if (read.kind === 'ask') void argue(read.task, { worker: this.#parts.worker, hosted: this.#parts.hosted, send: (run, tenant, message) => this.#send(run, tenant, message) });
      if (read.kind !== 'fire') this.#unsaved(lane);
      else if (!read.task.irreversible) this.#parts.slots.acquire(() => this.#fireFree(read.task, lane));
    }
  }

  #dequeue(task: Task): void {
    this.#waitingTasks -= 1;
    this.#waitingBytes -= task.bytes;
    if (this.#held.length > 0 && this.#waitingTasks <= WAITING_TASKS_MAX / 2 && this.#waitingBytes <= WAITING_BYTES_MAX / 2) this.#letRead();
  }

  #letRead(): void {
    for (const resolve of this.#held.splice(0)) resolve();
  }

  #drop(lane: TaskLane): void {
    for (const task of lane.dropWaiting()) this.#dequeue(task);
    this.#letRead();
  }

  #current(task: Task): boolean {
    return !this.#stopping && sameMembership(task.polled, this.#parts.hold.membership);
  }

  /** A pure or idempotent task: it may fire again, so no commit is waited for. Holds a slot. */
  #fireFree(task: Task, lane: TaskLane): void {
    if (task.state !== 'waiting' || !this.#current(task)) {
      this.#parts.slots.release();
      return;
    }
    this.#dequeue(task);
    task.state = 'firing';
    // Too late says nothing: another host may have fired it in time.
    const check = (): 'unsaid' | undefined => (this.#parts.clock.now() > task.data.notAfter || lane.isRevoked(task.data) ? 'unsaid' : undefined);
    void this.#fire(task, check, undefined, () => this.#parts.slots.release()).then(() => {
      task.state = 'over';
      this.#unsaved(lane);
    });
  }

  /** Something of a lane is over that no commit covers yet. */
  #unsaved(lane: TaskLane): void {
    lane.unsaved += 1;
    if (lane.unsaved >= UNSAVED_MAX && !this.#stopping) this.#save(lane);
    this.#saveLater();
  }

  /** As long as something is unsaved: a rebalance or another commit may stand in the way, and a commit that was refused has saved nothing. */
  #saveLater(): void {
    if (this.#stopping) return;
    this.#saveTimer ??= this.#parts.clock.after(SAVE_AFTER_MS, () => {
      this.#saveTimer = null;
      const unsaved = [...this.#lanes.values()].filter((lane) => lane.isUnsaved);
      for (const lane of unsaved) this.#save(lane);
      if (unsaved.length > 0) this.#saveLater();
    });
  }

  /** Irreversible tasks: as many as may fire right now, one commit in flight for each lane. */
  #pump(): void {
    const { irreversibleSlots } = this.#parts;
    if (this.#stopping || irreversibleSlots.free <= 0) return;
    const lanes = [...this.#lanes.values()].filter((lane) => lane.waitsForCommit && lane.committing === null);
    this.#turn += 1;
    for (let index = 0; index < lanes.length && irreversibleSlots.free > 0; index += 1) {
      const lane = lanes[(index + this.#turn) % lanes.length];
      if (lane === undefined) continue;
      const tasks = lane.takeIrreversible(irreversibleSlots.free);
      const last = tasks.at(-1);
      if (last === undefined) continue;
      irreversibleSlots.reserve(tasks.length);
      for (const task of tasks) this.#dequeue(task);
      this.#parts.crashPoint('host.before-commit', () => tasks.map(nameOf));
      this.#commit(lane, last.polled, last.offset + 1, last.seen, (end) => this.#decide(tasks, lane, end));
    }
  }

  #save(lane: TaskLane): void {
    const { membership } = this.#parts.hold;
    lane.unsaved = 0;
    if (membership === null || lane.committing !== null || lane.doubtful || !lane.isUnsaved) return;
    const { offset, seen } = lane.lowWater();
    this.#commit(lane, membership, offset, seen, () => undefined);
  }

  #commit(lane: TaskLane, polled: Membership, offset: number, seen: Seen, then: (end: CommitEnd) => void): void {
    const { group, topic, hold, log } = this.#parts;
    const sent = group.commit(polled, [{ topic, lane: lane.number, offset, metadata: encodeSeen(seen) }]).catch((error: unknown): CommitEnd => {
      log.warn('a commit ended with an error', { lane: lane.number, offset, error: messageOf(error) });
      return 'unknown';
    });
    lane.committing = sent.then((end) => {
      lane.committing = null;
      switch (end) {
        case 'accepted':
          lane.committed(offset);
          break;
        case 'refused':
          this.#drop(lane);
          break;
        case 'unknown':
          lane.doubtful = true;
          break;
        default:
          unreachable(end);
      }
      then(end);
      // The membership is of no use any more; where the group has noticed by itself, it is joining already.
      if (end !== 'accepted' && sameMembership(polled, hold.membership)) {
        this.revoked();
        hold.rejoin(`the commit of offset ${offset} of ${topic} lane ${lane.number} ended ${end}`);
      }
      this.#pump();
    });
  }

  #decide(tasks: readonly Task[], lane: TaskLane, end: CommitEnd): void {
    for (const task of tasks) {
      if (end === 'accepted') {
        task.state = 'firing';
        this.#parts.crashPoint('host.after-commit', () => [nameOf(task)]);
        void this.#fireCommitted(task, lane);
      } else {
        this.#parts.irreversibleSlots.release();
        if (end === 'refused') lane.drop(task);
        else task.state = 'over'; // Perhaps ours, perhaps not: the lane is taken anew and the ledger told how far it had come.
      }
    }
  }

  /** The broker has accepted this host's commit of the task: it alone fires it, or says that it did not. */
  async #fireCommitted(task: Task, lane: TaskLane): Promise<void> {
    const check = (): Outcome | 'unsaid' | undefined => {
      if (lane.isRevoked(task.data)) return 'unsaid'; // Whoever revoked it knows that it is not wanted.
      if (!this.#current(task)) return this.#notFired('transient', NOT_FIRED);
      const { notAfter } = task.data;
      const now = this.#parts.clock.now();
      return now > notAfter ? this.#notFired('expired', `past notAfter by ${now - notAfter} ms; nothing was fired`) : undefined;
    };
    await this.#fire(task, check, (outcome) => void this.#report(task, outcome), () => this.#parts.irreversibleSlots.release());
    task.state = 'over';
    if (lane.isUnsaved) this.#saveLater(); // It stood before others that were over.
    this.#pump();
  }

  #notFired(failureClass: 'transient' | 'expired', message: string): Outcome {
    return { status: 'failed', failure: { class: failureClass, message, notApplied: true }, evidence: { kind: 'host', at: this.#parts.clock.now() } };
  }

  async #fire(task: Task, check: () => Outcome | 'unsaid' | undefined, late: ((outcome: Outcome) => void) | undefined, release: () => void): Promise<void> {
    this.#inFlight += 1;
    const about = (): string[] => [nameOf(task)];
    try {
      this.#parts.crashPoint('host.before-call', about);
      const outcome = await this.#call(task, check, late).finally(release);
      this.#parts.crashPoint('host.after-call', about);
      if (outcome !== 'unsaid') await this.#report(task, outcome);
      this.#parts.crashPoint('host.after-report', about);
    } finally {
      this.#inFlight -= 1;
      if (this.#inFlight === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  #call(task: Task, check: () => Outcome | 'unsaid' | undefined, late: ((outcome: Outcome) => void) | undefined): Promise<Outcome | 'unsaid'> {
    const { data, run, tenant } = task;
    const tool = this.#parts.hosted(data.tool.name, data.tool.version);
    if (tool === undefined) {
      return Promise.resolve(check() ?? this.#notFired('transient', `worker ${this.#parts.worker} does not host ${data.tool.name}@${data.tool.version}; nothing was fired`));
    }
    const shot: Shot = {
      tool,
      effect: task.irreversible ? 'irreversible' : data.effect,
      run,
      tenant,
      step: data.step,
      args: data.args,
      operationKey: data.key,
      attempt: data.attempt,
      fence: data.fence,
      timeoutMs: data.timeoutMs,
      heartbeat: (progress) => this.#showLife(task, progress),
    };
    return this.#parts.firing.fire(shot, check, late);
  }

  async #report({ run, tenant, data }: Task, outcome: Outcome): Promise<void> {
    const { step, key, attempt } = data;
    const sent = this.#send(run, tenant, EffectReported({ step, key, attempt, outcome, worker: this.#parts.worker }));
    // What answers an effect is no step of the run's own code.
    if (answeredBy(step) === null) this.#parts.onReport(run, { step, attempt, outcome });
    await sent;
  }

  #showLife({ run, tenant, data }: Task, progress: Json | undefined): void {
    const { step, key, attempt } = data;
    void this.#send(run, tenant, EffectHeartbeat({ step, key, attempt, worker: this.#parts.worker, ...(progress === undefined ? {} : { progress }) }));
  }

  #send(run: RunId, tenant: string, message: Message): Promise<void> {
    return this.#parts.outbox.send(topics.toolResults, run, tenant, [message]).catch((error: unknown) => {
      // Nobody hears of this end from us: the ledger's deadline will ask. Who stops while Kafka is away has said so already.
      this.#parts.log[error instanceof WorkerStopped ? 'warn' : 'error'](`${message.type} was not written`, { run, error: messageOf(error) });
    });
  }
}

const nameOf = ({ run, data }: Task): string => `${run}/${data.step}`;
