import { unreachable } from '@holdfast/kernel';
import { describeIssues, digestOf, digestOfText, material, Pool, RunId, StartWait, type ApprovalScope, type Json, type Named, type OnDeadline, type PlanScope, type Standing, type Step, type Wait, type WaitEnd } from '@holdfast/protocol';
import { z } from 'zod';
import type { AgentReference } from '../define/agent.js';
import { INLINE_BYTES_MAX, toJson } from '../define/json.js';
import type { ToolReference } from '../define/tool.js';
import { ApprovalRejected, ChildFailed, InvalidArguments, InvalidPayload, ValueTooLarge, WaitExpired } from '../errors.js';
import { deadlineOf, durationMs, momentOf, type DeadlineOptions, type Duration, type When } from './when.js';

/** What is sent when a wait begins. */
export interface Begun {
  readonly wait: Wait;
  readonly deadline?: number;
  readonly onDeadline?: OnDeadline;
}

/** Something to wait for. What is recorded under its step stands, so `begin` is called for a new one only. */
export interface WaitAsk<T = unknown> {
  readonly kind: Wait['kind'];
  readonly name: string;
  /** @throws InvalidArguments, NotJson, ValueTooLarge */
  begin(now: number): Begun;
  /** What the code gets. `wait`: as it is recorded. @throws InvalidPayload */
  receive(value: Json, wait: Wait, step: Step, by: string): T;
}

/** The name by which a recorded wait is told from another of its kind. */
export function nameOfWait(wait: Wait): string {
  switch (wait.kind) {
    case 'signal':
      return wait.name;
    case 'approval':
      return wait.scope.tool.name;
    case 'child':
      return wait.agent.name;
    case 'sleep':
    case 'callback':
    case 'compensation':
      return wait.kind;
    default:
      return unreachable(wait);
  }
}

export const sleepAsk = (when: When): WaitAsk<void> => ({
  kind: 'sleep',
  name: 'sleep',
  begin: (now) => checked({ wait: { kind: 'sleep', until: momentOf(when, now, 'sleep') } }),
  receive: () => undefined,
});

export const signalAsk = <Schema extends z.ZodType>(name: string, schema: Schema, options: DeadlineOptions): WaitAsk<z.output<Schema>> => ({
  kind: 'signal',
  name,
  begin: (now) => checked({ wait: { kind: 'signal', name, schema: jsonSchema(schema, `signal "${name}"`) }, ...deadlineOf(options, now) }),
  receive: (value, _, step) => fitting(schema, value, `signal "${name}"`, step),
});

export const callbackAsk = <Schema extends z.ZodType>(token: string, schema: Schema, options: DeadlineOptions): WaitAsk<z.output<Schema>> => ({
  kind: 'callback',
  name: 'callback',
  begin: (now) => checked({ wait: { kind: 'callback', tokenHash: digestOfText(token), schema: jsonSchema(schema, 'the callback') }, ...deadlineOf(options, now) }),
  receive: (value, _, step) => fitting(schema, value, 'the callback', step),
});

/** How what a run did stands, once it was answered as far as that goes. */
export interface Compensated {
  /** Whether everything was answered, a part of it, or an answer has failed. */
  readonly status: 'compensated' | 'compensated_partially' | 'compensation_failed';
  /** Effect by effect: what answered it, or that it stands. */
  readonly effects: readonly Standing[];
  /** Under which key each of them would run, were it called again. */
  readonly again: readonly { readonly step: Step; readonly tool: string; readonly key: 'a new key' | 'the same key, which is used up' }[];
}

export const compensationAsk = (scope: PlanScope, options: DeadlineOptions): WaitAsk<Compensated> => ({
  kind: 'compensation',
  name: 'compensation',
  begin: (now) => checked({ wait: { kind: 'compensation', scope }, ...deadlineOf(options, now) }),
  // The orchestrator's own words, which it has checked.
  receive: (value) => Object.freeze(value as unknown as Compensated),
});

/** A person's yes to one thing. Give it to the call that it allows, with exactly its arguments: it is used up with it. */
export interface Approval<Args = Json> {
  /** Always `approval`. */
  readonly kind: 'approval';
  /** The step at which it was asked for. */
  readonly step: Step;
  /** Who approved. */
  readonly by: string;
  /** Until when it may be used, epoch milliseconds; absent: for as long as the run. */
  readonly expiresAt?: number;
  /** The tool that may be called. */
  readonly tool: Named;
  /** The thing in the world that it is for, where one was named. */
  readonly target?: string;
  /** What was approved, as it is recorded: `run.call(tool, approval.args, { approval })`. */
  readonly args: Args;
}

/** What people are asked. */
export interface ApprovalOptions<Input extends z.ZodType = z.ZodType> extends DeadlineOptions {
  /** Shown to whoever decides, 1 to 4000 characters. */
  readonly what: string;
  /** The tool that shall be called. */
  readonly tool: ToolReference<Input>;
  /** The arguments that the tool will be called with. */
  readonly args: z.input<Input>;
  /** The thing in the world that it is about. Default: what the tool names by its arguments. */
  readonly target?: string | undefined;
  /** Shown to whoever decides: a number as text, and its currency. */
  readonly amount?: { readonly value: string; readonly currency?: string | undefined } | undefined;
  /** Roles of which whoever decides must have one. Default: those of the tool's contract. */
  readonly approvers?: readonly string[] | undefined;
  /** True: not whoever the run acts for. Default: as the tool's contract says, else false. */
  readonly fourEyes?: boolean | undefined;
  /** How often they are reminded. Default: never. */
  readonly remindEvery?: Duration | undefined;
}

export const approvalAsk = (options: ApprovalOptions): WaitAsk<Approval<unknown>> => ({
  kind: 'approval',
  name: options.tool.name,
  begin: (now) => {
    const { what, tool, remindEvery } = options;
    const approvers = options.approvers ?? tool.approval?.approvers;
    if (approvers === undefined) throw new InvalidArguments(`the approval of ${tool.name}@${tool.version} names no approvers, and neither does the tool: give approvers`);
    const wait: Wait = {
      kind: 'approval',
      what,
      scope: scopeOf(options),
      approvers: [...approvers],
      fourEyes: options.fourEyes ?? tool.approval?.fourEyes ?? false,
      ...(remindEvery === undefined ? {} : { remindEveryMs: durationMs(remindEvery, 'remindEvery') }),
    };
    return checked({ wait, ...deadlineOf(options, now) });
  },
  receive: (value, wait, step, by) => {
    if (wait.kind !== 'approval') throw new InvalidPayload(`approval of ${options.tool.name}`, step, `step ${step} is recorded as a wait for a ${wait.kind}`);
    const { tool, args, target } = wait.scope;
    const expiresAt = typeof value === 'object' && value !== null && 'expiresAt' in value && typeof value.expiresAt === 'number' ? value.expiresAt : undefined;
    return Object.freeze({ kind: 'approval', step, by, tool, args, ...(target === undefined ? {} : { target }), ...(expiresAt === undefined ? {} : { expiresAt }) });
  },
});

function scopeOf({ tool, args, target, amount }: ApprovalOptions): ApprovalScope {
  const what = `the arguments of ${tool.name}@${tool.version}`;
  const { value, parsed } = argumentsOf(tool.input, args, what);
  const named = tool.targetOf(parsed);
  if (target !== undefined && named !== undefined && target !== named) throw new InvalidArguments(`the approval of ${tool.name}@${tool.version} is for target "${target}", and its arguments name "${named}"`);
  const about = named ?? target;
  return {
    tool: { name: tool.name, version: tool.version },
    digest: digestOf(material(tool, value)),
    args: value,
    ...(about === undefined ? {} : { target: about }),
    ...(amount === undefined ? {} : { amount: { value: amount.value, ...(amount.currency === undefined ? {} : { currency: amount.currency }) } }),
  };
}

/** Which run, where, and until when. */
export interface ChildOptions extends DeadlineOptions {
  /** Names the child: the same id with the same input is the same run. Default: from the parent and the step. */
  readonly runId?: string | undefined;
  /** The workers that shall run it. Default `default`. */
  readonly pool?: string | undefined;
}

export const childAsk = (agent: AgentReference | Named, input: unknown, parent: { readonly run: RunId; readonly step: Step }, options: ChildOptions): WaitAsk => {
  const schemas = 'input' in agent ? agent : undefined;
  return {
    kind: 'child',
    name: agent.name,
    begin: (now) => {
      const what = `the input of ${agent.name}@${agent.version}`;
      const { value } = argumentsOf(schemas?.input ?? z.unknown(), input, what);
      const wait: Wait = {
        kind: 'child',
        run: parsed(RunId, options.runId ?? childRunId(parent.run, parent.step), 'runId'),
        agent: { name: agent.name, version: agent.version },
        input: value,
        ...(options.pool === undefined ? {} : { pool: parsed(Pool, options.pool, 'pool') }),
      };
      return checked({ wait, ...deadlineOf(options, now) });
    },
    receive: (value, _, step) => (schemas === undefined ? value : fitting(schemas.output, value, `the output of ${agent.name}@${agent.version}`, step)),
  };
};

const RUN_ID_MAX = 200;

/** A child is named by where it stands; a name that would be too long is a digest of it. */
export function childRunId(run: RunId, step: Step): string {
  const id = `${run}/${step}`;
  return id.length <= RUN_ID_MAX ? id : digestOfText(id);
}

/** What the code is told of a wait that ended otherwise than it hoped for. */
export function endError(end: Exclude<WaitEnd, { status: 'satisfied' }>, wait: Wait, step: Step): Error {
  const what = wait.kind === nameOfWait(wait) ? wait.kind : `${wait.kind} ${nameOfWait(wait)}`;
  switch (end.status) {
    case 'rejected':
      return new ApprovalRejected(what, step, end.feedback, end.by);
    case 'expired':
      return new WaitExpired(what, step, end.deadline);
    case 'failed':
      return new ChildFailed(wait.kind === 'child' ? wait.run : what, step, end.failure);
    default:
      return unreachable(end);
  }
}

function argumentsOf(schema: z.ZodType, given: unknown, what: string): { readonly value: Json; readonly parsed: unknown } {
  const { value, bytes } = toJson(given, what);
  if (bytes > INLINE_BYTES_MAX) throw new ValueTooLarge(what, bytes, INLINE_BYTES_MAX);
  const result = schema.safeParse(value);
  if (!result.success) throw new InvalidArguments(`${what} don't fit the schema: ${describeIssues(result.error)}`);
  return { value, parsed: result.data };
}

/** What arrived was checked against the schema of then; the code's schema may be another by now. */
function fitting<Schema extends z.ZodType>(schema: Schema, value: Json, what: string, step: Step): z.output<Schema> {
  const result = schema.safeParse(value);
  if (!result.success) throw new InvalidPayload(what, step, describeIssues(result.error));
  return result.data;
}

/** A wait as the protocol takes it. @throws InvalidArguments naming the member */
function checked(begun: Begun): Begun {
  parsed(StartWait.schema, { step: '1', ...begun }, 'the wait');
  return begun;
}

function parsed<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (!result.success) throw new InvalidArguments(`${what}: ${describeIssues(result.error)}`);
  return result.data;
}

function jsonSchema(schema: z.ZodType, what: string): Json {
  if (typeof schema?.safeParse !== 'function') throw new InvalidArguments(`${what} needs a zod schema of what it brings`);
  return JSON.parse(JSON.stringify(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }))) as Json;
}
