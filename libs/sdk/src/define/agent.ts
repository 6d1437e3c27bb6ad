import { AgentContract, DEFAULT_POOL, describeIssues, type Json, type Pool } from '@holdfast/protocol';
import { z } from 'zod';
import { InvalidDefinition } from '../errors.js';
import type { CompletedPartially, Run } from '../run/run.js';
import type { JsonSchema } from './json.js';
import { refuseUnknown, type MembersOf } from './members.js';

/** What an agent's code may return: its output, or as much of it as it got done. */
export type AgentResult<Output extends z.ZodType> = z.input<Output> | CompletedPartially<z.input<Output>>;

/** As much of an agent as asking for a run of it needs; its code may live in other workers. */
export interface AgentReference<Input extends z.ZodType = z.ZodType, Output extends z.ZodType = z.ZodType> {
  /** Names the agent; the same in every version. */
  readonly name: string;
  /** The version whose code shall run. */
  readonly version: string;
  /** The zod schema of what a run is started with. */
  readonly input: Input;
  /** The zod schema of what a run gives. */
  readonly output: Output;
}

/** An agent with its code, as `defineAgent` makes it. */
export interface AgentDefinition<Input extends z.ZodType = z.ZodType, Output extends z.ZodType = z.ZodType> extends AgentReference<Input, Output> {
  /** Always `agent`. */
  readonly kind: 'agent';
  /** Versions whose runs this version can carry on. */
  readonly compatibleWith: readonly string[];
  /** The agent’s code, as it was declared. */
  run(run: Run, input: z.output<Input>): Promise<AgentResult<Output>> | AgentResult<Output>;
  /** What is published on the topic `contracts`. */
  contract(pool: Pool): AgentContract;
}

/** What an agent is declared by. */
export interface AgentSpec<Input extends z.ZodType, Output extends z.ZodType> {
  /** Names the agent in every version: a letter, then up to 99 of A-Z a-z 0-9 _ . : - */
  readonly name: string;
  /** Changes whenever the code may ask for other steps than before. */
  readonly version: string;
  /** The zod schema of what a run is started with. Both its sides must be JSON; so with `output`. */
  readonly input: Input & JsonSchema<Input>;
  /** The zod schema of what the code returns. Checked before it is recorded: what doesn’t fit fails the run with `InvalidOutput`. */
  readonly output: Output & JsonSchema<Output>;
  /** Versions whose open runs this code can carry on: it asks for the same steps, or branches by `run.changed`. Default: none. */
  readonly compatibleWith?: readonly string[] | undefined;
  /** What its runs rest on besides code, by reference: versions, hashes, names; never a secret itself. A resume says what changed while a run waited; with `ask` it goes on only once a person has released it. */
  readonly resume?: AgentContract['resume'];
  /**
   * The agent's code. After a crash it runs again from the start and is given what is recorded, so
   * everything it asks of the world goes through `run`: calls, models, time, chance.
   */
  run(run: Run, input: z.output<Input>): Promise<AgentResult<Output>> | AgentResult<Output>;
}

const AGENT: MembersOf<AgentSpec<z.ZodType, z.ZodType>> = { name: true, version: true, input: true, output: true, compatibleWith: true, resume: true, run: true };

/**
 * Declares an agent.
 * @throws InvalidDefinition naming what is wrong
 */
export function defineAgent<Input extends z.ZodType, Output extends z.ZodType>(spec: AgentSpec<Input, Output>): AgentDefinition<Input, Output> {
  const { name, version } = spec;
  refuseUnknown(`agent ${name}@${version}`, spec, AGENT);
  for (const [point, said] of Object.entries(spec.resume ?? {})) refuseUnknown(`agent ${name}@${version}: resume.${point}`, said, { value: true, onChange: true });
  for (const side of ['input', 'output'] as const) {
    if (typeof spec[side]?.safeParse !== 'function') throw new InvalidDefinition(`agent ${name}@${version}: ${side} is no zod schema`);
  }
  const parsed = AgentContract.safeParse({
    name,
    version,
    pool: DEFAULT_POOL,
    input: jsonSchema(spec.input, 'input'),
    output: jsonSchema(spec.output, 'output'),
    compatibleWith: [...(spec.compatibleWith ?? [])],
    ...(spec.resume === undefined ? {} : { resume: spec.resume }),
  });
  if (!parsed.success) throw new InvalidDefinition(`agent ${name}@${version}: ${describeIssues(parsed.error)}`);
  return {
    kind: 'agent',
    name,
    version,
    input: spec.input,
    output: spec.output,
    compatibleWith: parsed.data.compatibleWith,
    run: (run, input) => spec.run(run, input),
    contract: (pool) => ({ ...parsed.data, pool }),
  };
}

const jsonSchema = (schema: z.ZodType, io: 'input' | 'output'): Json => JSON.parse(JSON.stringify(z.toJSONSchema(schema, { io, unrepresentable: 'any' }))) as Json;
