import { unreachable } from '@holdfast/kernel';
import { digestOf, type ArtifactRef, type Digest, type Ending, type Failure, type Json, type Named, type RunId, type Stored, type Tenant } from '@holdfast/protocol';
import { messageOf, NotAdmitted, refusalOf, ResultUnreadable, type IntentRefusedError } from '../errors.js';
import type { RunEventRecord } from './log.js';
import type { Watcher } from './stream.js';

/** How a run ended. A quarantined one stands still until a person decides. */
export type RunOutcome<Output = Json> =
  | { readonly status: 'completed'; readonly output: Output; readonly verified?: boolean | undefined }
  /** `output` is null when its time ran out before its code gave one. */
  | { readonly status: 'completed_partially'; readonly output: Output | null; readonly because: string }
  | { readonly status: 'failed'; readonly failure: Failure }
  /** By an operator's word, or with its parent. What it did until then stands, unless it was compensated. */
  | { readonly status: 'cancelled'; readonly reason: string; readonly by: string }
  /** Its deadline passed (epoch milliseconds). */
  | { readonly status: 'expired'; readonly deadline: number }
  | { readonly status: 'quarantined'; readonly because: string };

/** Where a client reads large outputs. */
export interface ClientArtifacts {
  /** The bytes behind a reference. Rejects when the scope may not read them, or they aren’t those. */
  get(ref: ArtifactRef, scope: { readonly tenant: string; readonly run?: string }): Promise<Uint8Array>;
}

/** @internal */
export type End = { readonly kind: 'finished'; readonly ending: Ending } | { readonly kind: 'quarantined'; readonly because: string } | { readonly kind: 'refused'; readonly error: IntentRefusedError };

/** What was asked for by whoever watches; absent for somebody else's run. @internal */
export interface Started {
  readonly agent: Named;
  readonly digest: Digest;
}

/** Waits for the end of one run. @internal */
export class EndWatcher implements Watcher {
  last = 0;
  /** True once the run's first event was told: then nothing before it is missing. */
  begun = false;
  #end: End | null = null;
  #mine = false;
  /** Of our start on `agent.intents`: undefined until it is written, null where the log doesn't say. */
  #asked: number | null | undefined;
  #noRoom: RunEventRecord[] = [];
  readonly #waiting = new Set<(end: End) => void>();

  constructor(
    readonly run: RunId,
    readonly since: number,
    private readonly started: Started | undefined,
  ) {}

  /** Our start is written, there. */
  asked(offset: number | null): void {
    this.#asked = offset;
    for (const record of this.#noRoom.splice(0)) this.tell(record);
  }

  tell(record: RunEventRecord): void {
    const { event } = record;
    switch (event.type) {
      case 'RunAccepted':
        this.begun = true;
        this.#mine = this.started === undefined || (event.data.agent?.name === this.started.agent.name && event.data.agent.version === this.started.agent.version && digestOf(event.data.input) === this.started.digest);
        return;
      case 'RunFinished':
        if (this.#isOurs) this.#settle({ kind: 'finished', ending: event.data.ending });
        return;
      case 'RunQuarantined':
        if (this.#isOurs) this.#settle({ kind: 'quarantined', because: event.data.message });
        return;
      case 'StartRefused':
        if (this.#isOurs) return;
        if (this.#asked === undefined) return void this.#noRoom.push(record);
        // There was no room for an earlier try; ours has an answer of its own.
        if (this.#asked !== null && event.data.offset !== undefined && event.data.offset < this.#asked) return;
        this.begun = true;
        return this.#settle({ kind: 'refused', error: new NotAdmitted(event.data.reason, event.data.message, event.data.retryAt, event.data.holder) });
      case 'IntentRejected':
        // Somebody else's start may be refused under the same id; ours was, unless the accepted one is ours.
        if (event.data.intent !== 'StartRun' || this.#isOurs) return;
        this.begun = true;
        return this.#settle({ kind: 'refused', error: refusalOf('StartRun', undefined, event.data.reason, event.data.message) });
      default:
        return;
    }
  }

  /** The end of a run that somebody else started with another input is no answer to our start: its refusal is, which comes. */
  get #isOurs(): boolean {
    return this.started === undefined || this.#mine;
  }

  /** Calls back once, when the end is known; returns a canceller. */
  whenEnded(callback: (end: End) => void): () => void {
    if (this.#end !== null) {
      callback(this.#end);
      return () => undefined;
    }
    this.#waiting.add(callback);
    return () => this.#waiting.delete(callback);
  }

  get waited(): boolean {
    return this.#waiting.size > 0;
  }

  #settle(end: End): void {
    if (this.#end?.kind === 'finished') return;
    this.#end = end;
    for (const callback of this.#waiting) callback(end);
    this.#waiting.clear();
  }
}

/** The outcome with its output as a value. @throws IntentRefusedError, ResultUnreadable @internal */
export async function outcomeOf(end: End, run: RunId, tenant: Tenant, artifacts: ClientArtifacts | undefined): Promise<RunOutcome> {
  if (end.kind === 'refused') throw end.error;
  if (end.kind === 'quarantined') return { status: 'quarantined', because: end.because };
  const { ending } = end;
  switch (ending.status) {
    case 'completed':
      return { ...ending, output: await valueOf(ending.output, 'the output', { tenant, run }, artifacts) };
    case 'completed_partially':
      return { ...ending, output: ending.output === undefined ? null : await valueOf(ending.output, 'the output', { tenant, run }, artifacts) };
    case 'failed':
    case 'cancelled':
    case 'expired':
      return ending;
    default:
      return unreachable(ending);
  }
}

/** The value of something stored. @throws ResultUnreadable @internal */
export async function valueOf(stored: Stored, what: string, scope: { readonly tenant: string; readonly run: string }, artifacts: ClientArtifacts | undefined): Promise<Json> {
  if ('value' in stored) return stored.value;
  if ('unreadable' in stored) throw new ResultUnreadable(what, stored.unreadable);
  if (artifacts === undefined) throw new ResultUnreadable(what, `it is the artifact ${stored.artifact.sha256}; give HoldfastClient.connect the store as "artifacts"`);
  try {
    return JSON.parse(new TextDecoder().decode(await artifacts.get(stored.artifact, scope))) as Json;
  } catch (error) {
    throw new ResultUnreadable(what, `the artifact ${stored.artifact.sha256} could not be read: ${messageOf(error)}`);
  }
}
