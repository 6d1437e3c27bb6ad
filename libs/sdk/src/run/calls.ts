import { unreachable } from '@holdfast/kernel';
import {
  CallTool,
  mayFireLocally,
  operationKey,
  type Fire,
  type HistoryStep,
  type Json,
  type Named,
  type Outcome,
  type Report,
  type Step,
} from '@holdfast/protocol';
import { equalsJson, INLINE_BYTES_MAX, toJson } from '../define/json.js';
import type { ToolDefinition, ToolReference } from '../define/tool.js';
import { EffectFailed, EffectRejected, InvalidArguments, MESSAGE_MAX, clipped, type IntentRefusedError, ResultUnreadable, ValueTooLarge, messageOf } from '../errors.js';
import type { LocalCall } from '../host/port.js';
import { tooLargeForMessage } from './artifacts.js';
import { halted, open, type Core } from './core.js';
import type { Entry, GroupReports } from './entry.js';
import { OVERHEAD_BYTES, type Draft } from './outgoing.js';
import { load } from './loading.js';

/** A call as it goes into an intent. */
export interface PreparedCall {
  readonly tool: Named;
  readonly args: Json;
  readonly target: string | undefined;
  readonly bytes: number;
  /** Present when this worker may fire it by itself. */
  readonly local: ToolDefinition | undefined;
}

/** What a call answers to, where it answers a failed one. */
export interface CallMarks {
  readonly repairs?: Step;
  readonly fallbackFor?: Step;
  /** The wait whose approval allows it. Such a call never fires locally: the approval is looked at when it is sent. */
  readonly approval?: Step;
}

/** How soon to ask again whether the hold on the lane is fresh, milliseconds. */
const LEASE_RECHECK_MS = 500;

type RecordedCall = Extract<HistoryStep, { kind: 'call' }>;

/** Tool calls: from the code's wish to what it is told. */
export class Calls {
  /** Recorded calls whose arguments the code now words otherwise: the recorded ones stand. */
  adopted = 0;
  /** Local attempts whose report is still to come. */
  inFlight = 0;
  /** The run was let go for good. */
  #cancelled = false;
  /** What came before the code asked for the step again. */
  readonly #early = new Map<Step, { readonly report: Report; readonly seen: boolean }>();

  constructor(
    private readonly core: Core,
    /** Called when something changed that the run's end may have waited for. */
    private readonly onProgress: () => void,
  ) {}

  /** One call, recorded by itself. */
  call(step: Step, tool: ToolReference, args: unknown, marks: CallMarks = {}, target?: string): Entry {
    const recorded = this.recorded(step, tool, args);
    if (recorded !== undefined) return recorded;
    const prepared = this.prepare(tool, args, target, marks.approval !== undefined);
    const entry = open(this.core, step, 'call', tool.name);
    entry.args = prepared.args;
    this.core.completions.live(() => this.#intend(entry, prepared, marks));
    return entry;
  }

  /** The entry of a call that the history holds; undefined for a new one. */
  recorded(step: Step, tool: ToolReference, args: unknown): Entry | undefined {
    const { core } = this;
    const answer = core.history.ask(step, 'call', tool.name);
    if (answer.kind === 'mismatch') return core.diverge(answer.mismatch);
    if (answer.kind === 'new' || answer.step.kind !== 'call') return undefined;
    const recorded = answer.step;
    if (!equalsJson(args, recorded.call.args)) this.adopted += 1;
    const entry = open(core, step, 'call', tool.name);
    entry.rank = answer.rank;
    entry.logged = true;
    entry.args = recorded.call.args;
    const early = this.#early.get(step);
    this.#early.delete(step);
    if (recorded.outcome !== undefined && recorded.outcome.status !== 'unknown') this.#settle(entry, recorded.outcome);
    else if (early?.seen === true) this.seen(early.report);
    else if (early !== undefined) this.#settle(entry, early.report.outcome);
    // An unknown outcome is not ours to try again.
    else if (recorded.outcome === undefined) this.#refire(entry, recorded);
    return entry;
  }

  /** Checks the arguments of a new call. Throws a typed error before anything is recorded. */
  prepare(tool: ToolReference, args: unknown, otherwise?: string, granted = false): PreparedCall {
    const what = `the arguments of ${tool.name}@${tool.version}`;
    const sized = toJson(args, what);
    if (tooLargeForMessage(sized.bytes)) throw new ValueTooLarge(what, sized.bytes, INLINE_BYTES_MAX);
    const parsed = tool.input.safeParse(sized.value);
    if (!parsed.success) throw new InvalidArguments(`${what} don't fit its schema: ${clipped(parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'value'}: ${message}`).join('; '), MESSAGE_MAX - 300)}`);
    const target = tool.targetOf(parsed.data) ?? otherwise;
    if (target !== undefined) checkTarget(target, tool);
    const hosted = this.core.port.hosted(tool.name, tool.version);
    return { tool: { name: tool.name, version: tool.version }, args: sized.value, target, bytes: sized.bytes, local: !granted && hosted !== undefined && mayFireLocally(hosted) ? hosted : undefined };
  }

  /** Fires a local attempt whose intent is acknowledged. */
  fire(entry: Entry, call: LocalCall): void {
    const { core } = this;
    if (core.port.heldStill?.(core.run, call.tool) === true) return this.#fireLater(entry, call);
    entry.fired = true;
    void core.port
      .fireLocal(call)
      .then((report) => {
        if (core.phase === 'stopped') return;
        if (report !== 'lease_lost') return this.#reported(entry, report);
        entry.fired = false;
        if (core.phase === 'let_go') {
          this.#notFired(entry.step, call.attempt);
          core.outgoing.flush();
          return this.#landed(entry);
        }
        // Nothing fired. Should the lane be lost, this run is abandoned; else the hold is soon fresh again.
        this.#fireLater(entry, call);
      })
      .catch((error: unknown) => core.trouble(`${call.tool.name} at step ${entry.step}: ${messageOf(error)}`));
  }

  #fireLater(entry: Entry, call: LocalCall): void {
    const { core } = this;
    entry.cancel = core.port.after(LEASE_RECHECK_MS, () => {
      if (!halted(core)) this.fire(entry, call);
    });
  }

  /** A local attempt is under way: the run's end waits for its report. */
  takeOff(entry: Entry): void {
    entry.inFlight = true;
    this.inFlight += 1;
  }

  /** The run is let go: what has not fired by now never will under this fence. */
  letGo(cancelled: boolean): void {
    const { completions, history, outgoing } = this.core;
    this.#cancelled = cancelled;
    for (const { step, group, ...entry } of completions.open.values()) {
      // Some of a group may never report: its others are told all the same.
      for (const { report, bytes } of group?.reported.splice(0) ?? []) outgoing.settle(report, bytes);
      if (entry.inFlight && !entry.fired && !history.has(step)) this.#notFired(step, 1);
    }
    for (const { call, fire, attempt, outcome } of history.calls()) {
      const entry = completions.open.get(call.step);
      const isOpen = fire === 'local' && outcome === undefined && (entry === undefined ? history.awaits(call.step) : !entry.fired);
      if (isOpen) this.#notFired(call.step, attempt);
    }
    for (const entry of completions.open.values()) if (!entry.fired) this.#land(entry);
  }

  /** Whoever gets a run next fires what has not fired; of a cancelled one nobody else would ever say so. */
  #notFired(step: Step, attempt: number): void {
    if (this.#cancelled) this.core.outgoing.settle(notFired(step, attempt), OVERHEAD_BYTES);
  }

  #landed(entry: Entry): void {
    this.#land(entry);
    this.onProgress();
  }

  #land(entry: Entry): void {
    if (!entry.inFlight) return;
    entry.inFlight = false;
    this.inFlight -= 1;
  }

  /** A new local call whose intent is acknowledged. */
  fireAcknowledged(entry: Entry, prepared: PreparedCall, tool: ToolDefinition): void {
    if (entry.settlement !== null) return this.#landed(entry); // Refused meanwhile: nothing fires.
    const { run, tenant, fence } = this.core;
    const { step } = entry;
    const key = operationKey({ scope: 'run', tenant, run, step, tool: tool.name, target: prepared.target ?? null });
    if (!entry.inFlight) this.takeOff(entry);
    this.fire(entry, { run, tenant, step, tool, args: prepared.args, operationKey: key, attempt: 1, fence });
  }

  /** The tool host of this process saw a granted attempt end. Only a success is taken from it; the rest is the ledger's. */
  seen(report: Report): void {
    const { core } = this;
    if (report.outcome.status !== 'succeeded') return;
    const entry = core.completions.open.get(report.step);
    if (entry === undefined) {
      if (core.history.awaits(report.step) && !this.#early.has(report.step)) this.#early.set(report.step, { report, seen: true });
      return;
    }
    if (entry.kind === 'call' && entry.settlement === null && !entry.seen) {
      entry.seen = true;
      this.#keep(entry, report, (kept, bytes, told) => {
        core.outgoing.settle(kept, bytes);
        told();
        core.completions.soon();
      });
    }
  }

  /** The ledger's word. */
  settled(step: Step, attempt: number, outcome: Outcome): void {
    const entry = this.core.completions.open.get(step);
    if (entry?.kind === 'call') this.#settle(entry, outcome);
    else if (outcome.status !== 'unknown' && this.core.history.awaits(step) && !this.#early.has(step)) this.#early.set(step, { report: { step, attempt, outcome }, seen: false });
  }

  /** An outcome becomes what the code is told. `unknown` is none yet: the call stays open. */
  #settle(entry: Entry, outcome: Outcome): void {
    const { completions } = this.core;
    switch (outcome.status) {
      case 'succeeded':
        if ('value' in outcome.result) completions.settle(entry, { ok: true, value: outcome.result.value });
        else if ('artifact' in outcome.result) load(this.core, entry, outcome.result.artifact);
        else completions.settle(entry, { ok: false, error: new ResultUnreadable(entry.step, outcome.result.unreadable) });
        return;
      case 'rejected':
        completions.settle(entry, { ok: false, error: new EffectRejected(entry.name, entry.step, outcome.reason) });
        return;
      case 'failed':
        completions.settle(entry, { ok: false, error: new EffectFailed(entry.name, entry.step, outcome.failure) });
        return;
      case 'unknown':
        return;
      default:
        unreachable(outcome);
    }
  }

  /** The orchestrator refused the call. */
  refused(entry: Entry, error: IntentRefusedError): void {
    if (entry.progress?.observed !== undefined) this.core.outgoing.observeAgain(entry.progress.observed);
    this.core.completions.settle(entry, { ok: false, error });
  }

  #intend(entry: Entry, prepared: PreparedCall, marks: CallMarks): void {
    if (entry.lost) return;
    const { local } = prepared;
    const fire: Fire = local === undefined ? 'granted' : 'local';
    const data = {
      step: entry.step,
      tool: prepared.tool,
      args: prepared.args,
      ...(prepared.target === undefined ? {} : { target: prepared.target }),
      fire,
      ...marks,
      fence: this.core.fence,
    };
    const draft: Draft = {
      message: CallTool(data),
      progress: data,
      bytes: prepared.bytes + OVERHEAD_BYTES,
      onAcknowledged: local === undefined ? undefined : () => this.fireAcknowledged(entry, prepared, local),
    };
    entry.progress = draft.progress;
    entry.logged = true;
    if (local !== undefined) this.takeOff(entry);
    this.core.outgoing.intent(draft);
  }

  /** A recorded call without an outcome: a local one fires again under its key, once the replay is through. */
  #refire(entry: Entry, { call, fire, attempt }: RecordedCall): void {
    if (fire === 'granted') return;
    const { core } = this;
    core.completions.live(() => {
      const tool = core.port.hosted(call.tool.name, call.tool.version);
      if (entry.settlement !== null) return;
      // Without the tool in this worker the ledger's deadline decides.
      if (tool === undefined) return core.trouble(`${call.tool.name}@${call.tool.version} at step ${entry.step} was fired locally before, and this worker doesn't host it`);
      this.takeOff(entry);
      this.fire(entry, { run: core.run, tenant: core.tenant, step: entry.step, tool, args: call.args, operationKey: call.key, attempt, fence: core.fence });
    });
  }

  #reported(entry: Entry, report: Report): void {
    this.#keep(entry, report, (kept, bytes, told) => {
      const { core } = this;
      this.#land(entry);
      if (entry.group === null || core.phase === 'let_go') {
        core.outgoing.settle(kept, bytes);
        told();
      } else {
        this.#reportedInGroup(entry.group, { report: kept, bytes, told });
      }
      core.completions.soon();
      if (core.phase === 'let_go') core.outgoing.flush();
      this.onProgress();
    });
  }

  /** Members of a group recorded as one are told together, when all have reported. */
  #reportedInGroup(group: GroupReports, reported: GroupReports['reported'][number]): void {
    group.reported.push(reported);
    group.missing -= 1;
    if (group.missing > 0) return;
    for (const { report, bytes } of group.reported) this.core.outgoing.settle(report, bytes);
    for (const { told } of group.reported) told();
  }

  /**
   * Makes a report ready to be sent, a large result by reference, and gives it on with what tells
   * the code. A success goes to the code at once; every other end waits for the ledger, which alone
   * retries.
   */
  #keep(entry: Entry, report: Report, next: (kept: Report, bytes: number, told: () => void) => void): void {
    const { core } = this;
    const { outcome } = report;
    if (outcome.status !== 'succeeded') return next(report, OVERHEAD_BYTES + bytesIn(outcome), () => undefined);
    if (!('value' in outcome.result)) return next(report, OVERHEAD_BYTES, () => this.#settle(entry, outcome));
    const what = `the result of step ${entry.step}`;
    // The code gets a copy: what it does to it must not change the report, which is yet to be sent.
    const { value, bytes } = toJson(outcome.result.value, what);
    const told = (): void => core.completions.settle(entry, { ok: true, value });
    if (!tooLargeForMessage(bytes)) return next(report, bytes + OVERHEAD_BYTES, told);
    void core.store.keepResult(outcome.result.value, what).then((result) => {
      if (core.phase !== 'stopped') next({ ...report, outcome: { ...outcome, result } }, OVERHEAD_BYTES, told);
    });
  }
}

/** Callers without types can name anything. */
function checkTarget(target: unknown, { name, version }: Named): void {
  if (typeof target !== 'string') throw new InvalidArguments(`the target of ${name}@${version} is no text but ${typeof target}`);
  if (target.length === 0 || target.length > 500) throw new InvalidArguments(`the target of ${name}@${version} has ${target.length} characters; it takes 1 to 500`);
}

/** An attempt that was never made. Of one before it, by a worker that was lost, nobody here knows. */
const notFired = (step: Step, attempt: number): Report => ({
  step,
  attempt,
  outcome:
    attempt === 1
      ? { status: 'failed', failure: { class: 'cancelled', message: 'its run was cancelled before it fired', notApplied: true }, evidence: { kind: 'host' } }
      : { status: 'unknown', cause: 'host_lost', message: `its run was cancelled before attempt ${attempt} fired; the worker of an earlier one was lost` },
});

/** Bytes of an outcome's JSON text that are not counted as overhead, an upper bound: one UTF-16 unit is \uXXXX at its longest. */
function bytesIn(outcome: Exclude<Outcome, { status: 'succeeded' }>): number {
  switch (outcome.status) {
    case 'rejected':
      return (outcome.reason.length + (outcome.evidence.note?.length ?? 0)) * 6;
    case 'failed':
      return (outcome.failure.message.length + (outcome.evidence.note?.length ?? 0)) * 6;
    case 'unknown':
      return (outcome.message.length + (outcome.operationId?.length ?? 0)) * 6 + (outcome.proved === undefined ? 0 : toJson(outcome.proved, 'what is proved').bytes);
    default:
      return unreachable(outcome);
  }
}
