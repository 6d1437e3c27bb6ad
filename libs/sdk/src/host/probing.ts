import { unreachable } from '@holdfast/kernel';
import { describeIssues, ProbeReported, type Evidence, type Fence, type Message, type MessageOf, type ProbeAnswer as ReportedAnswer, type ProbeEffect, type RunId, type Tenant, type WorkerId } from '@holdfast/protocol';
import type { Clock, CrashPoint } from '@holdfast/runtime';
import { z } from 'zod';
import { stillUnknown, type Probe, type ProbeAnswer } from '../define/probe.js';
import type { ToolDefinition } from '../define/tool.js';
import { clipped, messageOf } from '../errors.js';
import type { HostObserver } from './observer.js';
import type { ArtifactPort } from './artifacts.js';
import { judge, parse } from './result.js';
import { Slots } from './slots.js';
import { keepResult } from './stored.js';

export interface ProbingParts {
  readonly clock: Clock;
  readonly artifacts: ArtifactPort | undefined;
  readonly worker: WorkerId;
  hosted(name: string, version: string): ToolDefinition | undefined;
  /** Writes to `tool.results`. Never rejects. */
  send(run: RunId, tenant: Tenant, message: Message): Promise<void>;
  readonly observer?: HostObserver | undefined;
  /** Passed by name where a test may kill the process. */
  readonly crashPoint: CrashPoint;
}

/** One question of the reconciliation service. */
export interface ProbeTask {
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly data: MessageOf<typeof ProbeEffect>['data'];
}

/** How many questions one tool is asked at once: a target that doesn't answer holds up its own tool only. */
const ASKED_AT_ONCE = 4;
/** What may wait in memory; more is answered at once, and asked again by reconciliation's schedule. */
const WAITING_MAX = 1000;

/** What a probe may answer. Its code may have no types, so that it is looked at. */
const Answer = z.discriminatedUnion('status', [
  z.object({ status: z.literal('applied'), result: z.unknown(), evidence: z.string().optional() }),
  z.object({ status: z.literal('not_applied'), evidence: z.string().optional() }),
  z.object({ status: z.literal('pending'), message: z.string().optional() }),
  z.object({ status: z.literal('still_unknown'), message: z.string() }),
]);

/**
 * Asks tools' probes what became of an attempt. Asking may happen twice, so no commit is waited
 * for; each question is asked once here, within its time, and has an answer whatever the probe does.
 */
export class Probing {
  readonly #parts: ProbingParts;
  readonly #slots = new Map<string, Slots>();
  readonly #asked = new Set<AbortController>();
  #waiting = 0;
  #inFlight = 0;
  #idle: (() => void)[] = [];
  #stopping = false;

  constructor(parts: ProbingParts) {
    this.#parts = parts;
  }

  /** Takes a question; what comes too late to be answered in time is not asked. */
  receive(task: ProbeTask): void {
    if (this.#tooLate(task)) return;
    const { name, version } = task.data.tool;
    const tool = this.#parts.hosted(name, version);
    const which = `${name}@${version}`;
    if (tool === undefined) return void this.#answer(task, () => stillUnknown(`worker ${this.#parts.worker} does not host ${which}; nothing was asked`));
    const { probe } = tool;
    if (probe === null) return void this.#answer(task, () => stillUnknown(`${which} has no probe; nothing was asked`));
    if (this.#waiting >= WAITING_MAX) return void this.#answer(task, () => stillUnknown(`${this.#waiting} questions wait in worker ${this.#parts.worker}; nothing was asked`));
    let slots = this.#slots.get(which);
    if (slots === undefined) this.#slots.set(which, (slots = new Slots(ASKED_AT_ONCE)));
    const place = slots;
    this.#waiting += 1;
    place.acquire(() => {
      this.#waiting -= 1;
      if (this.#tooLate(task)) return place.release();
      void this.#answer(task, () => this.#ask(task, tool, probe).finally(() => place.release()), tool);
    });
  }

  /** Asks nothing more; what is asked goes on. */
  stop(): void {
    this.#stopping = true;
  }

  /** Tells every probe that its worker won't wait for it any longer. */
  abort(because: string): void {
    for (const controller of this.#asked) controller.abort(new Error(because));
  }

  /** Resolves when everything that was asked is answered. */
  idle(): Promise<void> {
    return this.#inFlight === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  #tooLate({ data }: ProbeTask): boolean {
    return this.#stopping || this.#parts.clock.now() >= data.answerBy;
  }

  /** Reports what the question came to. Never rejects. */
  async #answer(task: ProbeTask, ask: () => unknown, tool?: ToolDefinition): Promise<void> {
    const { run, tenant, data } = task;
    this.#inFlight += 1;
    const about = (): string[] => [`${run}/${data.step}`];
    this.#parts.crashPoint('host.before-probe', about);
    const at = this.#parts.clock.now(); // Where nothing is found, no reading counts as later than its asking.
    const answer = await this.#read({ run, tenant, at, tool }, ask).catch((error: unknown): ReportedAnswer => ({ status: 'still_unknown', message: messageOf(error) }));
    this.#parts.observer?.onProbed?.(task, at, answer.status);
    this.#parts.crashPoint('host.after-probe', about);
    const { step, key, attempt, probe, issuedAt, purpose } = data;
    await this.#parts.send(run, tenant, ProbeReported({ step, key, attempt, probe, ...(issuedAt === undefined ? {} : { issuedAt }), ...(purpose === undefined ? {} : { purpose }), answer, worker: this.#parts.worker }));
    this.#inFlight -= 1;
    if (this.#inFlight === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** The probe's answer within its time, as the probe gave it. Rejects with what it threw, and when its time is over. */
  async #ask({ run, data }: ProbeTask, tool: ToolDefinition, probe: Probe<unknown>): Promise<unknown> {
    const { clock } = this.#parts;
    const parsed = await parse(tool.input, data.args);
    if (!parsed.success) throw new Error(`the arguments do not fit the input schema of ${tool.name}@${tool.version}; nothing was asked: ${describeIssues(parsed.error)}`);
    const controller = new AbortController();
    const deadline = Math.min(data.answerBy, clock.now() + data.timeoutMs);
    let cancel: () => void = () => undefined;
    const late = new Promise<never>((_, reject) => {
      cancel = clock.after(deadline - clock.now(), () => {
        const error = new Error(`no answer within ${data.timeoutMs} ms`);
        controller.abort(error);
        reject(error);
      });
    });
    const { step, key, attempt, operationId, fence } = data;
    const context = { operationKey: key, attempt, fence: fence as Fence, operationId, probe: data.probe, deadline, signal: controller.signal, run, step };
    this.#asked.add(controller);
    try {
      return await Promise.race([askOnce(probe, parsed.data, context), late]);
    } finally {
      cancel();
      this.#asked.delete(controller);
    }
  }

  async #read(about: { run: RunId; tenant: Tenant; at: number; tool: ToolDefinition | undefined }, ask: () => unknown): Promise<ReportedAnswer> {
    const given = await ask();
    const parsed = Answer.safeParse(given);
    if (!parsed.success) return { status: 'still_unknown', message: clipped(`the probe gave no answer that can be read (${describeIssues(parsed.error)}); return applied(…), notApplied(…), pending(…) or stillUnknown(…)`) };
    const answer: ProbeAnswer = parsed.data;
    switch (answer.status) {
      case 'applied':
        // Nor, where something is, as over before its answer: another attempt may have been made meanwhile.
        return this.#applied(answer.result, answer.evidence, { ...about, at: this.#parts.clock.now() });
      case 'not_applied':
        return { status: 'not_applied', evidence: evidence(about.at, answer.evidence) };
      case 'pending':
        return { status: 'pending', ...(answer.message === undefined ? {} : { message: clipped(answer.message) }) };
      case 'still_unknown':
        return { status: 'still_unknown', message: clipped(answer.message) };
      default:
        return unreachable(answer);
    }
  }

  /** It has happened, so no fault of its result may make it look as if it had not. */
  async #applied(result: unknown, note: string | undefined, { run, tenant, at, tool }: { run: RunId; tenant: Tenant; at: number; tool: ToolDefinition | undefined }): Promise<ReportedAnswer> {
    const { value, fault } = tool === undefined ? { value: result, fault: null } : await judge(tool, result);
    const stored = await keepResult(value, { artifacts: this.#parts.artifacts, tenant, run });
    const words = [note, fault].filter((text) => text !== undefined && text !== null);
    return { status: 'applied', result: stored, evidence: evidence(at, words.length === 0 ? undefined : words.join('; ')) };
  }
}

const evidence = (at: number, note: string | undefined): Evidence => ({ kind: 'probe', at, ...(note === undefined ? {} : { note: clipped(note, 2000) }) });

/** The one place where a probe's code is called. */
async function askOnce(probe: Probe<unknown>, args: unknown, context: Parameters<Probe<unknown>['ask']>[1]): Promise<unknown> {
  return await probe.ask(args, context);
}
