import { DEFAULT_POOL, DEFAULT_RETRY, describeIssues, ToolContract, type EffectClass, type Fence, type Json, type OperationKey, type Pool, type RetryPolicy, type RunId, type Step } from '@holdfast/protocol';
import { z } from 'zod';
import { InvalidDefinition } from '../errors.js';
import type { JsonSchema } from './json.js';

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
  /** Shows that a long attempt is alive. */
  heartbeat(progress?: Json): void;
  readonly run: RunId;
  readonly step: Step;
}

/** Asks the tool's system of record, by operation key, what became of an attempt. */
export interface Probe<Args> {
  /** True when asking voids earlier attempts at the target, so that "not applied" is final. */
  readonly sealing: boolean;
  /** What it may answer comes with reconciliation; until then it is declared and not asked. */
  ask(args: Args, context: ToolContext): Promise<unknown>;
}

/** The tool that answers an effect of this one, when a run is rolled back. Declared; carried out by the compensation service. */
export interface Compensation<Args, Result> {
  readonly tool: ToolReference;
  args(args: Args, result: Result): Json;
}

/** As much of a tool as calling it needs; the tool itself may live in another worker. */
export interface ToolReference<Input extends z.ZodType = z.ZodType, Output extends z.ZodType = z.ZodType> {
  readonly kind: 'tool';
  readonly name: string;
  readonly version: string;
  readonly effect: EffectClass;
  readonly keyScope: 'run' | 'target';
  readonly input: Input;
  readonly output: Output;
  /** The thing in the world that a call is about; part of the operation key. */
  targetOf(args: z.output<Input>): string | undefined;
}

/** A tool with its code. Its name and version are immutable: a change is a new version. */
export interface ToolDefinition<Input extends z.ZodType = z.ZodType, Output extends z.ZodType = z.ZodType> extends ToolReference<Input, Output> {
  readonly retry: RetryPolicy;
  readonly timeoutMs: number;
  readonly queueMs: number;
  readonly settleDelayMs: number | null;
  readonly owner: string | null;
  readonly material: readonly string[] | undefined;
  execute(args: z.output<Input>, context: ToolContext): Promise<z.input<Output>> | z.input<Output>;
  readonly probe: Probe<z.output<Input>> | null;
  readonly compensate: Compensation<z.output<Input>, z.output<Output>> | null;
  /** What is published on the topic `contracts`. */
  contract(pool: Pool): ToolContract;
}

interface ReferenceSpec<Input extends z.ZodType, Output extends z.ZodType> {
  readonly name: string;
  readonly version: string;
  /** `pure`: reads. `idempotent`: the target remembers the key. `irreversible`: fires once. */
  readonly effect: EffectClass;
  readonly input: Input & JsonSchema<Input>;
  readonly output: Output & JsonSchema<Output>;
}

/** `target` keys need a target; with `run` keys (the default) it is part of the key where given. */
type Keyed<Input extends z.ZodType> =
  | { readonly keyScope?: 'run' | undefined; readonly target?: ((args: z.output<Input>) => string) | undefined }
  | { readonly keyScope: 'target'; readonly target: (args: z.output<Input>) => string };

interface HostSpec<Input extends z.ZodType, Output extends z.ZodType> {
  /** Default: 5 attempts, from 200 ms on, doubling, 30 s at most. The ledger alone retries. */
  readonly retry?: Partial<RetryPolicy> | undefined;
  /** How long one attempt may take, milliseconds. Default 30,000. */
  readonly timeout?: number | undefined;
  /** How long a dispatched task may wait for a host before it must not fire any more, milliseconds. Default 60,000. */
  readonly queueTimeout?: number | undefined;
  /** Bound on how long after its last check a sent request can still take effect, milliseconds. Default null: none known. */
  readonly settleDelay?: number | null | undefined;
  /** Members of the arguments that the digest covers. Default: all. */
  readonly material?: readonly string[] | undefined;
  /** Who settles its unknowns when no probe can. */
  readonly owner?: string | null | undefined;
  /**
   * Does the work. Throws `Rejected`, `Failed` or `MayHaveApplied` to say what became of it; any
   * other throw is an unknown outcome of an irreversible tool, and a transient failure of the others.
   */
  execute(args: z.output<Input>, context: ToolContext): Promise<z.input<Output>> | z.input<Output>;
  readonly probe?: Probe<z.output<Input>> | undefined;
  readonly compensate?: Compensation<z.output<Input>, z.output<Output>> | undefined;
}

export type ToolReferenceSpec<Input extends z.ZodType, Output extends z.ZodType> = ReferenceSpec<Input, Output> & Keyed<Input>;
export type ToolSpec<Input extends z.ZodType, Output extends z.ZodType> = ToolReferenceSpec<Input, Output> & HostSpec<Input, Output>;

/**
 * Declares a tool that lives in another worker, so that an agent here can call it.
 * @throws InvalidDefinition naming what is wrong
 */
export function referTool<Input extends z.ZodType, Output extends z.ZodType>(spec: ToolReferenceSpec<Input, Output>): ToolReference<Input, Output> {
  const reference = referenceOf<Input, Output>(spec);
  checked(spec, contractOf(reference, {}, DEFAULT_POOL));
  return reference;
}

/**
 * Declares a tool and its code.
 * @throws InvalidDefinition naming what is wrong
 */
export function defineTool<Input extends z.ZodType, Output extends z.ZodType>(spec: ToolSpec<Input, Output>): ToolDefinition<Input, Output> {
  const reference = referenceOf<Input, Output>(spec);
  const declared = checked(spec, contractOf(reference, spec, DEFAULT_POOL));
  return {
    ...reference,
    retry: declared.retry,
    timeoutMs: declared.timeoutMs,
    queueMs: declared.queueMs,
    settleDelayMs: declared.settleDelayMs,
    owner: declared.owner,
    material: declared.material,
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
    targetOf: (args) => target?.(args),
  };
}

function contractOf(tool: ToolReference, spec: Partial<HostSpec<z.ZodType, z.ZodType>>, pool: Pool): unknown {
  return {
    name: tool.name,
    version: tool.version,
    pool,
    effect: tool.effect,
    keyScope: tool.keyScope,
    input: jsonSchema(tool, 'input'),
    output: jsonSchema(tool, 'output'),
    ...(spec.material === undefined ? {} : { material: [...spec.material] }),
    retry: { ...DEFAULT_RETRY, ...spec.retry },
    timeoutMs: spec.timeout ?? 30_000,
    queueMs: spec.queueTimeout ?? 60_000,
    settleDelayMs: spec.settleDelay ?? null,
    probe: spec.probe === undefined ? null : { sealing: spec.probe.sealing },
    owner: spec.owner ?? null,
  };
}

/** The input as callers write it, the output as callers read it. What JSON Schema can't say is left open. */
function jsonSchema(tool: ToolReference, side: 'input' | 'output'): Json {
  const schema = side === 'input' ? tool.input : tool.output;
  if (typeof schema?.safeParse !== 'function') throw new InvalidDefinition(`tool ${tool.name}@${tool.version}: ${side} is no zod schema`);
  return JSON.parse(JSON.stringify(z.toJSONSchema(schema, { io: side, unrepresentable: 'any' }))) as Json;
}

function checked(spec: { readonly name: string; readonly version: string }, contract: unknown): ToolContract {
  const parsed = ToolContract.safeParse(contract);
  if (!parsed.success) throw new InvalidDefinition(`tool ${spec.name}@${spec.version}: ${describeIssues(parsed.error)}`);
  return parsed.data;
}
