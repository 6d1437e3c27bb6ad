import { DEFAULT_POOL, type EffectClass, type FailureClass, type Fence, type Json, type OperationKey, type Pool, type Recovery, type RetryPolicy, type RunId, type Step, type ToolContract } from '@holdfast/protocol';
import type { z } from 'zod';
import { InvalidDefinition } from '../errors.js';
import type { Accepted } from './accepted.js';
import { contractOf } from './contract.js';
import type { JsonSchema } from './json.js';
import { refuseUnknown, type MembersOf } from './members.js';
import type { Probe } from './probe.js';

/** What a tool gets besides its arguments: to pass on to the system that it calls. */
export interface ToolContext {
  /** The effect's identity: the same for every attempt. Send it as the target's idempotency key. */
  readonly operationKey: OperationKey;
  /** The how-manieth try, from 1. */
  readonly attempt: number;
  /** Rises whenever the run changes hands; a target that remembers it can refuse an older one. */
  readonly fence: Fence;
  /** When the ledger stops waiting for this attempt, epoch milliseconds. */
  readonly deadline: number;
  /** Aborts at the deadline, and when the worker stops. */
  readonly signal: AbortSignal;
  /** Shows that a long attempt is alive; where the contract says `heartbeat`, more often than that. */
  heartbeat(progress?: Json): void;
  /** The run that calls. */
  readonly run: RunId;
  /** The step of that run at which it calls, `3` or `3.1`. */
  readonly step: Step;
}

/** Where an argument of the compensating call comes from: a JSON Pointer into what was called or what it came to, the effect's operation key, or a value. */
export type Source = { readonly from: 'args' | 'result'; readonly at: string } | { readonly from: 'key' } | { readonly value: Json };

/** How an effect of this tool is answered, when its run is rolled back. Carried out by the compensation service, through the ledger. */
export interface Compensation<Args, Result> {
  /** What answers the effect: a tool with `keyScope` `run`. */
  readonly tool: ToolReference;
  /** The compensating call's arguments, member by member; or computed here, by any worker that serves this tool: from these alone, since it may be asked twice. */
  readonly args: Readonly<Record<string, Source>> | ((args: Args, result: Result) => Json);
  /** Default `reverse`: after what answers every later effect of that order. `independent`: beside others. Or after or before what answers the effects of other tools. */
  readonly order?: 'reverse' | 'independent' | { readonly after?: readonly string[]; readonly before?: readonly string[] } | undefined;
  /** Default `automatic`. Else somebody with one of these roles approves exactly its arguments first. */
  readonly authority?: 'automatic' | { readonly approvers: readonly string[] } | undefined;
  /** What is not done so long after its plan was opened is brought to people, milliseconds. Default 3,600,000. */
  readonly deadline?: number | undefined;
  /** Whom an answer is brought to that is late or has failed. Default: nobody in particular. */
  readonly escalateTo?: string | undefined;
  /** Counts only once the compensating tool's probe has found it. Default: true. */
  readonly verify?: boolean | undefined;
  /** The version that the effect left, in its result at `version`, handed on as the argument `as`: the compensating tool fails with `concurrency_conflict` where somebody changed the thing since, and the effect stands. */
  readonly precondition?: { readonly version: string; readonly as: string } | undefined;
  /** What remains all the same, such as a fee; `amount` points into what the compensation came to. */
  readonly residual?: readonly { readonly what: string; readonly amount?: string }[] | undefined;
  /** The effect's amount, a whole number, may be answered in parts, each handed on as the argument `as`. */
  readonly partial?: { readonly amount: { readonly from: 'args' | 'result'; readonly at: string }; readonly as: string } | undefined;
}

/** Another tool that takes over when this one's attempts are spent. Its result is the call's, and is marked degraded. */
export interface Fallback<Args = unknown, Result = unknown> {
  /** The tool that takes over; it may have a fallback of its own, and none may lead back. */
  readonly tool: ToolReference<z.ZodType, z.ZodType<Result>>;
  /** Its arguments. Default: the same. Must depend on these alone, since a replay asks again. */
  args?(args: Args): Json;
}

/** Who may approve a call: one who has one of these roles. `fourEyes` (default false): and isn't whoever the run acts for. */
export interface ApprovalPolicy {
  /** Roles of which one is needed. */
  readonly approvers: readonly string[];
  /** True: not whoever the run acts for. Default false. */
  readonly fourEyes?: boolean | undefined;
}

/** As much of a tool as calling it needs; the tool itself may live in another worker. */
export interface ToolReference<Input extends z.ZodType = z.ZodType, Output extends z.ZodType = z.ZodType> {
  /** Always `tool`. */
  readonly kind: 'tool';
  /** Names the tool. */
  readonly name: string;
  /** Names one immutable declaration of it. */
  readonly version: string;
  /** What a call does to the world: `pure` reads, `idempotent` may fire again under the same key, `irreversible` fires once. */
  readonly effect: EffectClass;
  /** Whether the operation key stands for this call of this run (`run`), or for the target over all runs (`target`). */
  readonly keyScope: 'run' | 'target';
  /** The zod schema of its arguments. */
  readonly input: Input;
  /** The zod schema of its result. */
  readonly output: Output;
  /** What takes over when its attempts are spent; null: nothing. */
  readonly fallback: Fallback<z.output<Input>, z.output<Output>> | null;
  /** Members of the arguments that digests, and so approvals, cover; undefined: all. */
  readonly material: readonly string[] | undefined;
  /** Who must approve its calls; undefined: nobody. */
  readonly approval: ApprovalPolicy | undefined;
  /** The thing in the world that a call is about; part of the operation key. */
  targetOf(args: z.output<Input>): string | undefined;
}

/** A tool with its code. Its name and version are immutable: a change is a new version. */
export interface ToolDefinition<Input extends z.ZodType = z.ZodType, Output extends z.ZodType = z.ZodType> extends ToolReference<Input, Output> {
  /** How often and when the ledger tries again; the times in milliseconds. */
  readonly retry: RetryPolicy;
  /** How long one attempt may take. */
  readonly timeoutMs: number;
  /** How long a dispatched task may wait for a host. */
  readonly queueMs: number;
  /** How long after its last check a sent request can still take effect; null: nobody knows. */
  readonly settleDelayMs: number | null;
  /** Who settles its unknowns when no probe can; null: nobody was named. */
  readonly owner: string | null;
  /** How long an attempt may show no life; undefined: until its deadline. */
  readonly heartbeatMs: number | undefined;
  /** How many attempts may be under way at once, over all runs and workers; undefined: as many as come. */
  readonly concurrencyMax: number | undefined;
  /** How long the target remembers an operation key; undefined: for ever. */
  readonly targetRemembersKeysForMs: number | undefined;
  /** The tool’s code, as it was declared. */
  execute(args: z.output<Input>, context: ToolContext): Promise<z.input<Output> | Accepted> | z.input<Output> | Accepted;
  /** How it is found out what became of an attempt; null: only people can say. */
  readonly probe: Probe<z.output<Input>, z.input<Output>> | null;
  /** How its effect is answered when a run is rolled back; null: it can’t be. */
  readonly compensate: Compensation<z.output<Input>, z.output<Output>> | null;
  /** What is published on the topic `contracts`. */
  contract(pool: Pool): ToolContract;
}

/** What a tool is called by. */
export interface ReferenceSpec<Input extends z.ZodType, Output extends z.ZodType> {
  /** Names the tool in every version: a letter, then up to 99 of A-Z a-z 0-9 _ . : - */
  readonly name: string;
  /** Names this declaration, for ever: whatever changes in it is a new version. */
  readonly version: string;
  /** `pure`: reads. `idempotent`: the target remembers the key. `irreversible`: fires once. */
  readonly effect: EffectClass;
  /** The zod schema of its arguments. Both its sides must be JSON; so with `output`. */
  readonly input: Input & JsonSchema<Input>;
  /** The zod schema of its result. */
  readonly output: Output & JsonSchema<Output>;
  /** Members of the arguments that the digest covers. Default: all. On a reference as the tool declares it, else approvals don't fit its calls. */
  readonly material?: readonly string[] | undefined;
  /** Whoever calls it needs an approval for exactly its arguments. Such a tool fires only when the ledger grants it. */
  readonly approval?: ApprovalPolicy | undefined;
  /** The contract's fallback; on a reference it says how this agent calls it, and must name the same tool. */
  readonly fallback?: Fallback<z.output<Input>, z.output<Output>> | undefined;
}

/** `target` keys need a target; with `run` keys (the default) it is part of the key where given. */
export type Keyed<Input extends z.ZodType> =
  | { readonly keyScope?: 'run' | undefined; readonly target?: ((args: z.output<Input>) => string) | undefined }
  | { readonly keyScope: 'target'; readonly target: (args: z.output<Input>) => string };

/** What happens to a case that grows old, in milliseconds since it was opened. It is never closed by that. */
export interface Ageing {
  /** The owner is reminded then, and after each further such time. */
  readonly remindAfter?: number | undefined;
  /** The case is brought to others then. Default: never. */
  readonly escalateAfter?: number | undefined;
  /** Whom an escalated case is brought to. */
  readonly escalateTo?: string | undefined;
  /** Role that a verdict needs. Default `operator`. */
  readonly verdictRole?: string | undefined;
}

/** When the ledger sends a target that fails no more than a trickle. */
export interface Breaker {
  /** Failures in a row that open the circuit. Default 5. */
  readonly failures?: number | undefined;
  /** Pause before the first trial, milliseconds; doubles with each that fails. Default 1000. */
  readonly initial?: number | undefined;
  /** The longest pause, milliseconds. Default 60,000. */
  readonly max?: number | undefined;
}

/** What a tool says of itself besides its schemas: its part of the recovery contract. Times in milliseconds. */
export interface ContractSpec {
  /** Default: 5 attempts, from 200 ms on, doubling, 30 s at most, however long that takes (`elapsedMaxMs`). The ledger alone retries. */
  readonly retry?: Partial<RetryPolicy> | undefined;
  /** How long one attempt may take. Default 30,000. */
  readonly timeout?: number | undefined;
  /** How long a dispatched task may wait for a host before it must not fire any more. Default 60,000. */
  readonly queueTimeout?: number | undefined;
  /** Bound on how long after its last check a sent request can still take effect, replicas that are read back included. Default null: none known. */
  readonly settleDelay?: number | null | undefined;
  /** Who settles its unknowns when no probe can. */
  readonly owner?: string | null | undefined;
  /** What happens to a case that grows old. */
  readonly ageing?: Ageing | undefined;
  /** An attempt that shows no life (`context.heartbeat`) for longer than this is treated as lost. Default: only its deadline counts. */
  readonly heartbeat?: number | undefined;
  /** How long the target remembers an operation key: no automatic retry goes beyond it. Default: for ever. */
  readonly targetRemembersKeysFor?: number | undefined;
  /** How many attempts may be under way at once, over all runs and workers. Default: as many as come. */
  readonly concurrency?: number | undefined;
  /** When a target that fails is left alone. */
  readonly breaker?: Breaker | undefined;
  /** How long an effect may wait for a closed circuit or a free place before it fails, unfired. Default 600,000. */
  readonly hold?: number | undefined;
  /** What follows from a failure, where it isn't the default for its class. Nothing makes an irreversible effect fire again without evidence. */
  readonly recovery?: Readonly<Partial<Record<FailureClass, Recovery>>> | undefined;
  /** Once it has happened its run only goes forward: nothing before it, nor it, is compensated. */
  readonly pointOfNoReturn?: boolean | undefined;
}

/** What a tool does, and how it is found out whether it did. */
export interface HostSpec<Input extends z.ZodType, Output extends z.ZodType> extends ContractSpec {
  /**
   * Does the work. Throws `Rejected`, `Failed`, `MayHaveApplied`, `AlreadyDone` or `PartlyApplied` to
   * say what became of it, and returns `accepted(…)` where the target has no end yet; any other throw
   * is an unknown outcome of an irreversible tool, and a transient failure of the others.
   */
  execute(args: z.output<Input>, context: ToolContext): Promise<z.input<Output> | Accepted> | z.input<Output> | Accepted;
  /** How it is found out what became of an attempt. */
  readonly probe?: Probe<z.output<Input>, z.input<Output>> | undefined;
  /** How its effect is answered when a run is rolled back. Default: it can’t be. */
  readonly compensate?: Compensation<z.output<Input>, z.output<Output>> | undefined;
}

/** What `referTool` needs to know of a tool that lives in another worker. */
export type ToolReferenceSpec<Input extends z.ZodType, Output extends z.ZodType> = ReferenceSpec<Input, Output> & Keyed<Input>;
/** What a tool is declared by: its schemas, its part of the recovery contract, and its code. */
export type ToolSpec<Input extends z.ZodType, Output extends z.ZodType> = ToolReferenceSpec<Input, Output> & HostSpec<Input, Output>;

type Any = z.ZodType;
const REFERENCE: MembersOf<ToolReferenceSpec<Any, Any>> = { name: true, version: true, effect: true, input: true, output: true, material: true, approval: true, fallback: true, keyScope: true, target: true };
const CONTRACT: MembersOf<ContractSpec> = {
  retry: true,
  timeout: true,
  queueTimeout: true,
  settleDelay: true,
  owner: true,
  ageing: true,
  heartbeat: true,
  targetRemembersKeysFor: true,
  concurrency: true,
  breaker: true,
  hold: true,
  recovery: true,
  pointOfNoReturn: true,
};
const HOST: MembersOf<HostSpec<Any, Any>> = { ...CONTRACT, execute: true, probe: true, compensate: true };

/**
 * Declares a tool that lives in another worker, so that an agent here can call it.
 * @throws InvalidDefinition naming what is wrong
 */
export function referTool<Input extends z.ZodType, Output extends z.ZodType>(spec: ToolReferenceSpec<Input, Output>): ToolReference<Input, Output> {
  refuseUnknown(`tool ${spec.name}@${spec.version}, which lives in another worker,`, spec, REFERENCE);
  const reference = referenceOf<Input, Output>(spec);
  contractOf(reference, {}, null, DEFAULT_POOL);
  return reference;
}

/**
 * Declares a tool and its code.
 * @throws InvalidDefinition naming what is wrong
 */
export function defineTool<Input extends z.ZodType, Output extends z.ZodType>(spec: ToolSpec<Input, Output>): ToolDefinition<Input, Output> {
  refuseUnknown(`tool ${spec.name}@${spec.version}`, spec, { ...REFERENCE, ...HOST });
  const reference = referenceOf<Input, Output>(spec);
  const declared = contractOf(reference, spec, spec.probe ?? null, DEFAULT_POOL, spec.compensate);
  return {
    ...reference,
    retry: declared.retry,
    timeoutMs: declared.timeoutMs,
    queueMs: declared.queueMs,
    settleDelayMs: declared.settleDelayMs,
    owner: declared.owner,
    heartbeatMs: declared.heartbeatMs,
    concurrencyMax: declared.concurrencyMax,
    targetRemembersKeysForMs: declared.targetRemembersKeysForMs,
    execute: (args, context) => spec.execute(args, context),
    probe: spec.probe ?? null,
    compensate: spec.compensate ?? null,
    contract: (pool) => ({ ...declared, pool }),
  };
}

function referenceOf<Input extends z.ZodType, Output extends z.ZodType>(spec: ToolReferenceSpec<Input, Output>): ToolReference<Input, Output> {
  const { target } = spec;
  if (spec.keyScope === 'target' && typeof target !== 'function') {
    throw new InvalidDefinition(`tool ${spec.name}@${spec.version}: keyScope "target" needs target: (args) => string, which names the thing that one key stands for`);
  }
  return {
    kind: 'tool',
    name: spec.name,
    version: spec.version,
    effect: spec.effect,
    keyScope: spec.keyScope ?? 'run',
    input: spec.input,
    output: spec.output,
    fallback: spec.fallback ?? null,
    material: spec.material,
    approval: spec.approval,
    targetOf: (args) => target?.(args),
  };
}
