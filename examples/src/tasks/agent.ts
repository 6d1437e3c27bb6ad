import { applied, defineAgent, defineTool, Failed, notApplied, type ToolDefinition } from '@holdfast/sdk';
import type { Json } from '@holdfast/protocol';
import type pg from 'pg';
import { z } from 'zod';
import { seeded, seedOf } from './random.js';
import { isPure, toolName } from './task-file.js';

/** How long a tool takes, milliseconds. */
const TOOL_MIN_MS = 20;
const TOOL_MAX_MS = 200;
/** An attempt that has not sent its row by then gives up, and one that was sent is in the table or never will be: what `settleDelay` says. */
const SENT_WITHIN_MS = 1000;
const SETTLE_DELAY_MS = 2000;

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

const Result = z.object({ ok: z.boolean(), row: z.string().nullable() });

const INSERT = 'insert into effects (run, step, tool, args, operation_key, at) values ($1, $2, $3, $4, $5, now()) returning id::text';
const READ_BACK = 'select id::text from effects where operation_key = $1 order by id limit 1';

/**
 * A tool of the task file: takes a seeded while, and writes one row when it changes the world. Its
 * probe looks for the row by operation key; a `blind` tool has none, so that a person must look.
 */
export function worldTool(name: string, world: pg.Pool, { seed, blind }: { readonly seed: number; readonly blind: boolean }): ToolDefinition {
  const rowOf = async (operationKey: string): Promise<string | undefined> => (await world.query<{ id: string }>(READ_BACK, [operationKey])).rows[0]?.id;
  return defineTool({
    name: toolName(name),
    version: '1',
    effect: isPure(name) ? 'pure' : 'irreversible',
    input: z.json(),
    output: Result,
    timeout: 10_000,
    queueTimeout: 6000,
    ...(isPure(name) ? {} : { settleDelay: SETTLE_DELAY_MS }),
    // Workers that are killed again and again let many tasks grow too old to fire.
    retry: { attemptsMax: 50, maxMs: 2000 },
    owner: 'the person who runs the demo',
    ...(blind || isPure(name)
      ? {}
      : {
          probe: {
            sealing: false,
            ask: async (_args: unknown, { operationKey }: { operationKey: string }) => {
              const row = await rowOf(operationKey);
              return row === undefined ? notApplied('no row has this operation key') : applied({ ok: true, row }, `row ${row}`);
            },
          },
        }),
    execute: async (args, { run, step, operationKey, attempt }) => {
      const chance = seeded(seedOf(`${run}/${step}/${attempt}`, seed));
      const ms = TOOL_MIN_MS + chance() * (TOOL_MAX_MS - TOOL_MIN_MS);
      const before = ms * chance();
      const calledAt = Date.now();
      await pause(before);
      // A host that was frozen in between must not write what nobody expects any more.
      if (Date.now() > calledAt + SENT_WITHIN_MS) throw new Failed({ class: 'transient', message: 'the attempt was held up before anything was sent', notApplied: true });
      const row = isPure(name) ? null : (await world.query<{ id: string }>(INSERT, [run, step, name, JSON.stringify(args), operationKey])).rows[0]?.id ?? null;
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
