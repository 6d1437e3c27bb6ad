import { isA, unreachable } from '@holdfast/kernel';
import { describeIssues, type EffectClass, type Failure, type FailureClass, type Fence, type Json, type OperationKey, type Outcome, type RunId, type Step, type Tenant, type UnknownCause } from '@holdfast/protocol';
import type { Clock } from '@holdfast/runtime';
import type { z } from 'zod';
import { Accepted } from '../define/accepted.js';
import { toJson } from '../define/json.js';
import type { ToolContext, ToolDefinition } from '../define/tool.js';
import { clipped, Failed, MayHaveApplied, messageOf, PartlyApplied, Rejected } from '../errors.js';
import { sound } from '../failure.js';
import type { HostObserver } from './observer.js';
import type { ArtifactPort } from './artifacts.js';
import { judge, parse } from './result.js';
import { keepResult, resultJson } from './stored.js';

/** One attempt, ready to be fired. */
export interface Shot {
  readonly tool: ToolDefinition;
  /** The class that is acted upon; never milder than the tool's own. */
  readonly effect: EffectClass;
  readonly run: RunId;
  readonly tenant: Tenant;
  readonly step: Step;
  readonly args: Json;
  readonly operationKey: OperationKey;
  readonly attempt: number;
  readonly fence: number;
  readonly timeoutMs: number;
  heartbeat(progress: Json | undefined): void;
  /** Fired by its run's own worker, without a grant. */
  readonly local?: true;
}

export interface FiringParts {
  readonly clock: Clock;
  readonly observer?: HostObserver | undefined;
  readonly artifacts: ArtifactPort | undefined;
}

type Ended = { readonly threw: false; readonly result: unknown } | { readonly threw: true; readonly error: unknown };

/** What is proved of a part travels beside the arguments, in one message. */
const PROVED_BYTES_MAX = 16 * 1024;
const HEARTBEAT_EVERY_MS = 1000;
/** Of what its contract allows, an attempt shows life so many times. */
const BEATS_IN_TIME = 3;

/**
 * A tool's own word that the attempt failed, by class: may the effect have been applied all the
 * same? Where it may, an irreversible one is unknown unless the tool says `notApplied`.
 */
const LEAVES_DOUBT: Readonly<Record<FailureClass, boolean>> = {
  invalid_request: false,
  invalid_output: true,
  permission_denied: false,
  policy_denied: false,
  business_rejected: false,
  human_rejected: false,
  transient: true,
  overloaded: true,
  partial_effect: true,
  unknown_outcome: true,
  concurrency_conflict: true,
  cancelled: true,
  expired: true,
  incompatible_state: false,
};

/** Calls tools: each attempt once, never a second time, and says how it ended. */
export class Firing {
  readonly #parts: FiringParts;
  /** Attempts whose tool has asked for the signal. */
  readonly #listening = new Set<AttemptContext>();

  constructor(parts: FiringParts) {
    this.#parts = parts;
  }

  /**
   * Fires one attempt. `check` is asked last thing before the call: whatever it returns ends the
   * attempt unfired. Arguments are judged before that, and invalid ones fire nothing. `late` gets
   * the end of a call that outlived its time-out, unless that end says nothing new.
   * Never rejects.
   */
  async fire<Stop extends string = never>(shot: Shot, check: () => Outcome | Stop | undefined, late?: (outcome: Outcome) => void): Promise<Outcome | Stop> {
    let input: z.ZodSafeParseResult<unknown>;
    try {
      const parsed = parse(shot.tool.input, shot.args);
      input = parsed instanceof Promise ? await parsed : parsed;
    } catch (error) {
      return check() ?? this.#invalidRequest(shot, messageOf(error));
    }
    const stop = check();
    if (stop !== undefined) return stop;
    return input.success ? this.#call(shot, input.data, late) : this.#invalidRequest(shot, describeIssues(input.error));
  }

  /** Tells every tool that listens that its worker won't wait for it any longer. */
  abort(because: string): void {
    for (const context of this.#listening) context.abort(because);
  }

  #call(shot: Shot, args: unknown, late: ((outcome: Outcome) => void) | undefined): Promise<Outcome> {
    const { observer, clock } = this.#parts;
    const called = this.#called(shot, args, late);
    if (observer?.onFired === undefined) return called;
    const startedAt = clock.now();
    return called.then((outcome) => {
      observer.onFired?.(shot, startedAt, outcome.status);
      return outcome;
    });
  }

  #called(shot: Shot, args: unknown, late: ((outcome: Outcome) => void) | undefined): Promise<Outcome> {
    const { clock } = this.#parts;
    const context = new AttemptContext(shot, clock, this.#listening);
    return new Promise((resolve) => {
      let over = false;
      const cancelTimeout = clock.after(shot.timeoutMs, () => {
        over = true;
        context.abort(`the attempt took longer than ${shot.timeoutMs} ms`);
        resolve(this.#timedOut(shot));
      });
      const end = (ended: Ended): void => {
        cancelTimeout(); // Keeping the result is not the tool's time.
        this.#listening.delete(context);
        if (!over) resolve(this.#outcome(shot, ended));
        else if (late !== undefined) void this.#outcome(shot, ended).then((outcome) => saysSomething(outcome) && late(outcome));
      };
      // So that an attempt whose host dies at once is missed in time.
      if (shot.tool.heartbeatMs !== undefined) shot.heartbeat(undefined);
      callOnce(shot.tool, args, context).then(
        (result) => end({ threw: false, result }),
        (error: unknown) => end({ threw: true, error }),
      );
    });
  }

  #timedOut({ effect, timeoutMs }: Shot): Outcome {
    const message = `no end within ${timeoutMs} ms`;
    if (effect === 'irreversible') return { status: 'unknown', cause: 'deadline', message: `${message}; the call goes on and may still take effect` };
    return this.#failed({ class: 'transient', message });
  }

  async #outcome(shot: Shot, ended: Ended): Promise<Outcome> {
    try {
      return await (ended.threw ? this.#thrown(shot.effect, ended.error) : this.#returned(shot, ended.result));
    } catch (error) {
      const message = `how the call ended can't be read: ${messageOf(error)}`;
      return shot.effect === 'irreversible' ? mayHaveApplied(message) : this.#failed({ class: 'transient', message });
    }
  }

  #thrown(effect: EffectClass, error: unknown): Outcome {
    const at = this.#parts.clock.now();
    if (isA(error, Rejected)) return { status: 'rejected', reason: clipped(error.reason), evidence: { kind: 'receipt', at } };
    if (isA(error, PartlyApplied)) return this.#partly(effect, error);
    if (isA(error, Failed)) {
      const failure = sound(error.failure);
      if (effect === 'irreversible' && LEAVES_DOUBT[failure.class] && failure.notApplied !== true) {
        return unknown(failure.class === 'partial_effect' ? 'partial_effect' : 'may_have_applied', `${failure.class}: ${failure.message}`);
      }
      return { status: 'failed', failure, evidence: { kind: 'receipt', at } };
    }
    switch (effect) {
      case 'irreversible':
        return mayHaveApplied(messageOf(error));
      case 'idempotent':
        return isA(error, MayHaveApplied) ? mayHaveApplied(messageOf(error)) : this.#failed({ class: 'transient', message: messageOf(error) });
      case 'pure':
        return this.#failed({ class: 'transient', message: messageOf(error) }); // A read applies nothing, whatever it says.
      default:
        return unreachable(effect);
    }
  }

  #partly(effect: EffectClass, error: PartlyApplied): Outcome {
    if (effect === 'pure') return this.#failed({ class: 'partial_effect', message: messageOf(error) }); // A read applies nothing, in part neither.
    try {
      const { value, bytes } = resultJson(error.proved);
      if (bytes <= PROVED_BYTES_MAX) return { ...unknown('partial_effect', messageOf(error)), proved: value };
      return unknown('partial_effect', `${messageOf(error)} (what is proved has ${bytes} bytes of JSON, at most ${PROVED_BYTES_MAX} are kept)`);
    } catch (fault) {
      return unknown('partial_effect', `${messageOf(error)} (what is proved can't be kept: ${messageOf(fault)})`);
    }
  }

  /** The call returned, so the effect has happened, or has been taken on: no fault of its result may lead to another call of an effect. */
  async #returned({ tool, effect, tenant, run }: Shot, result: unknown): Promise<Outcome> {
    const evidence = { kind: 'receipt', at: this.#parts.clock.now() } as const;
    if (result instanceof Accepted) {
      if (effect === 'pure') return this.#failed({ class: 'invalid_output', message: `${tool.name}@${tool.version} is pure and answered accepted("${result.operationId}"): a read has no end to come` });
      return { ...unknown('accepted', `the target works on it as ${result.operationId}`), operationId: result.operationId };
    }
    const { value, fault } = await judge(tool, result);
    if (fault !== null && effect === 'pure') return this.#failed({ class: 'invalid_output', message: clipped(fault) });
    const stored = await keepResult(value, { artifacts: this.#parts.artifacts, tenant, run });
    return { status: 'succeeded', result: stored, evidence: fault === null ? evidence : { ...evidence, note: clipped(fault, 2000) } };
  }

  #invalidRequest({ tool }: Shot, fault: string): Outcome {
    return this.#failed({ class: 'invalid_request', message: clipped(`arguments do not fit the input schema of ${tool.name}@${tool.version}: ${fault}`), notApplied: true });
  }

  #failed(failure: Failure): Outcome {
    return { status: 'failed', failure, evidence: { kind: 'host', at: this.#parts.clock.now() } };
  }
}

type Unknown = Extract<Outcome, { status: 'unknown' }>;
const unknown = (cause: UnknownCause, message: string): Unknown => ({ status: 'unknown', cause, message: clipped(message) });
const mayHaveApplied = (message: string): Outcome => unknown('may_have_applied', message);

/** That an attempt has timed out is known; what it has left behind is not. */
const saysSomething = (outcome: Outcome): boolean => outcome.status !== 'unknown' || outcome.operationId !== undefined || outcome.proved !== undefined;

/** The one place where a tool's code is called. */
async function callOnce(tool: ToolDefinition, args: unknown, context: ToolContext): Promise<unknown> {
  return await tool.execute(args, context);
}

/** What the tool is given. The signal is made when the tool first asks for it: most never do. */
class AttemptContext implements ToolContext {
  readonly operationKey: OperationKey;
  readonly attempt: number;
  readonly fence: Fence;
  readonly deadline: number;
  readonly run: RunId;
  readonly step: Step;
  readonly #shot: Shot;
  readonly #clock: Clock;
  readonly #listening: Set<AttemptContext>;
  #controller: AbortController | undefined;
  #aborted: string | undefined;
  readonly #beatEveryMs: number;
  #shownAt = -Infinity;

  constructor(shot: Shot, clock: Clock, listening: Set<AttemptContext>) {
    this.operationKey = shot.operationKey;
    this.attempt = shot.attempt;
    this.fence = shot.fence as Fence;
    this.deadline = clock.now() + shot.timeoutMs;
    this.run = shot.run;
    this.step = shot.step;
    this.#shot = shot;
    this.#clock = clock;
    this.#listening = listening;
    this.#beatEveryMs = Math.min(HEARTBEAT_EVERY_MS, (shot.tool.heartbeatMs ?? Infinity) / BEATS_IN_TIME);
    this.heartbeat = this.heartbeat.bind(this);
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted === undefined) this.#listening.add(this);
      else this.#controller.abort(new Error(this.#aborted));
    }
    return this.#controller.signal;
  }

  abort(because: string): void {
    this.#aborted ??= because;
    this.#controller?.abort(new Error(because));
  }

  /** At most one a second is sent, or as many as the contract needs; those between say nothing new. */
  heartbeat(progress?: Json): void {
    const now = this.#clock.now();
    if (now - this.#shownAt < this.#beatEveryMs) return;
    this.#shownAt = now;
    this.#shot.heartbeat(progress === undefined ? undefined : toJson(progress, 'the progress of a heartbeat').value);
  }
}
