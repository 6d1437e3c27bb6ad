import { describeIssues } from '@holdfast/protocol';
import type { z } from 'zod';
import type { ToolDefinition } from '../define/tool.js';
import { messageOf } from '../errors.js';

/** Schemas with asynchronous parts are the exception; all others cost no turn of the loop. */
export function parse(schema: z.ZodType, value: unknown): z.ZodSafeParseResult<unknown> | Promise<z.ZodSafeParseResult<unknown>> {
  try {
    return schema.safeParse(value);
  } catch (error) {
    if (typeof error === 'object' && error !== null && error.constructor.name === '$ZodAsyncError') return schema.safeParseAsync(value);
    throw error;
  }
}

/** What an effect came to: as its schema reads it, or as it is, with what doesn't fit. */
export interface Judged {
  readonly value: unknown;
  /** Null where it fits the output schema. */
  readonly fault: string | null;
}

/** Holds a result against its tool's output schema. Never rejects. */
export async function judge({ name, version, output }: ToolDefinition, result: unknown): Promise<Judged> {
  let fault: string;
  try {
    const parsed = await parse(output, result);
    if (parsed.success) return { value: parsed.data, fault: null };
    fault = describeIssues(parsed.error);
  } catch (error) {
    fault = messageOf(error);
  }
  return { value: result, fault: `the result does not fit the output schema of ${name}@${version}: ${fault}` };
}
