import { AbandonWait, ReleaseRun, StartWait, type HistoryStep, type Json, type Step, type Wait, type WaitEnd } from '@holdfast/protocol';
import { ResultUnreadable, type IntentRefusedError } from '../errors.js';
import { asError } from '../failure.js';
import { endError, type Begun, type WaitAsk } from '../wait/ask.js';
import { open, type Core } from './core.js';
import type { Entry, Settlement } from './entry.js';
import { load } from './loading.js';
import { OVERHEAD_BYTES, type Draft } from './outgoing.js';

type RecordedWait = Extract<HistoryStep, { kind: 'wait' }>;

/** More can't be named in one message; a run that waits for more keeps its worker. */
const RELEASE_WAITS_MAX = 1000;

/** What the run waits for: from the code's wish to the end that it is told. */
export class Waits {
  /** Ends that came before the code asked for the step again. */
  readonly #early = new Map<Step, WaitEnd>();
  /** As they are recorded, or will be. */
  readonly #asked = new Map<Step, { readonly ask: WaitAsk; readonly wait: Wait }>();
  /** The waits with which the run was last offered to be let go. */
  #offered = '';

  constructor(private readonly core: Core) {}

  start(step: Step, ask: WaitAsk): Entry {
    const { core } = this;
    const answer = core.history.ask(step, ask.kind, ask.name);
    if (answer.kind === 'mismatch') return core.diverge(answer.mismatch);
    if (answer.kind === 'recorded' && answer.step.kind === 'wait') return this.#recorded(step, ask, answer.step, answer.rank);
    const begun = ask.begin(core.port.now());
    const entry = open(core, step, ask.kind, ask.name);
    this.#asked.set(step, { ask, wait: begun.wait });
    core.completions.live(() => this.#begin(entry, begun));
    return entry;
  }

  /** The orchestrator's word: a wait of this run has ended. */
  ended(step: Step, end: WaitEnd): void {
    const entry = this.core.completions.open.get(step);
    if (entry?.waits === true) this.#settle(entry, end);
    else if (this.core.history.awaits(step) && !this.#early.has(step)) this.#early.set(step, end);
  }

  /** The orchestrator refused the wait. */
  refused(entry: Entry, error: IntentRefusedError): void {
    if (entry.progress?.observed !== undefined) this.core.outgoing.observeAgain(entry.progress.observed);
    this.core.completions.settle(entry, { ok: false, error });
  }

  /** Nobody awaits it any more. */
  abandon(entry: Entry): void {
    // What was never sent, has ended or is recorded as abandoned needs no word.
    if (!entry.waits || !entry.logged || entry.settlement !== null || entry.abandoned) return;
    const { core } = this;
    const data = { step: entry.step, fence: core.fence };
    core.outgoing.intent({ message: AbandonWait(data), progress: data, bytes: OVERHEAD_BYTES, mayBeIgnored: true });
  }

  /** Offers to let the run go when waits are all that it waits for: until one ends, no process is needed. */
  offerRelease(): void {
    const { core } = this;
    const waits = this.#alone();
    const offered = waits?.join() ?? '';
    if (waits === undefined || offered === this.#offered) return;
    this.#offered = offered;
    const data = { waits, fence: core.fence };
    core.outgoing.intent({ message: ReleaseRun(data), progress: data, bytes: OVERHEAD_BYTES + offered.length * 2, mayBeIgnored: true });
  }

  /** The open waits, when nothing else holds the run up; undefined otherwise. */
  #alone(): Step[] | undefined {
    const waits: Step[] = [];
    let awaited = false;
    for (const entry of this.core.completions.open.values()) {
      // A call that lost a race goes on by itself, but for one that this very process is making.
      if (entry.lost && !entry.inFlight) continue;
      if (!entry.waits || !entry.logged || entry.settlement !== null) return undefined;
      if (entry.abandoned) continue;
      waits.push(entry.step);
      awaited ||= entry.promise.awaited;
    }
    // Code that awaits none of them is busy with something of its own.
    return awaited && waits.length <= RELEASE_WAITS_MAX ? waits : undefined;
  }

  #recorded(step: Step, ask: WaitAsk, recorded: RecordedWait, rank: number): Entry {
    const entry = open(this.core, step, ask.kind, ask.name);
    entry.rank = rank;
    entry.logged = true;
    entry.abandoned = recorded.abandoned === true;
    this.#asked.set(step, { ask, wait: recorded.wait });
    const end = recorded.end ?? this.#early.get(step);
    this.#early.delete(step);
    if (end !== undefined) this.#settle(entry, end);
    return entry;
  }

  #begin(entry: Entry, begun: Begun): void {
    if (entry.lost) return;
    const { core } = this;
    const data = { step: entry.step, ...begun, fence: core.fence };
    const draft: Draft = { message: StartWait(data), progress: data, bytes: OVERHEAD_BYTES + JSON.stringify(begun).length * 3 };
    entry.progress = draft.progress;
    entry.logged = true;
    core.outgoing.intent(draft);
  }

  #settle(entry: Entry, end: WaitEnd): void {
    const asked = this.#asked.get(entry.step);
    if (asked === undefined || entry.settlement !== null) return;
    const { completions } = this.core;
    if (end.status !== 'satisfied') return completions.settle(entry, { ok: false, error: endError(end, asked.wait, entry.step) });
    const { value: stored, by } = end;
    const receive = (value: unknown): Settlement => received(() => asked.ask.receive(value as Json, asked.wait, entry.step, by));
    if ('value' in stored) completions.settle(entry, receive(stored.value));
    else if ('artifact' in stored) load(this.core, entry, stored.artifact, receive);
    else completions.settle(entry, { ok: false, error: new ResultUnreadable(entry.step, stored.unreadable) });
  }
}

function received(make: () => unknown): Settlement {
  try {
    return { ok: true, value: make() };
  } catch (error) {
    return { ok: false, error: asError(error) };
  }
}
