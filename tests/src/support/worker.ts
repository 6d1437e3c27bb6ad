import { defineTool, serve, type ServedWorker, type ServeOptions, type ToolDefinition } from '@holdfast/sdk';
import { LOCAL_SESSION_TIMEOUT_MS } from '@holdfast/deploy';
import type { Json } from '@holdfast/protocol';
import { z } from 'zod';

const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** A worker in this process. */
export function work(brokers: readonly string[], options: Omit<ServeOptions, 'brokers'>): Promise<ServedWorker> {
  return serve({ brokers, log: silent, sessionTimeoutMs: LOCAL_SESSION_TIMEOUT_MS, graceMs: 2000, worker: 'test', ...options });
}

export interface Firing {
  readonly run: string;
  readonly step: string;
  readonly attempt: number;
  readonly args: Json;
}

/** A tool that notes each firing, and answers with its arguments. */
export function countingTool(name: string, effect: 'pure' | 'idempotent' | 'irreversible', firings: Firing[], input: z.ZodType = z.object({ amount: z.number() })): ToolDefinition {
  return defineTool({
    name,
    version: '1',
    effect,
    input,
    output: z.json(),
    owner: 'whoever runs the tests',
    execute: (args, { run, step, attempt }) => {
      firings.push({ run, step, attempt, args: args as Json });
      return args as z.input<z.ZodJSONSchema>;
    },
  });
}
