import { unreachable } from '@holdfast/kernel';
import { decodeHeaders, decoder, parseJson, RunId, runTaskMessages, Tenant, type Fence, type IntentRefused, type Json, type MessageOf, type Named, type Report, type ToolsHeld, type WorkerId } from '@holdfast/protocol';
import type { LogRecord } from '@holdfast/runtime';
import type { AgentDefinition } from '../define/agent.js';
import { joinGrant, type Grant, type GrantPage } from '../run/grant.js';
import { deadLetter } from './dead-letter.js';
import type { WorkerLog } from './log.js';
import type { Outbox } from './outbox.js';
import type { RunEar, RunPort } from './port.js';
import { arrive, NOTHING_SEEN, type Seen } from './seen.js';

/** A run that is being executed here. */
export interface Execution extends RunEar {
  /** Runs the agent's code until its first wait. */
  start(): void;
  /** Resolves when it was let go, its end taken, or it was abandoned. */
  readonly finished: Promise<void>;
}

export type Execute = (grant: Grant, agent: AgentDefinition, port: RunPort) => Execution;

export interface RunsParts {
  readonly worker: WorkerId;
  agent(name: string, version: string): AgentDefinition | undefined;
  readonly execute: Execute;
  readonly outbox: Outbox;
  readonly log: WorkerLog;
  /** Told when a run's execution begins here; what it returns, when that is over. */
  readonly onExecuted?: ((run: RunId, fence: Fence, agent: string) => () => void) | undefined;
}

interface Held {
  readonly execution: Execution;
  readonly fence: Fence;
  readonly lane: number;
}
interface RunLane {
  /** Of the group, when the lane was announced. */
  readonly generation: number;
  next: number;
  seen: Seen;
  stopped: boolean;
}

const decode = decoder(runTaskMessages);

/** Whether a message that can't be read names another worker, as all on this topic have done so far. */
const isForAnother = (data: Json, worker: WorkerId): boolean => typeof data === 'object' && data !== null && 'worker' in data && typeof data['worker'] === 'string' && data['worker'] !== worker;

/** The runs of this worker: begun by a grant, fed with answers, given up when they move on. */
export class Runs {
  readonly #parts: RunsParts;
  readonly #lanes = new Map<number, RunLane>();
  readonly #held = new Map<RunId, Held>();
  /** Tools that are held still, by lane. */
  readonly #heldTools = new Map<number, MessageOf<typeof ToolsHeld>['data']['tools']>();
  readonly #partial = new Map<RunId, { readonly lane: number; readonly pages: readonly GrantPage[] }>();
  #port: RunPort | undefined;

  constructor(parts: RunsParts) {
    this.#parts = parts;
  }

  /** What executors are given; set once, before the first record. */
  connect(port: RunPort): void {
    this.#port = port;
  }

  /** A lane begins at an offset of `run.tasks`, announced under a generation of the group. */
  take(lane: number, offset: number, generation: number): void {
    this.#lanes.set(lane, { generation, next: offset, seen: NOTHING_SEEN, stopped: false });
  }

  /** Where a retained lane reads on; undefined when it stands still or isn't held. */
  reopenAt(lane: number): number | undefined {
    const known = this.#lanes.get(lane);
    return known === undefined || known.stopped ? undefined : known.next;
  }

  /** Gives up every run of a lane: whoever holds it now begins them anew. */
  forget(lane: number, because: string): void {
    this.#lanes.delete(lane);
    this.#heldTools.delete(lane);
    for (const [run, begun] of this.#partial) if (begun.lane === lane) this.#partial.delete(run);
    for (const [run, held] of this.#held) if (held.lane === lane) this.#abandon(run, because);
  }

  abandonAll(because: string): void {
    for (const run of [...this.#held.keys()]) this.#abandon(run, because);
  }

  /** Gives up one run, whose executor can't go on here. */
  giveUp(run: RunId, fence: Fence, because: string): void {
    if (this.holds(run, fence)) this.#abandon(run, because);
  }

  holds(run: RunId, fence: Fence): boolean {
    return this.#held.get(run)?.fence === fence;
  }

  /** Whether a tool is held still for a run of this worker. */
  heldStill(run: RunId, { name, version }: Named): boolean {
    const lane = this.#held.get(run)?.lane;
    const tools = lane === undefined ? undefined : this.#heldTools.get(lane);
    return tools?.some((held) => held.name === name && (held.version ?? version) === version) === true;
  }

  /** How many runs are held here. */
  get size(): number {
    return this.#held.size;
  }

  /** A granted attempt ended in this very process: its run needn't wait for the ledger's word. */
  seen(run: RunId, report: Report): void {
    this.#held.get(run)?.execution.seen(report);
  }

  receive(records: readonly LogRecord[]): void {
    for (const record of records) {
      const lane = this.#lanes.get(record.lane);
      if (lane === undefined || lane.stopped || record.offset < lane.next) continue;
      this.#read(record, lane);
    }
  }

  #read(record: LogRecord, lane: RunLane): void {
    const stop = (because: string): void => {
      lane.stopped = true;
      this.#parts.log.error(`lane ${record.lane} of ${record.topic} stands still: ${because}`, { lane: record.lane, topic: record.topic, offset: record.offset, mend: 'find what is missing, then restart this worker' });
    };
    const envelope = decodeHeaders(record.headers, record.key, record.time);
    const arrival = envelope === undefined ? undefined : arrive(lane.seen, record.lane, envelope);
    if (envelope === undefined || arrival === undefined || arrival.kind === 'unnumbered') {
      lane.next = record.offset + 1;
      deadLetter(this.#parts.outbox, this.#parts.log, record, envelope?.type ?? null, 'no service wrote it: it has no ce_type or no ce_seq');
      return;
    }
    if (arrival.kind === 'gap') {
      stop(`messages of ${arrival.source} are missing: the last one seen has ce_seq ${arrival.last}, this one follows ${arrival.prev}`);
      return;
    }
    if (arrival.kind === 'new') {
      const parsed = parseJson(record.value ?? '');
      const decoded = parsed.ok ? decode(envelope.type, parsed.value) : parsed;
      const run = RunId.safeParse(envelope.subject);
      const tenant = Tenant.safeParse(envelope.tenant);
      if (decoded.ok && 'message' in decoded && typeof decoded.message === 'object' && decoded.message.type === 'ToolsHeld') {
        if (lane.seen.size === arrival.seen.size) lane.seen = arrival.seen;
        if (decoded.message.data.worker === this.#parts.worker) this.#heldTools.set(record.lane, decoded.message.data.tools);
        lane.next = record.offset + 1;
        return;
      }
      if (!run.success || !tenant.success) {
        stop('its message is about no valid run or tenant');
        return;
      }
      // What was written late, from before the lane was taken, is no beginning to count from: the first grant of this holding is.
      const isKnown = lane.seen.size === arrival.seen.size;
      if (!decoded.ok || !('message' in decoded) || typeof decoded.message === 'string') {
        if (isKnown) lane.seen = arrival.seen;
        lane.next = record.offset + 1;
        if (!parsed.ok || !isForAnother(parsed.value, this.#parts.worker)) this.#rest(run.data, record, decoded.ok ? 'it holds no message' : decoded.message);
        return;
      }
      if (isKnown || this.#isPresentGrant(lane, decoded.message)) lane.seen = arrival.seen;
      this.#dispatch(record.lane, run.data, decoded.message);
    }
    lane.next = record.offset + 1;
  }

  /** A run that only newer code can read is not gone on with here, whatever else comes for it: whoever takes its lane next is granted it anew, with all of its history. */
  #rest(run: RunId, { topic, lane, offset }: LogRecord, because: string): void {
    this.#abandon(run, `a message of it can't be understood by this version: ${because}`);
    this.#parts.log.error(`run ${run} rests: its message on ${topic}/${lane} at offset ${offset} can't be understood, perhaps it is of a newer version: ${because}`, { run, topic, lane, offset, mend: 'start workers of the newer version' });
  }

  #isPresentGrant({ generation }: RunLane, { type, data }: MessageOf<(typeof runTaskMessages)[number]>): boolean {
    return type === 'RunGranted' && data.worker === this.#parts.worker && (data.generation ?? generation) === generation;
  }

  #dispatch(lane: number, run: RunId, message: MessageOf<(typeof runTaskMessages)[number]>): void {
    if (message.type === 'IntentRefused' && message.data.worker === null) return this.#unread(run, message.data);
    if (message.data.worker !== this.#parts.worker) return; // For a former or another holder of the lane.
    switch (message.type) {
      case 'ToolsHeld':
        return; // About a lane, and taken in before.
      case 'RunGranted':
        this.#granted(lane, run, message.data);
        return;
      case 'StepSettled': {
        const { fence, step, attempt, outcome } = message.data;
        if (this.holds(run, fence)) this.#held.get(run)?.execution.settled({ step, attempt, outcome });
        return;
      }
      case 'WaitSettled': {
        const { fence, step, end } = message.data;
        if (this.holds(run, fence)) this.#held.get(run)?.execution.waitEnded({ step, end });
        return;
      }
      case 'RunDropped':
        this.#drop(run, message.data.fence, message.data.because, message.data.cancelled === true);
        return;
      case 'TryAnswered': {
        const { fence, step, attempt, retryAt } = message.data;
        if (this.holds(run, fence)) this.#held.get(run)?.execution.tryAnswered({ step, attempt, retryAt });
        return;
      }
      case 'IntentRefused': {
        const { fence, intent, step, reason, message: words } = message.data;
        const held = this.#held.get(run);
        if (held !== undefined && held.fence === fence) held.execution.refused({ intent, step, reason, message: words });
        return;
      }
      default:
        unreachable(message);
    }
  }

  /** A refusal without a fence may be of a client's intent as well as of this worker's own, where that could not be read; of its own nothing else would be heard. */
  #unread(run: RunId, { intent, fence, reason, message }: MessageOf<typeof IntentRefused>['data']): void {
    if (fence !== undefined || reason === 'fence_required' || !this.#held.has(run)) return;
    this.#parts.log.warn(`${intent} of run ${run} was refused (${reason}): ${message}`, { run, intent, reason, mend: 'find its message in the dead letters; where this worker wrote it, the run waits for what will not come: cancel it, or mend the code and restart this worker' });
  }

  #granted(lane: number, run: RunId, page: GrantPage): void {
    // Of an earlier holding of the lane, written late or twice: the run has gone on since.
    if (page.generation !== undefined && page.generation !== this.#lanes.get(lane)?.generation) return;
    const collected = this.#partial.get(run)?.pages ?? [];
    const newest = Math.max(this.#held.get(run)?.fence ?? 0, collected[0]?.fence ?? 0);
    if (page.fence < newest || this.holds(run, page.fence)) return;
    this.#abandon(run, `the run was granted again, with fence ${page.fence}`);
    const pages = page.fence > newest ? [page] : [...collected, page];
    const grant = joinGrant(run, pages);
    if (grant === undefined) this.#partial.set(run, { lane, pages });
    else this.#begin(lane, grant);
  }

  #begin(lane: number, grant: Grant): void {
    const { run, fence } = grant;
    const { name, version } = grant.agent;
    const agent = this.#parts.agent(name, version);
    if (agent === undefined || this.#port === undefined) {
      this.#parts.log.error('a run was granted whose agent does not live here', { run, agent: `${name}@${version}` });
      return;
    }
    const execution = this.#parts.execute(grant, agent, this.#port);
    this.#held.set(run, { execution, fence, lane });
    const executed = this.#parts.onExecuted?.(run, fence, `${name}@${version}`);
    execution.start(); // After it is held: it may fire at once.
    void execution.finished.finally(() => {
      executed?.();
      if (this.holds(run, fence)) this.#held.delete(run);
    });
  }

  #drop(run: RunId, fence: Fence, because: string, cancelled: boolean): void {
    if (this.#partial.get(run)?.pages.some((page) => page.fence === fence) === true) this.#partial.delete(run);
    const held = this.#held.get(run);
    if (held?.fence !== fence) return;
    this.#held.delete(run); // First: nothing of it may fire any more.
    held.execution.dropped(because, cancelled);
  }

  #abandon(run: RunId, because: string): void {
    this.#partial.delete(run);
    const held = this.#held.get(run);
    if (held === undefined) return;
    this.#held.delete(run);
    held.execution.abandon(because);
  }
}
