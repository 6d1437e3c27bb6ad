import { defineAgent, defineTool, type ToolDefinition } from '@holdfast/sdk';
import type { Json } from '@holdfast/protocol';
import type pg from 'pg';
import { z } from 'zod';
import { seeded, seedOf } from './random.js';
import { isPure, toolName } from './task-file.js';

/** How long a tool takes, milliseconds. */
const TOOL_MIN_MS = 20;
const TOOL_MAX_MS = 200;

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

const Result = z.object({ ok: z.boolean(), row: z.string().nullable() });

/** A tool of the task file: takes a seeded while, and writes one row when it changes the world. */
export function worldTool(name: string, world: pg.Pool, seed: number): ToolDefinition {
  return defineTool({
    name: toolName(name),
    version: '1',
    effect: isPure(name) ? 'pure' : 'irreversible',
    input: z.json(),
    output: Result,
    timeout: 10_000,
    queueTimeout: 15_000,
    owner: 'the person who runs the demo',
    execute: async (args, { run, step, operationKey, attempt }) => {
      const chance = seeded(seedOf(`${run}/${step}/${attempt}`, seed));
      const ms = TOOL_MIN_MS + chance() * (TOOL_MAX_MS - TOOL_MIN_MS);
      const before = ms * chance();
      await pause(before);
      const row = isPure(name)
        ? null
        : (await world.query<{ id: string }>('insert into effects (run, step, tool, args, operation_key, at) values ($1, $2, $3, $4, $5, now()) returning id::text', [run, step, name, JSON.stringify(args), operationKey])).rows[0]?.id ?? null;
      await pause(ms - before);
      return { ok: true, row };
    },
  });
}

export const TASK_AGENT = { name: 'task-runner', version: '1' } as const;

/** One task one run, one action one step. `word` stands in for the model that words each call. */
export const taskAgent = (tools: ReadonlyMap<string, ToolDefinition>, word: (run: string, step: number, args: Json) => Json) =>
  defineAgent({
    ...TASK_AGENT,
    input: z.object({ actions: z.array(z.object({ tool: z.string(), args: z.json() })) }),
    output: z.object({ steps: z.number() }),
    run: async (run, { actions }) => {
      for (const [i, { tool, args }] of actions.entries()) await run.call(toolNamed(tools, tool), word(run.id, i + 1, args as Json));
      return { steps: actions.length };
    },
  });

function toolNamed(tools: ReadonlyMap<string, ToolDefinition>, name: string): ToolDefinition {
  const tool = tools.get(name);
  if (tool === undefined) throw new Error(`no tool ${name}`);
  return tool;
}

/** The same wish in other words, as a model that is asked again would say it. */
export const reworded = (args: Json): Json =>
  args !== null && typeof args === 'object' && !Array.isArray(args) ? { ...args, note: 'as discussed, please go ahead' } : { value: args, note: 'as discussed, please go ahead' };
